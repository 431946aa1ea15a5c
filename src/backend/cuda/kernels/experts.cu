// SPDX-License-Identifier: Apache-2.0
// What mixtures of experts have beside products (ops/experts.h). A warp has a token's router, of whose
// experts a lane has each 32nd. Sums over tokens are of fixed blocks, which are added in order.
#include <cmath>
#include <type_traits>

#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/reduce.cuh"
#include "backend/cuda/kernels/vec.cuh"

namespace sluice::core::cuda {
namespace {

constexpr int kRouterThreads = 128, kTokensPerBlock = kRouterThreads / kWarp;
constexpr float kSigmoidEpsilon = 1e-6f;

__device__ float sigmoid_of(float x) {
  const float e = __expf(-fabsf(x)), upper = 1.0f / (1.0f + e);
  return x >= 0 ? upper : e * upper;
}

// A token's logits and softmax scores, lane by lane; behind the last expert -inf and 0.
template <int kSlots>
struct TokenLogits {
  float logit[kSlots], score[kSlots] = {};
  float log_sum = 0;

  TokenLogits() = default;
  __device__ TokenLogits(const float* logits, int experts, bool scores) {
    load(logits, experts);
    if (scores) find_scores();
  }
  __device__ void load(const float* logits, int experts) {
#pragma unroll
    for (int i = 0; i < kSlots; ++i) {
      const int e = int(threadIdx.x) % kWarp + i * kWarp;
      logit[i] = e < experts ? logits[e] : -INFINITY;
    }
  }
  __device__ void find_scores() {
    float most = -INFINITY;
#pragma unroll
    for (int i = 0; i < kSlots; ++i) most = fmaxf(most, logit[i]);
    most = warp_max(most);
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kSlots; ++i) {
      score[i] = __expf(logit[i] - most);
      sum += score[i];
    }
    sum = warp_sum(sum);
#pragma unroll
    for (int i = 0; i < kSlots; ++i) score[i] = score[i] / sum;
    log_sum = most + logf(sum);
  }
};

// A lane's value of slot `slot`, without an index of registers.
template <int kSlots>
__device__ float pick(const float (&values)[kSlots], int slot) {
  float out = 0;
#pragma unroll
  for (int i = 0; i < kSlots; ++i) out = i == slot ? values[i] : out;
  return out;
}

// Whole numbers above 0 in the order of these numbers, of which both zeros are equal.
__device__ uint32_t ordered(float x) {
  const uint32_t bits = __float_as_uint(x + 0.0f);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

// Lane j's gate, of the chosen expert j < top_k, from its logit and softmax score.
__device__ float gate_of(const RouterForm& form, float logit, float score, int top_k) {
  const bool chosen = int(threadIdx.x % kWarp) < top_k;
  float gate = score;
  if (form.score == RouterKind::Chosen) {
    const float most = warp_max(chosen ? logit : -INFINITY);
    const float e = chosen ? __expf(logit - most) : 0.0f;
    gate = e / warp_sum(e);
  } else if (form.score == RouterKind::Sigmoid) {
    gate = chosen ? sigmoid_of(logit) : 0.0f;
    if (form.normalised) gate = gate / (warp_sum(gate) + kSigmoidEpsilon);
  }
  return gate * form.scale;
}

template <int kSlots>
__global__ void __launch_bounds__(kRouterThreads)
    route_kernel(const float* logits, const float* bias, float* gates, int32_t* chosen, int64_t tokens,
                 int experts, int top_k, RouterForm form) {
  const int64_t token = int64_t{blockIdx.x} * kTokensPerBlock + threadIdx.x / kWarp;
  if (token >= tokens) return;
  const int lane = threadIdx.x % kWarp;
  const TokenLogits<kSlots> of(logits + token * experts, experts, form.score == RouterKind::Softmax);
  uint32_t key[kSlots];  // 0: chosen already, or no expert
#pragma unroll
  for (int i = 0; i < kSlots; ++i) {
    const int e = lane + i * kWarp;
    float x = of.logit[i];
    if (form.score == RouterKind::Sigmoid && e < experts)
      x = sigmoid_of(of.logit[i]) + (bias != nullptr ? bias[e] : 0.0f);
    key[i] = e < experts ? ordered(isnan(x) ? -INFINITY : x) : 0;
  }
  int own = 0;  // lane j keeps choice j
  float own_logit = 0, own_score = 0;
  for (int j = 0; j < top_k; ++j) {
    uint32_t best = 0;  // none is left
#pragma unroll
    for (int i = 0; i < kSlots; ++i) best = max(best, key[i]);
    best = __reduce_max_sync(kFullWarp, best);
    int at = kWarp * kSlots;
#pragma unroll
    for (int i = kSlots - 1; i >= 0; --i) at = key[i] == best ? lane + i * kWarp : at;
    at = int(__reduce_min_sync(kFullWarp, unsigned(at)));
    const int owner = at % kWarp, slot = at / kWarp;
#pragma unroll
    for (int i = 0; i < kSlots; ++i) key[i] = lane + i * kWarp == at ? 0 : key[i];
    const float logit = __shfl_sync(kFullWarp, pick<kSlots>(of.logit, slot), owner);
    const float score = __shfl_sync(kFullWarp, pick<kSlots>(of.score, slot), owner);
    if (lane == j) own = at, own_logit = logit, own_score = score;
  }
  const float gate = gate_of(form, own_logit, own_score, top_k);
  if (lane >= top_k) return;
  gates[token * top_k + lane] = gate;
  chosen[token * top_k + lane] = own;
}

template <int kSlots, class T>
__global__ void __launch_bounds__(kRouterThreads)
    route_bwd_kernel(const float* logits, const int32_t* chosen, const float* dgates, const double* round,
                     T* dlogits, int64_t tokens, int experts, int top_k, RouterForm form, RouterTerms terms) {
  const int64_t token = int64_t{blockIdx.x} * kTokensPerBlock + threadIdx.x / kWarp;
  if (token >= tokens) return;
  const int lane = threadIdx.x % kWarp;
  const bool over_all = form.score == RouterKind::Softmax || terms.wanted;
  const TokenLogits<kSlots> of(logits + token * experts, experts, over_all);
  const bool has = lane < top_k;
  const int own = has ? chosen[token * top_k + lane] : 0;
  const float dgate = has ? dgates[token * top_k + lane] : 0.0f;
  const float own_logit = has ? logits[token * experts + own] : -INFINITY;
  // To softmax scores, and through them at once.
  float d[kSlots];
#pragma unroll
  for (int i = 0; i < kSlots; ++i) {
    const int e = lane + i * kWarp;
    d[i] = round != nullptr && e < experts ? float(terms.balance * round[e]) : 0.0f;
  }
  const auto add_to = [&](float value) {  // lane j's to expert `own` of lane j
    for (int j = 0; j < top_k; ++j) {
      const int e = __shfl_sync(kFullWarp, own, j);
      const float x = __shfl_sync(kFullWarp, value, j);
#pragma unroll
      for (int i = 0; i < kSlots; ++i) {
        if (lane + i * kWarp == e) d[i] += x;
      }
    }
  };
  if (form.score == RouterKind::Softmax) add_to(dgate * form.scale);
  if (over_all) {
    float mean = 0;
#pragma unroll
    for (int i = 0; i < kSlots; ++i) mean += of.score[i] * d[i];
    mean = warp_sum(mean);
    const float z = 2.0f * terms.z * of.log_sum;
#pragma unroll
    for (int i = 0; i < kSlots; ++i) d[i] = of.score[i] * (d[i] - mean + z);
  }
  if (form.score == RouterKind::Chosen) {
    const float gate = gate_of(form, own_logit, 0, top_k);
    const float inner = warp_sum(has ? gate / form.scale * dgate : 0.0f);
    add_to(gate * (dgate - inner));
  }
  if (form.score == RouterKind::Sigmoid) {
    const float share = has ? sigmoid_of(own_logit) : 0.0f;
    float total = 1, inner = 0;
    if (form.normalised) {
      total = warp_sum(share) + kSigmoidEpsilon;
      inner = warp_sum(share / total * dgate);
    }
    add_to(form.scale / total * (dgate - inner) * share * (1.0f - share));
  }
#pragma unroll
  for (int i = 0; i < kSlots; ++i) {
    const int e = lane + i * kWarp;
    if (e < experts) store_float(dlogits + token * experts + e, d[i]);
  }
}

// Calls f with how many experts a lane has, as a constant.
template <class F>
cudaError_t with_slots(int64_t experts, F f) {
  if (experts <= 32) return f(std::integral_constant<int, 1>{});
  if (experts <= 64) return f(std::integral_constant<int, 2>{});
  if (experts <= 128) return f(std::integral_constant<int, 4>{});
  if (experts <= 256) return f(std::integral_constant<int, 8>{});
  return f(std::integral_constant<int, 16>{});
}

// A block's warps take its tokens in turn; what each has summed is added in their order.
constexpr int kLoadWarps = 4;
template <int kSlots>
__global__ void __launch_bounds__(kLoadWarps* kWarp)
    router_load_kernel(const float* logits, const int32_t* chosen, double* partials, int64_t tokens,
                       int64_t per_block, int experts, int top_k) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int64_t first = blockIdx.x * per_block, last = min(first + per_block, tokens);
  // Few warps have a token at a time, so each has several under way; their sums are added in order.
  constexpr int kBatch = kSlots >= 16 ? 1 : kSlots >= 8 ? 2 : 4;
  int counts[kSlots] = {};
  double scores[kSlots] = {}, entropy = 0, z = 0;
  for (int64_t t = first + warp; t < last; t += kBatch * kLoadWarps) {
    TokenLogits<kSlots> of[kBatch];
    double own[kBatch] = {};
    int own_choice[kBatch];
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const int64_t at = min(t + b * kLoadWarps, last - 1);
      own_choice[b] = lane < top_k ? chosen[at * top_k + lane] : -1;
      of[b].load(logits + at * experts, experts);
    }
#pragma unroll
    for (int b = 0; b < kBatch; ++b) of[b].find_scores();
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
#pragma unroll
      for (int i = 0; i < kSlots; ++i) {
        if (of[b].score[i] > 0)
          own[b] += double(of[b].score[i]) * (double(of[b].log_sum) - double(of[b].logit[i]));
      }
      own[b] = warp_sum(own[b]);
    }
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      if (t + b * kLoadWarps >= last) break;
#pragma unroll
      for (int i = 0; i < kSlots; ++i) scores[i] += double(of[b].score[i]);
      for (int j = 0; j < top_k; ++j) {
        const int e = __shfl_sync(kFullWarp, own_choice[b], j);
#pragma unroll
        for (int i = 0; i < kSlots; ++i) counts[i] += lane + i * kWarp == e;
      }
      entropy += own[b];
      z += double(of[b].log_sum) * double(of[b].log_sum);
    }
  }
  double* const out = partials + int64_t{blockIdx.x} * (2 * experts + 2);
  for (int turn = 0; turn < kLoadWarps; ++turn) {
    if (warp == turn) {
      const auto add = [&](int at, double x) { out[at] = turn == 0 ? x : out[at] + x; };
#pragma unroll
      for (int i = 0; i < kSlots; ++i) {
        const int e = lane + i * kWarp;
        if (e < experts) add(e, double(counts[i])), add(experts + e, scores[i]);
      }
      if (lane == 0) add(2 * experts, entropy), add(2 * experts + 1, z);
    }
    __syncthreads();
  }
}
__global__ void add_loads_kernel(const double* partials, int64_t blocks, int64_t elements, double* layer,
                                 bool add_layer, double* round, bool add_round) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= elements) return;
  double of_layer = add_layer ? layer[i] : 0, of_round = round != nullptr && add_round ? round[i] : 0;
#pragma unroll 8
  for (int64_t block = 0; block < blocks; ++block) {
    const double x = partials[block * elements + i];
    of_layer += x, of_round += x;
  }
  layer[i] = of_layer;
  if (round != nullptr) round[i] = of_round;
}

// The counting sort counts what falls on each expert by blocks of choices; each warp counts some of them by
// itself. Then it finds where each block's begin, and each choice's place: a warp takes a block's choices in
// their order.
constexpr int kCountWarps = 8;
__global__ void count_choices_kernel(const int32_t* chosen, int32_t* counts, int64_t rows, int64_t per_block,
                                     int experts) {
  extern __shared__ int32_t of_warps[];
  for (int e = threadIdx.x; e < kCountWarps * experts; e += blockDim.x) of_warps[e] = 0;
  __syncthreads();
  int32_t* const own = of_warps + threadIdx.x / kWarp * experts;
  const int lane = threadIdx.x % kWarp;
  const int64_t first = blockIdx.x * per_block, last = min(first + per_block, rows);
  for (int64_t base = first + threadIdx.x - lane; base < last; base += blockDim.x) {
    const bool there = base + lane < last;
    const unsigned active = __ballot_sync(kFullWarp, there);
    if (there) {
      const int32_t e = chosen[base + lane];
      const unsigned same = __match_any_sync(active, e);
      if ((same & ((1u << lane) - 1u)) == 0) own[e] += __popc(same);
    }
    __syncwarp();
  }
  __syncthreads();
  for (int e = threadIdx.x; e < experts; e += blockDim.x) {
    int32_t sum = 0;
    for (int warp = 0; warp < kCountWarps; ++warp) sum += of_warps[warp * experts + e];
    counts[int64_t{blockIdx.x} * experts + e] = sum;
  }
}
// One block of a thread for each of the most experts.
__global__ void place_blocks_kernel(int32_t* counts, int32_t* begin, int64_t blocks, int experts) {
  extern __shared__ int32_t totals[];
  const int e = threadIdx.x;
  int32_t total = 0;
  if (e < experts) {
#pragma unroll 8
    for (int64_t b = 0; b < blocks; ++b) total += counts[b * experts + e];
  }
  totals[e] = total;
  __syncthreads();
  for (int offset = 1; offset < int(blockDim.x); offset *= 2) {
    const int32_t other = e >= offset ? totals[e - offset] : 0;
    __syncthreads();
    totals[e] += other;
    __syncthreads();
  }
  if (e >= experts) return;
  int32_t next = totals[e] - total;
  begin[e] = next;
  if (e == experts - 1) begin[experts] = totals[e];
  for (int64_t b = 0; b < blocks; ++b) {
    const int32_t count = counts[b * experts + e];
    counts[b * experts + e] = next;
    next += count;
  }
}
__global__ void place_choices_kernel(const int32_t* chosen, const int32_t* counts, int32_t* choice,
                                     int32_t* row, int64_t rows, int64_t per_block, int experts) {
  extern __shared__ int32_t next[];
  const int lane = threadIdx.x;
  for (int e = lane; e < experts; e += kWarp) next[e] = counts[int64_t{blockIdx.x} * experts + e];
  __syncwarp();
  const int64_t first = blockIdx.x * per_block, last = min(first + per_block, rows);
  for (int64_t base = first; base < last; base += kWarp) {
    const int64_t i = base + lane;
    const bool there = i < last;
    const unsigned active = __ballot_sync(kFullWarp, there);
    if (there) {
      const int32_t e = chosen[i];
      const unsigned same = __match_any_sync(active, e);
      const int before = __popc(same & ((1u << lane) - 1u));
      const int32_t to = next[e] + before;
      choice[to] = int32_t(i);
      row[i] = to;
      __syncwarp(active);
      if (before == 0) next[e] += __popc(same);
    }
    __syncwarp();
  }
}

constexpr int kSumThreads = 256;

__global__ void __launch_bounds__(kSumThreads)
    combine_kernel(const bf16* x, const int32_t* row, const float* gates, const bf16* residual, bf16* y,
                   int64_t dim, int top_k) {
  const int64_t token = blockIdx.x;
  const int64_t column = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * kVec;
  if (column >= dim) return;
  float sum[kVec];
  for (int j = 0; j < top_k; ++j) {
    const float gate = gates != nullptr ? gates[token * top_k + j] : 1.0f;
    float v[kVec];
    load8(x + int64_t{row[token * top_k + j]} * dim + column, v);
#pragma unroll
    for (int i = 0; i < kVec; ++i) sum[i] = j == 0 ? gate * v[i] : sum[i] + gate * v[i];
  }
  if (residual != nullptr) {
    float v[kVec];
    load8(residual + token * dim + column, v);
#pragma unroll
    for (int i = 0; i < kVec; ++i) sum[i] += v[i];
  }
  store8(y + token * dim + column, sum);
}

// A block has some columns of an expert; its threads' rows are side by side, and added in order.
constexpr int kBiasColumns = 32, kBiasRows = 8;
template <class G>
__global__ void __launch_bounds__(kBiasColumns* kBiasRows)
    grouped_bias_kernel(const bf16* dy, const int32_t* begin, const int32_t* choice, const float* gates,
                        G* dbias, int64_t out, int top_k, bool accumulate) {
  __shared__ float scratch[kBiasRows][kBiasColumns][kVec + 1];
  const int x = threadIdx.x % kBiasColumns, y = threadIdx.x / kBiasColumns;
  const int64_t expert = blockIdx.y, column = (int64_t{blockIdx.x} * kBiasColumns + x) * kVec;
  float sums[kVec] = {};
  if (column < out) {
    for (int64_t i = begin[expert] + y; i < begin[expert + 1]; i += kBiasRows) {
      float v[kVec];
      const int32_t of = choice[i];
      load8(dy + (gates != nullptr ? int64_t{of / top_k} : i) * out + column, v);
      const float gate = gates != nullptr ? gates[of] : 1.0f;
      for (int j = 0; j < kVec; ++j) sums[j] += gate * v[j];
    }
  }
  for (int j = 0; j < kVec; ++j) scratch[y][x][j] = sums[j];
  __syncthreads();
  if (y > 0 || column >= out) return;
  for (int i = 1; i < kBiasRows; ++i) {
    for (int j = 0; j < kVec; ++j) sums[j] += scratch[i][x][j];
  }
  G* const to = dbias + expert * out + column;
  if (accumulate) {
    float before[kVec];
    load8(to, before);
    for (int j = 0; j < kVec; ++j) sums[j] += before[j];
  }
  store8(to, sums);
}

// y = x * scales[chosen], of all choices.
template <class T>
__global__ void scale_gates_kernel(const float* x, const int32_t* chosen, const T* scales, float* y,
                                   int64_t rows) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < rows) y[i] = x[i] * to_float(scales[chosen[i]]);
}

// A block has an expert, whose choices it looks for among all.
template <class G>
__global__ void __launch_bounds__(kSumThreads)
    scales_grad_kernel(const float* gates, const int32_t* chosen, const float* dy, G* dscales, int64_t rows,
                       bool accumulate) {
  __shared__ float scratch[kMaxWarps];
  const int32_t expert = int32_t(blockIdx.x);
  float sum = 0;
  for (int64_t i = threadIdx.x; i < rows; i += kSumThreads) {
    if (chosen[i] == expert) sum += dy[i] * gates[i];
  }
  sum = block_sum(sum, scratch);
  if (threadIdx.x == 0) store_float(dscales + expert, sum + (accumulate ? to_float(dscales[expert]) : 0.0f));
}

__global__ void add_bias_kernel(float* y, const bf16* bias, int64_t count, int64_t columns) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) y[i] += to_float(bias[i % columns]);
}

__global__ void __launch_bounds__(kSumThreads)
    gated_add_kernel(const bf16* x, const float* gate, const bf16* residual, bf16* y, int64_t dim) {
  const int64_t token = blockIdx.x;
  const int64_t column = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * kVec;
  if (column >= dim) return;
  const float share = sigmoid_of(gate[token]);
  float v[kVec];
  load8(x + token * dim + column, v);
  for (int i = 0; i < kVec; ++i) v[i] *= share;
  if (residual != nullptr) {
    float r[kVec];
    load8(residual + token * dim + column, r);
    for (int i = 0; i < kVec; ++i) v[i] += r[i];
  }
  store8(y + token * dim + column, v);
}

__global__ void __launch_bounds__(kSumThreads)
    gated_add_bwd_kernel(const bf16* x, const float* gate, const bf16* dy, bf16* dx, bf16* dgate,
                         int64_t dim) {
  __shared__ float scratch[kMaxWarps];
  const int64_t token = blockIdx.x;
  const float share = sigmoid_of(gate[token]);
  float dot = 0;
  for (int64_t column = int64_t{threadIdx.x} * kVec; column < dim; column += int64_t{blockDim.x} * kVec) {
    float v[kVec], g[kVec];
    load8(x + token * dim + column, v);
    load8(dy + token * dim + column, g);
    for (int i = 0; i < kVec; ++i) {
      dot += g[i] * v[i];
      g[i] *= share;
    }
    store8(dx + token * dim + column, g);
  }
  dot = block_sum(dot, scratch);
  if (threadIdx.x == 0) store_float(dgate + token, dot * share * (1.0f - share));
}

dim3 columns_of(int64_t tokens, int64_t dim, unsigned threads) {
  return dim3(unsigned(tokens), blocks_for(dim, int64_t{threads} * kVec));
}

}  // namespace

cudaError_t route(const float* logits, const float* bias, float* gates, int32_t* chosen, const RouterSizes& s,
                  const RouterForm& form, cudaStream_t stream) {
  return with_slots(s.experts, [&](auto slots) {
    return launch(route_kernel<decltype(slots)::value>, dim3(blocks_for(s.tokens, kTokensPerBlock)),
                  kRouterThreads, 0, stream, logits, bias, gates, chosen, s.tokens, int(s.experts),
                  int(s.top_k), form);
  });
}

cudaError_t route_bwd(const float* logits, const int32_t* chosen, const float* dgates, const double* round,
                      bf16* dlogits, const RouterSizes& s, const RouterForm& form, const RouterTerms& terms,
                      cudaStream_t stream) {
  return with_slots(s.experts, [&](auto slots) {
    return launch(route_bwd_kernel<decltype(slots)::value, bf16>, dim3(blocks_for(s.tokens, kTokensPerBlock)),
                  kRouterThreads, 0, stream, logits, chosen, dgates, round, dlogits, s.tokens, int(s.experts),
                  int(s.top_k), form, terms);
  });
}

cudaError_t router_load(const float* logits, const int32_t* chosen, double* layer, bool add_layer,
                        double* round, bool add_round, void* workspace, const RouterSizes& s,
                        cudaStream_t stream) {
  auto* const partials = static_cast<double*>(workspace);
  const int64_t blocks = bias_partials(s.tokens), per_block = (s.tokens + blocks - 1) / blocks;
  const int64_t elements = 2 * s.experts + 2;
  const auto status = with_slots(s.experts, [&](auto slots) {
    return launch(router_load_kernel<decltype(slots)::value>, dim3(unsigned(blocks)), kLoadWarps * kWarp, 0,
                  stream, logits, chosen, partials, s.tokens, per_block, int(s.experts), int(s.top_k));
  });
  if (status != cudaSuccess) return status;
  return launch(add_loads_kernel, dim3(blocks_for(elements, 128)), 128, 0, stream, partials, blocks, elements,
                layer, add_layer, round, add_round);
}

cudaError_t sort_by_expert(const int32_t* chosen, int32_t* routing, void* workspace, const RouterSizes& s,
                           cudaStream_t stream) {
  auto* const counts = static_cast<int32_t*>(workspace);
  const int64_t rows = s.tokens * s.top_k, blocks = sort_partials(rows),
                per_block = (rows + blocks - 1) / blocks;
  const size_t shared = size_t(s.experts) * sizeof(int32_t);
  auto status = launch(count_choices_kernel, dim3(unsigned(blocks)), kCountWarps * kWarp,
                       kCountWarps * shared, stream, chosen, counts, rows, per_block, int(s.experts));
  if (status != cudaSuccess) return status;
  const unsigned threads = threads_for(s.experts, 1024);
  status = launch(place_blocks_kernel, dim3(1), threads, threads * sizeof(int32_t), stream, counts, routing,
                  blocks, int(s.experts));
  if (status != cudaSuccess) return status;
  int32_t* const choice = routing + s.experts + 1;
  return launch(place_choices_kernel, dim3(unsigned(blocks)), unsigned{kWarp}, shared, stream, chosen, counts,
                choice, choice + rows, rows, per_block, int(s.experts));
}

cudaError_t combine_experts(const bf16* x, const int32_t* row, const float* gates, const bf16* residual,
                            bf16* y, int64_t tokens, int64_t dim, int64_t top_k, cudaStream_t stream) {
  const unsigned threads = threads_for(dim / kVec, kSumThreads);
  return launch(combine_kernel, columns_of(tokens, dim, threads), threads, 0, stream, x, row, gates, residual,
                y, dim, int(top_k));
}

template <class G>
cudaError_t grouped_bias_grad(const Grouping& g, const bf16* dy, const float* gates, G* dbias, int64_t out,
                              bool accumulate, cudaStream_t stream) {
  return launch(grouped_bias_kernel<G>, dim3(blocks_for(out, kBiasColumns * kVec), unsigned(g.experts)),
                kBiasColumns * kBiasRows, 0, stream, dy, g.routing, g.choices(), gates, dbias, out,
                int(g.top_k), accumulate);
}
template cudaError_t grouped_bias_grad(const Grouping&, const bf16*, const float*, float*, int64_t, bool,
                                       cudaStream_t);
template cudaError_t grouped_bias_grad(const Grouping&, const bf16*, const float*, bf16*, int64_t, bool,
                                       cudaStream_t);

cudaError_t add_bias(float* y, const bf16* bias, int64_t tokens, int64_t columns, cudaStream_t stream) {
  constexpr int kThreads = 256;
  return launch(add_bias_kernel, dim3(blocks_for(tokens * columns, kThreads)), kThreads, 0, stream, y, bias,
                tokens * columns, columns);
}

template <class T>
cudaError_t scale_gates(const float* x, const int32_t* chosen, const T* scales, float* y, int64_t rows,
                        cudaStream_t stream) {
  return launch(scale_gates_kernel<T>, dim3(blocks_for(rows, kSumThreads)), kSumThreads, 0, stream, x, chosen,
                scales, y, rows);
}
template cudaError_t scale_gates(const float*, const int32_t*, const float*, float*, int64_t, cudaStream_t);
template cudaError_t scale_gates(const float*, const int32_t*, const bf16*, float*, int64_t, cudaStream_t);

template <class G>
cudaError_t scales_grad(const float* gates, const int32_t* chosen, const float* dy, G* dscales,
                        const RouterSizes& s, bool accumulate, cudaStream_t stream) {
  return launch(scales_grad_kernel<G>, dim3(unsigned(s.experts)), kSumThreads, 0, stream, gates, chosen, dy,
                dscales, s.tokens * s.top_k, accumulate);
}
template cudaError_t scales_grad(const float*, const int32_t*, const float*, float*, const RouterSizes&, bool,
                                 cudaStream_t);
template cudaError_t scales_grad(const float*, const int32_t*, const float*, bf16*, const RouterSizes&, bool,
                                 cudaStream_t);

cudaError_t gated_add(const bf16* x, const float* gate, const bf16* residual, bf16* y, int64_t tokens,
                      int64_t dim, cudaStream_t stream) {
  const unsigned threads = threads_for(dim / kVec, kSumThreads);
  return launch(gated_add_kernel, columns_of(tokens, dim, threads), threads, 0, stream, x, gate, residual, y,
                dim);
}

cudaError_t gated_add_bwd(const bf16* x, const float* gate, const bf16* dy, bf16* dx, bf16* dgate,
                          int64_t tokens, int64_t dim, cudaStream_t stream) {
  return launch(gated_add_bwd_kernel, dim3(unsigned(tokens)), threads_for(dim / kVec, kSumThreads), 0, stream,
                x, gate, dy, dx, dgate, dim);
}

}  // namespace sluice::core::cuda
