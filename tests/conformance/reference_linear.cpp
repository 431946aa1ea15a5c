// SPDX-License-Identifier: Apache-2.0
// Matrix products, rotary embedding and the loss.
#include <algorithm>
#include <cmath>
#include <optional>

#include "base/philox.h"
#include "conformance/reference_ops.h"
#include "ops/float8.h"

namespace sluice::core::conformance {
namespace {

size_t index(int64_t i) {
  return static_cast<size_t>(i);
}

// A row-major matrix, or its transpose, of exact values.
struct Matrix {
  std::vector<double> values;
  int64_t columns;

  double operator()(int64_t r, int64_t c) const { return values[index(r * columns + c)]; }
};
Matrix matrix(const Tensor& tensor, int64_t columns) {
  return {tensor.values(), columns};
}
// One whose transpose the tensor is, where that is in a format of its own.
Matrix maybe_turned(const Tensor& tensor, int64_t columns, const std::optional<NumberFormat>& turned) {
  Matrix out = matrix(tensor, columns);
  if (!turned) return out;
  const Matrix t{out.values, tensor.elements() / columns};
  for (int64_t i = 0; i < tensor.elements(); ++i) out.values[index(i)] = t(i % columns, i / columns);
  return out;
}

// The sum of a product added to what an operand of `dtype` held. Two ways conform (ops/linear.h): the old
// value is one more term of the sum, or the product is rounded to the operand's type before it is added.
Approx either(const Approx& one, const Approx& two) {
  return {one.value, std::max(one.bound, two.bound), std::max(one.variance, two.variance)};
}
Approx accumulated(const Approx& old, const Sum& product, DType dtype, double unit = kSumUnit) {
  Sum together = product;
  together.add(old);
  return either(together.total(unit), old + stored(product.total(unit), dtype));
}
// The same of a product that is scaled.
Approx accumulated(const Old& old, size_t at, const Sum& product, float scale, DType dtype) {
  const Approx scaled = product.total() * Approx(double(scale));
  if (!old.any()) return scaled;
  return either(Approx(old[at]) + scaled, Approx(old[at]) + stored(scaled, dtype));
}

double sum_unit(const std::optional<NumberFormat>& narrow) {
  return narrow ? kNarrowSumUnit : kSumUnit;
}

// out[r, c] = sum over k < depth of term(r, c, k), plus old[r, c], for all rows and columns. With `gradient`,
// the type of old, the sum is accumulated into it.
template <class Term>
std::vector<Approx> product(int64_t rows, int64_t columns, int64_t depth, const Old& old, Term term,
                            std::optional<DType> gradient = std::nullopt, double unit = kSumUnit) {
  std::vector<Approx> out;
  out.reserve(index(rows * columns));
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      Sum sum;
      const size_t at = index(r * columns + c);
      if (old.any() && !gradient) sum.add(old[at]);
      for (int64_t k = 0; k < depth; ++k) {
        const auto [a, b] = term(r, c, k);
        sum.add(Approx(a), b);
      }
      out.push_back(old.any() && gradient ? accumulated(old[at], sum, *gradient, unit) : sum.total(unit));
    }
  }
  return out;
}

struct Factors {
  double a, b;
};

struct Turn {
  Approx cos, sin;
};

// The rotation of pair i at position `pos`; the angle itself is an fp32 product.
Turn turn(int32_t pos, float inv_freq) {
  const Approx angle = Approx(double(pos)) * Approx(double{inv_freq});
  return {cos(angle), sin(angle)};
}

// One row of logits: their log-sum-exp beside them.
struct LogitRow {
  std::vector<Approx> logits, slopes;  // where they are capped
  Approx lse;
};

LogitRow logit_row(const Matrix& x, const Matrix& w, int64_t t, int64_t vocab, double softcap, double unit) {
  LogitRow row{product(
                   1, vocab, x.columns, Old(false, {}),
                   [&](int64_t, int64_t v, int64_t k) {
                     return Factors{x(t, k), w(v, k)};
                   },
                   std::nullopt, unit),
               {},
               {}};
  for (Approx& z : row.logits) {
    row.slopes.push_back(softcap_slope(z, softcap));
    z = softcapped(z, softcap);
  }
  double top = -INFINITY;
  for (const Approx& z : row.logits) top = std::max(top, z.value);
  Sum sum;
  for (const Approx& z : row.logits) sum.add(exp(z - Approx(top)));
  row.lse = log(sum.total()) + Approx(top);
  return row;
}

}  // namespace

void rotate(std::vector<Approx>& x, int64_t tokens, int64_t columns, int64_t heads, int64_t head_dim,
            std::span<const int32_t> pos, std::span<const float> inv_freq, float scale, bool back,
            float still_scale, const Temperature& temperature) {
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t i = 0; i < head_dim / 2; ++i) {
      Turn by = turn(pos[index(t)], inv_freq[index(i)]);
      const bool still = still_scale != 0 && inv_freq[index(i)] == 0;
      const double factor = still ? double{still_scale} : double{scale};
      if (factor != 1) by = {by.cos * Approx(factor), by.sin * Approx(factor)};
      // The factor may be rounded before it is multiplied by the other.
      const Approx warmth = rounded(Approx(temperature.at(pos[index(t)])), kUnit);
      if (temperature.beta != 0) by = {by.cos * warmth, by.sin * warmth};
      if (back) by.sin = -by.sin;
      for (int64_t h = 0; h < heads; ++h) {
        Approx& first = x[index(t * columns + h * head_dim + i)];
        Approx& second = x[index(t * columns + h * head_dim + i + head_dim / 2)];
        const Approx a = first, b = second;
        first = a * by.cos - b * by.sin;
        second = b * by.cos + a * by.sin;
      }
    }
  }
}

Outputs expect(const Linear& op, Inputs in) {
  const Matrix x = matrix(in[Linear::kX], op.in), w = matrix(in[Linear::kW], op.in);
  const auto optional = [&](bool has, size_t operand) { return Old(has, in[has ? operand : 0]); };
  const Old residual = optional(op.has_residual, op.residual_operand());
  const Old bias = optional(op.has_bias, op.bias_operand());
  Expected y{Linear::kY};
  for (int64_t t = 0; t < op.tokens; ++t) {
    for (int64_t o = 0; o < op.out; ++o) {
      const double r = residual[index(t * op.out + o)], b = bias[index(o)];
      Sum sum;
      if (residual.any()) sum.add(r);
      if (bias.any()) sum.add(b);
      for (int64_t k = 0; k < op.in; ++k) sum.add(Approx(x(t, k)), w(o, k));
      const bool together = residual.any() && bias.any();  // rounded once, before the product is added
      const Approx total = sum.total(sum_unit(op.x_format));
      y.values.push_back(together ? disturbed(total, unit_of(op.dtype) * std::abs(r + b)) : total);
    }
  }
  if (op.rope_heads > 0) {
    // The product and the rotation may be two passes over y.
    const int64_t rotated = op.rope_heads * op.head_dim;
    for (int64_t t = 0; t < op.tokens; ++t) {
      for (int64_t o = 0; o < rotated; ++o) {
        Approx& v = y.values[index(t * op.out + o)];
        v = stored(v, op.dtype);
      }
    }
    rotate(y.values, op.tokens, op.out, op.rope_heads, op.head_dim, in[op.pos_operand()].as<int32_t>(),
           in[op.inv_freq_operand()].as<float>(), op.rope_scale, false, op.still_scale, op.temperature);
  }
  return {y};
}

Outputs expect(const LinearDgrad& op, Inputs in) {
  const Matrix dy = matrix(in[LinearDgrad::kDy], op.out),
               w = maybe_turned(in[LinearDgrad::kW], op.in, op.dy_format);
  const Old old(op.accumulate || op.has_residual,
                in[op.has_residual ? LinearDgrad::kDres : LinearDgrad::kDx]);
  return {{LinearDgrad::kDx, product(
                                 op.tokens, op.in, op.out, old,
                                 [&](int64_t t, int64_t i, int64_t k) {
                                   return Factors{dy(t, k), w(k, i)};
                                 },
                                 op.dtype, sum_unit(op.dy_format))}};
}

Outputs expect(const LinearWgrad& op, Inputs in) {
  const Matrix dy = maybe_turned(in[LinearWgrad::kDy], op.out, op.dy_format),
               x = maybe_turned(in[LinearWgrad::kX], op.in, op.x_format);
  const Old old(op.accumulate, in[LinearWgrad::kDw]);
  return {{LinearWgrad::kDw, product(
                                 op.out, op.in, op.tokens, old,
                                 [&](int64_t o, int64_t i, int64_t t) {
                                   return Factors{dy(t, o), x(t, i)};
                                 },
                                 op.grad_dtype, sum_unit(op.dy_format))}};
}

Outputs expect(const Dropout& op, Inputs in) {
  const auto args = step_args<DropoutArgs>(in[Dropout::kArgs]);
  const Matrix x = matrix(in[Dropout::kX], op.width);
  const Old old(op.accumulate, in[Dropout::kY]);
  const uint64_t first = uint64_t(args.first_row * op.seq_len + op.first), draws = uint64_t(op.width + 3) / 4;
  Expected y{Dropout::kY};
  for (int64_t t = 0; t < op.tokens; ++t) {
    for (int64_t i = 0; i < op.width; ++i) {
      const Philox4 drawn =
          philox(args.step.seed ^ op.target, (first + uint64_t(t)) * draws + uint64_t(i) / 4,
                 uint64_t(args.forward_step));
      const bool stays = double(drawn.v[i % 4]) / 0x1p32 >= double(op.rate);
      Sum sum;
      if (stays) sum.add(Approx(x(t, i)), 1 / (1 - double(op.rate)));
      y.values.push_back(accumulated(old, index(t * op.width + i), sum, 1, op.dtype));
    }
  }
  return {y};
}

Outputs expect(const LowRank& op, Inputs in) {
  const LowRankSizes& s = op.sizes;
  const Matrix u = matrix(in[LowRank::kU], s.inner()), b = matrix(in[LowRank::kB], s.rank);
  const Old residual(op.has_residual, in[op.has_residual ? size_t(LowRank::kResidual) : 0]);
  Expected y{LowRank::kY};
  for (int64_t t = 0; t < s.tokens; ++t) {
    for (int64_t c = 0; c < s.columns; ++c) {
      const int64_t o = c - s.first, part = o / s.part;
      const bool adapted = o >= 0 && o < s.adapted();
      Sum sum;
      for (int64_t j = 0; adapted && j < s.rank; ++j) sum.add(Approx(u(t, part * s.rank + j)), b(o, j));
      y.values.push_back(accumulated(residual, index(t * s.columns + c), sum, op.scale, op.dtype));
    }
  }
  return {y};
}

Outputs expect(const LowRankDgrad& op, Inputs in) {
  const LowRankSizes& s = op.sizes;
  const Matrix dy = matrix(in[LowRankDgrad::kDy], s.columns), b = matrix(in[LowRankDgrad::kB], s.rank);
  Expected du{LowRankDgrad::kDu};
  for (int64_t t = 0; t < s.tokens; ++t) {
    for (int64_t i = 0; i < s.inner(); ++i) {
      const int64_t part = i / s.rank, j = i % s.rank;
      Sum sum;
      for (int64_t o = part * s.part; o < (part + 1) * s.part; ++o)
        sum.add(Approx(dy(t, s.first + o)), b(o, j));
      du.values.push_back(sum.total() * Approx(double(op.scale)));
    }
  }
  return {du};
}

Outputs expect(const LowRankWgrad& op, Inputs in) {
  const LowRankSizes& s = op.sizes;
  const Matrix dy = matrix(in[LowRankWgrad::kDy], s.columns), u = matrix(in[LowRankWgrad::kU], s.inner());
  const Old old(op.accumulate, in[LowRankWgrad::kDb]);
  Expected db{LowRankWgrad::kDb};
  for (int64_t o = 0; o < s.adapted(); ++o) {
    for (int64_t j = 0; j < s.rank; ++j) {
      Sum sum;
      for (int64_t t = 0; t < s.tokens; ++t)
        sum.add(Approx(dy(t, s.first + o)), u(t, o / s.part * s.rank + j));
      db.values.push_back(accumulated(old, index(o * s.rank + j), sum, op.scale, op.grad_dtype));
    }
  }
  return {db};
}

Outputs expect(const RowNorms& op, Inputs in) {
  const LowRankSizes& s = op.sizes;
  const Matrix w = matrix(in[RowNorms::kW], op.in), a = matrix(in[RowNorms::kA], op.in),
               b = matrix(in[RowNorms::kB], s.rank);
  Expected norms{RowNorms::kNorms};
  for (int64_t o = 0; o < s.adapted(); ++o) {
    Sum squares;
    for (int64_t i = 0; i < op.in; ++i) {
      Sum change;
      for (int64_t j = 0; j < s.rank; ++j) change.add(Approx(b(o, j)), a(o / s.part * s.rank + j, i));
      const Approx x = Approx(w(s.first + o, i)) + change.total() * Approx(double(op.scale));
      squares.add(x * x);
    }
    norms.values.push_back(sqrt(squares.total()));
  }
  return {norms};
}

namespace {

// What columns are multiplied with, and the norm that is divided by.
struct Scaling {
  Approx factor, norm;
};
Scaling factor_of(const auto& op, const std::vector<double>& m, const std::vector<double>& norms, int64_t c) {
  const int64_t at = c - op.first;
  if (at < 0 || at >= op.adapted) return {Approx(1), Approx(1)};
  return {Approx(m[index(at)]) / Approx(norms[index(at)]), Approx(norms[index(at)])};
}

}  // namespace

Outputs expect(const Magnitude& op, Inputs in) {
  const std::vector<double> z = in[Magnitude::kZ].values(), m = in[Magnitude::kM].values(),
                            norms = in[Magnitude::kNorms].values();
  const auto bias = op.has_bias ? in[op.bias_operand()].values() : std::vector<double>();
  const auto residual = op.has_residual ? in[op.residual_operand()].values() : std::vector<double>();
  Expected y{Magnitude::kY};
  for (int64_t i = 0; i < op.tokens * op.columns; ++i) {
    const int64_t c = i % op.columns;
    Sum sum;
    sum.add(Approx(z[index(i)]) * factor_of(op, m, norms, c).factor);
    if (op.has_bias) sum.add(Approx(bias[index(c)]));
    if (op.has_residual) sum.add(Approx(residual[index(i)]));
    y.values.push_back(sum.total());
  }
  return {y};
}

Outputs expect(const MagnitudeBwd& op, Inputs in) {
  using M = MagnitudeBwd;
  const Matrix dy = matrix(in[M::kDy], op.columns), z = matrix(in[M::kZ], op.columns);
  const std::vector<double> m = in[M::kM].values(), norms = in[M::kNorms].values();
  const Old old(op.accumulate, in[M::kDm]);
  Expected dz{M::kDz}, dm{M::kDm};
  for (int64_t t = 0; t < op.tokens; ++t) {
    for (int64_t c = 0; c < op.columns; ++c)
      dz.values.push_back(Approx(dy(t, c)) * factor_of(op, m, norms, c).factor);
  }
  for (int64_t o = 0; o < op.adapted; ++o) {
    Sum sum;
    for (int64_t t = 0; t < op.tokens; ++t) {
      const int64_t c = op.first + o;
      sum.add(Approx(dy(t, c)) * Approx(z(t, c)) / Approx(norms[index(o)]));
    }
    if (old.any()) sum.add(old[index(o)]);
    dm.values.push_back(sum.total());
  }
  return {dz, dm};
}

Outputs expect(const BiasGrad& op, Inputs in) {
  const Matrix dy = matrix(in[BiasGrad::kDy], op.out);
  const Old old(op.accumulate, in[BiasGrad::kDbias]);
  Expected dbias{BiasGrad::kDbias};
  for (int64_t o = 0; o < op.out; ++o) {
    Sum sum;
    if (old.any()) sum.add(old[index(o)]);
    for (int64_t t = 0; t < op.tokens; ++t) sum.add(dy(t, o));
    dbias.values.push_back(sum.total());
  }
  return {dbias};
}

Outputs expect(const Rope& op, Inputs in) {
  const auto x = in[Rope::kX].values();
  Expected out{Rope::kX, {x.begin(), x.end()}};
  rotate(out.values, op.tokens, op.columns(), op.heads, op.head_dim, in[Rope::kPos].as<int32_t>(),
         in[Rope::kInvFreq].as<float>(), op.rope_scale, false, op.still_scale, op.temperature);
  return {out};
}

Outputs expect(const RopeBwd& op, Inputs in) {
  const auto pos = in[RopeBwd::kPos].as<int32_t>();
  const auto inv_freq = in[RopeBwd::kInvFreq].as<float>();
  const auto dq_rotated = in[RopeBwd::kDqRotated].values(), dkv_rotated = in[RopeBwd::kDkvRotated].values();
  Expected dq{RopeBwd::kDq, {dq_rotated.begin(), dq_rotated.end()}};
  Expected dkv{RopeBwd::kDkv, {dkv_rotated.begin(), dkv_rotated.end()}};
  rotate(dq.values, op.tokens, op.q_heads * op.head_dim, op.q_heads, op.head_dim, pos, inv_freq,
         op.rope_scale, true, op.still_scale, op.temperature);
  rotate(dkv.values, op.tokens, 2 * op.kv_heads * op.head_dim, op.kv_heads, op.head_dim, pos, inv_freq,
         op.rope_scale, true, op.still_scale);
  return {dq, dkv};
}

namespace {

// Whether no logit is larger than the target's. Where rounding decides, either is right.
Approx is_top(const std::vector<Approx>& logits, size_t target) {
  const Approx& own = logits[target];
  bool surely = true, surely_not = false;
  for (size_t v = 0; v < logits.size(); ++v) {
    const double margin = own.value - logits[v].value, doubt = own.bound + logits[v].bound;
    surely = surely && (v == target || margin > doubt);
    surely_not = surely_not || margin < -doubt;
  }
  return surely ? Approx(1) : surely_not ? Approx(0) : Approx(0.5, 0.5, 0.25);
}

// A row of gradients of logits as f8e5m2 holds it, by row or by column: half a step of a number of two bits
// of mantissa, or of the least numbers, whose scale is at most twice what the largest magnitude fills. A
// column's largest is at most that of all rows.
void round_to_8_bits(std::vector<Approx>& gradients) {
  double largest = 0;
  for (const Approx& d : gradients) largest = std::max(largest, std::abs(d.value) + d.bound);
  const double scale = 2 * largest * 1.125 / double{E5m2::kMost};
  for (Approx& d : gradients) d = disturbed(rounded(d, 0.125), 0.5 * double{E5m2::kStep} * scale);
}

// What row t's loss is taken times.
Approx weight_of(const HeadLoss& op, Inputs in, int64_t t) {
  return op.weighted ? in[size_t(op.weights_operand())].at(t) : Approx(1);
}

// The other tokens of a row.
struct Other {
  int64_t place;  // in their operands
  size_t token;
  Approx weight;
};
std::vector<Other> others_of(const HeadLoss& op, Inputs in, int64_t t) {
  std::vector<Other> out;
  for (int64_t i = t * op.top; i < (t + 1) * op.top; ++i) {
    const int32_t token = in[size_t(op.top_tokens_operand())].as<int32_t>()[index(i)];
    if (token < 0) continue;
    out.push_back({i, index(token), op.weighted ? in[size_t(op.top_weights_operand())].at(i) : Approx(1)});
  }
  return out;
}

Outputs token_losses(const HeadLoss& op, Inputs in) {
  const Matrix x = matrix(in[HeadLoss::kX], op.dim), w = matrix(in[HeadLoss::kW], op.dim);
  const auto targets = in[HeadLoss::kTargets].as<int32_t>();
  Expected losses{HeadLoss::kLoss, std::vector<Approx>(index(2 * op.tokens))};
  Expected log_probs{op.log_probs_operand(), std::vector<Approx>(index(op.tokens))};
  Expected top{op.top_log_probs_operand(), std::vector<Approx>(index(op.tokens * op.top))};
  for (int64_t t = 0; t < op.tokens; ++t) {
    if (targets[index(t)] < 0) continue;
    const auto target = index(targets[index(t)]);
    const LogitRow row = logit_row(x, w, t, op.vocab, double{op.softcap}, sum_unit(op.x_format));
    const Approx loss = row.lse - row.logits[target];
    log_probs.values[index(t)] = -loss;
    losses.values[index(t)] = op.weighted ? loss * weight_of(op, in, t) : loss;
    losses.values[index(op.tokens + t)] = is_top(row.logits, target);
    for (const Other& other : others_of(op, in, t))
      top.values[index(other.place)] = row.logits[other.token] - row.lse;
  }
  Outputs out{std::move(losses)};
  if (op.log_probs) out.push_back(std::move(log_probs));
  if (op.log_probs && op.top > 0) out.push_back(std::move(top));
  return out;
}

}  // namespace

Outputs expect(const GatherWeights& op, Inputs in) {
  const Old old(op.first > 0, in[GatherWeights::kAll]);
  Expected all{GatherWeights::kAll};
  for (int64_t i = 0; i < 2 * op.round; ++i) {
    const int64_t t = i % op.round - op.first;
    const int from = i < op.round ? GatherWeights::kWeights : GatherWeights::kLogProbs;
    all.values.push_back(t >= 0 && t < op.tokens ? Approx(in[size_t(from)].at(t)) : Approx(old[index(i)]));
  }
  return {all};
}

Outputs expect(const HeadLoss& op, Inputs in) {
  if (op.forward_only) return token_losses(op, in);
  const Matrix x = matrix(in[HeadLoss::kX], op.dim), w = matrix(in[HeadLoss::kW], op.dim);
  const auto targets = in[HeadLoss::kTargets].as<int32_t>();
  const double loss_scale = double{step_args(in[HeadLoss::kArgs]).loss_scale};

  Sum loss, hits;
  if (op.accumulate_loss) {
    loss.add(in[HeadLoss::kLoss].at(0));
    hits.add(in[HeadLoss::kLoss].at(1));
  }
  Expected log_probs{op.log_probs_operand(), std::vector<Approx>(index(op.tokens))};
  Expected top{op.top_log_probs_operand(), std::vector<Approx>(index(op.tokens * op.top))};
  std::vector<Approx> dlogits(index(op.tokens * op.vocab));  // enters two products
  for (int64_t t = 0; t < op.tokens; ++t) {
    const int32_t target = targets[index(t)];
    if (target < 0) continue;
    const LogitRow row = logit_row(x, w, t, op.vocab, double{op.softcap}, sum_unit(op.x_format));
    const Approx own = row.lse - row.logits[index(target)];
    log_probs.values[index(t)] = -own;
    loss.add(op.weighted ? own * weight_of(op, in, t) : own);
    const Approx scale = op.weighted ? Approx(loss_scale) * weight_of(op, in, t) : Approx(loss_scale);
    hits.add(is_top(row.logits, index(target)));
    const std::vector<Other> others = others_of(op, in, t);
    Approx all = weight_of(op, in, t);
    for (const Other& other : others) {
      all = all + other.weight;
      top.values[index(other.place)] = row.logits[other.token] - row.lse;
    }
    for (int64_t v = 0; v < op.vocab && op.top > 0; ++v) {
      Approx d = exp(row.logits[index(v)] - row.lse) * all;
      if (v == target) d = d - weight_of(op, in, t);
      for (const Other& other : others) d = other.token == index(v) ? d - other.weight : d;
      d = d * Approx(loss_scale);
      if (op.softcap > 0) d = d * row.slopes[index(v)];
      dlogits[index(t * op.vocab + v)] = stored(d, op.dtype);
    }
    for (int64_t v = 0; v < op.vocab && op.top == 0; ++v) {
      const Approx p = exp(row.logits[index(v)] - row.lse);
      Approx d = (v == target ? p - Approx(1) : p) * scale;
      if (op.softcap > 0) d = d * row.slopes[index(v)];
      dlogits[index(t * op.vocab + v)] = stored(d, op.dtype);
    }
  }
  Outputs out{{HeadLoss::kLoss, {loss.total(unit_of(DType::F64)), hits.total(unit_of(DType::F64))}}};
  if (op.log_probs) out.push_back(std::move(log_probs));
  if (op.log_probs && op.top > 0) out.push_back(std::move(top));

  // With copies in 8 bits the gradients are rounded, and meet the turned copies.
  const double unit = sum_unit(op.x_format);
  const bool narrow = op.x_format.has_value();
  if (narrow) round_to_8_bits(dlogits);
  const Matrix of_w = narrow ? maybe_turned(in[size_t(op.turned_w_operand())], op.dim, op.x_format) : w;
  const Matrix of_x =
      narrow && !op.frozen ? maybe_turned(in[size_t(op.turned_x_operand())], op.dim, op.x_format) : x;

  Expected dx{HeadLoss::kDx};
  for (int64_t t = 0; t < op.tokens; ++t) {
    for (int64_t d = 0; d < op.dim; ++d) {
      Sum sum;
      for (int64_t v = 0; v < op.vocab; ++v) sum.add(dlogits[index(t * op.vocab + v)], of_w(v, d));
      dx.values.push_back(targets[index(t)] < 0 ? Approx(0) : sum.total(unit));
    }
  }

  if (op.frozen) {
    out.push_back(std::move(dx));
    return out;
  }
  // Sub-chunk by sub-chunk, rounded to grad_dtype after each but the last, whose rounding is the operand's
  // own.
  const Old old(op.accumulate_dw, in[HeadLoss::kDw]);
  Expected dw{HeadLoss::kDw};
  for (int64_t i = 0; i < op.vocab * op.dim; ++i) dw.values.emplace_back(old[index(i)]);
  for (int64_t begin = 0; begin < op.tokens; begin += op.sub_tokens) {
    const int64_t end = std::min(begin + op.sub_tokens, op.tokens);
    for (int64_t v = 0; v < op.vocab; ++v) {
      for (int64_t d = 0; d < op.dim; ++d) {
        Approx& total = dw.values[index(v * op.dim + d)];
        Sum sum;
        for (int64_t t = begin; t < end; ++t) sum.add(dlogits[index(t * op.vocab + v)], of_x(t, d));
        if (begin > 0) {
          total = accumulated(stored(total, op.grad_dtype), sum, op.grad_dtype, unit);
        } else {
          total = op.accumulate_dw ? accumulated(total, sum, op.grad_dtype, unit) : sum.total(unit);
        }
      }
    }
  }
  out.push_back(std::move(dx));
  out.push_back(std::move(dw));
  return out;
}

}  // namespace sluice::core::conformance
