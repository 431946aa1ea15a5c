// SPDX-License-Identifier: Apache-2.0
#include "conformance/relations.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "conformance/compare.h"
#include "conformance/reference.h"

namespace sluice::core::conformance {
namespace {

using Findings = std::vector<std::string>;
using Tensors = std::vector<Tensor>;

// Elements [first, first + elements) of a tensor; whole groups, where they share scales.
Tensor part(const Tensor& whole, int64_t first, int64_t elements) {
  const NumberFormat own(whole.format.type);
  const auto begin = whole.bytes.begin() + own.bytes(first);
  const int64_t kept = whole.format.padded(elements);
  Tensor out{whole.format, {begin, begin + own.bytes(kept)}};
  if (whole.format.block == 0) return out;
  const auto scales =
      whole.bytes.begin() + whole.elements() + first / whole.format.block * size_of(whole.format.scale);
  out.bytes.insert(out.bytes.end(), scales, scales + kept / whole.format.block * size_of(whole.format.scale));
  return out;
}
void put_part(Tensor& whole, int64_t first, const Tensor& values) {
  std::copy(values.bytes.begin(), values.bytes.end(),
            whole.bytes.begin() + first * size_of(whole.format.type));
}

// Runs an op, or adds to the findings and returns nothing.
Tensors run(Harness& harness, const Op& op, Tensors operands, Findings& findings) {
  Result<Tensors> result = harness.run(op, std::move(operands));
  if (result.ok()) return std::move(*result);
  findings.push_back(fmt::format("{}: {}", to_text(op), result.message()));
  return {};
}

// A sequence of kChunks chunks of kChunk tokens.
constexpr int64_t kChunks = 3, kChunk = 20, kTokens = kChunks * kChunk;

// Attention over the whole sequence at once, and its operands chunk by chunk.
class Sequence {
 public:
  explicit Sequence(const AttnShape& shape, const Data& data)
      : s_(shape), given_(make_operands(AttnBwd{shape, DType::F32, false, false}, data)) {
    // The global output and log-sum-exp that the backward needs.
    const AttnFwd forward{shape, shape.dtype, false};
    const Tensor o = make_tensor(shape.dtype, q().elements()),
                 lse = make_tensor(DType::F32, kTokens * s_.q_heads);
    for (const Expected& e : reference(forward, Tensors{q(), kv(), pos(), o, lse})) {
      Tensor& target = given_[e.operand == AttnFwd::kO ? AttnBwd::kO : AttnBwd::kLse];
      for (size_t i = 0; i < e.values.size(); ++i) target.set(static_cast<int64_t>(i), e.values[i].value);
    }
  }

  // One AttnFwd after the other: the diagonal block, then the earlier ones.
  Findings forward(Harness& harness) const {
    Findings findings;
    Tensor o = make_tensor(DType::F32, q().elements()), lse = make_tensor(DType::F32, kTokens * s_.q_heads);
    for (int64_t c = 0; c < kChunks; ++c) {
      Tensor o_chunk = make_tensor(DType::F32, q_elements()),
             lse_chunk = make_tensor(DType::F32, kChunk * s_.q_heads);
      for (int64_t b = c; b >= 0 && block(c, b).is_in_window(); --b) {
        Tensors out = run(harness, AttnFwd{block(c, b), DType::F32, b < c},
                          {q_part(q(), c), kv_part(kv(), b), pos_part(c), o_chunk, lse_chunk}, findings);
        if (out.empty()) return findings;
        o_chunk = out[AttnFwd::kO], lse_chunk = out[AttnFwd::kLse];
      }
      put_part(o, c * q_elements(), o_chunk);
      put_lse(lse, c, lse_chunk);
    }
    const AttnFwd dense{s_, DType::F32, false};
    judge(dense, Tensors{q(), kv(), pos(), o, lse}, findings);
    return findings;
  }

  // One AttnBwd per chunk and block at or before it; dq adds up over blocks, dkv over chunks.
  Findings backward(Harness& harness) const {
    Findings findings;
    Tensor dq = make_tensor(DType::F32, q().elements()), dkv = make_tensor(DType::F32, kv().elements());
    for (int64_t c = kChunks - 1; c >= 0; --c) {
      for (int64_t b = c; b >= 0 && block(c, b).is_in_window(); --b) {
        const Tensors out =
            run(harness,
                AttnBwd{block(c, b), DType::F32, b < c, c < kChunks - 1 && block(c + 1, b).is_in_window()},
                {q_part(q(), c), kv_part(kv(), b), pos_part(c), q_part(given_[AttnBwd::kO], c), lse_part(c),
                 q_part(given_[AttnBwd::kDo], c), q_part(dq, c), kv_part(dkv, b)},
                findings);
        if (out.empty()) return findings;
        put_part(dq, c * q_elements(), out[AttnBwd::kDq]);
        put_part(dkv, b * kv_elements(), out[AttnBwd::kDkv]);
      }
    }
    Tensors all = given_;
    all[AttnBwd::kDq] = dq, all[AttnBwd::kDkv] = dkv;
    judge(AttnBwd{s_, DType::F32, false, false}, all, findings);
    return findings;
  }

 private:
  const Tensor& q() const { return given_[AttnBwd::kQ]; }
  const Tensor& kv() const { return given_[AttnBwd::kKv]; }
  const Tensor& pos() const { return given_[AttnBwd::kPos]; }
  int64_t q_elements() const { return kChunk * s_.q_heads * s_.head_dim; }
  int64_t kv_elements() const { return kChunk * 2 * s_.kv_heads * s_.head_dim; }

  Tensor q_part(const Tensor& whole, int64_t c) const { return part(whole, c * q_elements(), q_elements()); }
  Tensor kv_part(const Tensor& whole, int64_t b) const {
    return part(whole, b * kv_elements(), kv_elements());
  }
  Tensor pos_part(int64_t c) const { return part(pos(), c * kChunk, kChunk); }

  // lse is [heads, tokens]: a chunk's is a column block of the sequence's.
  Tensor lse_part(int64_t c) const {
    Tensor chunk = make_tensor(DType::F32, kChunk * s_.q_heads);
    for (int64_t h = 0; h < s_.q_heads; ++h) {
      put_part(chunk, h * kChunk, part(given_[AttnBwd::kLse], h * kTokens + c * kChunk, kChunk));
    }
    return chunk;
  }
  void put_lse(Tensor& whole, int64_t c, const Tensor& chunk) const {
    for (int64_t h = 0; h < s_.q_heads; ++h) {
      put_part(whole, h * kTokens + c * kChunk, part(chunk, h * kChunk, kChunk));
    }
  }

  AttnShape block(int64_t c, int64_t b) const {
    AttnShape shape = s_;
    shape.q_len = shape.kv_len = kChunk;
    shape.distance = (c - b) * kChunk;
    return shape;
  }

  // Compares with the dense op. A result that comes about in kChunks blocks is within kChunks times the bound
  // of one, and the merges or additions are once more as many roundings.
  static void judge(const Op& dense, const Tensors& got, Findings& findings) {
    for (Expected expected : reference(dense, got)) {
      for (Approx& a : expected.values) {
        a.bound *= kChunks + 1;
        a.variance *= square(kChunks + 1);
      }
      const auto i = static_cast<size_t>(expected.operand);
      const Findings more = compare(operands(dense)[i].name, got[i], expected).findings;
      findings.insert(findings.end(), more.begin(), more.end());
    }
  }

  AttnShape s_;
  Tensors given_;  // of AttnBwd over the whole sequence
};

void add_attention(std::vector<Relation>& all, DType dtype, bool packed, int64_t window) {
  const AttnShape shape{1, kTokens, kTokens, 4, 2, 16, 0, packed, dtype, window};
  Data data;
  // Boundaries inside a chunk, at the edge of one, and a document that spans three.
  if (packed) data.documents = {0, 7, 2 * kChunk};
  const std::string name =
      fmt::format("{}{}{}", name_of(dtype), packed ? "_packed" : "", window > 0 ? "_window" : "");
  all.push_back({"attn_fwd_in_blocks_is_dense_" + name, AttnFwd{shape, dtype, false},
                 [=](Harness& harness) { return Sequence(shape, data).forward(harness); }});
  all.push_back({"attn_bwd_in_blocks_is_dense_" + name, AttnBwd{shape, dtype, false, false},
                 [=](Harness& harness) { return Sequence(shape, data).backward(harness); }});
}

Findings same_swiglu(Harness& harness, DType dtype, GateActivation activation) {
  Findings findings;
  const SwigluBwd backward{33, 72, dtype, activation};
  const Tensors back = run(harness, backward, make_operands(backward, {}), findings);
  if (back.empty()) return findings;
  const Tensor& gu = back[SwigluBwd::kGu];
  const Tensors fore = run(harness, Swiglu{33, 72, dtype, activation}, {gu, back[SwigluBwd::kY]}, findings);
  if (fore.empty()) return findings;
  if (fore[Swiglu::kY].bytes != back[SwigluBwd::kY].bytes) findings.emplace_back("y differs");
  return findings;
}

// A token's row of a product of 8 bits, beside others that are a thousand times as large. A scale for all of
// them would show it.
constexpr Quantize kCopies{32, 64, DType::BF16, kFloat8, true, false};
Findings same_beside_others(Harness& harness) {
  Findings findings;
  Linear op{.tokens = kCopies.rows, .in = kCopies.cols, .out = 48, .dtype = DType::BF16};
  op.x_format = op.weight_format = kFloat8.over(op.in);
  const Tensors given = make_operands(op, {});
  const std::vector<double> alike = given[Linear::kX].values();
  std::vector<double> loud = alike;
  const size_t half = alike.size() / 2;
  for (size_t i = half; i < loud.size(); ++i) loud[i] *= 1000;
  std::vector<std::byte> rows[2];
  for (const bool louder : {false, true}) {
    const Tensor x = make_tensor(DType::BF16, louder ? loud : alike);
    const Tensors copies = run(harness, kCopies, {x, given[Linear::kX]}, findings);
    if (copies.empty()) return findings;
    const Tensors out =
        run(harness, op, {copies[Quantize::kY], given[Linear::kW], given[Linear::kY]}, findings);
    if (out.empty()) return findings;
    rows[louder] = out[Linear::kY].bytes;
  }
  const auto middle = long(rows[0].size() / 2);
  if (!std::equal(rows[0].begin(), rows[0].begin() + middle, rows[1].begin()))
    findings.emplace_back("tokens beside louder ones differ");
  if (std::equal(rows[0].begin() + middle, rows[0].end(), rows[1].begin() + middle))
    findings.emplace_back("louder tokens do not");
  return findings;
}

// An op that is `narrow` writes what Quantize makes of what it writes without.
template <class O>
void add_narrow(std::vector<Relation>& all, O op, const Data& data = {}) {
  O narrow = op;
  narrow.narrow = true;
  const auto same = [=](Harness& harness) {
    Findings findings;
    const Operands schema = op.operands();
    const Tensors given = make_operands(narrow, data);
    Tensors before;
    for (size_t i = 0; i < schema.size(); ++i)
      before.push_back(schema[i].access == Access::Read ? given[i]
                                                        : make_tensor(schema[i].format, schema[i].elements));
    const Tensors got = run(harness, narrow, given, findings), values = run(harness, op, before, findings);
    for (const NarrowResult& result : op.narrow_results()) {
      if (!findings.empty()) return findings;
      Tensors operands{values[size_t(result.wide)]};
      if (result.op.by_row) operands.push_back(given[size_t(result.by_row)]);
      if (result.op.by_column) operands.push_back(given[size_t(result.turned)]);
      const Tensors copies = run(harness, result.op, std::move(operands), findings);
      if (copies.empty()) return findings;
      if (result.op.by_row && copies[Quantize::kY].bytes != got[size_t(result.by_row)].bytes)
        findings.push_back(fmt::format("{} by row differs", schema[size_t(result.wide)].name));
      if (result.op.by_column && copies[result.op.turned_operand()].bytes != got[size_t(result.turned)].bytes)
        findings.push_back(fmt::format("{} by column differs", schema[size_t(result.wide)].name));
    }
    return findings;
  };
  all.push_back({fmt::format("{}_is_its_copies_{}", O::kName, all.size()), narrow, same});
}

// Updates of all bf16, which round stochastically.
template <class Update>
Update bf16_update(Update op, int64_t elements, MasterWeights master) {
  op.elements = elements, op.object = 5, op.master = master, op.stochastic = true;
  op.dtype = op.grad_dtype = op.state_dtype = DType::BF16;
  return op;
}
constexpr AdamW kAdamW{.beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-8f, .weight_decay = 0.1f};
// Without weight decay, so that their state can be updated alone.
constexpr SgdMomentum kSgdMomentum{.momentum = 0.9f}, kNesterov{.momentum = 0.9f, .nesterov = true};
constexpr Lion kLion{.beta1 = 0.9f, .beta2 = 0.99f, .weight_decay = 0.1f};

template <class Update>
Findings same_in_parts(Harness& harness, Update op) {
  Findings findings;
  constexpr int64_t kElements = 1000;
  const int64_t kCut = op.state_dtype == DType::I8 ? 352 : 333;
  const Operands schema = operands(op);
  const Tensors before = make_operands(op, {}), whole = run(harness, op, before, findings);
  for (const auto& [first, elements] : {std::pair{int64_t{0}, kCut}, std::pair{kCut, kElements - kCut}}) {
    Update half = op;
    half.first = first, half.elements = elements;
    Tensors mine;
    for (size_t i = 0; i < before.size(); ++i) {
      const bool shared = i == Update::kClip || i == Update::kArgs;
      mine.push_back(shared ? before[i] : part(before[i], first, elements));
    }
    const Tensors after = run(harness, half, mine, findings);
    if (!findings.empty()) return findings;
    for (size_t i = 0; i < schema.size(); ++i) {
      if (schema[i].access == Access::Read || after[i].bytes == part(whole[i], first, elements).bytes)
        continue;
      findings.push_back(fmt::format("{} differs from element {} on", schema[i].name, first));
    }
  }
  return findings;
}

// The weights now and the state later are the whole update.
template <class Update>
Findings same_in_two_steps(Harness& harness, Update op) {
  Findings findings;
  op.moments = true;
  const Operands schema = operands(op);
  const Tensors before = make_operands(op, {}), whole = run(harness, op, before, findings);
  op.moments = false;
  Tensors parts = run(harness, op, before, findings);
  // Gradient, state, clip scale and arguments follow each other in both ops.
  const Tensors rest(before.begin() + Update::kG, before.begin() + Update::kArgs + 1);
  const Tensors state = run(harness, state_of(op), rest, findings);
  if (!findings.empty()) return findings;
  for (size_t i = Update::kM; i < Update::kClip; ++i) parts[i] = state[i - Update::kG];
  for (size_t i = 0; i < schema.size(); ++i) {
    if (schema[i].access == Access::Read) continue;
    if (parts[i].bytes != whole[i].bytes) findings.push_back(fmt::format("{} differs", schema[i].name));
    if (whole[i].bytes == before[i].bytes) {
      findings.push_back(fmt::format("{} was not updated", schema[i].name));
    }
  }
  return findings;
}

template <class Update>
Findings p_rounds_master(Harness& harness, const Update& op) {
  Findings findings;
  const Tensors after = run(harness, op, make_operands(op, {}), findings);
  if (after.empty()) return findings;
  if (make_tensor(DType::BF16, after[Update::kMaster].values()).bytes != after[Update::kP].bytes) {
    findings.emplace_back("p is not the master rounded to nearest");
  }
  return findings;
}

// The two bfloat16 values around x, which are the same when x is one.
struct Neighbours {
  double below, above;
};
Neighbours neighbours(double x) {
  const int exponent = std::ilogb(x);
  const double ulp = std::ldexp(1.0, exponent - 7);
  return {std::floor(x / ulp) * ulp, std::ceil(x / ulp) * ulp};
}

// Independent of ops/rounding.h. The rounding of a magnitude x between a < x < b is b with probability
// f = (x - a) / (b - a): its error in units of b - a has mean 0 and variance f (1 - f).
Findings unbiased(Harness& harness, const auto& op) {
  Findings findings;
  const Tensors before = make_operands(op, {}), after = run(harness, op, before, findings);
  if (after.empty()) return findings;
  for (const Expected& expected : reference(op, before)) {
    const auto k = static_cast<size_t>(expected.operand);
    double errors = 0, variance = 0, uncertainty = 0;
    for (int64_t i = 0; i < op.elements; ++i) {
      const Approx& x = expected.values[static_cast<size_t>(i)];
      const double got = after[k].at(i), magnitude = std::abs(x.value);
      const auto [below, above] = neighbours(magnitude);
      const double rounded = std::copysign(1.0, x.value) * got;
      if (rounded < below - x.bound || rounded > above + x.bound) {
        findings.push_back(
            fmt::format("{}[{}] is {:.9g}, no neighbour of {:.9g}", operands(op)[k].name, i, got, x.value));
        return findings;
      }
      if (below == above) continue;
      const double fraction = (magnitude - below) / (above - below);
      errors += (rounded - magnitude) / (above - below);
      variance += fraction * (1 - fraction);
      uncertainty += x.bound / (above - below);
    }
    if (std::abs(errors) > 5 * std::sqrt(variance) + uncertainty) {
      findings.push_back(fmt::format("{}: mean error of {} roundings is {:.3g} units, sigma {:.3g}",
                                     operands(op)[k].name, op.elements, errors / double(op.elements),
                                     std::sqrt(variance) / double(op.elements)));
    }
  }
  return findings;
}

template <class Update>
void add_update(std::vector<Relation>& all, std::string_view name, const Update& op) {
  const auto add = [&](std::string_view what, const Update& example, auto check) {
    all.push_back({fmt::format("{}_{}", name, what), example,
                   [=](Harness& harness) { return check(harness, example); }});
  };
  const auto parts = [](Harness& harness, const Update& whole) { return same_in_parts(harness, whole); };
  const auto two_steps = [](Harness& harness, const Update& whole) {
    return same_in_two_steps(harness, whole);
  };
  Update small = bf16_update(op, 1000, MasterWeights::F32);
  add("in_parts_is_whole", small, parts);
  small.state_dtype = DType::I8;
  add("in_parts_is_whole_compact", small, parts);
  small.master = MasterWeights::I8;
  add("in_parts_is_whole_compact_master", small, parts);
  // More elements than one task or block takes, not a multiple of any vector.
  Update large = bf16_update(op, 40'003, MasterWeights::Off);
  add("in_two_steps_is_whole_bf16_stochastic", large, two_steps);
  large.first = 3;
  add("in_two_steps_is_whole_bf16_stochastic_odd", large, two_steps);
  large.state_dtype = DType::F32, large.grad_dtype = DType::F32;
  add("in_two_steps_is_whole_bf16_stochastic_f32_state", large, two_steps);
  large.master = MasterWeights::F32, large.stochastic = false;
  add("in_two_steps_is_whole_master", large, two_steps);
  large.master = MasterWeights::I8;
  add("in_two_steps_is_whole_compact_master", large, two_steps);
  large.master = MasterWeights::Off, large.dtype = DType::F32;
  add("in_two_steps_is_whole_f32", large, two_steps);
  large.state_dtype = DType::I8;
  add("in_two_steps_is_whole_f32_compact", large, two_steps);
  large.dtype = large.grad_dtype = DType::BF16, large.stochastic = true;
  add("in_two_steps_is_whole_bf16_stochastic_compact", large, two_steps);
  add("p_rounds_master", bf16_update(op, 1000, MasterWeights::F32),
      [](Harness& harness, const Update& whole) { return p_rounds_master(harness, whole); });
  add("stochastic_rounding_is_unbiased", bf16_update(op, 1 << 15, MasterWeights::Off),
      [](Harness& harness, const Update& whole) { return unbiased(harness, whole); });
}

// Sizes of a grouped product: more experts than one group, and nothing that is a whole number of blocks.
constexpr Mixture kExperts{60, 6, 2};
constexpr ExpertGroup kAllExperts{0, 6};
constexpr int64_t kExpertIn = 72, kExpertOut = 56;

// Of GroupedLinear or GroupedDgrad.
template <class Product>
struct Grouped;
template <>
struct Grouped<GroupedLinear> {
  static constexpr int kResult = GroupedLinear::kY;
  static constexpr int64_t kFrom = kExpertIn, kTo = kExpertOut;
};
template <>
struct Grouped<GroupedDgrad> {
  static constexpr int kResult = GroupedDgrad::kDx;
  static constexpr int64_t kFrom = kExpertOut, kTo = kExpertIn;
};

Tensor weights_of(const Tensor& all, const ExpertGroup& group) {
  return part(all, group.first * kExpertOut * kExpertIn, group.count * kExpertOut * kExpertIn);
}

// Experts in three groups, one after the other, write what all of them write at once.
constexpr ExpertGroup kGroups[] = {{0, 1}, {1, 3}, {4, 2}};

template <class Product>
Findings same_in_groups(Harness& harness, Product op) {
  Findings findings;
  const Tensors before = make_operands(op, {});
  const Tensors whole = run(harness, op, before, findings);
  Tensors operands = before;
  for (const ExpertGroup& group : kGroups) {
    op.group = group, op.accumulate = group.first > 0;
    operands[1] = weights_of(before[1], group);
    operands = run(harness, op, operands, findings);
    if (!findings.empty()) return findings;
  }
  if (operands[Grouped<Product>::kResult].bytes != whole[Grouped<Product>::kResult].bytes)
    findings.emplace_back("groups of experts differ from all at once");
  return findings;
}
Findings same_in_groups(Harness& harness, GroupedWgrad op) {
  Findings findings;
  Tensors operands = make_operands(op, {});
  const Tensors whole = run(harness, op, operands, findings);
  for (const ExpertGroup& group : kGroups) {
    op.group = group;
    operands[GroupedWgrad::kDw] = make_tensor(op.grad_dtype, group.count * kExpertOut * kExpertIn);
    const Tensors out = run(harness, op, operands, findings);
    if (!findings.empty()) return findings;
    if (out[GroupedWgrad::kDw].bytes != weights_of(whole[GroupedWgrad::kDw], group).bytes)
      findings.push_back(fmt::format("experts from {} on differ", group.first));
  }
  return findings;
}

// Chunks of a batch have the rows of the whole, whichever others their experts have there.
template <class Product>
Findings same_in_chunks(Harness& harness, Product op) {
  Findings findings;
  constexpr int64_t kCut = 23, kTo = Grouped<Product>::kTo;
  const Tensors choices = make_operands(SortByExpert{kExperts}, {});
  const Tensors all = make_operands(op, {});
  // Of each choice, the row of its expert's result.
  const auto results = [&](int64_t first, int64_t tokens) {
    const Mixture m{tokens, kExperts.experts, kExperts.top_k};
    const RoutingLayout layout{m.experts, m.rows()};
    const Tensors sorted = run(harness, SortByExpert{m},
                               {part(choices[SortByExpert::kChosen], first * m.top_k, m.rows()),
                                make_tensor(DType::I32, layout.elements())},
                               findings);
    std::vector<Tensor> rows;
    if (sorted.empty()) return rows;
    Product mine = op;
    mine.mixture = m;
    constexpr int64_t kFrom = Grouped<Product>::kFrom;
    const Tensors out = run(harness, mine,
                            {part(all[0], first * kFrom, tokens * kFrom), all[1],
                             sorted[SortByExpert::kRouting], make_tensor(op.dtype, m.rows() * kTo)},
                            findings);
    if (out.empty()) return rows;
    for (int64_t c = 0; c < m.rows(); ++c) {
      const auto row = int64_t(sorted[SortByExpert::kRouting].at(layout.row() + c));
      rows.push_back(part(out[Grouped<Product>::kResult], row * kTo, kTo));
    }
    return rows;
  };
  const std::vector<Tensor> whole = results(0, kExperts.tokens);
  std::vector<Tensor> chunks = results(0, kCut);
  for (Tensor& row : results(kCut, kExperts.tokens - kCut)) chunks.push_back(std::move(row));
  if (!findings.empty()) return findings;
  for (size_t c = 0; c < whole.size(); ++c) {
    if (whole[c].bytes != chunks[c].bytes) findings.push_back(fmt::format("the row of choice {} differs", c));
  }
  return findings;
}

// Of experts without rows no weight is read: whatever lies there instead changes nothing. Of few tokens, and
// of many that all choose the first two experts.
Findings reads_chosen_alone(Harness& harness, GroupedLinear op) {
  Findings findings;
  for (const auto& [tokens, first_alone] : {std::pair(int64_t{1}, false), {2, false}, {60, true}}) {
    const Mixture m{tokens, kExperts.experts, kExperts.top_k};
    op.mixture = m;
    Tensors choices = make_operands(SortByExpert{m}, {});
    for (int64_t c = 0; first_alone && c < m.rows(); ++c)
      choices[SortByExpert::kChosen].set(c, double(c % m.top_k));
    const Tensors sorted = run(harness, SortByExpert{m}, choices, findings);
    if (sorted.empty()) return findings;
    Tensors operands = make_operands(op, {});
    operands[GroupedLinear::kRouting] = sorted[SortByExpert::kRouting];
    const Tensors whole = run(harness, op, operands, findings);
    constexpr int64_t kOfExpert = kExpertOut * kExpertIn;
    int64_t spoilt = 0;
    for (int64_t e = 0; e < m.experts; ++e) {
      const auto begin = [&](int64_t i) { return operands[GroupedLinear::kRouting].at(i); };
      if (begin(e) != begin(e + 1)) continue;
      for (int64_t i = 0; i < kOfExpert; ++i)
        operands[GroupedLinear::kW].set(e * kOfExpert + i, std::numeric_limits<double>::quiet_NaN());
      ++spoilt;
    }
    const Tensors spoiled = run(harness, op, operands, findings);
    if (!findings.empty()) return findings;
    if (spoilt == 0) findings.push_back(fmt::format("{} tokens chose all experts", tokens));
    if (spoiled[GroupedLinear::kY].bytes != whole[GroupedLinear::kY].bytes)
      findings.push_back(
          fmt::format("with {} tokens, weights of experts without rows are in the result", tokens));
  }
  return findings;
}

void add_experts(std::vector<Relation>& all, DType dtype) {
  const auto add = [&](std::string_view what, const auto& op, auto check) {
    all.push_back({fmt::format("{}_{}", what, name_of(dtype)), op,
                   [=](Harness& harness) { return check(harness, op); }});
  };
  const auto groups = [](Harness& harness, const auto& op) { return same_in_groups(harness, op); };
  const auto chunks = [](Harness& harness, const auto& op) { return same_in_chunks(harness, op); };
  const GroupedLinear linear{kExperts, kAllExperts, kExpertIn, kExpertOut, dtype, true, false};
  const GroupedDgrad dgrad{kExperts, kAllExperts, kExpertIn, kExpertOut, dtype, true, false};
  add("grouped_linear_in_groups_is_whole", linear, groups);
  add("grouped_dgrad_in_groups_is_whole", dgrad, groups);
  add("grouped_wgrad_in_groups_is_whole",
      GroupedWgrad{kExperts, kAllExperts, kExpertIn, kExpertOut, dtype, dtype, false, true, false}, groups);
  add("grouped_linear_in_chunks_is_whole", linear, chunks);
  add("grouped_linear_reads_chosen_experts_alone", linear,
      [](Harness& harness, const GroupedLinear& op) { return reads_chosen_alone(harness, op); });
  add("grouped_dgrad_in_chunks_is_whole", dgrad, chunks);
}

// Documents that are shorter and longer than a block, one of them of a block's tokens, have in a chunk the
// bits of themselves alone. A state that goes on where it should not changes them.
constexpr int64_t kDocuments[] = {37, 1, 64, 130, 68}, kOfDocuments = 300;

template <class Rule>
Findings same_alone(Harness& harness, Rule op) {
  Findings findings;
  const Operands schema = operands(op);
  Tensors row = make_operands(op, {});
  const auto tokens_of = [&](const Tensors& all, size_t i, int64_t first, int64_t count) {
    if (schema[i].values == Values::Weights) return all[i];
    const int64_t each = all[i].elements() / op.tokens;
    return part(all[i], first * each, count * each);
  };
  int64_t first = 0;
  for (const int64_t length : kDocuments) {
    for (int64_t t = 0; t < length; ++t) row[Rule::kPos].set(first + t, double(t));
    first += length;
  }
  const Tensors packed = run(harness, op, row, findings);
  first = 0;
  for (const int64_t length : kDocuments) {
    Rule alone = op;
    alone.tokens = length;
    Tensors mine, leaky_row = row;
    for (size_t i = 0; i < row.size(); ++i) mine.push_back(tokens_of(row, i, first, length));
    mine = run(harness, alone, mine, findings);
    leaky_row[Rule::kPos].set(first, kDeltaBlock);
    const Tensors leaky = run(harness, op, leaky_row, findings);
    if (!findings.empty()) return findings;
    for (size_t i = 0; i < schema.size(); ++i) {
      if (schema[i].access == Access::Read) continue;
      const Tensor here = tokens_of(packed, i, first, length);
      if (here.bytes != mine[i].bytes)
        findings.push_back(fmt::format("{} of {} tokens from {} on differs", schema[i].name, length, first));
      if (first > 0 && here.bytes == tokens_of(leaky, i, first, length).bytes)
        findings.push_back(fmt::format("{} does not see a state that leaks into {}", schema[i].name, first));
    }
    first += length;
  }
  return findings;
}

}  // namespace

std::vector<Relation> all_relations() {
  std::vector<Relation> all;
  for (const DType dtype : {DType::F32, DType::BF16}) {
    // A window that ends within the block before, so that the first chunk's is out of the last one's sight.
    for (const int64_t window : {int64_t{0}, kChunk - 5}) {
      add_attention(all, dtype, false, window);
      add_attention(all, dtype, true, window);
    }
    for (const auto& [gate, activation] :
         {std::pair("swiglu", GateActivation::Silu), {"geglu", GateActivation::GeluTanh}}) {
      all.push_back({fmt::format("{0}_bwd_writes_y_of_{0}_{1}", gate, name_of(dtype)),
                     Swiglu{33, 72, dtype, activation},
                     [=](Harness& harness) { return same_swiglu(harness, dtype, activation); }});
    }
  }
  for (const DType dtype : {DType::F32, DType::BF16}) add_experts(all, dtype);
  for (const DType dtype : {DType::F32, DType::BF16}) {
    const auto add = [&](const auto& op) {
      all.push_back({fmt::format("{}_of_documents_is_that_of_each_{}", op.kName, name_of(dtype)), op,
                     [=](Harness& harness) { return same_alone(harness, op); }});
    };
    constexpr DeltaSizes kSizes{2, 4, 24, 8};
    add(DeltaRule{kOfDocuments, kSizes, dtype});
    add(DeltaRuleBwd{kOfDocuments, kSizes, dtype});
    add(ShortConv{kOfDocuments, 24, 4, dtype, false, false, true});
  }
  all.push_back({"products_of_quantized_tokens_see_no_others", kCopies, same_beside_others});
  for (const int64_t dim : {24, 208, 2056, 4104}) {
    add_narrow(all, RmsNorm{dim < 1000 ? 144 : 16, dim, 1e-5f, DType::BF16, 1, 0.5f});
    if (dim > 1000) continue;
    for (const GateActivation activation : {GateActivation::Silu, GateActivation::GeluTanh}) {
      for (const float limit : {0.0f, 0.5f}) {
        add_narrow(all, Swiglu{33, dim, DType::BF16, activation, false, limit});
        add_narrow(all, SwigluBwd{144, dim, DType::BF16, activation, false, limit});
      }
    }
    add_narrow(all, Swiglu{33, dim, DType::BF16, GateActivation::Gelu, true});
    add_narrow(all, SwigluBwd{272, dim, DType::BF16, GateActivation::Gelu, true});
  }
  add_narrow(all, SwigluBwd{32, 24, DType::BF16}, {.special = std::numeric_limits<double>::quiet_NaN()});
  add_update(all, "adamw", kAdamW);
  add_update(all, "sgd_momentum", kSgdMomentum);
  add_update(all, "sgd_nesterov", kNesterov);
  add_update(all, "lion", kLion);
  return all;
}

}  // namespace sluice::core::conformance
