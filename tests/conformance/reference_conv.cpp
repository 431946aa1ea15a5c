// SPDX-License-Identifier: Apache-2.0
// Short convolutions, from the formulas in ops/conv.h.
#include <algorithm>

#include "conformance/reference_ops.h"

namespace sluice::core::conformance {
namespace {

size_t index(int64_t i) {
  return static_cast<size_t>(i);
}

// A chunk and what came before it.
struct Conv {
  int64_t tokens, dim, width;
  DType dtype;
  std::vector<double> bcx, w, before;
  std::span<const int32_t> pos;
  bool silu;

  double b(int64_t t, int64_t d) const { return bcx[index(t * 3 * dim + d)]; }
  double c(int64_t t, int64_t d) const { return bcx[index((t * 3 + 1) * dim + d)]; }
  double x(int64_t t, int64_t d) const { return bcx[index((t * 3 + 2) * dim + d)]; }
  double tap(int64_t j, int64_t d) const { return w[index(d * width + width - 1 - j)]; }
  Approx u(int64_t t, int64_t d) const {
    if (t < 0) return {before[index((t + width - 1) * dim + d)]};
    if (silu) return {bcx[index(t * dim + d)]};
    return stored(Approx(b(t, d)) * Approx(x(t, d)), dtype);
  }
  bool counts(int64_t t, int64_t j) const { return j <= pos[index(t)] && (t - j >= 0 || !before.empty()); }
  Approx sum(int64_t t, int64_t d) const {
    Sum sum;
    for (int64_t j = 0; j < width; ++j) {
      if (counts(t, j)) sum.add(u(t - j, d), tap(j, d));
    }
    return sum.total();
  }
};

Conv conv_of(const auto& op, Inputs in, bool has_before, int before) {
  using O = std::remove_cvref_t<decltype(op)>;
  return {op.tokens,
          op.dim,
          op.width,
          op.dtype,
          in[O::kBcx].values(),
          in[O::kW].values(),
          has_before ? in[index(before)].values() : std::vector<double>(),
          in[O::kPos].template as<int32_t>(),
          op.silu};
}

Approx sigmoid(const Approx& x) {
  return Approx(1) / (Approx(1) + exp(-x));
}

}  // namespace

Outputs expect(const ShortConv& op, Inputs in) {
  const Conv conv = conv_of(op, in, op.has_before, op.before_operand());
  Expected y{ShortConv::kY};
  for (int64_t t = 0; t < op.tokens; ++t) {
    for (int64_t d = 0; d < op.dim; ++d) {
      const Approx sum = conv.sum(t, d);
      y.values.push_back((op.silu ? sigmoid(sum) : Approx(conv.c(t, d))) * sum);
    }
  }
  if (!op.has_tail) return {y};
  Expected tail{op.tail_operand()};
  for (int64_t t = op.tokens - (op.width - 1); t < op.tokens; ++t) {
    for (int64_t d = 0; d < op.dim; ++d)
      tail.values.push_back(op.silu ? conv.u(t, d) : Approx(conv.b(t, d)) * Approx(conv.x(t, d)));
  }
  return {y, tail};
}

Outputs expect(const ShortConvBwd& op, Inputs in) {
  const Conv conv = conv_of(op, in, op.has_before, op.before_operand());
  const std::vector<double> dy = in[ShortConvBwd::kDy].values();
  const std::vector<double> d_tail =
      op.has_tail ? in[index(op.d_tail_operand())].values() : std::vector<double>();
  const Old old(op.accumulate, in[ShortConvBwd::kDw]);
  const int64_t slots = op.width - 1;
  const auto dsum = [&](int64_t t, int64_t d) {
    const Approx given(dy[index(t * op.dim + d)]);
    if (!op.silu) return given * Approx(conv.c(t, d));
    const Approx sum = conv.sum(t, d), s = sigmoid(sum);
    return given * s * (Approx(1) + sum * (Approx(1) - s));
  };
  const auto du = [&](int64_t s, int64_t d) {
    Sum sum;
    for (int64_t j = 0; j < op.width; ++j) {
      const int64_t t = s + j;
      if (t >= 0 && t < op.tokens && conv.counts(t, j)) sum.add(dsum(t, d), conv.tap(j, d));
    }
    const int64_t in_tail = s - (op.tokens - slots);
    if (op.has_tail && in_tail >= 0) sum.add(Approx(d_tail[index(in_tail * op.dim + d)]));
    return sum.total();
  };
  Expected dbcx{ShortConvBwd::kDbcx, std::vector<Approx>(index(op.tokens * op.columns()))};
  Expected dw{ShortConvBwd::kDw};
  std::vector<Sum> sums(index(op.dim * op.width));
  for (size_t i = 0; i < sums.size(); ++i) sums[i].add(old[i]);
  for (int64_t t = 0; t < op.tokens; ++t) {
    for (int64_t d = 0; d < op.dim; ++d) {
      const Approx input = du(t, d);
      Approx* to = &dbcx.values[index(t * op.columns() + d)];
      to[0] = op.silu ? input : input * Approx(conv.x(t, d));
      if (!op.silu) {
        to[op.dim] = Approx(dy[index(t * op.dim + d)]) * conv.sum(t, d);
        to[2 * op.dim] = input * Approx(conv.b(t, d));
      }
      for (int64_t j = 0; j < op.width; ++j) {
        if (conv.counts(t, j))
          sums[index(d * op.width + op.width - 1 - j)].add(dsum(t, d) * conv.u(t - j, d));
      }
    }
  }
  for (const Sum& sum : sums) dw.values.push_back(sum.total());
  Outputs out{dbcx, dw};
  if (!op.has_before) return out;
  Expected d_before{op.d_before_operand()};
  for (int64_t s = -slots; s < 0; ++s) {
    for (int64_t d = 0; d < op.dim; ++d) d_before.values.push_back(du(s, d));
  }
  out.push_back(std::move(d_before));
  return out;
}

Outputs expect(const CachedConv& op, Inputs in) {
  const std::vector<double> bcx = in[CachedConv::kBcx].values(), w = in[CachedConv::kW].values(),
                            cache = in[CachedConv::kCache].values();
  const auto spans = in[CachedConv::kSpans].as<int32_t>();
  const int64_t slots = op.width - 1;
  const auto slot_of = [&](int64_t row) -> int64_t {
    return op.cache_rows > 0 ? in[CachedConv::kSlots].as<int32_t>()[index(row)] : row;
  };
  Expected after{CachedConv::kCache, std::vector<Approx>(cache.begin(), cache.end())},
      y{CachedConv::kY, std::vector<Approx>(index(op.tokens() * op.dim))};
  for (int64_t row = 0; row < op.rows; ++row) {
    const int64_t held = spans[index(2 * row)],
                  count = std::clamp<int64_t>(spans[index(2 * row + 1)], 0, op.q_len);
    const auto at = [&](int64_t i, int64_t block, int64_t d) {
      return bcx[index(((row * op.q_len + i) * 3 + block) * op.dim + d)];
    };
    const auto u = [&](int64_t i, int64_t d) {
      if (i < 0) return Approx(cache[index((slot_of(row) * slots + i + slots) * op.dim + d)]);
      if (op.silu) return Approx(bcx[index((row * op.q_len + i) * op.dim + d)]);
      return stored(Approx(at(i, 0, d)) * Approx(at(i, 2, d)), op.dtype);
    };
    for (int64_t i = 0; i < count; ++i) {
      for (int64_t d = 0; d < op.dim; ++d) {
        Sum sum;
        for (int64_t j = 0; j < op.width && j <= held + i; ++j)
          sum.add(u(i - j, d), w[index(d * op.width + op.width - 1 - j)]);
        const Approx total = sum.total();
        y.values[index((row * op.q_len + i) * op.dim + d)] =
            (op.silu ? sigmoid(total) : Approx(at(i, 1, d))) * total;
      }
    }
    for (int64_t slot = 0; slot < slots; ++slot) {
      for (int64_t d = 0; d < op.dim; ++d) {
        const int64_t i = count - slots + slot;
        after.values[index((slot_of(row) * slots + slot) * op.dim + d)] =
            i < 0 || op.silu ? u(i, d) : Approx(at(i, 0, d)) * Approx(at(i, 2, d));
      }
    }
  }
  return {after, y};
}

}  // namespace sluice::core::conformance
