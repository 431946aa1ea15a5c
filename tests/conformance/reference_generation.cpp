// SPDX-License-Identifier: Apache-2.0
// Attention over a cache, from the dense formulas: with scale = 1 / sqrt(head_dim), for new token i of a row
// that holds `held` tokens and its key head's keys held + i - window < j <= held + i, new ones among them,
//
//   z_j = scale (q_i . k_j)      p_j = exp(z_j - log sum_j exp z_j)      o = sum_j p_j v_j
//
// where with sinks the head's one is another z in the sum.
#include <algorithm>
#include <cmath>

#include "conformance/reference_ops.h"

namespace sluice::core::conformance {
namespace {

size_t index(int64_t i) {
  return static_cast<size_t>(i);
}

struct Row {
  int64_t held, count;
};
Row row_of(const Tensor& spans, int64_t row, int64_t q_len) {
  const auto values = spans.as<int32_t>();
  return {values[index(2 * row)], std::min<int64_t>(values[index(2 * row + 1)], q_len)};
}

Approx probability(const Approx& z, const Approx& top) {
  return exp(disturbed(z - top, kUnit * (std::abs(z.value) + std::abs(top.value))));
}

// The o of one token of one head, which sees `keys` keys from k on, with values from v on.
void attend(const CachedAttention& op, const double* q, const double* k, const double* v, int64_t keys,
            double sink, Approx* o) {
  const Approx scale = rounded(1 / std::sqrt(double(op.head_dim)), kUnit);
  std::vector<Approx> p;
  double top = sink;
  for (int64_t j = 0; j < keys; ++j) {
    Sum score;
    for (int64_t d = 0; d < op.head_dim; ++d) score.add(Approx(q[d]), k[j * op.head_dim + d]);
    p.push_back(softcapped(score.total() * scale, double{op.softcap}));
    top = std::max(top, p.back().value);
  }
  Sum total;
  if (sink != -INFINITY) total.add(probability(Approx(sink), Approx(top)));
  for (Approx& z : p) total.add(z = probability(z, Approx(top)));
  for (int64_t d = 0; d < op.head_dim; ++d) {
    Sum sum;
    for (int64_t j = 0; j < keys; ++j) {
      sum.add(stored(p[index(j)], op.dtype), v[j * op.head_dim + d]);
    }
    o[d] = sum.total() / total.total();
  }
}

}  // namespace

Outputs expect(const CachedAttention& op, Inputs in) {
  const auto slot_of = [&](int64_t row) -> int64_t {
    return op.cache_rows > 0 ? in[op.slots_operand()].as<int32_t>()[index(row)] : row;
  };
  const std::vector<double> q = in[CachedAttention::kQ].values(), kv = in[CachedAttention::kKv].values();
  std::vector<double> cache = in[CachedAttention::kCache].values();
  const auto sinks = op.has_sinks ? in[CachedAttention::kSinks].values() : std::vector<double>();
  Expected o{CachedAttention::kO, std::vector<Approx>(q.size())};
  for (int64_t row = 0; row < op.rows; ++row) {
    const Row at = row_of(in[CachedAttention::kSpans], row, op.q_len);
    for (int64_t i = 0; i < at.count; ++i) {
      for (int64_t head = 0; head < 2 * op.kv_heads; ++head) {
        const auto from = kv.begin() + ((row * op.q_len + i) * 2 * op.kv_heads + head) * op.head_dim;
        std::copy_n(from, op.head_dim,
                    cache.begin() + op.cache_at(slot_of(row), 0, head) + (at.held + i) * op.head_dim);
      }
    }
    for (int64_t i = 0; i < at.count; ++i) {
      for (int64_t head = 0; head < op.q_heads; ++head) {
        const int64_t q_at = ((row * op.q_len + i) * op.q_heads + head) * op.head_dim;
        const int64_t kv_head = head / (op.q_heads / op.kv_heads);
        const int64_t end = at.held + i + 1,
                      first = op.window > 0 ? std::max<int64_t>(end - op.window, 0) : 0;
        attend(op, &q[index(q_at)],
               &cache[index(op.cache_at(slot_of(row), 0, kv_head) + first * op.head_dim)],
               &cache[index(op.cache_at(slot_of(row), 1, kv_head) + first * op.head_dim)], end - first,
               op.has_sinks ? sinks[index(head)] : -INFINITY, &o.values[index(q_at)]);
      }
    }
  }
  Expected after{CachedAttention::kCache};
  for (const double value : cache) after.values.emplace_back(value);
  return {after, o};
}

Outputs expect(const LastLogits& op, Inputs in) {
  const std::vector<double> x = in[LastLogits::kX].values(), w = in[LastLogits::kW].values();
  Expected logits{LastLogits::kLogits};
  for (int64_t row = 0; row < op.rows; ++row) {
    const int64_t last = std::max<int64_t>(row_of(in[LastLogits::kSpans], row, op.q_len).count, 1) - 1;
    const double* from = &x[index((row * op.q_len + last) * op.dim)];
    for (int64_t v = 0; v < op.vocab; ++v) {
      Sum sum;
      for (int64_t d = 0; d < op.dim; ++d) sum.add(Approx(from[d]), w[index(v * op.dim + d)]);
      logits.values.push_back(softcapped(sum.total(), double{op.softcap}));
    }
  }
  return {logits};
}

Outputs expect(const CopyRows& op, Inputs in) {
  const auto which = in[CopyRows::kWhich].as<int32_t>();
  const std::vector<double> x = in[CopyRows::kX].values();
  Expected after{CopyRows::kX};
  for (int64_t row = 0; row < op.rows; ++row) {
    for (int64_t i = 0; i < op.elements; ++i)
      after.values.emplace_back(x[index(which[index(row)] * op.elements + i)]);
  }
  return {after};
}

// Draws lie in the middle of a token's share, so that rounding moves none into another's.
Outputs expect(const DrawTokens& op, Inputs in) {
  const std::vector<double> logits = in[DrawTokens::kLogits].values(),
                            draws = in[DrawTokens::kDraws].values();
  Expected drawn{DrawTokens::kDrawn};
  for (int64_t row = 0; row < op.rows; ++row) {
    const double text = draws[index(3 * row)], u = draws[index(3 * row + 1)], t = draws[index(3 * row + 2)];
    if (text < 0) {
      for (const double value : {-1.0, 0.0, 0.0}) drawn.values.emplace_back(value);
      continue;
    }
    const double* x = &logits[index(int64_t(text) * op.vocab)];
    const double top = *std::max_element(x, x + op.vocab);
    Sum ones, powers;
    double total = 0, sum = 0;
    for (int64_t v = 0; v < op.vocab; ++v) {
      ones.add(probability(Approx(x[v]), Approx(top)));
      powers.add(probability(Approx(x[v]) * Approx(t), Approx(top) * Approx(t)));
      total += std::exp((x[v] - top) * t);
    }
    int64_t token = std::max_element(x, x + op.vocab) - x;
    for (int64_t v = 0; v < op.vocab && t > 0; ++v) {
      sum += std::exp((x[v] - top) * t);
      if (sum <= u * total) continue;
      token = v;
      break;
    }
    drawn.values.emplace_back(double(token));
    drawn.values.push_back(-(log(ones.total()) + Approx(top) - Approx(x[token])));
    drawn.values.push_back(t > 0 ? Approx((x[token] - top) * t) - log(powers.total()) : Approx(0.0));
  }
  return {drawn};
}

}  // namespace sluice::core::conformance
