// SPDX-License-Identifier: Apache-2.0
// Attention over one block, from the dense formulas. With scale = 1 / sqrt(head_dim), per query head and
// query i:
//
//   z_j = scale (q_i . k_j)        lse = log sum_j exp z_j       p_j = exp(z_j - lse)      o = sum_j p_j v_j
//   D = do . o                     ds_j = p_j (do . v_j - D)
//   dq = scale sum_j ds_j k_j      dk_j = scale sum_i ds_j q_i   dv_j = sum_i p_j do_i
//
// With a soft cap z_j = cap tanh(scale (q_i . k_j) / cap), and ds_j is taken times that one's slope,
// With sinks, exp of the head's one is in the sum of lse, too, and
//
//   d_sinks = - sum_i exp(sink - lse) D
//
// over the visible keys j, the last two also over the query heads that share a key head. P and dS enter a
// product, so they may be rounded to the block's dtype, and so may the result of one head over one block
// before it is summed over heads, merged, accumulated or converted: attention libraries emit it so.
#include <algorithm>
#include <cmath>

#include "conformance/reference_ops.h"

namespace sluice::core::conformance {
namespace {

size_t index(int64_t i) {
  return static_cast<size_t>(i);
}

// One block with its exact operands and their layout.
struct Block {
  const AttnShape& s;
  std::vector<double> q, kv;
  std::span<const int32_t> pos;

  Block(const AttnShape& shape, const Tensor& q_in, const Tensor& kv_in, const Tensor& pos_in)
      : s(shape), q(q_in.values()), kv(kv_in.values()), pos(pos_in.as<int32_t>()) {}

  Approx scale() const { return rounded(1 / std::sqrt(double(s.head_dim)), kUnit); }
  int64_t group() const { return s.q_heads / s.kv_heads; }

  // First element of query i of head h in q, o, do and dq.
  size_t q_at(int64_t row, int64_t i, int64_t h) const {
    return index(((row * s.q_len + i) * s.q_heads + h) * s.head_dim);
  }
  // First element of key j for query head h in kv and dkv, and of its value.
  size_t k_at(int64_t row, int64_t j, int64_t h) const {
    return index(((row * s.kv_len + j) * 2 * s.kv_heads + h / group()) * s.head_dim);
  }
  size_t v_at(int64_t row, int64_t j, int64_t h) const {
    return k_at(row, j, h) + index(s.kv_heads * s.head_dim);
  }
  size_t lse_at(int64_t row, int64_t i, int64_t h) const {
    return index((row * s.q_heads + h) * s.q_len + i);
  }

  void for_each_query(auto&& visit) const {
    for (int64_t row = 0; row < s.rows; ++row) {
      for (int64_t h = 0; h < s.q_heads; ++h) {
        for (int64_t i = 0; i < s.q_len; ++i) visit(row, i, h);
      }
    }
  }

  // The visible keys of query i: first <= j < end.
  struct Keys {
    int64_t first, end;
  };
  Keys visible(int64_t row, int64_t i) const {
    const int64_t last = s.distance + i, end = std::min(last + 1, s.kv_len);
    int64_t first = last - pos[index(row * s.q_len + i)];
    if (s.window > 0) first = std::max(first, last - s.window + 1);
    return {std::clamp<int64_t>(first, 0, end), end};
  }

  Approx dot(const std::vector<double>& a, size_t a_at, const std::vector<double>& b, size_t b_at) const {
    Sum sum;
    for (size_t d = 0; d < index(s.head_dim); ++d) sum.add(Approx(a[a_at + d]), b[b_at + d]);
    return sum.total();
  }
  Approx uncapped(int64_t row, int64_t i, int64_t j, int64_t h) const {
    return dot(q, q_at(row, i, h), kv, k_at(row, j, h)) * scale();
  }
  Approx score(int64_t row, int64_t i, int64_t j, int64_t h) const {
    return softcapped(uncapped(row, i, j, h), double{s.softcap});
  }
  // Of the visible keys, in order.
  std::vector<Approx> scores(int64_t row, int64_t i, int64_t h) const {
    std::vector<Approx> z;
    const Keys keys = visible(row, i);
    for (int64_t j = keys.first; j < keys.end; ++j) z.push_back(score(row, i, j, h));
    return z;
  }
};

// exp(z - lse), where both may have been rounded in another base before the subtraction.
Approx probability(const Approx& z, const Approx& lse) {
  return exp(disturbed(z - lse, kUnit * (std::abs(z.value) + std::abs(lse.value))));
}

// log(sum of exp(z)); -inf without any z.
Approx log_sum_exp(const std::vector<Approx>& z) {
  double top = -INFINITY;
  for (const Approx& v : z) top = std::max(top, v.value);
  if (top == -INFINITY) return {top};
  Sum sum;
  for (const Approx& v : z) sum.add(probability(v, Approx(top)));
  return log(sum.total()) + Approx(top);
}

// What one query gets from one block.
struct Attended {
  std::vector<Approx> o;
  Approx lse;
};
Attended attend(const Block& b, int64_t row, int64_t i, int64_t h) {
  const std::vector<Approx> z = b.scores(row, i, h);
  Attended result{std::vector<Approx>(index(b.s.head_dim)), log_sum_exp(z)};
  if (z.empty()) return result;
  std::vector<Approx> p;
  for (const Approx& v : z) p.push_back(stored(probability(v, result.lse), b.s.dtype));
  const int64_t first = b.visible(row, i).first;
  for (size_t d = 0; d < result.o.size(); ++d) {
    Sum sum;
    for (size_t k = 0; k < p.size(); ++k) {
      sum.add(p[k], b.kv[b.v_at(row, first + static_cast<int64_t>(k), h) + d]);
    }
    result.o[d] = sum.total();
  }
  return result;
}

// Merges a result over other blocks with that of this one; either may have seen no key (lse = -inf).
struct Merged {
  Approx old_share, new_share, lse;
};
Merged merge(double old_lse, const Approx& new_lse) {
  if (new_lse.value == -INFINITY) return {1, 0, old_lse};
  if (old_lse == -INFINITY) return {0, 1, new_lse};
  const Approx lse = log_sum_exp({Approx(old_lse), new_lse});
  return {probability(Approx(old_lse), lse), probability(new_lse, lse), lse};
}

// A product with 0 or 1, or a sum with 0, is exact.
Approx scaled(const Approx& share, const Approx& x) {
  if (share.value == 0 && share.bound == 0) return {0};
  if (share.value == 1 && share.bound == 0) return x;
  return share * x;
}
Approx plus(const Approx& a, const Approx& b) {
  if (a.value == 0 && a.bound == 0) return b;
  if (b.value == 0 && b.bound == 0) return a;
  return a + b;
}

// The forward's results and the gradient that arrives, as AttnBwd is given them.
struct Given {
  std::vector<double> o, lse, dout;
};

// Adds what query i of head h contributes to dq and to the head's dkv.
void add_query(const Block& b, const Given& given, int64_t row, int64_t i, int64_t h, std::vector<Approx>& dq,
               std::vector<Sum>& dkv) {
  const auto dim = index(b.s.head_dim);
  const size_t q_at = b.q_at(row, i, h);
  const Approx lse(given.lse[b.lse_at(row, i, h)]);
  const Approx delta = b.dot(given.dout, q_at, given.o, q_at);
  std::vector<Sum> sums(dim);
  const auto keys = b.visible(row, i);
  for (int64_t j = keys.first; j < keys.end; ++j) {
    const size_t k_at = b.k_at(row, j, h), v_at = b.v_at(row, j, h);
    const Approx p = stored(probability(b.score(row, i, j, h), lse), b.s.dtype);
    Approx ds = p * (b.dot(given.dout, q_at, b.kv, v_at) - delta) * b.scale();
    if (b.s.softcap > 0) ds = ds * softcap_slope(b.uncapped(row, i, j, h), double{b.s.softcap});
    ds = stored(ds, b.s.dtype);
    for (size_t d = 0; d < dim; ++d) {
      sums[d].add(ds, b.kv[k_at + d]);
      dkv[k_at + d].add(ds, b.q[q_at + d]);
      dkv[v_at + d].add(p, given.dout[q_at + d]);
    }
  }
  for (size_t d = 0; d < dim; ++d) dq[q_at + d] = sums[d].total();
}

// The block's gradients as they reach the operand, with what was there before.
std::vector<Approx> accumulated(std::vector<Approx> block, DType dtype, DType grad_dtype, const Old& old) {
  for (size_t i = 0; i < block.size(); ++i) {
    if (old.any() || grad_dtype != dtype) block[i] = stored(block[i], dtype);
    if (old.any()) block[i] = block[i] + Approx(old[i]);
  }
  return block;
}

}  // namespace

std::vector<double> block_lse(const AttnShape& shape, const Tensor& q, const Tensor& kv, const Tensor& pos) {
  const Block b(shape, q, kv, pos);
  std::vector<double> lse(index(shape.tokens() * shape.q_heads));
  b.for_each_query([&](int64_t row, int64_t i, int64_t h) {
    lse[b.lse_at(row, i, h)] = log_sum_exp(b.scores(row, i, h)).value;
  });
  return lse;
}

Outputs expect(const AttnFwd& op, Inputs in) {
  const AttnShape& s = op.shape;
  const Block b(s, in[AttnFwd::kQ], in[AttnFwd::kKv], in[AttnFwd::kPos]);
  const Old old_o(op.merge, in[AttnFwd::kO]), old_lse(op.merge, in[AttnFwd::kLse]);
  const auto sinks = op.has_sinks ? in[AttnFwd::kSinks].values() : std::vector<double>();
  Expected o{AttnFwd::kO, std::vector<Approx>(b.q.size())};
  Expected lse{AttnFwd::kLse, std::vector<Approx>(index(s.tokens() * s.q_heads))};
  b.for_each_query([&](int64_t row, int64_t i, int64_t h) {
    const size_t lse_at = b.lse_at(row, i, h);
    const Attended block = attend(b, row, i, h);
    const Merged merged = merge(op.merge       ? old_lse[lse_at]
                                : op.has_sinks ? sinks[index(h)]
                                               : -INFINITY,
                                block.lse);
    lse.values[lse_at] = merged.lse;
    for (size_t d = 0; d < block.o.size(); ++d) {
      const size_t at = b.q_at(row, i, h) + d;
      const bool as_is = op.out_dtype == s.dtype && !op.has_sinks;
      Approx emitted = as_is ? block.o[d] : stored(block.o[d], s.dtype);
      // What was rounded before its share was taken may be rounded again before it is converted.
      if (op.has_sinks) emitted = stored(scaled(merged.new_share, emitted), s.dtype);
      o.values[at] =
          op.merge ? plus(scaled(merged.old_share, old_o[at]), scaled(merged.new_share, emitted)) : emitted;
    }
  });
  return {o, lse};
}

Outputs expect(const AttnBwd& op, Inputs in) {
  const AttnShape& s = op.shape;
  const Block b(s, in[AttnBwd::kQ], in[AttnBwd::kKv], in[AttnBwd::kPos]);
  const Given given{in[AttnBwd::kO].values(), in[AttnBwd::kLse].values(), in[AttnBwd::kDo].values()};
  std::vector<Approx> dq(b.q.size()), dkv;
  std::vector<std::vector<Sum>> of_head(index(s.q_heads), std::vector<Sum>(b.kv.size()));
  b.for_each_query(
      [&](int64_t row, int64_t i, int64_t h) { add_query(b, given, row, i, h, dq, of_head[index(h)]); });
  for (size_t e = 0; e < b.kv.size(); ++e) {
    Sum heads;
    for (const auto& head : of_head) {
      heads.add(b.group() > 1 ? stored(head[e].total(), s.dtype) : head[e].total());
    }
    dkv.push_back(heads.total());
  }
  const Old old_dq(op.accumulate_dq, in[AttnBwd::kDq]), old_dkv(op.accumulate_dkv, in[AttnBwd::kDkv]);
  return {{AttnBwd::kDq, accumulated(std::move(dq), s.dtype, op.grad_dtype, old_dq)},
          {AttnBwd::kDkv, accumulated(std::move(dkv), s.dtype, op.grad_dtype, old_dkv)}};
}

Outputs expect(const SinkGrad& op, Inputs in) {
  const auto sinks = in[SinkGrad::kSinks].values(), lse = in[SinkGrad::kLse].values(),
             o = in[SinkGrad::kO].values(), dout = in[SinkGrad::kDo].values();
  const Old old(op.accumulate, in[SinkGrad::kDSinks]);
  Expected d_sinks{SinkGrad::kDSinks};
  for (int64_t h = 0; h < op.heads; ++h) {
    Sum sum;
    sum.add(old[index(h)]);
    for (int64_t t = 0; t < op.tokens(); ++t) {
      const size_t at = index((t * op.heads + h) * op.head_dim);
      Sum dot;
      for (size_t d = 0; d < index(op.head_dim); ++d) dot.add(Approx(o[at + d]), dout[at + d]);
      const double global = lse[index((t / op.q_len * op.heads + h) * op.q_len + t % op.q_len)];
      sum.add(Approx(0) - probability(Approx(sinks[index(h)]), Approx(global)) * dot.total());
    }
    d_sinks.values.push_back(sum.total());
  }
  return {d_sinks};
}

}  // namespace sluice::core::conformance
