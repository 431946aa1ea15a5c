// SPDX-License-Identifier: Apache-2.0
// The gated delta rule and its gates, from the formulas in ops/delta.h: token by token, with every error
// bounded as if a block's tokens were computed so.
#include <algorithm>
#include <cmath>

#include "conformance/reference_ops.h"

namespace sluice::core::conformance {
namespace {

size_t index(int64_t i) {
  return static_cast<size_t>(i);
}

Approx sigmoid(const Approx& x) {
  return Approx(1) / (Approx(1) + exp(-x));
}
// 1 plus an exponential, of which backends take the logarithm near 0 with care.
Approx softplus(double x) {
  const double y = std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x)));
  return rounded(rounded(Approx(y), kElementaryUnit), kElementaryUnit);
}

}  // namespace

Outputs expect(const DeltaGates& op, Inputs in) {
  const std::vector<double> ba = in[DeltaGates::kBa].values(), a_log = in[DeltaGates::kALog].values(),
                            dt = in[DeltaGates::kDtBias].values();
  Expected gates{DeltaGates::kGates};
  for (int64_t t = 0; t < op.tokens; ++t) {
    for (int64_t h = 0; h < op.heads; ++h) gates.values.push_back(sigmoid(ba[index(t * 2 * op.heads + h)]));
    for (int64_t h = 0; h < op.heads; ++h) {
      const double a = ba[index((t * 2 + 1) * op.heads + h)], x = a + dt[index(h)];
      const Approx plus = disturbed(softplus(x), kUnit * std::abs(x));
      gates.values.push_back(exp(Approx(a_log[index(h)])) * plus);
    }
  }
  return {gates};
}

Outputs expect(const DeltaGatesBwd& op, Inputs in) {
  using O = DeltaGatesBwd;
  const std::vector<double> ba = in[O::kBa].values(), a_log = in[O::kALog].values(),
                            dt = in[O::kDtBias].values(), dgates = in[O::kDgates].values();
  const Old old_a(op.accumulate_a, in[O::kDaLog]), old_dt(op.accumulate_dt, in[O::kDdtBias]);
  Expected dba{O::kDba, std::vector<Approx>(ba.size())}, da_log{O::kDaLog}, ddt{O::kDdtBias};
  for (int64_t h = 0; h < op.heads; ++h) {
    Sum of_log, of_bias;
    of_log.add(Approx(old_a[index(h)]));
    of_bias.add(Approx(old_dt[index(h)]));
    const Approx rate = exp(Approx(a_log[index(h)]));
    for (int64_t t = 0; t < op.tokens; ++t) {
      const size_t at = index(t * 2 * op.heads + h), decay = at + index(op.heads);
      const Approx beta = sigmoid(ba[at]), x = Approx(ba[decay]) + Approx(dt[index(h)]);
      dba.values[at] = Approx(dgates[at]) * beta * (Approx(1) - beta);
      const Approx d = Approx(dgates[decay]) * rate, dx = d * sigmoid(x);
      dba.values[decay] = dx;
      of_log.add(d * disturbed(softplus(x.value), x.bound));
      of_bias.add(dx);
    }
    da_log.values.push_back(of_log.total());
    ddt.values.push_back(of_bias.total());
  }
  return {dba, da_log, ddt};
}

Outputs expect(const HeadGate& op, Inputs in) {
  const std::vector<double> x = in[HeadGate::kX].values(), z = in[HeadGate::kZ].values();
  const std::vector<double> w = op.normed ? in[HeadGate::kW].values() : std::vector<double>();
  Expected y{HeadGate::kY};
  for (int64_t h = 0; h < op.tokens * op.heads; ++h) {
    Sum squares;
    for (int64_t i = 0; i < op.head_dim; ++i)
      squares.add(Approx(x[index(h * op.head_dim + i)]), x[index(h * op.head_dim + i)]);
    const Approx s = op.normed
                         ? Approx(1) / sqrt(squares.total() / Approx(double(op.head_dim)) + Approx(op.eps))
                         : Approx(1);
    for (int64_t i = 0; i < op.head_dim; ++i) {
      const size_t at = index(h * op.head_dim + i);
      Approx out = Approx(x[at]) * sigmoid(z[at]);
      if (op.normed) out = out * (Approx(z[at]) * s * Approx(w[index(i)]));
      y.values.push_back(out);
    }
  }
  return {y};
}

Outputs expect(const HeadGateBwd& op, Inputs in) {
  using O = HeadGateBwd;
  const std::vector<double> x = in[O::kX].values(), z = in[O::kZ].values(), dy = in[O::kDy].values();
  Expected dx{O::kDx}, dz{O::kDz};
  if (!op.normed) {
    for (size_t i = 0; i < x.size(); ++i) {
      const Approx g = sigmoid(z[i]), d = Approx(dy[i]) * g;
      dx.values.push_back(d);
      dz.values.push_back(d * (Approx(1) - g) * Approx(x[i]));
    }
    return {dx, dz};
  }
  const std::vector<double> w = in[O::kW].values();
  const Old old(op.accumulate, in[O::kDw]);
  std::vector<Sum> sums(index(op.head_dim));
  for (size_t i = 0; i < sums.size(); ++i) sums[i].add(Approx(old[i]));
  for (int64_t h = 0; h < op.tokens * op.heads; ++h) {
    const size_t first = index(h * op.head_dim);
    Sum squares, dots;
    for (size_t i = 0; i < sums.size(); ++i) squares.add(Approx(x[first + i]), x[first + i]);
    const Approx s = Approx(1) / sqrt(squares.total() / Approx(double(op.head_dim)) + Approx(op.eps));
    const auto inner = [&](size_t i) {
      return Approx(dy[first + i]) * Approx(z[first + i]) * sigmoid(z[first + i]);
    };
    for (size_t i = 0; i < sums.size(); ++i) {
      const Approx xh = Approx(x[first + i]) * s, g = sigmoid(z[first + i]);
      dots.add(inner(i) * xh * Approx(w[i]));
      sums[i].add(inner(i) * xh);
      dz.values.push_back(Approx(dy[first + i]) * xh * Approx(w[i]) * g *
                          (Approx(1) + Approx(z[first + i]) * (Approx(1) - g)));
    }
    const Approx mean = dots.total() / Approx(double(op.head_dim));
    for (size_t i = 0; i < sums.size(); ++i)
      dx.values.push_back((inner(i) * Approx(w[i]) - Approx(x[first + i]) * s * mean) * s);
  }
  Expected dw{O::kDw};
  for (const Sum& sum : sums) dw.values.push_back(sum.total());
  return {dx, dz, dw};
}

namespace {

using Numbers = std::vector<Approx>;

// The rule over a chunk, token by token, and back. What enters a product, normalised q and k, states,
// changes, what these give each other, and their gradients, may be rounded to `dtype` before. Backends
// compute by blocks: where a state within a block is read here, they sum what the block's tokens give it, and
// the state before them, each times what reads it. These terms cancel, as a token's change takes away what
// others left, so that errors are bounded by the sums of their absolute values (`terms_`, `d_terms_`).
class Rule {
  template <class T>
  auto& at(T& state, int64_t h, int64_t r, int64_t c) const {
    return state[index((h * s_.key_dim + r) * s_.value_dim + c)];
  }

 public:
  Rule(const DeltaSizes& sizes, DType dtype, std::vector<double> qkv, std::vector<double> gates)
      : s_(sizes),
        dtype_(dtype),
        qkv_(std::move(qkv)),
        gates_(std::move(gates)),
        state_(index(sizes.state())),
        terms_(state_.size()),
        d_terms_(state_.size()) {}

  void set_state(const std::vector<double>& values) {
    std::copy(values.begin(), values.end(), state_.begin());
  }
  const Numbers& state() const { return state_; }

  // One token, at `position` of its document; `o` gets its values.
  void step(int64_t t, int64_t position, Numbers& o) {
    const bool begins = position == 0;
    if (begins) std::fill(state_.begin(), state_.end(), Approx());
    if (position % kDeltaBlock == 0 || before_.empty()) {
      for (size_t i = 0; i < terms_.size(); ++i) terms_[i] = std::abs(state_[i].value);
    }
    before_.push_back(state_);
    terms_before_.push_back(terms_);
    begins_.push_back(begins);
    for (int64_t h = 0; h < s_.value_heads; ++h) {
      const Numbers k = head(t, h, false), q = head(t, h, true);
      const Approx keep = exp(Approx(-decay(t, h)));
      for (int64_t c = 0; c < s_.value_dim; ++c) {
        Sum read;
        for (int64_t r = 0; r < s_.key_dim; ++r)
          read.add(operand(summed(at(state_, h, r, c), at(terms_, h, r, c))) * keep * k[index(r)]);
        const Approx change = operand(Approx(beta(t, h)) * (Approx(value(t, h, c)) - read.total()));
        Sum out;
        for (int64_t r = 0; r < s_.key_dim; ++r) {
          Approx& to = at(state_, h, r, c);
          double& terms = at(terms_, h, r, c);
          to = to * keep + operand(k[index(r)] * change);
          terms = terms * keep.value + std::abs(k[index(r)].value * change.value);
          out.add(operand(summed(to, terms)) * q[index(r)]);
        }
        o.push_back(out.total());
      }
    }
  }

  // Of the newest token that was stepped over and not gone back: adds to what it read. `ends`: a block of
  // backends does. Those make the gradient of a decay as what later tokens of its block, and the state behind
  // it, give and take of it: `given_` bounds these terms.
  void back(int64_t t, bool ends, const double* d_o, Numbers& d_state, Numbers& dqkv, Numbers& dgates) {
    const Numbers before = std::move(before_.back());
    const std::vector<double> terms = std::move(terms_before_.back());
    before_.pop_back(), terms_before_.pop_back();
    if (ends) {
      given_.assign(index(s_.value_heads), 0);
      for (size_t i = 0; i < d_terms_.size(); ++i) d_terms_[i] = std::abs(d_state[i].value);
    }
    for (int64_t h = 0; h < s_.value_heads; ++h) {
      const Numbers k = head(t, h, false), q = head(t, h, true);
      const Approx keep = exp(Approx(-decay(t, h)));
      Numbers dk(index(s_.key_dim)), dq(index(s_.key_dim));
      Sum d_keep, d_beta;
      for (int64_t c = 0; c < s_.value_dim; ++c) {
        Sum read, d_change;
        const auto held = [&](int64_t r) { return summed(at(before, h, r, c), at(terms, h, r, c)); };
        for (int64_t r = 0; r < s_.key_dim; ++r) read.add(operand(held(r)) * keep * k[index(r)]);
        const Approx error = Approx(value(t, h, c)) - read.total();
        const Approx change = operand(Approx(beta(t, h)) * error);
        const Approx given(d_o[h * s_.value_dim + c]);
        for (int64_t r = 0; r < s_.key_dim; ++r) {
          const Approx after = operand(held(r) * keep + operand(k[index(r)] * change));
          given_[index(h)] += std::abs(given.value * after.value * q[index(r)].value);
          if (ends) given_[index(h)] += std::abs(at(d_state, h, r, c).value * after.value);
          dq[index(r)] = dq[index(r)] + given * after;
          Approx& d = at(d_state, h, r, c);
          double& d_terms = at(d_terms_, h, r, c);
          d = d + operand(given * q[index(r)]);
          d_terms += std::abs(given.value * q[index(r)].value);
          d_change.add(operand(summed(d, d_terms)) * k[index(r)]);
        }
        const Approx of_change = operand(d_change.total()),
                     of_error = operand(of_change * Approx(beta(t, h)));
        d_beta.add(of_change * error);
        dqkv[index(t * s_.columns() + 2 * s_.keys() + h * s_.value_dim + c)] = of_error;
        for (int64_t r = 0; r < s_.key_dim; ++r) {
          Approx& d = at(d_state, h, r, c);
          double& d_terms = at(d_terms_, h, r, c);
          const Approx kept = operand(held(r)) * keep;
          given_[index(h)] += std::abs(of_error.value * kept.value * k[index(r)].value);
          dk[index(r)] = dk[index(r)] + operand(summed(d, d_terms)) * change - of_error * kept;
          const Approx of_kept = d - operand(of_error * k[index(r)]);
          d_keep.add(of_kept * kept);
          d = of_kept * keep;
          d_terms = (d_terms + std::abs(of_error.value * k[index(r)].value)) * keep.value;
        }
      }
      dgates[index(t * 2 * s_.value_heads + h)] = d_beta.total();
      Approx& d_decay = dgates[index((t * 2 + 1) * s_.value_heads + h)] = -d_keep.total();
      d_decay = summed(d_decay, given_[index(h)]);
      normalise_back(t, h, true, q, dq, dqkv);
      normalise_back(t, h, false, k, dk, dqkv);
    }
    if (begins_.back()) std::fill(d_state.begin(), d_state.end(), Approx());
    begins_.pop_back();
  }

 private:
  // A value that a backend makes as a sum over a block, of terms whose absolute values are so much together.
  static Approx summed(Approx x, double terms) {
    const double error = kSumUnit * terms, count = double(kDeltaBlock);
    x.bound += count * error;
    x.variance += count * square(error);
    return x;
  }
  Approx operand(const Approx& x) const { return dtype_ == DType::F32 ? x : stored(x, dtype_); }
  double beta(int64_t t, int64_t h) const { return gates_[index(t * 2 * s_.value_heads + h)]; }
  double decay(int64_t t, int64_t h) const { return gates_[index((t * 2 + 1) * s_.value_heads + h)]; }
  double value(int64_t t, int64_t h, int64_t c) const {
    return qkv_[index(t * s_.columns() + 2 * s_.keys() + h * s_.value_dim + c)];
  }
  size_t first(int64_t t, int64_t h, bool query) const {
    return index(t * s_.columns() + (query ? 0 : s_.keys()) + h / s_.shared() * s_.key_dim);
  }
  Approx scale(int64_t t, int64_t h, bool query) const {
    Sum squares;
    for (size_t i = 0; i < index(s_.key_dim); ++i)
      squares.add(Approx(qkv_[first(t, h, query) + i]), qkv_[first(t, h, query) + i]);
    return Approx(1) / sqrt(squares.total() + Approx(kDeltaEps));
  }
  Approx factor(bool query) const { return query ? Approx(1) / sqrt(Approx(double(s_.key_dim))) : Approx(1); }
  Numbers head(int64_t t, int64_t h, bool query) const {
    Numbers out;
    const Approx all = scale(t, h, query) * factor(query);
    for (size_t i = 0; i < index(s_.key_dim); ++i)
      out.push_back(operand(Approx(qkv_[first(t, h, query) + i]) * all));
    return out;
  }
  void normalise_back(int64_t t, int64_t h, bool query, const Numbers& y, const Numbers& dy, Numbers& dqkv) {
    Sum along;
    for (size_t i = 0; i < y.size(); ++i) along.add(y[i] * dy[i]);
    const Approx f = factor(query), s = scale(t, h, query);
    for (size_t i = 0; i < y.size(); ++i) {
      Approx& to = dqkv[first(t, h, query) + i];
      to = to + (dy[i] * f - y[i] * along.total() / f) * s;
    }
  }

  const DeltaSizes s_;
  const DType dtype_;
  const std::vector<double> qkv_, gates_;
  Numbers state_;
  std::vector<Numbers> before_;
  std::vector<double> terms_, d_terms_, given_;
  std::vector<std::vector<double>> terms_before_;
  std::vector<bool> begins_;
};

}  // namespace

Outputs expect(const DeltaRule& op, Inputs in) {
  Rule rule(op.sizes, op.dtype, in[DeltaRule::kQkv].values(), in[DeltaRule::kGates].values());
  if (op.has_before) rule.set_state(in[index(op.before_operand())].values());
  const auto pos = in[DeltaRule::kPos].as<int32_t>();
  Expected o{DeltaRule::kO};
  for (int64_t t = 0; t < op.tokens; ++t) rule.step(t, pos[index(t)], o.values);
  if (!op.has_after) return {o};
  return {o, {op.after_operand(), rule.state()}};
}

Outputs expect(const DeltaRuleBwd& op, Inputs in) {
  using O = DeltaRuleBwd;
  const std::vector<double> d_o = in[O::kDo].values();
  const auto pos = in[O::kPos].as<int32_t>();
  Rule rule(op.sizes, op.dtype, in[O::kQkv].values(), in[O::kGates].values());
  if (op.has_before) rule.set_state(in[index(op.before_operand())].values());
  Numbers o, d_state(index(op.sizes.state()));
  if (op.has_after) {
    const std::vector<double> d_after = in[index(op.d_after_operand())].values();
    std::copy(d_after.begin(), d_after.end(), d_state.begin());
  }
  for (int64_t t = 0; t < op.tokens; ++t) rule.step(t, pos[index(t)], o);
  Expected dqkv{O::kDqkv, Numbers(index(op.tokens * op.sizes.columns()))},
      dgates{O::kDgates, Numbers(index(op.tokens * 2 * op.sizes.value_heads))};
  for (int64_t t = op.tokens - 1; t >= 0; --t)
    rule.back(t, t + 1 == op.tokens || pos[index(t + 1)] % kDeltaBlock == 0,
              &d_o[index(t * op.sizes.values())], d_state, dqkv.values, dgates.values);
  Outputs out{dqkv, dgates};
  if (op.has_before) out.push_back({op.d_before_operand(), d_state});
  return out;
}

Outputs expect(const CachedDelta& op, Inputs in) {
  const std::vector<double> qkv = in[CachedDelta::kQkv].values(), gates = in[CachedDelta::kGates].values(),
                            cache = in[CachedDelta::kCache].values();
  const auto spans = in[CachedDelta::kSpans].as<int32_t>();
  const auto slot_of = [&](int64_t row) -> int64_t {
    return op.cache_rows > 0 ? in[CachedDelta::kSlots].as<int32_t>()[index(row)] : row;
  };
  Expected after{CachedDelta::kCache, std::vector<Approx>(cache.begin(), cache.end())}, o{CachedDelta::kO};
  for (int64_t row = 0; row < op.rows; ++row) {
    const int64_t held = spans[index(2 * row)],
                  count = std::clamp<int64_t>(spans[index(2 * row + 1)], 0, op.q_len);
    const auto part = [&](const std::vector<double>& all, int64_t each, int64_t at) {
      return std::vector<double>(all.begin() + at * each, all.begin() + (at + 1) * each);
    };
    Rule rule(op.sizes, op.dtype, part(qkv, op.q_len * op.sizes.columns(), row),
              part(gates, op.q_len * 2 * op.sizes.value_heads, row));
    rule.set_state(part(cache, op.sizes.state(), slot_of(row)));
    for (int64_t t = 0; t < count; ++t) rule.step(t, held + t, o.values);
    o.values.resize(index((row + 1) * op.q_len * op.sizes.values()));
    std::copy(rule.state().begin(), rule.state().end(),
              after.values.begin() + slot_of(row) * op.sizes.state());
  }
  return {after, o};
}

}  // namespace sluice::core::conformance
