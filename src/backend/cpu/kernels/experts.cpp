// SPDX-License-Identifier: Apache-2.0
// What mixtures of experts have beside products (ops/experts.h). Tasks own tokens, rows or experts; what is
// summed over tokens is summed in blocks that the op alone gives.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "backend/cpu/kernels/kernels.h"
#include "ops/experts.h"
#include "ops/gpu_partials.h"

#define SLUICE_LOOPS "backend/cpu/kernels/experts_loops.h"
#include "backend/cpu/each_isa.h"

namespace sluice::core::cpu {
namespace {

constexpr int64_t kRoutedPerTask = 64;  // tokens
constexpr float kSigmoidEpsilon = 1e-6f;

// The `count` largest of scores, the largest first, of equal ones the lowest; a NaN counts as less than all.
void choose(const float* scores, int64_t experts, int64_t count, int32_t* chosen) {
  const auto before = [&](int32_t a, int32_t b) {
    const float x = std::isnan(scores[a]) ? -INFINITY : scores[a];
    const float y = std::isnan(scores[b]) ? -INFINITY : scores[b];
    return x > y || (x == y && a < b);
  };
  int32_t order[kMostExperts];
  std::iota(order, order + experts, 0);
  std::partial_sort_copy(order, order + experts, chosen, chosen + count, before);
}

// How a token's gates follow from its scores.
struct Gates {
  RouterScore score;
  bool normalised;
  float scale;

  template <class O>
  explicit Gates(const O& op) : score(op.score), normalised(op.normalised), scale(op.scale) {}
};

void gates_of(const Gates& g, const float* scores, const float* logits, const int32_t* chosen, int64_t count,
              CpuIsa isa, float* gates) {
  if (g.score == RouterScore::Chosen) {
    float of_chosen[kMostChosen];
    for (int64_t j = 0; j < count; ++j) of_chosen[j] = logits[chosen[j]];
    SLUICE_LOOP(isa, softmax_row, of_chosen, count, gates);
  } else {
    for (int64_t j = 0; j < count; ++j) gates[j] = scores[chosen[j]];
  }
  float divisor = 1;
  if (g.score == RouterScore::Sigmoid && g.normalised)
    divisor = std::accumulate(gates, gates + count, 0.0f) + kSigmoidEpsilon;
  for (int64_t j = 0; j < count; ++j) gates[j] = gates[j] / divisor * g.scale;
}

}  // namespace

Status launch(const Route& op, const Args& args, const KernelContext& context) {
  const int64_t tokens = op.mixture.tokens, all = op.mixture.experts, count = op.mixture.top_k;
  const auto* logits = args.in<float>(Route::kLogits);
  auto* gates = args.out<float>(Route::kGates);
  auto* chosen = args.out<int32_t>(Route::kChosen);
  const float* bias = op.has_bias ? args.in<float>(Route::kBias) : nullptr;
  context.for_rows(tokens, kRoutedPerTask, [&](int64_t first, int64_t some) {
    float scores[kMostExperts], biased[kMostExperts];
    for (int64_t t = first; t < first + some; ++t) {
      const float* row = logits + t * all;
      const float* by = row;
      if (op.score == RouterScore::Softmax) SLUICE_LOOP(context.isa, softmax_row, row, all, scores);
      if (op.score == RouterScore::Sigmoid) {
        SLUICE_LOOP(context.isa, sigmoid_row, row, all, scores);
        for (int64_t e = 0; e < all; ++e) biased[e] = scores[e] + (bias == nullptr ? 0 : bias[e]);
        by = biased;
      }
      choose(by, all, count, chosen + t * count);
      gates_of(Gates(op), scores, row, chosen + t * count, count, context.isa, gates + t * count);
    }
  });
  return {};
}

Status launch(const RouteBwd& op, const Args& args, const KernelContext& context) {
  const int64_t tokens = op.mixture.tokens, all = op.mixture.experts, count = op.mixture.top_k;
  const auto* logits = args.in<float>(RouteBwd::kLogits);
  const auto* chosen = args.in<int32_t>(RouteBwd::kChosen);
  const auto* dgates = args.in<float>(RouteBwd::kDgates);
  // The balance's gradient for each softmax score.
  std::vector<float> balance(size_t(all), 0.0f);
  if (op.reads_round()) {
    const auto* sums = args.in<double>(RouteBwd::kRound) + LoadLayout{all}.choices();
    const double factor = double(op.losses.balance) * double(all) / double(op.losses.n) / double(op.losses.n);
    for (int64_t e = 0; e < all; ++e) balance[size_t(e)] = float(factor * sums[e]);
  }
  with_type(op.dtype, [&]<class T>(T) {
    auto* dlogits = args.out<T>(RouteBwd::kDlogits);
    context.for_rows(tokens, kRoutedPerTask, [&](int64_t first, int64_t some) {
      float p[kMostExperts], d[kMostExperts], gates[kMostChosen];
      for (int64_t t = first; t < first + some; ++t) {
        const float* row = logits + t * all;
        const float* dg = dgates + t * count;
        const int32_t* of = chosen + t * count;
        const bool over_all = op.score == RouterScore::Softmax || op.losses.n > 0;
        const float log_sum = over_all ? SLUICE_LOOP(context.isa, softmax_row, row, all, p) : 0.0f;
        std::copy(balance.begin(), balance.end(), d);
        // To softmax scores, and through them at once.
        if (op.score == RouterScore::Softmax) {
          for (int64_t j = 0; j < count; ++j) d[of[j]] += dg[j] * op.scale;
        }
        float mean = 0;
        if (over_all) {
          for (int64_t e = 0; e < all; ++e) mean += p[e] * d[e];
        }
        const float z = 2 * op.losses.z * log_sum;
        for (int64_t e = 0; e < all; ++e) d[e] = over_all ? p[e] * (d[e] - mean + z) : 0;
        if (op.score == RouterScore::Chosen) {
          gates_of(Gates(op), p, row, of, count, context.isa, gates);
          float inner = 0;
          for (int64_t j = 0; j < count; ++j) inner += gates[j] / op.scale * dg[j];
          for (int64_t j = 0; j < count; ++j) d[of[j]] += gates[j] * (dg[j] - inner);
        }
        if (op.score == RouterScore::Sigmoid) {
          float at[kMostChosen], share[kMostChosen];
          for (int64_t j = 0; j < count; ++j) at[j] = row[of[j]];
          SLUICE_LOOP(context.isa, sigmoid_row, at, count, share);
          float total = 1, inner = 0;
          if (op.normalised) {
            total = std::accumulate(share, share + count, 0.0f) + kSigmoidEpsilon;
            for (int64_t j = 0; j < count; ++j) inner += share[j] / total * dg[j];
          }
          for (int64_t j = 0; j < count; ++j)
            d[of[j]] += op.scale / total * (dg[j] - inner) * share[j] * (1 - share[j]);
        }
        for (int64_t e = 0; e < all; ++e) dlogits[t * all + e] = T(d[e]);
      }
    });
  });
  return {};
}

Status launch(const ScaleGates& op, const Args& args, const KernelContext& /*machine*/) {
  const auto* gates = args.in<float>(ScaleGates::kGates);
  const auto* chosen = args.in<int32_t>(ScaleGates::kChosen);
  auto* y = args.out<float>(ScaleGates::kY);
  with_type(op.dtype, [&]<class T>(T) {
    const T* scales = args.in<T>(ScaleGates::kScales);
    for (int64_t i = 0; i < op.mixture.rows(); ++i) y[i] = gates[i] * float(scales[chosen[i]]);
  });
  return {};
}

int64_t workspace_of(const ScaleGatesBwd& op) {
  return op.mixture.experts * int64_t{sizeof(float)};
}

Status launch(const ScaleGatesBwd& op, const Args& args, const KernelContext& /*machine*/) {
  const auto* gates = args.in<float>(ScaleGatesBwd::kGates);
  const auto* chosen = args.in<int32_t>(ScaleGatesBwd::kChosen);
  const auto* dy = args.in<float>(ScaleGatesBwd::kDy);
  auto* dgates = args.out<float>(ScaleGatesBwd::kDgates);
  auto* sums = reinterpret_cast<float*>(args.workspace);
  std::fill_n(sums, op.mixture.experts, 0.0f);
  with_type(op.dtype, [&]<class T>(T) {
    const T* scales = args.in<T>(ScaleGatesBwd::kScales);
    for (int64_t i = 0; i < op.mixture.rows(); ++i) {
      dgates[i] = dy[i] * float(scales[chosen[i]]);
      sums[chosen[i]] += dy[i] * gates[i];
    }
  });
  with_type(op.grad_dtype, [&]<class G>(G) {
    G* dscales = args.out<G>(ScaleGatesBwd::kDscales);
    for (int64_t e = 0; e < op.mixture.experts; ++e)
      dscales[e] = G(sums[e] + (op.accumulate ? float(dscales[e]) : 0));
  });
  return {};
}

namespace {
int64_t load_blocks(const Mixture& m) {
  return ceil_div(m.tokens, summed_rows(m.tokens));
}
}  // namespace

int64_t workspace_of(const RouterLoad& op) {
  return load_blocks(op.mixture) * LoadLayout{op.mixture.experts}.elements() * int64_t{sizeof(double)};
}

Status launch(const RouterLoad& op, const Args& args, const KernelContext& context) {
  const int64_t tokens = op.mixture.tokens, all = op.mixture.experts, count = op.mixture.top_k;
  const LoadLayout layout{all};
  const auto* logits = args.in<float>(RouterLoad::kLogits);
  const auto* chosen = args.in<int32_t>(RouterLoad::kChosen);
  auto* partials = reinterpret_cast<double*>(args.workspace);
  const int64_t blocks = load_blocks(op.mixture), rows = summed_rows(tokens);
  context.pool.parallel_for(blocks, [&](int64_t block, int) {
    double* sums = partials + block * layout.elements();
    std::fill_n(sums, layout.elements(), 0.0);
    float p[kMostExperts];
    for (int64_t t = block * rows; t < std::min(tokens, (block + 1) * rows); ++t) {
      const float log_sum = SLUICE_LOOP(context.isa, softmax_row, logits + t * all, all, p);
      for (int64_t j = 0; j < count; ++j) sums[layout.choices() + chosen[t * count + j]] += 1;
      double entropy = 0;
      for (int64_t e = 0; e < all; ++e) {
        sums[layout.scores() + e] += p[e];
        // -log p, which is finite where p is not.
        if (p[e] > 0) entropy += double(p[e]) * (double(log_sum) - double(logits[t * all + e]));
      }
      sums[layout.entropy()] += entropy;
      sums[layout.z()] += double(log_sum) * double(log_sum);
    }
  });
  const auto add = [&](int operand, bool accumulate) {
    auto* out = args.out<double>(operand);
    if (!accumulate) std::fill_n(out, layout.elements(), 0.0);
    for (int64_t block = 0; block < blocks; ++block) {
      for (int64_t i = 0; i < layout.elements(); ++i) out[i] += partials[block * layout.elements() + i];
    }
  };
  add(RouterLoad::kLayer, op.accumulate_layer);
  if (!op.alone) add(RouterLoad::kRound, op.accumulate_round);
  return {};
}

Status launch(const SortByExpert& op, const Args& args, const KernelContext& /*machine*/) {
  const int64_t rows = op.mixture.rows(), experts = op.mixture.experts;
  const RoutingLayout layout{experts, rows};
  const auto* chosen = args.in<int32_t>(SortByExpert::kChosen);
  auto* routing = args.out<int32_t>(SortByExpert::kRouting);
  int32_t next[kMostExperts] = {};
  for (int64_t i = 0; i < rows; ++i) ++next[chosen[i]];
  int32_t begin = 0;
  for (int64_t e = 0; e < experts; ++e) {
    routing[layout.begin() + e] = begin;
    begin += std::exchange(next[e], begin);
  }
  routing[layout.begin() + experts] = begin;
  for (int64_t i = 0; i < rows; ++i) {
    const int32_t row = next[chosen[i]]++;
    routing[layout.choice() + row] = int32_t(i);
    routing[layout.row() + i] = row;
  }
  return {};
}

int64_t scratch_of(const CombineExperts& op) {
  return op.dim * int64_t{sizeof(float)};
}

Status launch(const CombineExperts& op, const Args& args, const KernelContext& context) {
  constexpr int64_t kTokens = 8;
  const int64_t count = op.mixture.top_k, tokens = op.mixture.tokens;
  const auto* routing = args.in<int32_t>(CombineExperts::kRouting);
  const int32_t* row = routing + RoutingLayout{op.mixture.experts, op.mixture.rows()}.row();
  const float* gates = op.has_gates ? args.in<float>(int(op.gates_operand())) : nullptr;
  with_type(op.dtype, [&]<class T>(T) {
    const T* x = args.in<T>(CombineExperts::kX);
    const T* residual = op.has_residual ? args.in<T>(int(op.residual_operand())) : nullptr;
    T* y = args.out<T>(CombineExperts::kY);
    context.pool.parallel_for(ceil_div(tokens, kTokens), [&](int64_t task, int worker) {
      auto* sum = reinterpret_cast<float*>(context.scratch[size_t(worker)]);
      for (int64_t t = task * kTokens; t < std::min(tokens, (task + 1) * kTokens); ++t) {
        for (int64_t j = 0; j < count; ++j) {
          const float gate = gates == nullptr ? 1.0f : gates[t * count + j];
          SLUICE_LOOP(context.isa, add_scaled, x + row[t * count + j] * op.dim, gate, j == 0, sum, op.dim);
        }
        SLUICE_LOOP(context.isa, put_sum, sum, residual == nullptr ? nullptr : residual + t * op.dim,
                    y + t * op.dim, op.dim);
      }
    });
  });
  return {};
}

int64_t scratch_of(const GroupedBiasGrad& op) {
  return op.out * int64_t{sizeof(float)};
}

Status launch(const GroupedBiasGrad& op, const Args& args, const KernelContext& context) {
  const int64_t rows = op.mixture.rows(), count = op.mixture.top_k;
  const RoutingLayout layout{op.mixture.experts, rows};
  const auto* routing = args.in<int32_t>(GroupedBiasGrad::kRouting);
  const float* gates = op.gathers ? args.in<float>(GroupedBiasGrad::kGates) : nullptr;
  with_types(op.dtype, op.grad_dtype, [&]<class T, class G>(T, G) {
    const T* dy = args.in<T>(GroupedBiasGrad::kDy);
    G* dbias = args.out<G>(GroupedBiasGrad::kDbias);
    context.pool.parallel_for(op.mixture.experts, [&](int64_t e, int worker) {
      auto* sum = reinterpret_cast<float*>(context.scratch[size_t(worker)]);
      std::fill_n(sum, op.out, 0.0f);
      for (int64_t i = routing[e]; i < routing[e + 1]; ++i) {
        const int64_t choice = routing[layout.choice() + i];
        SLUICE_LOOP(context.isa, add_scaled, dy + (op.gathers ? choice / count : i) * op.out,
                    gates == nullptr ? 1.0f : gates[choice], false, sum, op.out);
      }
      G* to = dbias + e * op.out;
      SLUICE_LOOP(context.isa, put_sum, sum, op.accumulate ? to : nullptr, to, op.out);
    });
  });
  return {};
}

Status launch(const GatedAdd& op, const Args& args, const KernelContext& context) {
  constexpr int64_t kRows = 8;
  const auto* gate = args.in<float>(GatedAdd::kGate);
  with_type(op.dtype, [&]<class T>(T) {
    const T* residual = op.has_residual ? args.in<T>(GatedAdd::kResidual) : nullptr;
    context.pool.parallel_for(ceil_div(op.tokens, kRows), [&](int64_t task, int) {
      const int64_t first = task * kRows, at = first * op.dim;
      SLUICE_LOOP(context.isa, gated_add, args.in<T>(GatedAdd::kX) + at, gate + first,
                  residual == nullptr ? nullptr : residual + at, args.out<T>(GatedAdd::kY) + at,
                  std::min(kRows, op.tokens - first), op.dim);
    });
  });
  return {};
}

Status launch(const GatedAddBwd& op, const Args& args, const KernelContext& context) {
  constexpr int64_t kRows = 8;
  const auto* gate = args.in<float>(GatedAddBwd::kGate);
  with_type(op.dtype, [&]<class T>(T) {
    context.pool.parallel_for(ceil_div(op.tokens, kRows), [&](int64_t task, int) {
      const int64_t first = task * kRows, at = first * op.dim;
      SLUICE_LOOP(context.isa, gated_add_bwd, args.in<T>(GatedAddBwd::kX) + at, gate + first,
                  args.in<T>(GatedAddBwd::kDy) + at, args.out<T>(GatedAddBwd::kDx) + at,
                  args.out<T>(GatedAddBwd::kDgate) + first, std::min(kRows, op.tokens - first), op.dim);
    });
  });
  return {};
}

}  // namespace sluice::core::cpu
