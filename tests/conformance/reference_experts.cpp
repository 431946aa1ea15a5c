// SPDX-License-Identifier: Apache-2.0
// Mixtures of experts, from the formulas in ops/experts.h.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "conformance/reference_ops.h"

namespace sluice::core::conformance {
namespace {

size_t index(int64_t i) {
  return static_cast<size_t>(i);
}

// exp(x - max) / sum, and log(sum of exp(x)).
struct Softmax {
  std::vector<Approx> scores;
  Approx log_sum;
};
Softmax softmax(std::span<const double> x) {
  const double top = *std::max_element(x.begin(), x.end());
  std::vector<Approx> e;
  Sum sum;
  for (const double v : x) {
    e.push_back(exp(Approx(v) - Approx(top)));
    sum.add(e.back());
  }
  for (Approx& v : e) v = v / sum.total();
  return {std::move(e), Approx(top) + log(sum.total())};
}

Approx sigmoid(const Approx& x) {
  const Approx e = exp(x.value < 0 ? x : Approx(0) - x);
  return (x.value < 0 ? e : Approx(1)) / (Approx(1) + e);
}

// A routing as the parts of its operand.
struct Places {
  std::span<const int32_t> begin, choice, row;

  Places(const Mixture& mixture, const Tensor& routing) {
    const auto all = routing.as<int32_t>();
    const auto rows = index(mixture.rows());
    begin = all.subspan(0, index(mixture.experts) + 1);
    choice = all.subspan(begin.size(), rows);
    row = all.subspan(begin.size() + rows, rows);
  }
  int64_t expert_of(int64_t row_) const {
    return std::upper_bound(begin.begin(), begin.end(), int32_t(row_)) - begin.begin() - 1;
  }
};

// The scores of chosen experts before they are divided or scaled.
std::vector<Approx> gates_of(const auto& op, std::span<const double> logits,
                             std::span<const int32_t> chosen) {
  std::vector<double> of_chosen;
  for (const int32_t e : chosen) of_chosen.push_back(logits[index(e)]);
  if (op.score == RouterScore::Chosen) return softmax(of_chosen).scores;
  std::vector<Approx> out;
  const Softmax all = softmax(logits);
  for (size_t j = 0; j < chosen.size(); ++j)
    out.push_back(op.score == RouterScore::Softmax ? all.scores[index(chosen[j])]
                                                   : sigmoid(Approx(of_chosen[j])));
  return out;
}
Approx total_of(const std::vector<Approx>& gates) {
  Sum sum;
  for (const Approx& g : gates) sum.add(g);
  return sum.total() + Approx(1e-6);
}

std::span<const double> row_of(const std::vector<double>& all, int64_t row, int64_t columns) {
  return std::span(all).subspan(index(row * columns), index(columns));
}

}  // namespace

Outputs expect(const Route& op, Inputs in) {
  const Mixture& m = op.mixture;
  const std::vector<double> logits = in[Route::kLogits].values();
  const std::vector<double> bias =
      op.has_bias ? in[Route::kBias].values() : std::vector<double>(index(m.experts));
  Expected gates{Route::kGates}, chosen{Route::kChosen};
  for (int64_t t = 0; t < m.tokens; ++t) {
    const auto row = row_of(logits, t, m.experts);
    std::vector<int32_t> order(index(m.experts));
    std::iota(order.begin(), order.end(), 0);
    const auto key = [&](int32_t e) {
      const double x = row[index(e)];
      return op.score == RouterScore::Sigmoid ? 1 / (1 + std::exp(-x)) + bias[index(e)] : x;
    };
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return key(a) > key(b); });
    order.resize(index(m.top_k));
    std::vector<Approx> of = gates_of(op, row, order);
    const Approx total = total_of(of);
    for (const Approx& g : of)
      gates.values.push_back((op.normalised ? g / total : g) * Approx(double{op.scale}));
    for (const int32_t e : order) chosen.values.emplace_back(double(e));
  }
  return {gates, chosen};
}

Outputs expect(const RouteBwd& op, Inputs in) {
  const Mixture& m = op.mixture;
  const std::vector<double> logits = in[RouteBwd::kLogits].values(), dgates = in[RouteBwd::kDgates].values();
  const auto chosen = in[RouteBwd::kChosen].as<int32_t>();
  const double scale{op.scale};
  Expected dlogits{RouteBwd::kDlogits};
  for (int64_t t = 0; t < m.tokens; ++t) {
    const auto row = row_of(logits, t, m.experts);
    const auto of = chosen.subspan(index(t * m.top_k), index(m.top_k));
    const std::vector<Approx> gates = gates_of(op, row, of);
    const auto dgate = [&](size_t j) { return Approx(dgates[index(t * m.top_k) + j]) * Approx(scale); };
    std::vector<Approx> out(index(m.experts));
    const Softmax all = softmax(row);
    // With respect to softmax scores, which all depend on all logits.
    std::vector<Approx> to_scores(index(m.experts));
    if (op.reads_round()) {
      const std::vector<double> round = in[RouteBwd::kRound].values();
      const double n = double(op.losses.n);
      for (size_t e = 0; e < to_scores.size(); ++e)
        to_scores[e] = Approx(double(op.losses.balance) * double(m.experts) / n / n * round[e]);
      for (Approx& d : to_scores) d = rounded(d, kUnit);
    }
    if (op.score == RouterScore::Softmax) {
      for (size_t j = 0; j < of.size(); ++j) to_scores[index(of[j])] = to_scores[index(of[j])] + dgate(j);
    }
    Sum inner;
    for (size_t e = 0; e < to_scores.size(); ++e) inner.add(all.scores[e] * to_scores[e]);
    const Approx z = Approx(2 * double(op.losses.z)) * all.log_sum;
    for (size_t e = 0; e < to_scores.size(); ++e) out[e] = all.scores[e] * (to_scores[e] - inner.total() + z);
    if (op.score != RouterScore::Softmax) {
      Approx divisor(1);
      if (op.score == RouterScore::Sigmoid && op.normalised) divisor = total_of(gates);
      Sum mean;
      for (size_t j = 0; j < of.size(); ++j) mean.add(gates[j] / divisor * dgate(j));
      const bool coupled = op.score == RouterScore::Chosen || op.normalised;
      for (size_t j = 0; j < of.size(); ++j) {
        const Approx d = (coupled ? dgate(j) - mean.total() : dgate(j)) / divisor;
        const Approx slope = op.score == RouterScore::Chosen ? gates[j] : gates[j] * (Approx(1) - gates[j]);
        out[index(of[j])] = out[index(of[j])] + d * slope;
      }
    }
    dlogits.values.insert(dlogits.values.end(), out.begin(), out.end());
  }
  return {dlogits};
}

Outputs expect(const RouterLoad& op, Inputs in) {
  const Mixture& m = op.mixture;
  const LoadLayout layout{m.experts};
  const std::vector<double> logits = in[RouterLoad::kLogits].values();
  const auto chosen = in[RouterLoad::kChosen].as<int32_t>();
  std::vector<Sum> sums(index(layout.elements()));
  std::vector<double> counts(index(m.experts));
  for (const int32_t e : chosen) counts[index(e)] += 1;
  for (int64_t t = 0; t < m.tokens; ++t) {
    const auto row = row_of(logits, t, m.experts);
    const Softmax all = softmax(row);
    Sum entropy;
    for (int64_t e = 0; e < m.experts; ++e) {
      const Approx& p = all.scores[index(e)];
      sums[index(layout.scores() + e)].add(p);
      entropy.add(p * (all.log_sum - Approx(row[index(e)])));
    }
    sums[index(layout.entropy())].add(entropy.total());
    sums[index(layout.z())].add(all.log_sum * all.log_sum);
  }
  const auto to = [&](int operand, bool accumulate) {
    const Old old(accumulate, in[index(operand)]);
    Expected out{operand};
    for (int64_t i = 0; i < layout.elements(); ++i) {
      Sum sum = sums[index(i)];
      if (i < m.experts) sum.add(Approx(counts[index(i)]));
      sum.add(Approx(old[index(i)]));
      out.values.push_back(sum.total());
    }
    return out;
  };
  Outputs out{to(RouterLoad::kLayer, op.accumulate_layer)};
  if (!op.alone) out.push_back(to(RouterLoad::kRound, op.accumulate_round));
  return out;
}

Outputs expect(const SortByExpert& op, Inputs in) {
  const auto chosen = in[SortByExpert::kChosen].as<int32_t>();
  std::vector<int32_t> order(chosen.size()), row(chosen.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return chosen[index(a)] < chosen[index(b)]; });
  for (size_t i = 0; i < order.size(); ++i) row[index(order[i])] = int32_t(i);
  Expected routing{SortByExpert::kRouting};
  for (int64_t e = 0; e <= op.mixture.experts; ++e)
    routing.values.emplace_back(double(std::ranges::count_if(chosen, [&](int32_t c) { return c < e; })));
  for (const int32_t i : order) routing.values.emplace_back(double(i));
  for (const int32_t i : row) routing.values.emplace_back(double(i));
  return {routing};
}

Outputs expect(const GroupedLinear& op, Inputs in) {
  const Places places(op.mixture, in[GroupedLinear::kRouting]);
  const std::vector<double> x = in[GroupedLinear::kX].values(), w = in[GroupedLinear::kW].values(),
                            before = in[GroupedLinear::kY].values();
  const std::vector<double> bias = op.has_bias ? in[GroupedLinear::kBias].values() : std::vector<double>();
  Expected y{GroupedLinear::kY};
  for (int64_t i = 0; i < op.mixture.rows(); ++i) {
    const int64_t e = places.expert_of(i) - op.group.first;
    const int64_t from = op.gathers ? places.choice[index(i)] / op.mixture.top_k : i;
    for (int64_t o = 0; o < op.out; ++o) {
      if (e < 0 || e >= op.group.count) {
        y.values.emplace_back(op.accumulate ? before[index(i * op.out + o)] : 0.0);
        continue;
      }
      Sum sum;
      for (int64_t k = 0; k < op.in; ++k)
        sum.add(Approx(x[index(from * op.in + k)]), w[index((e * op.out + o) * op.in + k)]);
      const Approx product = sum.total();
      if (!op.has_bias) {
        y.values.push_back(product);
        continue;
      }
      y.values.push_back(stored(product, op.dtype) + Approx(bias[index(e * op.out + o)]));
    }
  }
  return {y};
}

Outputs expect(const GroupedDgrad& op, Inputs in) {
  const Places places(op.mixture, in[GroupedDgrad::kRouting]);
  const std::vector<double> dy = in[GroupedDgrad::kDy].values(), w = in[GroupedDgrad::kW].values(),
                            before = in[GroupedDgrad::kDx].values();
  Expected dx{GroupedDgrad::kDx};
  for (int64_t i = 0; i < op.mixture.rows(); ++i) {
    const int64_t e = places.expert_of(i) - op.group.first;
    const int64_t from = op.gathers ? places.choice[index(i)] / op.mixture.top_k : i;
    for (int64_t k = 0; k < op.in; ++k) {
      if (e < 0 || e >= op.group.count) {
        dx.values.emplace_back(op.accumulate ? before[index(i * op.in + k)] : 0.0);
        continue;
      }
      Sum sum;
      for (int64_t o = 0; o < op.out; ++o)
        sum.add(Approx(dy[index(from * op.out + o)]), w[index((e * op.out + o) * op.in + k)]);
      dx.values.push_back(sum.total());
    }
  }
  return {dx};
}

Outputs expect(const GroupedWgrad& op, Inputs in) {
  const Places places(op.mixture, in[GroupedWgrad::kRouting]);
  const std::vector<double> dy = in[GroupedWgrad::kDy].values(), x = in[GroupedWgrad::kX].values();
  const Old old(op.accumulate, in[GroupedWgrad::kDw]);
  Expected dw{GroupedWgrad::kDw};
  for (int64_t e = op.group.first; e < op.group.first + op.group.count; ++e) {
    for (int64_t o = 0; o < op.out; ++o) {
      for (int64_t k = 0; k < op.in; ++k) {
        Sum sum;
        for (int64_t i = places.begin[index(e)]; i < places.begin[index(e) + 1]; ++i) {
          const int64_t token = places.choice[index(i)] / op.mixture.top_k;
          sum.add(Approx(dy[index((op.gathers_dy ? token : i) * op.out + o)]),
                  x[index((op.gathers_x ? token : i) * op.in + k)]);
        }
        const double before = old[dw.values.size()];
        const bool none = places.begin[index(e)] == places.begin[index(e) + 1];
        dw.values.push_back(none ? Approx(before) : old.any() ? sum.total() + Approx(before) : sum.total());
      }
    }
  }
  return {dw};
}

Outputs expect(const GroupedLowRank& op, Inputs in) {
  using L = GroupedLowRank;
  const ExpertRank& s = op.sizes;
  const Places places(op.mixture, in[L::kRouting]);
  const std::vector<double> u = in[L::kU].values(), b = in[L::kB].values(), before = in[L::kY].values();
  Expected y{L::kY};
  for (int64_t i = 0; i < op.mixture.rows(); ++i) {
    const int64_t e = places.expert_of(i) - op.group.first;
    for (int64_t c = 0; c < s.columns; ++c) {
      const int64_t o = c - s.at, part = o / s.part;
      const Approx old(before[index(i * s.columns + c)]);
      if (e < 0 || e >= op.group.count || o < 0 || o >= s.adapted()) {
        y.values.push_back(old);
        continue;
      }
      Sum sum;
      for (int64_t j = 0; j < s.rank; ++j) {
        const int64_t at = op.turned ? (e * s.rank + j) * s.part + o : (e * s.adapted() + o) * s.rank + j;
        sum.add(Approx(u[index(i * s.inner() + part * s.rank + j)]), b[index(at)]);
      }
      y.values.push_back(old + sum.total() * Approx(double(op.scale)));
    }
  }
  return {y};
}

Outputs expect(const GroupedLowRankDgrad& op, Inputs in) {
  using L = GroupedLowRankDgrad;
  const ExpertRank& s = op.sizes;
  const Places places(op.mixture, in[L::kRouting]);
  const std::vector<double> dy = in[L::kDy].values(), b = in[L::kB].values(), before = in[L::kDu].values();
  Expected du{L::kDu};
  for (int64_t i = 0; i < op.mixture.rows(); ++i) {
    const int64_t e = places.expert_of(i) - op.group.first;
    const int64_t from = op.gathers ? places.choice[index(i)] / op.mixture.top_k : i;
    for (int64_t k = 0; k < s.inner(); ++k) {
      if (e < 0 || e >= op.group.count) {
        du.values.emplace_back(op.accumulate ? before[index(i * s.inner() + k)] : 0.0);
        continue;
      }
      const int64_t part = k / s.rank, j = k % s.rank;
      Sum sum;
      for (int64_t o = part * s.part; o < (part + 1) * s.part; ++o)
        sum.add(Approx(dy[index(from * s.columns + s.at + o)]), b[index((e * s.adapted() + o) * s.rank + j)]);
      du.values.push_back(sum.total() * Approx(double(op.scale)));
    }
  }
  return {du};
}

Outputs expect(const GroupedLowRankWgrad& op, Inputs in) {
  using L = GroupedLowRankWgrad;
  const ExpertRank& s = op.sizes;
  const Places places(op.mixture, in[L::kRouting]);
  const std::vector<double> dy = in[L::kDy].values(), u = in[L::kU].values();
  const Old old(op.accumulate, in[L::kDb]);
  Expected db{L::kDb};
  for (int64_t e = op.group.first; e < op.group.first + op.group.count; ++e) {
    for (int64_t o = 0; o < s.adapted(); ++o) {
      for (int64_t j = 0; j < s.rank; ++j) {
        Sum sum;
        for (int64_t i = places.begin[index(e)]; i < places.begin[index(e) + 1]; ++i) {
          const int64_t from = op.gathers ? places.choice[index(i)] / op.mixture.top_k : i;
          sum.add(Approx(dy[index(from * s.columns + s.at + o)]),
                  u[index(i * s.inner() + o / s.part * s.rank + j)]);
        }
        const double before = old[db.values.size()];
        const bool none = places.begin[index(e)] == places.begin[index(e) + 1];
        const Approx scaled = sum.total() * Approx(double(op.scale));
        db.values.push_back(none ? Approx(before) : old.any() ? scaled + Approx(before) : scaled);
      }
    }
  }
  return {db};
}

Outputs expect(const GroupedBiasGrad& op, Inputs in) {
  const Places places(op.mixture, in[GroupedBiasGrad::kRouting]);
  const std::vector<double> dy = in[GroupedBiasGrad::kDy].values();
  const std::vector<double> gates = op.gathers ? in[GroupedBiasGrad::kGates].values() : std::vector<double>();
  const Old old(op.accumulate, in[GroupedBiasGrad::kDbias]);
  Expected dbias{GroupedBiasGrad::kDbias};
  for (int64_t e = 0; e < op.mixture.experts; ++e) {
    for (int64_t o = 0; o < op.out; ++o) {
      Sum sum;
      sum.add(old[dbias.values.size()]);
      for (int64_t i = places.begin[index(e)]; i < places.begin[index(e) + 1]; ++i) {
        const int64_t choice = places.choice[index(i)];
        const Approx given(dy[index((op.gathers ? choice / op.mixture.top_k : i) * op.out + o)]);
        sum.add(op.gathers ? given * Approx(gates[index(choice)]) : given);
      }
      dbias.values.push_back(sum.total());
    }
  }
  return {dbias};
}

Outputs expect(const CombineExperts& op, Inputs in) {
  const Places places(op.mixture, in[CombineExperts::kRouting]);
  const std::vector<double> x = in[CombineExperts::kX].values();
  const std::vector<double> gates = op.has_gates ? in[op.gates_operand()].values() : std::vector<double>();
  const std::vector<double> residual =
      op.has_residual ? in[op.residual_operand()].values() : std::vector<double>();
  Expected y{CombineExperts::kY};
  for (int64_t t = 0; t < op.mixture.tokens; ++t) {
    for (int64_t d = 0; d < op.dim; ++d) {
      Sum sum;
      for (int64_t j = t * op.mixture.top_k; j < (t + 1) * op.mixture.top_k; ++j) {
        const Approx of(x[index(places.row[index(j)] * op.dim + d)]);
        sum.add(op.has_gates ? of * Approx(gates[index(j)]) : of);
      }
      if (op.has_residual) sum.add(Approx(residual[index(t * op.dim + d)]));
      y.values.push_back(sum.total());
    }
  }
  return {y};
}

Outputs expect(const ScaleGates& op, Inputs in) {
  const auto gates = in[ScaleGates::kGates].values(), scales = in[ScaleGates::kScales].values();
  const auto chosen = in[ScaleGates::kChosen].as<int32_t>();
  Expected y{ScaleGates::kY};
  for (int64_t i = 0; i < op.mixture.rows(); ++i)
    y.values.push_back(Approx(gates[index(i)]) * Approx(scales[index(chosen[index(i)])]));
  return {y};
}

Outputs expect(const ScaleGatesBwd& op, Inputs in) {
  using O = ScaleGatesBwd;
  const auto gates = in[O::kGates].values(), scales = in[O::kScales].values(), dy = in[O::kDy].values();
  const auto chosen = in[O::kChosen].as<int32_t>();
  const Old old(op.accumulate, in[O::kDscales]);
  Expected dgates{O::kDgates}, dscales{O::kDscales};
  std::vector<Sum> sums(index(op.mixture.experts));
  for (size_t e = 0; e < sums.size(); ++e) sums[e].add(Approx(old[e]));
  for (int64_t i = 0; i < op.mixture.rows(); ++i) {
    const size_t expert = index(chosen[index(i)]);
    dgates.values.push_back(Approx(dy[index(i)]) * Approx(scales[expert]));
    sums[expert].add(Approx(dy[index(i)]), gates[index(i)]);
  }
  for (const Sum& sum : sums) dscales.values.push_back(sum.total());
  return {dgates, dscales};
}

Outputs expect(const GatedAdd& op, Inputs in) {
  const std::vector<double> x = in[GatedAdd::kX].values(), gate = in[GatedAdd::kGate].values();
  const std::vector<double> residual =
      op.has_residual ? in[GatedAdd::kResidual].values() : std::vector<double>();
  Expected y{GatedAdd::kY};
  for (int64_t t = 0; t < op.tokens; ++t) {
    for (int64_t d = 0; d < op.dim; ++d) {
      const Approx of = sigmoid(Approx(gate[index(t)])) * Approx(x[y.values.size()]);
      y.values.push_back(op.has_residual ? of + Approx(residual[y.values.size()]) : of);
    }
  }
  return {y};
}

Outputs expect(const GatedAddBwd& op, Inputs in) {
  const std::vector<double> x = in[GatedAddBwd::kX].values(), gate = in[GatedAddBwd::kGate].values(),
                            dy = in[GatedAddBwd::kDy].values();
  Expected dx{GatedAddBwd::kDx}, dgate{GatedAddBwd::kDgate};
  for (int64_t t = 0; t < op.tokens; ++t) {
    const Approx share = sigmoid(Approx(gate[index(t)]));
    Sum dot;
    for (int64_t d = 0; d < op.dim; ++d) {
      const size_t i = index(t * op.dim + d);
      dot.add(Approx(dy[i]), x[i]);
      dx.values.push_back(share * Approx(dy[i]));
    }
    dgate.values.push_back(dot.total() * share * (Approx(1) - share));
  }
  return {dx, dgate};
}

}  // namespace sluice::core::conformance
