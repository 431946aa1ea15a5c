// SPDX-License-Identifier: Apache-2.0
#include "conformance/data.h"

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstring>
#include <numeric>
#include <random>

#include "base/check.h"
#include "conformance/reference.h"

namespace sluice::core::conformance {
namespace {

using Tensors = std::vector<Tensor>;

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}

  // About standard normal, and away from zero: a sum of four uniform numbers of 16 bits, which takes a
  // quarter of the time of std::normal_distribution.
  double normal() {
    constexpr double kSpread = 1.7320508075688772;  // 1 / the deviation of such a sum
    for (;;) {
      uint64_t bits = engine_(), sum = 0;
      for (int i = 0; i < 4; ++i, bits >>= 16) sum += bits & 0xffff;
      const double x = kSpread * (double(sum) / 65536 - 2);
      if (std::abs(x) > 1e-3) return x;
    }
  }
  // In [first, end).
  int64_t integer(int64_t first, int64_t end) {
    return std::uniform_int_distribution<int64_t>(first, end - 1)(engine_);
  }

 private:
  std::mt19937_64 engine_;
};

// Every element becomes f(its value).
void change(Tensor& tensor, const auto& f) {
  std::vector<double> values = tensor.values();
  for (double& x : values) x = f(x);
  tensor = make_tensor(tensor.format, values);
}

void fill_normal(Tensor& tensor, Random& random, double spread) {
  change(tensor, [&](double) { return spread * random.normal(); });
}
void fill_squares(Tensor& tensor, Random& random, double spread) {
  change(tensor, [&](double) { return square(spread * random.normal()); });
}

void scale(Tensor& tensor, double factor) {
  change(tensor, [&](double x) { return factor * x; });
}

// Nothing is in the elements that fill the last group.
void clear_behind(Tensor& tensor, int64_t elements) {
  std::vector<double> values = tensor.values();
  values.resize(static_cast<size_t>(elements));
  tensor = make_tensor(tensor.format, values);
}

void fill_integers(Tensor& tensor, Random& random, int64_t end) {
  for (int64_t i = 0; i < tensor.elements(); ++i) tensor.set(i, double(random.integer(0, end)));
}

template <class Written = StepArgs>
void set_args(Tensor& tensor, const Written& args) {
  std::memcpy(tensor.bytes.data(), &args, sizeof args);
}

// Rotary frequencies of a Llama with base 10000, as a config's inv_freq holds them.
void fill_inv_freq(Tensor& tensor) {
  const auto n = double(tensor.elements());
  for (int64_t i = 0; i < tensor.elements(); ++i) tensor.set(i, std::pow(10000.0, -double(i) / n));
}

void put_special(Tensor& tensor, const Data& data) {
  if (data.special) tensor.set(tensor.elements() / 2, *data.special);
}

// Positions inside documents, from where these begin.
void fill_positions(Tensor& pos, const AttnShape& shape, std::vector<int64_t> documents) {
  if (documents.empty()) documents = {shape.distance > 0 ? -5 : 0};
  for (int64_t row = 0; row < shape.rows; ++row) {
    for (int64_t i = 0; i < shape.q_len; ++i) {
      const int64_t at = shape.distance + i;
      int64_t start = documents.front();
      for (size_t k = 1; k < documents.size(); ++k) {
        if (documents[k] + row <= at) start = documents[k] + row;
      }
      pos.set(row * shape.q_len + i, double(at - start));
    }
  }
}

// A third of the vocabulary only, so that ids repeat and rows stay unnamed.
void adapt(const EmbedBwd& op, const Data&, Random& random, Tensors& t) {
  fill_integers(t[EmbedBwd::kIds], random, std::max<int64_t>(op.vocab / 3, 1));
}

// Frequencies that turn nothing, in the second half, where that matters.
void keep_still(const auto& op, Tensor& inv_freq) {
  if (op.still_scale == 0) return;
  for (int64_t i = op.head_dim / 4; i < op.head_dim / 2; ++i) inv_freq.set(i, 0);
}
void adapt(const Rope& op, const Data&, Random&, Tensors& t) {
  keep_still(op, t[Rope::kInvFreq]);
}
void adapt(const RopeBwd& op, const Data&, Random&, Tensors& t) {
  keep_still(op, t[RopeBwd::kInvFreq]);
}
void adapt(const Linear& op, const Data&, Random&, Tensors& t) {
  if (op.rope_heads > 0) keep_still(op, t[op.inv_freq_operand()]);
}

// The result over other blocks: a log-sum-exp near this block's, and nothing at all for every fifth query.
void adapt(const AttnFwd& op, const Data& data, Random& random, Tensors& t) {
  const AttnShape& s = op.shape;
  fill_positions(t[AttnFwd::kPos], s, data.documents);
  if (!op.merge) return;
  const auto lse = block_lse(s, t[AttnFwd::kQ], t[AttnFwd::kKv], t[AttnFwd::kPos]);
  for (int64_t i = 0; i < t[AttnFwd::kLse].elements(); ++i) {
    const double near = lse[static_cast<size_t>(i)];
    const bool nothing = i % 5 == 4;
    t[AttnFwd::kLse].set(i, nothing ? -INFINITY : (std::isfinite(near) ? near : 0) + random.normal());
    if (!nothing) continue;
    const int64_t query = i % s.q_len, head = i / s.q_len % s.q_heads, row = i / s.q_len / s.q_heads;
    for (int64_t d = 0; d < s.head_dim; ++d) {
      t[AttnFwd::kO].set(((row * s.q_len + query) * s.q_heads + head) * s.head_dim + d, 0);
    }
  }
}

// The global log-sum-exp is at least the block's.
void adapt(const AttnBwd& op, const Data& data, Random& random, Tensors& t) {
  fill_positions(t[AttnBwd::kPos], op.shape, data.documents);
  const auto lse = block_lse(op.shape, t[AttnBwd::kQ], t[AttnBwd::kKv], t[AttnBwd::kPos]);
  for (int64_t i = 0; i < t[AttnBwd::kLse].elements(); ++i) {
    const double own = lse[static_cast<size_t>(i)];
    t[AttnBwd::kLse].set(i, (std::isfinite(own) ? own : 0) + 0.5 * std::abs(random.normal()));
  }
}

// The global log-sum-exp is above the sink.
void adapt(const SinkGrad& op, const Data&, Random& random, Tensors& t) {
  const std::vector<double> sinks = t[SinkGrad::kSinks].values();
  for (int64_t i = 0; i < t[SinkGrad::kLse].elements(); ++i)
    t[SinkGrad::kLse].set(i, sinks[size_t(i / op.q_len % op.heads)] + std::abs(random.normal()));
}

void adapt(const HeadLoss& op, const Data& data, Random& random, Tensors& t) {
  scale(t[HeadLoss::kW], 2 / std::sqrt(double(op.dim)));  // logits of about 2
  int64_t counted = 0;
  for (int64_t i = 0; i < op.tokens; ++i) {
    const bool ignored = std::floor(double(i + 1) * data.ignored) > std::floor(double(i) * data.ignored);
    t[HeadLoss::kTargets].set(i, ignored ? -1 : double(random.integer(0, op.vocab)));
    counted += ignored ? 0 : 1;
  }
  // Some are missing, and some a row's target or another one again.
  for (int64_t i = 0; i < op.tokens * op.top; ++i) {
    const int64_t row = i / op.top;
    Tensor& top = t[size_t(op.top_tokens_operand())];
    const double again = i % op.top == 1 ? top.at(i - 1) : t[HeadLoss::kTargets].at(row);
    top.set(i, i % 3 == 0 ? again : i % 5 == 0 ? -1 : double(random.integer(0, op.vocab)));
  }
  set_args(
      t[HeadLoss::kArgs],
      {.step = 3, .seed = 7, .loss_scale = data.seeds ? 1.0f : 1.0f / float(std::max<int64_t>(counted, 1))});
}

// Rows that hold nothing and that are full, one without a new token, one with more than there are.
void fill_spans(Tensor& spans, Random& random, int64_t q_len, int64_t capacity) {
  for (int64_t row = 0; row < spans.elements() / 2; ++row) {
    const int64_t count = row == 1 ? 0 : row == 3 ? q_len + 9 : random.integer(1, q_len + 1);
    const int64_t most = capacity - std::min(count, q_len);
    spans.set(2 * row, double(row == 0 ? most : row == 2 ? 0 : random.integer(0, most + 1)));
    spans.set(2 * row + 1, double(count));
  }
}
// Different rows of a cache, backwards from the last one, every second.
void fill_slots(const auto& op, Tensor& slots) {
  for (int64_t row = 0; row < op.rows; ++row) slots.set(row, double(op.cache_rows - 1 - 2 * row));
}
void adapt(const CachedAttention& op, const Data&, Random& random, Tensors& t) {
  fill_spans(t[CachedAttention::kSpans], random, op.q_len, op.capacity);
  if (op.cache_rows > 0) fill_slots(op, t[op.slots_operand()]);
}
void adapt(const CachedConv& op, const Data&, Random& random, Tensors& t) {
  fill_spans(t[CachedConv::kSpans], random, op.q_len, op.capacity);
  if (op.cache_rows > 0) fill_slots(op, t[CachedConv::kSlots]);
}
// Every third row stays, and those behind it become what it is.
void adapt(const CopyRows& op, const Data&, Random&, Tensors& t) {
  for (int64_t row = 0; row < op.rows; ++row) t[CopyRows::kWhich].set(row, double(row - row % 3));
}
// Draws in the middle of a likely token's share, one of the largest logit, and one that is none.
void adapt(const DrawTokens& op, const Data&, Random& random, Tensors& t) {
  const std::vector<double> logits = t[DrawTokens::kLogits].values();
  for (int64_t row = 0; row < op.rows; ++row) {
    const int64_t text = random.integer(0, op.texts);
    const double per_temperature = row % 4 == 1 ? 0 : row % 4 == 2 ? 2 : 0.7;
    const double* x = &logits[size_t(text * op.vocab)];
    const double top = *std::max_element(x, x + op.vocab);
    const auto power = [&](int64_t v) { return std::exp((x[v] - top) * per_temperature); };
    double total = 0, before = 0;
    for (int64_t v = 0; v < op.vocab; ++v) total += power(v);
    int64_t token = random.integer(0, op.vocab);
    while (power(token) < 0.3 * total / double(op.vocab)) token = (token + 1) % op.vocab;
    for (int64_t v = 0; v < token; ++v) before += power(v);
    t[DrawTokens::kDraws].set(3 * row, row % 4 == 3 ? -1 : double(text));
    t[DrawTokens::kDraws].set(3 * row + 1, (before + power(token) / 2) / total);
    t[DrawTokens::kDraws].set(3 * row + 2, per_temperature);
  }
}
// Documents of 1, 2, 3, ... tokens, of which the first began before the chunk where something is there: one
// token, or as many as the data says, and then it goes on for as many.
void fill_short_documents(Tensor& pos, const Data& data, int64_t tokens, bool has_before) {
  int64_t at = has_before ? 1 : 0, length = 3;
  if (has_before && !data.documents.empty()) at = data.documents.front(), length = 2 * at;
  for (int64_t t = 0; t < tokens; ++t, ++at) {
    if (at == length) at = 0, length = length % 7 + 1;
    pos.set(t, double(at));
  }
}
void adapt(const ShortConv& op, const Data& data, Random&, Tensors& t) {
  fill_short_documents(t[ShortConv::kPos], data, op.tokens, op.has_before);
}
void adapt(const ShortConvBwd& op, const Data& data, Random&, Tensors& t) {
  fill_short_documents(t[ShortConvBwd::kPos], data, op.tokens, op.has_before);
}
// Betas within (0, 1), and decays between a few tokens and many.
template <class T>
requires requires {
  T::kGates;
  T::kQkv;
}
void adapt(const T& op, const Data& data, Random& random, Tensors& t) {
  Tensor& gates = t[T::kGates];
  const int64_t heads = op.sizes.value_heads;
  for (int64_t i = 0; i < gates.elements(); ++i) {
    const bool decays = i / heads % 2 == 1;
    gates.set(i, decays ? 0.3 * std::exp(random.normal()) : 1 / (1 + std::exp(-random.normal())));
  }
  if constexpr (requires { T::kSpans; }) {
    fill_spans(t[T::kSpans], random, op.q_len, op.capacity);
    if (op.cache_rows > 0) fill_slots(op, t[T::kSlots]);
  } else if (data.documents.empty()) {
    fill_short_documents(t[T::kPos], data, op.tokens, op.has_before);
  } else {
    // One that goes on, and another from the given token on.
    for (int64_t i = 0; i < op.tokens; ++i) {
      const int64_t first = data.documents.front();
      t[T::kPos].set(i, double(i < first ? i + (op.has_before ? 100 : 0) : i - first));
    }
  }
}
void adapt(const Swiglu&, const Data& data, Random&, Tensors& t) {
  put_special(t[Swiglu::kGu], data);
}
void adapt(const SwigluBwd&, const Data& data, Random&, Tensors& t) {
  put_special(t[SwigluBwd::kGu], data);
}
void adapt(const LastLogits& op, const Data&, Random& random, Tensors& t) {
  fill_spans(t[LastLogits::kSpans], random, op.q_len, 4096);
}

void adapt(const Cast&, const Data& data, Random&, Tensors& t) {
  put_special(t[Cast::kX], data);
}
void adapt(const SumSq&, const Data& data, Random&, Tensors& t) {
  put_special(t[SumSq::kG], data);
}
void adapt(const ClipScale&, const Data& data, Random&, Tensors& t) {
  put_special(t[ClipScale::kSums], data);
}

// The magnitudes of a training step: gradients of 0.01, their mean and variance, parameters of 0.02.
template <class Update>
void adapt_update(const Update& op, const Data& data, Random& random, Tensors& t, float learning_rate) {
  scale(t[Update::kG], 0.01);
  scale(t[Update::kM], 0.005);
  if constexpr (requires { Update::kV; }) scale(t[Update::kV], 1e-4);
  for (size_t k = Update::kM; k < Update::kClip; ++k) clear_behind(t[k], op.elements);
  if constexpr (requires { Update::kP; }) {
    scale(t[Update::kP], 0.02);
    if (op.master == MasterWeights::F32) scale(t[Update::kMaster], 0.02);
    if (op.master == MasterWeights::I8) {
      for (int64_t i = 0; i < op.elements; ++i) t[Update::kMaster].set(i, double(random.integer(-128, 128)));
    }
  }
  const StepArgs args{.step = 5,
                      .seed = data.seed,
                      .learning_rate = learning_rate,
                      .loss_scale = 1,
                      .update = data.update ? 1 : 0,
                      .updates = 3};
  set_args(t[Update::kArgs], args);
}
void adapt(const Dropout&, const Data& data, Random&, Tensors& t) {
  set_args(t[Dropout::kArgs], DropoutArgs{{.step = 5, .seed = data.seed}, 6, 3});
}
void adapt(const AdamW& op, const Data& data, Random& random, Tensors& t) {
  adapt_update(op, data, random, t, 1e-3f);
}
void adapt(const AdamWMoments& op, const Data& data, Random& random, Tensors& t) {
  adapt_update(op, data, random, t, 1e-3f);
}
void adapt(const SgdMomentum& op, const Data& data, Random& random, Tensors& t) {
  adapt_update(op, data, random, t, 0.1f);
}
void adapt(const SgdMomentumState& op, const Data& data, Random& random, Tensors& t) {
  adapt_update(op, data, random, t, 0.1f);
}
template <class Update>
void adapt_tensor_update(const Update& op, const Data& data, Random& random, Tensors& t) {
  scale(t[Update::kG], 0.01);
  scale(t[Update::kP], 0.02);
  if (op.master == MasterWeights::F32) scale(t[Update::kMaster], 0.02);
  if (op.master == MasterWeights::I8) {
    for (int64_t i = 0; i < op.elements(); ++i) t[Update::kMaster].set(i, double(random.integer(-128, 128)));
  }
  set_args(t[Update::kArgs], {.step = 5,
                              .seed = data.seed,
                              .learning_rate = 1e-2f,
                              .loss_scale = 1,
                              .update = data.update ? 1 : 0,
                              .updates = 3});
}
void adapt(const Adafactor& op, const Data& data, Random& random, Tensors& t) {
  scale(t[Adafactor::kRow], 1e-4), scale(t[Adafactor::kCol], 1e-4);
  adapt_tensor_update(op, data, random, t);
}
void adapt(const Muon& op, const Data& data, Random& random, Tensors& t) {
  scale(t[Muon::kM], 0.005);
  clear_behind(t[Muon::kM], op.elements());
  adapt_tensor_update(op, data, random, t);
}
void adapt(const Lion& op, const Data& data, Random& random, Tensors& t) {
  adapt_update(op, data, random, t, 1e-4f);
}
void adapt(const LionState& op, const Data& data, Random& random, Tensors& t) {
  adapt_update(op, data, random, t, 1e-4f);
}

// Different experts for the choices of a token, as `spread` says.
std::vector<int32_t> choices(const Mixture& m, Spread spread, Random& random) {
  std::vector<int32_t> out;
  for (int64_t t = 0; t < m.tokens; ++t) {
    const size_t first = out.size();
    while (int64_t(out.size() - first) < m.top_k) {
      const bool half = spread == Spread::FirstHalf && m.experts >= 2 * m.top_k;
      auto e = int32_t(random.integer(0, half ? m.experts / 2 : m.experts));
      if (spread == Spread::OneExpert && out.size() == first) e = int32_t(m.experts / 2);
      if (std::find(out.begin() + int64_t(first), out.end(), e) == out.end()) out.push_back(e);
    }
  }
  return out;
}
template <class T>
requires requires {
  T::kChosen;
  T::kLogits;
  requires !std::same_as<T, Route>;
} || std::same_as<T, SortByExpert>
void adapt(const T& op, const Data& data, Random& random, Tensors& t) {
  const std::vector<int32_t> chosen = choices(op.mixture, data.experts, random);
  for (size_t i = 0; i < chosen.size(); ++i) t[T::kChosen].set(int64_t(i), double(chosen[i]));
}
// Logits of which none are so near each other that sigmoids might change their order; or many that are equal.
void adapt(const Route& op, const Data& data, Random& random, Tensors& t) {
  const int64_t experts = op.mixture.experts;
  for (int64_t token = 0; token < op.mixture.tokens; ++token) {
    std::vector<int64_t> order(static_cast<size_t>(experts));
    std::iota(order.begin(), order.end(), 0);
    for (int64_t i = experts - 1; i > 0; --i)
      std::swap(order[size_t(i)], order[size_t(random.integer(0, i + 1))]);
    for (int64_t e = 0; e < experts; ++e) {
      const int64_t rank = data.ties ? order[size_t(e)] / 3 : order[size_t(e)];
      t[Route::kLogits].set(token * experts + e, 6.0 * double(rank) / double(experts) - 3 +
                                                     (data.ties ? 0 : 1e-3 * random.normal()));
    }
  }
  if (!op.has_bias) return;
  // It adds what cannot bring two sums together.
  for (int64_t e = 0; e < experts; ++e) t[Route::kBias].set(e, e % 2 == 0 ? 0.0 : 2.0);
}
// A routing of other choices.
template <class T>
requires requires {
  T::kRouting;
  requires !std::same_as<T, SortByExpert>;
}
void adapt(const T& op, const Data& data, Random& random, Tensors& t) {
  const std::vector<int32_t> chosen = choices(op.mixture, data.experts, random);
  Tensor& routing = t[T::kRouting];
  std::vector<int32_t> order(chosen.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](int32_t i) { return chosen[size_t(i)]; });
  const int64_t experts = op.mixture.experts, rows = op.mixture.rows();
  for (int64_t e = 0; e <= experts; ++e)
    routing.set(e, double(std::ranges::count_if(chosen, [&](int32_t c) { return c < e; })));
  for (int64_t i = 0; i < rows; ++i) {
    routing.set(experts + 1 + i, double(order[size_t(i)]));
    routing.set(experts + 1 + rows + order[size_t(i)], double(i));
  }
}

template <class T>
void adapt(const T&, const Data&, Random&, Tensors&) {}

// What an operand says of its values.
Tensor make_operand(const Operand& operand, const Data& data, Random& random) {
  Tensor tensor = make_tensor(operand.format, operand.elements);
  if (operand.access == Access::Write) return tensor;
  switch (operand.values) {
    case Values::Activations:
    case Values::Weights:
    case Values::LogSumExp:
      fill_normal(tensor, random, data.spread);
      break;
    case Values::Squares:
      fill_squares(tensor, random, data.spread);
      break;
    case Values::Ids:
      fill_integers(tensor, random, operand.limit);
      break;
    case Values::Positions:
      fill_integers(tensor, random, 8192);
      break;
    case Values::Spans:
    case Values::Routing:
      break;  // adapt() knows the rest of the op
    case Values::Frequencies:
      fill_inv_freq(tensor);
      break;
    case Values::Clip:
      tensor.set(0, 3.0);
      tensor.set(1, double{data.clip});
      break;
    case Values::StepScalars:
      set_args(tensor, {.step = 5, .seed = data.seed, .loss_scale = 1, .updates = 3});
      break;
  }
  return tensor;
}

}  // namespace

std::vector<Tensor> make_operands(const Op& op, const Data& data) {
  Random random(data.seed);
  Tensors tensors;
  for (const Operand& operand : operands(op)) tensors.push_back(make_operand(operand, data, random));
  std::visit([&](const auto& o) { adapt(o, data, random, tensors); }, op);
  return tensors;
}

}  // namespace sluice::core::conformance
