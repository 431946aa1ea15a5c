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
const double kTwice = 2 * std::sqrt(2 / std::numbers::pi), kCubic = 0.044715;
Approx argument(GateActivation activation, double gate) {
  const Approx x(gate);
  if (activation == GateActivation::Silu) return x;
  return Approx(kTwice) * (x + Approx(kCubic) * x * x * x);
}
Approx slope(GateActivation activation, double gate) {
  const Approx x(gate);
  if (activation == GateActivation::Silu) return Approx(1);
  return Approx(kTwice) * (Approx(1) + Approx(3 * kCubic) * x * x);
}
Approx share(GateActivation activation, double gate) {
  const Approx h = argument(activation, gate);
  const Approx e = exp(h.value < 0 ? h : Approx(0) - h);  // at most 1
  return (h.value < 0 ? e : Approx(1)) / (Approx(1) + e);
}

// activation(gate) * up.
Approx gated(GateActivation activation, double gate, double up) {
  return Approx(gate) * share(activation, gate) * Approx(up);
}

}  // namespace

Outputs expect(const Embed& op, Inputs in) {
  const auto ids = in[Embed::kIds].as<int32_t>();
  const auto table = in[Embed::kTable].values();
  Expected y{Embed::kY};
  for (int64_t t = 0; t < op.tokens; ++t) {
    for (const double v : row(table, ids[index(t)], op.dim)) y.values.push_back(scaled(Approx(v), op.scale));
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
  return {y};
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

Outputs expect(const HeadNormRope& op, Inputs in) {
  const auto x = in[HeadNormRope::kX].values(), w = in[HeadNormRope::kW].values();
  Expected y{HeadNormRope::kY, {x.begin(), x.end()}};
  const int64_t length = op.weights();  // of what is normalised together
  for (int64_t t = 0; t < op.tokens; ++t) {
    for (int64_t first = 0; first < op.heads * op.head_dim; first += length) {
      const int64_t at = t * op.columns() + first;
      const auto part = std::span(x).subspan(index(at), index(length));
      const Approx r = inverse_rms(part, op.eps);
      for (size_t d = 0; d < part.size(); ++d)
        y.values[index(at) + d] = Approx(part[d]) * r * weight(w[d], op.offset);
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
  Expected dx{HeadNormRopeBwd::kDx, {dy.begin(), dy.end()}}, dw{HeadNormRopeBwd::kDw};
  rotate(dx.values, op.tokens, op.columns(), op.heads, op.head_dim, in[HeadNormRopeBwd::kPos].as<int32_t>(),
         in[HeadNormRopeBwd::kInvFreq].as<float>(), op.rope_scale, true);
  const int64_t length = op.weights();
  std::vector<Sum> sums(index(length));
  for (size_t d = 0; d < sums.size(); ++d) sums[d].add(old_dw[d]);
  for (int64_t t = 0; t < op.tokens; ++t) {
    for (int64_t first = 0; first < op.heads * op.head_dim; first += length) {
      const int64_t at = t * op.columns() + first;
      const auto part = std::span(x).subspan(index(at), index(length));
      const auto g = std::span(dx.values).subspan(index(at), index(length));
      const Approx r = inverse_rms(part, op.eps);
      Sum dot;
      for (size_t d = 0; d < part.size(); ++d) dot.add(g[d] * weight(w[d], op.offset), part[d]);
      const Approx pull = r * r * r * dot.total() / Approx(double(length));
      for (size_t d = 0; d < part.size(); ++d) {
        sums[d].add(r * Approx(part[d]) * g[d]);
        g[d] = r * (g[d] * weight(w[d], op.offset)) - Approx(part[d]) * pull;
      }
    }
  }
  for (const Sum& sum : sums) dw.values.push_back(sum.total());
  return {dx, dw};
}

Outputs expect(const Cast&, Inputs in) {
  Expected y{Cast::kY};
  for (const double v : in[Cast::kX].values()) y.values.emplace_back(v);
  return {y};
}

Outputs expect(const Swiglu& op, Inputs in) {
  const auto gu = in[Swiglu::kGu].values();
  Expected y{Swiglu::kY};
  for (int64_t t = 0; t < op.tokens; ++t) {
    const auto gut = row(gu, t, 2 * op.dim);
    for (int64_t d = 0; d < op.dim; ++d)
      y.values.push_back(gated(op.activation, gut[index(d)], gut[index(op.dim + d)]));
  }
  return {y};
}

// With s = sigmoid(h(gate)):  dgate = dy up s (1 + gate (1 - s) h'(gate)),  dup = dy gate s.
Outputs expect(const SwigluBwd& op, Inputs in) {
  const auto gu = in[SwigluBwd::kGu].values(), dy = in[SwigluBwd::kDy].values();
  Expected dgu{SwigluBwd::kDgu, std::vector<Approx>(gu.size())};
  Expected y{SwigluBwd::kY};
  for (int64_t t = 0; t < op.tokens; ++t) {
    for (int64_t d = 0; d < op.dim; ++d) {
      const size_t gate_at = index(t * 2 * op.dim + d), up_at = gate_at + index(op.dim);
      const Approx gate(gu[gate_at]), up(gu[up_at]), g(dy[index(t * op.dim + d)]);
      const Approx s = share(op.activation, gate.value), h = slope(op.activation, gate.value);
      dgu.values[gate_at] = g * up * s * (Approx(1) + gate * (Approx(1) - s) * h);
      dgu.values[up_at] = g * (gate * s);
      y.values.push_back(gated(op.activation, gate.value, up.value));
    }
  }
  return {dgu, y};
}

}  // namespace sluice::core::conformance
