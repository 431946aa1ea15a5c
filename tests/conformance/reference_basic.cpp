// SPDX-License-Identifier: Apache-2.0
// Embedding, normalisation, casts and the gated activation.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "conformance/reference_ops.h"

namespace sluice::core::conformance {
namespace {

size_t index(int64_t i) {
  return static_cast<size_t>(i);
}

// 1 / sqrt(mean(x^2) + eps) of one row.
Approx inverse_rms(std::span<const double> x, float eps) {
  Sum squares;
  for (const double v : x) squares.add(Approx(v), v);
  return Approx(1) / sqrt(squares.total() / Approx(double(x.size())) + Approx(double{eps}));
}

// What Quantize makes of results as they are stored. A backend's may be off by what they may be off before,
// and by a bit of bf16. Near the middle between two numbers of 8 bits that is a whole step: of three bits of
// mantissa, or the least one of the scale that the largest magnitude has. What the bits are, relations.h
// says.
Outputs narrowed(const NarrowResults& results, const Outputs& wide) {
  Outputs out;
  for (const NarrowResult& result : results) {
    const Quantize& q = result.op;
    const std::vector<Approx>& before = std::ranges::find(wide, result.wide, &Expected::operand)->values;
    std::vector<double> values;
    for (const Approx& a : before) values.push_back(a.value);
    const std::vector<Tensor> stored{make_tensor(q.dtype, values)};
    for (Expected& copy : expect(q, stored)) {
      const bool turned = q.by_column && copy.operand == size_t(q.turned_operand());
      copy.operand = size_t(turned ? result.turned : result.by_row);
      const int64_t row = turned ? q.rows : q.cols;
      for (int64_t first = 0; first < q.rows * q.cols; first += row) {
        const auto wide_of = [&](int64_t i) {
          return before[index(turned ? (i % row) * q.cols + i / row : i)];
        };
        double most = 0;
        for (int64_t i = first; i < first + row; ++i)
          most = std::max(most, std::abs(wide_of(i).value) + wide_of(i).bound);
        for (int64_t i = first; i < first + row; ++i) {
          const Approx was = wide_of(i);
          // The least step is 2^-9 of the scale, which is less than the largest magnitude by 224 at least.
          const double step = std::max(std::abs(was.value) * 0x1p-3, most / 224 * 0x1p-9);
          Approx& a = copy.values[index(i)];
          a.bound += was.bound + std::abs(was.value) * 0x1p-8 + step * (1 + 0x1p-7);
          a.variance += was.variance + square(step);
        }
      }
      out.push_back(std::move(copy));
    }
  }
  return out;
}

// What a norm multiplies with.
Approx weight(double w, float offset) {
  return offset == 0 ? Approx(w) : Approx(double{offset}) + Approx(w);
}

// Times a factor that is 1 where an op has none.
Approx scaled(const Approx& x, float scale) {
  return scale == 1 ? x : x * Approx(double{scale});
}

std::span<const double> row(const std::vector<double>& matrix, int64_t t, int64_t columns) {
  return std::span(matrix).subspan(index(t * columns), index(columns));
}

// The argument of the sigmoid that a gate is multiplied by: h of ops/mlp.h, and its derivative.
const double kTwice = 2 * std::sqrt(2 / std::numbers::pi), kCubic = 0.044715, kQuick = 1.702;
Approx argument(GateActivation activation, double gate) {
  const Approx x(gate);
  if (activation == GateActivation::Silu) return x;
  if (activation == GateActivation::QuickGelu) return Approx(kQuick) * x;
  return Approx(kTwice) * (x + Approx(kCubic) * x * x * x);
}
Approx slope(GateActivation activation, double gate) {
  const Approx x(gate);
  if (activation == GateActivation::Silu) return Approx(1);
  if (activation == GateActivation::QuickGelu) return Approx(kQuick);
  return Approx(kTwice) * (Approx(1) + Approx(3 * kCubic) * x * x);
}
Approx share(GateActivation activation, double gate) {
  if (activation == GateActivation::Gelu) return normal_integral(Approx(gate));
  const Approx h = argument(activation, gate);
  const Approx e = exp(h.value < 0 ? h : Approx(0) - h);  // at most 1
  return (h.value < 0 ? e : Approx(1)) / (Approx(1) + e);
}

// Of the share, times the gate.
Approx growth(GateActivation activation, double gate) {
  const Approx x(gate);
  if (activation == GateActivation::Gelu) return x * normal_density(x);
  const Approx s = share(activation, gate);
  return s * (x * (Approx(1) - s) * slope(activation, gate));
}

// activation(gate) * up.
Approx gated(GateActivation activation, double gate, const Approx& up) {
  return Approx(gate) * share(activation, gate) * up;
}

// A gate and what it is multiplied with, as a limit leaves them, and whether each was within it.
struct Gated {
  double gate;
  Approx up;
  bool gate_within, up_within;
};
Gated limited(const auto& op, double gate, double up) {
  if (op.plain) return {gate, Approx(1), true, true};
  if (op.limit == 0) return {gate, Approx(up), true, true};
  const double limit{op.limit};
  // A NaN is within.
  return {std::min(gate, limit), Approx(std::clamp(up, -limit, limit)) + Approx(1), !(gate > limit),
          !(std::abs(up) > limit)};
}

}  // namespace

Outputs expect(const Embed& op, Inputs in) {
  const auto ids = in[Embed::kIds].as<int32_t>();
  const auto table = in[Embed::kTable].values();
  const auto residual = op.has_residual ? in[Embed::kResidual].values() : std::vector<double>();
  Expected y{Embed::kY};
  for (int64_t t = 0; t < op.tokens; ++t) {
    for (const double v : row(table, ids[index(t)], op.dim)) {
      const Approx x = scaled(Approx(v), op.scale);
      y.values.push_back(op.has_residual ? x + Approx(residual[y.values.size()]) : x);
    }
  }
  return {y};
}

Outputs expect(const EmbedBwd& op, Inputs in) {
  const auto ids = in[EmbedBwd::kIds].as<int32_t>();
  const auto dy = in[EmbedBwd::kDy].values();
  const Old old(op.accumulate, in[EmbedBwd::kDTable]);
  std::vector<Sum> sums(index(op.vocab * op.dim));
  std::vector<bool> seen(index(op.vocab));
  for (size_t i = 0; i < sums.size(); ++i) sums[i].add(old[i]);
  for (int64_t t = 0; t < op.tokens; ++t) {
    const int64_t v = ids[index(t)];
    seen[index(v)] = true;
    for (int64_t d = 0; d < op.dim; ++d)
      sums[index(v * op.dim + d)].add(scaled(Approx(dy[index(t * op.dim + d)]), op.scale));
  }
  Expected dtable{EmbedBwd::kDTable};
  for (size_t i = 0; i < sums.size(); ++i) {
    // A row that no token names gets nothing added: it stays what it was, or is zero.
    dtable.values.push_back(seen[i / index(op.dim)] ? sums[i].total() : Approx(old[i]));
  }
  return {dtable};
}

Outputs expect(const RmsNorm& op, Inputs in) {
  const auto x = in[RmsNorm::kX].values(), w = in[RmsNorm::kW].values();
  const auto residual = op.has_residual ? in[RmsNorm::kResidual].values() : std::vector<double>();
  Expected y{RmsNorm::kY};
  for (int64_t t = 0; t < op.tokens; ++t) {
    const auto xt = row(x, t, op.dim);
    const Approx r = inverse_rms(xt, op.eps);
    for (size_t d = 0; d < xt.size(); ++d) {
      const Approx v = scaled(Approx(xt[d]) * r * weight(w[d], op.offset), op.scale);
      y.values.push_back(op.has_residual ? v + Approx(residual[index(t * op.dim) + d]) : v);
    }
  }
  return op.narrow ? narrowed(op.narrow_results(), {y}) : Outputs{y};
}

// With r = 1 / rms(x) and g = dy * scale * (offset + w):  dx = r g - x r^3 (g . x) / dim,  dw = sum over rows
// of dy scale x r.
Outputs expect(const RmsNormBwd& op, Inputs in) {
  const auto x = in[RmsNormBwd::kX].values(), w = in[RmsNormBwd::kW].values();
  const auto dy = in[RmsNormBwd::kDy].values();
  const Old old_dw(op.accumulate, in[RmsNormBwd::kDw]);
  const auto dres = op.has_residual ? in[RmsNormBwd::kDres].values() : std::vector<double>();
  std::vector<Sum> dw(index(op.dim));
  for (size_t d = 0; d < dw.size(); ++d) dw[d].add(old_dw[d]);
  Expected dx{RmsNormBwd::kDx};
  for (int64_t t = 0; t < op.tokens; ++t) {
    const auto xt = row(x, t, op.dim), dyt = row(dy, t, op.dim);
    const Approx r = inverse_rms(xt, op.eps);
    const auto g_of = [&](size_t d) { return scaled(Approx(dyt[d]), op.scale); };
    Sum dot;
    for (size_t d = 0; d < xt.size(); ++d) dot.add(g_of(d) * weight(w[d], op.offset), xt[d]);
    const Approx pull = r * r * r * dot.total() / Approx(double(op.dim));
    for (size_t d = 0; d < xt.size(); ++d) {
      Approx g = r * (g_of(d) * weight(w[d], op.offset)) - Approx(xt[d]) * pull;
      if (op.has_residual) g = g + Approx(dres[index(t * op.dim) + d]);
      dx.values.push_back(g);
      dw[d].add(scaled(r * Approx(xt[d]), op.scale), dyt[d]);
    }
  }
  Expected dw_out{RmsNormBwd::kDw};
  for (const Sum& sum : dw) dw_out.values.push_back(sum.total());
  return {dx, dw_out};
}

namespace {

// A row around its mean, over its deviation; the deviation's inverse comes last.
std::vector<Approx> around_mean(std::span<const double> x, float eps) {
  Sum sum, squares;
  for (const double v : x) sum.add(Approx(v));
  const Approx mean = sum.total() / Approx(double(x.size()));
  std::vector<Approx> out;
  for (const double v : x) out.push_back(Approx(v) - mean);
  for (const Approx& v : out) squares.add(v * v);
  const Approx r = Approx(1) / sqrt(squares.total() / Approx(double(x.size())) + Approx(double{eps}));
  for (Approx& v : out) v = v * r;
  out.push_back(r);
  return out;
}

}  // namespace

Outputs expect(const LayerNorm& op, Inputs in) {
  const auto x = in[LayerNorm::kX].values();
  const auto w = op.has_weight ? in[LayerNorm::kW].values() : std::vector<double>();
  const auto bias = op.has_bias ? in[LayerNorm::kBias].values() : std::vector<double>();
  Expected y{LayerNorm::kY};
  for (int64_t t = 0; t < op.tokens; ++t) {
    const auto xh = around_mean(row(x, t, op.dim), op.eps);
    for (size_t d = 0; d < index(op.dim); ++d) {
      Approx v = op.has_weight ? xh[d] * Approx(w[d]) : xh[d];
      if (op.has_bias) v = v + Approx(bias[d]);
      y.values.push_back(scaled(v, op.scale));
    }
  }
  return {y};
}

// With xh the row around its mean, r the inverse of its deviation and v = w dy scale:
//   dx = r (v - mean(v) - xh mean(v xh)),  dw = sum over rows of dy scale xh,  dbias = sum of dy scale.
Outputs expect(const LayerNormBwd& op, Inputs in) {
  const auto x = in[LayerNormBwd::kX].values(), dy = in[LayerNormBwd::kDy].values();
  const auto w = op.has_weight ? in[size_t(op.w_operand())].values() : std::vector<double>();
  const auto dres = op.has_residual ? in[size_t(op.dres_operand())].values() : std::vector<double>();
  std::vector<Sum> dw(index(op.dim)), dbias(index(op.dim));
  const auto begin = [&](std::vector<Sum>& sums, bool has, bool accumulate, int operand) {
    if (!has) return;
    const Old old(accumulate, in[size_t(operand)]);
    for (size_t d = 0; d < sums.size(); ++d) sums[d].add(old[d]);
  };
  begin(dw, op.has_weight, op.accumulate_dw, op.dw_operand());
  begin(dbias, op.has_bias, op.accumulate_dbias, op.dbias_operand());
  Expected dx{LayerNormBwd::kDx};
  for (int64_t t = 0; t < op.tokens; ++t) {
    const auto xh = around_mean(row(x, t, op.dim), op.eps);
    const auto dyt = row(dy, t, op.dim);
    std::vector<Approx> v;
    Sum sum, dot;
    for (size_t d = 0; d < index(op.dim); ++d) {
      const Approx g = scaled(Approx(dyt[d]), op.scale);
      dw[d].add(g * xh[d]);
      dbias[d].add(g);
      v.push_back(op.has_weight ? g * Approx(w[d]) : g);
      sum.add(v.back());
      dot.add(v.back() * xh[d]);
    }
    const Approx n(double(op.dim)), mean = sum.total() / n, pull = dot.total() / n;
    for (size_t d = 0; d < index(op.dim); ++d) {
      Approx out = xh.back() * (v[d] - mean - xh[d] * pull);
      if (op.has_residual) out = out + Approx(dres[index(t * op.dim) + d]);
      dx.values.push_back(out);
    }
  }
  Outputs out{dx};
  const auto put = [&](const std::vector<Sum>& sums, bool has, int operand) {
    if (!has) return;
    Expected& e = out.emplace_back(Expected{operand});
    for (const Sum& s : sums) e.values.push_back(s.total());
  };
  put(dw, op.has_weight, op.dw_operand());
  put(dbias, op.has_bias, op.dbias_operand());
  return out;
}

Outputs expect(const HeadNormRope& op, Inputs in) {
  const auto x = in[HeadNormRope::kX].values(), w = in[HeadNormRope::kW].values();
  Expected y{HeadNormRope::kY};
  const int64_t length = op.weights();  // of what is normalised together
  const auto add_normed = [&](int64_t at, int64_t count, const auto& weight_of) {
    const auto part = std::span(x).subspan(index(at), index(count));
    const Approx r = inverse_rms(part, op.eps);
    for (size_t d = 0; d < part.size(); ++d) y.values.push_back(Approx(part[d]) * r * weight_of(d));
  };
  for (int64_t t = 0; t < op.tokens; ++t) {
    const int64_t row = t * op.x_columns(), heads = op.heads * op.head_dim;
    for (int64_t first = 0; first < heads; first += length)
      add_normed(row + first, length, [&](size_t d) { return weight(w[d], op.offset); });
    const int64_t behind = op.behind == BehindHeads::Again ? row : row + heads;
    const int64_t each = op.behind == BehindHeads::Copied ? 1 : op.head_dim;
    for (int64_t d = 0; d < op.rest; d += each) {
      if (op.behind == BehindHeads::Copied) {
        y.values.emplace_back(x[index(behind + d)]);
      } else {
        add_normed(behind + d, each, [](size_t) { return Approx(1); });
      }
    }
  }
  rotate(y.values, op.tokens, op.columns(), op.heads, op.head_dim, in[HeadNormRope::kPos].as<int32_t>(),
         in[HeadNormRope::kInvFreq].as<float>(), op.rope_scale, false);
  return {y};
}

// As RmsNormBwd, of every head or of all as one row, with dy rotated back.
Outputs expect(const HeadNormRopeBwd& op, Inputs in) {
  const auto x = in[HeadNormRopeBwd::kX].values(), w = in[HeadNormRopeBwd::kW].values(),
             dy = in[HeadNormRopeBwd::kDy].values();
  const Old old_dw(op.accumulate, in[HeadNormRopeBwd::kDw]);
  std::vector<Approx> given(dy.begin(), dy.end());
  rotate(given, op.tokens, op.columns(), op.heads, op.head_dim, in[HeadNormRopeBwd::kPos].as<int32_t>(),
         in[HeadNormRopeBwd::kInvFreq].as<float>(), op.rope_scale, true);
  Expected dx{HeadNormRopeBwd::kDx}, dw{HeadNormRopeBwd::kDw};
  const int64_t length = op.weights(), heads = op.heads * op.head_dim;
  std::vector<Sum> sums(index(length));
  for (size_t d = 0; d < sums.size(); ++d) sums[d].add(old_dw[d]);
  // From `count` gradients `from` on to x from `at` on.
  const auto back = [&](int64_t from, int64_t at, int64_t count, const auto& weight_of, bool weighs) {
    const auto part = std::span(x).subspan(index(at), index(count));
    const Approx r = inverse_rms(part, op.eps);
    Sum dot;
    for (size_t d = 0; d < part.size(); ++d) dot.add(given[index(from) + d] * weight_of(d), part[d]);
    const Approx pull = r * r * r * dot.total() / Approx(double(count));
    std::vector<Approx> out;
    for (size_t d = 0; d < part.size(); ++d) {
      const Approx g = given[index(from) + d];
      if (weighs) sums[d].add(r * Approx(part[d]) * g);
      out.push_back(r * (g * weight_of(d)) - Approx(part[d]) * pull);
    }
    return out;
  };
  const auto one = [](size_t) { return Approx(1); };
  for (int64_t t = 0; t < op.tokens; ++t) {
    const int64_t row = t * op.x_columns(), from = t * op.columns();
    for (int64_t first = 0; first < heads; first += length) {
      std::vector<Approx> out = back(
          from + first, row + first, length, [&](size_t d) { return weight(w[d], op.offset); }, true);
      if (op.behind == BehindHeads::Again) {
        const std::vector<Approx> more = back(from + heads + first, row + first, length, one, false);
        // Rounded before it is added.
        for (size_t d = 0; d < out.size(); ++d) out[d] = out[d] + rounded(more[d], unit_of(op.dtype));
      }
      dx.values.insert(dx.values.end(), out.begin(), out.end());
    }
    for (int64_t d = 0; d < op.rest && op.behind == BehindHeads::Copied; ++d)
      dx.values.push_back(given[index(from + heads + d)]);
    for (int64_t d = 0; d < op.rest && op.behind == BehindHeads::Normed; d += op.head_dim) {
      const std::vector<Approx> out = back(from + heads + d, row + heads + d, op.head_dim, one, false);
      dx.values.insert(dx.values.end(), out.begin(), out.end());
    }
  }
  for (const Sum& sum : sums) dw.values.push_back(sum.total());
  return {dx, dw};
}

Outputs expect(const Cast& op, Inputs in) {
  Expected y{Cast::kY};
  const std::vector<double> x = in[Cast::kX].values(), before = in[Cast::kY].values();
  for (int64_t i = 0; i < in[Cast::kY].elements(); ++i) {
    const bool own = i >= op.first && i < op.first + op.elements;
    y.values.emplace_back(own ? x[size_t(i - op.first)] : op.first > 0 ? before[size_t(i)] : 0);
  }
  return {y};
}

// To the bit: the nearest by the scale that make_tensor() gives a row.
Outputs expect(const Quantize& op, Inputs in) {
  const std::vector<double> x = in[Quantize::kX].values();
  std::vector<double> turned(x.size());
  for (size_t i = 0; i < x.size(); ++i)
    turned[i % size_t(op.cols) * size_t(op.rows) + i / size_t(op.cols)] = x[i];
  const auto copy = [&](size_t operand, std::span<const double> values, int64_t row) {
    Expected out{operand};
    for (const double v : make_tensor(op.format.over(row), values).values()) out.values.emplace_back(v);
    return out;
  };
  Outputs out;
  if (op.by_row) out.push_back(copy(Quantize::kY, x, op.cols));
  if (op.by_column) out.push_back(copy(op.turned_operand(), turned, op.rows));
  return out;
}

Outputs expect(const ScaleBy&, Inputs in) {
  Expected y{ScaleBy::kY};
  const Approx s(in[ScaleBy::kS].at(0));
  for (const double v : in[ScaleBy::kX].values()) y.values.push_back(Approx(v) * s);
  return {y};
}

Outputs expect(const Swiglu& op, Inputs in) {
  const auto gu = in[Swiglu::kGu].values();
  const auto ups = op.apart ? in[Swiglu::kUp].values() : std::vector<double>();
  Expected y{Swiglu::kY};
  for (int64_t t = 0; t < op.tokens; ++t) {
    const auto gut = row(gu, t, op.columns());
    for (int64_t d = 0; d < op.dim; ++d) {
      const double up = op.plain ? 1 : op.apart ? ups[index(t * op.dim + d)] : gut[index(op.dim + d)];
      const Gated x = limited(op, gut[index(d)], up);
      y.values.push_back(gated(op.activation, x.gate, x.up));
    }
  }
  return op.narrow ? narrowed(op.narrow_results(), {y}) : Outputs{y};
}

// With s the gate's share:  dgate = dy up (s + gate s'(gate)),  dup = dy gate s; s' = s (1 - s) h' for
// sigmoids of h.
Outputs expect(const SwigluBwd& op, Inputs in) {
  const auto gu = in[SwigluBwd::kGu].values(), dy = in[SwigluBwd::kDy].values();
  const auto ups = op.apart ? in[SwigluBwd::kUp].values() : gu;
  Expected dgu{SwigluBwd::kDgu, std::vector<Approx>(gu.size())};
  Expected apart{SwigluBwd::kDup, std::vector<Approx>(ups.size())};
  Expected& dup = op.apart ? apart : dgu;
  Expected y{SwigluBwd::kY};
  for (int64_t t = 0; t < op.tokens; ++t) {
    for (int64_t d = 0; d < op.dim; ++d) {
      const size_t gate_at = index(t * op.columns() + d), up_at = gate_at + index(op.apart ? 0 : op.dim);
      const Gated x = limited(op, gu[gate_at], op.plain ? 1 : ups[up_at]);
      const Approx gate(x.gate), g(dy[index(t * op.dim + d)]), s = share(op.activation, x.gate);
      if (x.gate_within) dgu.values[gate_at] = g * x.up * (s + growth(op.activation, x.gate));
      if (!op.plain && x.up_within) dup.values[up_at] = g * (gate * s);
      y.values.push_back(gated(op.activation, x.gate, x.up));
    }
  }
  Outputs out{dgu, y};
  if (op.narrow) return narrowed(op.narrow_results(), out);
  if (op.apart) out.push_back(apart);
  return out;
}

Outputs expect(const ExpertGluBwd& op, Inputs in) {
  const Mixture& m = op.mixture;
  const auto gu = in[ExpertGluBwd::kGu].values(), dy = in[ExpertGluBwd::kDy].values(),
             gates = in[ExpertGluBwd::kGates].values();
  const auto routing = in[ExpertGluBwd::kRouting].as<int32_t>();
  const auto bias = op.biased > 0 ? in[ExpertGluBwd::kBias].values() : std::vector<double>();
  const auto dout = op.biased > 0 ? in[ExpertGluBwd::kDout].values() : std::vector<double>();
  const Swiglu glu{m.rows(), op.dim, op.dtype, op.activation, false, op.limit};
  Expected dgu{ExpertGluBwd::kDgu, std::vector<Approx>(gu.size())};
  Expected scaled_y{ExpertGluBwd::kGated};
  Expected dgates{ExpertGluBwd::kDgates, std::vector<Approx>(gates.size())};
  int64_t expert = 0;
  for (int64_t i = 0; i < m.rows(); ++i) {
    const int64_t choice = routing[index(m.experts + 1 + i)];
    while (routing[index(expert + 1)] <= i) ++expert;
    const Approx of_row(gates[index(choice)]);
    Sum dot;
    for (int64_t d = 0; d < op.dim; ++d) {
      const size_t gate_at = index(i * 2 * op.dim + d), up_at = gate_at + index(op.dim);
      const Gated x = limited(glu, gu[gate_at], gu[up_at]);
      const Approx gate(x.gate), given(dy[index(i * op.dim + d)]), s = share(op.activation, x.gate);
      const Approx y = gated(op.activation, x.gate, x.up), g = of_row * given;
      if (x.gate_within) dgu.values[gate_at] = g * x.up * (s + growth(op.activation, x.gate));
      if (x.up_within) dgu.values[up_at] = g * (gate * s);
      scaled_y.values.push_back(of_row * y);
      dot.add(y * given);
    }
    for (int64_t o = 0; o < op.biased; ++o)
      dot.add(Approx(bias[index(expert * op.biased + o)]), dout[index(choice / m.top_k * op.biased + o)]);
    dgates.values[index(choice)] = dot.total();
  }
  return {dgu, scaled_y, dgates};
}

}  // namespace sluice::core::conformance
