// SPDX-License-Identifier: Apache-2.0
// An optimizer's update: the loop over elements, for any rule. Whether to update at all is data on the device
// (args.update, clip[1]), so that no step waits for the host.
//
// A rule has its parameters (kernels.h) and, on the device, a Step of them:
//   Step<Rule>(rule, args, block)
//   advance(w, g, state)         the state's new values from its old ones and the clipped gradient
//   weight(w, g, old, state)     the new weight; it may read `block`, which holds
//   per_block(rule, args, i)     for i below kPerBlock, where a rule has some: what is dear to compute
// in explicit roundings: which products and sums the compiler fuses must not depend on the kernel they are
// part of.
#pragma once

#include <type_traits>

#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/vec.cuh"
#include "ops/compact.h"
#include "ops/master.h"
#include "ops/rounding.h"

namespace sluice::core::cuda {
namespace {

constexpr int kThreads = 256;

template <class Rule>
struct Step;

template <class Rule, class = void>
constexpr int kPerBlock = 0;
template <class Rule>
constexpr int kPerBlock<Rule, std::void_t<decltype(Step<Rule>::kPerBlock)>> = Step<Rule>::kPerBlock;

template <class S>
constexpr bool kCompact = std::is_same_v<S, Compact>;

// The state's parts in memory.
template <class S, int kStates>
struct State {
  S* part[kStates];
};

// A bf16 that a draw rounded, as a float: storing it to bf16 changes nothing any more.
__device__ float rounded(float x, uint32_t draw) {
  return __uint_as_float(uint32_t{round_stochastic(__float_as_uint(x), draw)} << 16);
}

// The elements of one thread on their way.
template <int kStates>
struct Elements {
  float w[kVec], g[kVec], state[kStates][kVec];
};

// Rounds elements from `first` on; one Philox call serves a pair. kOdd: `first` is the second of its pair.
// kWeights, kState: what is bf16.
template <int kOdd, bool kWeights, bool kState, int kStates>
__device__ void round_elements(Elements<kStates>& e, uint64_t key, int64_t step, int64_t first) {
#pragma unroll
  for (int k = 0; k < kVec / 2 + kOdd; ++k) {
    const Philox4 pair = rounding_pair(key, step, (first >> 1) + k);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int i = 2 * k + half - kOdd;
      if (i < 0 || i >= kVec) continue;
      const RoundingBits bits = rounding_bits(pair, half == 1);
      if constexpr (kWeights) e.w[i] = rounded(e.w[i], bits.p);
      if constexpr (kState) {
        e.state[0][i] = rounded(e.state[0][i], bits.m);
        if constexpr (kStates == 2) e.state[1][i] = rounded(e.state[1][i], bits.v);
      }
    }
  }
}

// How many of a thread's elements there are: all eight, or (int) fewer, the last of the tensor.
struct Whole {};

template <class T>
__device__ void load(const T* from, float (&x)[kVec], Whole) {
  load8(from, x);
}
template <class T>
__device__ void load(const T* from, float (&x)[kVec], int count) {
#pragma unroll
  for (int i = 0; i < kVec; ++i) {
    if (i < count) x[i] = to_float(from[i]);
  }
}
template <class T>
__device__ void store(T* to, const float (&x)[kVec], Whole) {
  store8(to, x);
}
template <class T>
__device__ void store(T* to, const float (&x)[kVec], int count) {
#pragma unroll
  for (int i = 0; i < kVec; ++i) {
    if (i < count) store_float(to + i, x[i]);
  }
}

// Calls body(how many) for the elements from `begin` on: one branch around all loads, so that they are in
// flight together.
template <class Body>
__device__ void with_count(const UpdateRange& range, int64_t begin, Body&& body) {
  if (begin + kVec <= range.elements) {
    body(Whole{});
  } else {
    body(int(range.elements - begin));
  }
}

template <class S, int kStates, class Count>
__device__ void load_state(const State<S, kStates>& from, int64_t begin, Elements<kStates>& e, Count count) {
#pragma unroll
  for (int k = 0; k < kStates; ++k) load(from.part[k] + begin, e.state[k], count);
}
template <class S, int kStates, class Count>
__device__ void store_state(const State<S, kStates>& to, int64_t begin, const Elements<kStates>& e,
                            Count count) {
#pragma unroll
  for (int k = 0; k < kStates; ++k) store(to.part[k] + begin, e.state[k], count);
}

// --- compact state: a group's elements are those of four threads next to each other ---

constexpr int kThreadsOfGroup = kCompactGroup / kVec;

__device__ int64_t padded(int64_t elements) {
  return (elements + kCompactGroup - 1) / kCompactGroup * kCompactGroup;
}
__device__ float* scales_of(Compact* part, int64_t elements) {
  return reinterpret_cast<float*>(part + padded(elements));
}

template <class Rule>
__device__ bool is_squares(int k) {
  return (Rule::kSquares >> k & 1) != 0;
}

// Threads behind the last group have zeros.
template <class Rule>
__device__ void load_compact(const State<Compact, Rule::kStates>& from, int64_t elements, int64_t begin,
                             Elements<Rule::kStates>& e) {
  if (begin >= padded(elements)) return;
#pragma unroll
  for (int k = 0; k < Rule::kStates; ++k) {
    const uint2 bytes = *reinterpret_cast<const uint2*>(from.part[k] + begin);
    const float scale = scales_of(from.part[k], elements)[begin / kCompactGroup];
    const float step = scale / 255.0f;
#pragma unroll
    for (int i = 0; i < kVec; ++i) {
      const auto byte = uint8_t((i < 4 ? bytes.x : bytes.y) >> (8 * (i % 4)));
      e.state[k][i] = is_squares<Rule>(k) ? expand_squares(byte, step) : expand_signed(byte, scale);
    }
  }
}

// All threads of a warp take part; those behind the last group write nothing.
template <class Rule>
__device__ void store_compact(const State<Compact, Rule::kStates>& to, int64_t elements, int64_t begin,
                              const Elements<Rule::kStates>& e) {
#pragma unroll
  for (int k = 0; k < Rule::kStates; ++k) {
    float root[kVec], most = 0.0f;
#pragma unroll
    for (int i = 0; i < kVec; ++i) {
      root[i] = is_squares<Rule>(k) ? sqrtf(e.state[k][i]) : fabsf(e.state[k][i]);
      most = fmaxf(most, root[i]);
    }
#pragma unroll
    for (int apart = 1; apart < kThreadsOfGroup; apart *= 2)
      most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, apart));
    const float inverse = compact_inverse(most);
    uint2 bytes{0, 0};
#pragma unroll
    for (int i = 0; i < kVec; ++i) {
      const uint32_t q =
          is_squares<Rule>(k) ? compact_root(root[i], inverse) : compact_signed(e.state[k][i], inverse);
      (i < 4 ? bytes.x : bytes.y) |= q << (8 * (i % 4));
    }
    if (begin >= padded(elements)) continue;
    *reinterpret_cast<uint2*>(to.part[k] + begin) = bytes;
    if (threadIdx.x % kThreadsOfGroup == 0) scales_of(to.part[k], elements)[begin / kCompactGroup] = most;
  }
}

// Element i of the state, all parts.
template <int kStates>
struct Parts {
  float x[kStates];

  __device__ Parts(const Elements<kStates>& e, int i) {
#pragma unroll
    for (int k = 0; k < kStates; ++k) x[k] = e.state[k][i];
  }
};

// The new state.
template <class Rule>
__device__ void advance_all(const Step<Rule>& step, float clip, Elements<Rule::kStates>& e) {
#pragma unroll
  for (int i = 0; i < kVec; ++i) {
    Parts<Rule::kStates> now(e, i);
    e.g[i] = __fmul_rn(clip, e.g[i]);
    step.advance(e.w[i], e.g[i], now.x);
#pragma unroll
    for (int k = 0; k < Rule::kStates; ++k) e.state[k][i] = now.x[k];
  }
}

// Rounds a thread's elements, from `first` of the parameter on.
template <bool kWeights, bool kState, int kStates>
__device__ void round_all(Elements<kStates>& e, const UpdateRange& range, const StepArgs& args,
                          int64_t first) {
  const uint64_t key = rounding_key(args.seed, range.object);
  if (first % 2 == 0) {
    round_elements<0, kWeights, kState>(e, key, args.step, first);
  } else {
    round_elements<1, kWeights, kState>(e, key, args.step, first);
  }
}

__device__ int64_t first_element() {
  return (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kVec;
}

// Which weights are updated: the parameters, f32 masters, or masters of 24 bits.
enum class From { Parameters, F32, Joined };

__device__ void load_joined(const bf16* p, const uint8_t* residual, float (&x)[kVec], int count) {
#pragma unroll
  for (int i = 0; i < kVec; ++i) {
    if (i < count) x[i] = __uint_as_float(join_master(reinterpret_cast<const uint16_t*>(p)[i], residual[i]));
  }
}
__device__ void load_joined(const bf16* p, const uint8_t* residual, float (&x)[kVec], Whole) {
  const uint4 parameters = *reinterpret_cast<const uint4*>(p);
  const uint2 residuals = *reinterpret_cast<const uint2*>(residual);
  const uint32_t pairs[] = {parameters.x, parameters.y, parameters.z, parameters.w};
#pragma unroll
  for (int i = 0; i < kVec; ++i) {
    const auto parameter = uint16_t(pairs[i / 2] >> (16 * (i % 2)));
    const auto byte = uint8_t((i < 4 ? residuals.x : residuals.y) >> (8 * (i % 4)));
    x[i] = __uint_as_float(join_master(parameter, byte));
  }
}
__device__ void store_joined(bf16* p, uint8_t* residual, const float (&x)[kVec], int count) {
#pragma unroll
  for (int i = 0; i < kVec; ++i) {
    if (i >= count) continue;
    const SplitMaster split = split_master(__float_as_uint(x[i]));
    reinterpret_cast<uint16_t*>(p)[i] = split.parameter;
    residual[i] = split.residual;
  }
}
__device__ void store_joined(bf16* p, uint8_t* residual, const float (&x)[kVec], Whole) {
  uint32_t pairs[kVec / 2] = {}, bytes[kVec / 4] = {};
#pragma unroll
  for (int i = 0; i < kVec; ++i) {
    const SplitMaster split = split_master(__float_as_uint(x[i]));
    pairs[i / 2] |= uint32_t{split.parameter} << (16 * (i % 2));
    bytes[i / 4] |= uint32_t{split.residual} << (8 * (i % 4));
  }
  *reinterpret_cast<uint4*>(p) = {pairs[0], pairs[1], pairs[2], pairs[3]};
  *reinterpret_cast<uint2*>(residual) = {bytes[0], bytes[1]};
}

// kMoments: whether the state is written.
template <From kFrom, bool kStochastic, bool kMoments, class Rule, class G, class S>
__global__ void __launch_bounds__(kThreads)
    weights_kernel(UpdateRange range, Rule rule, bf16* p, const G* gradient, State<S, Rule::kStates> state,
                   Masters masters, const float* clip, const StepArgs* args) {
  if (args->update == 0 || clip[1] == 0.0f) return;
  const int64_t begin = first_element();  // those of the last block may have no elements

  Elements<Rule::kStates> e{};
  with_count(range, begin, [&](auto count) {
    if constexpr (kFrom == From::F32) {
      load(masters.f32 + begin, e.w, count);
    } else if constexpr (kFrom == From::Joined) {
      load_joined(p + begin, masters.residual + begin, e.w, count);
    } else {
      load(p + begin, e.w, count);
    }
    load(gradient + begin, e.g, count);
    if constexpr (!kCompact<S>) load_state(state, begin, e, count);
  });
  if constexpr (kCompact<S>) load_compact<Rule>(state, range.elements, begin, e);
  // While the loads are on their way.
  __shared__ float block[kPerBlock<Rule> + 1];
  if constexpr (0 != kPerBlock<Rule>) {
    const auto i = int(threadIdx.x);
    if (i < kPerBlock<Rule>) block[i] = Step<Rule>::per_block(rule, *args, i);
    __syncthreads();
  }
  const Elements<Rule::kStates> old = e;
  const Step<Rule> step(rule, *args, block);
  advance_all(step, clip[1], e);
#pragma unroll
  for (int i = 0; i < kVec; ++i) {
    e.w[i] = step.weight(e.w[i], e.g[i], Parts<Rule::kStates>(old, i).x, Parts<Rule::kStates>(e, i).x);
  }
  if constexpr (kStochastic) {
    round_all<kFrom == From::Parameters, kMoments && sizeof(S) == sizeof(bf16)>(e, range, *args,
                                                                                range.first + begin);
  }

  with_count(range, begin, [&](auto count) {
    if constexpr (kFrom == From::Joined) {
      store_joined(p + begin, masters.residual + begin, e.w, count);
    } else {
      if constexpr (kFrom == From::F32) store(masters.f32 + begin, e.w, count);
      if (kFrom != From::F32 || p != nullptr) store(p + begin, e.w, count);
    }
    if constexpr (kMoments && !kCompact<S>) store_state(state, begin, e, count);
  });
  if constexpr (kMoments && kCompact<S>) store_compact<Rule>(state, range.elements, begin, e);
}

template <bool kStochastic, class Rule, class G, class S>
__global__ void __launch_bounds__(kThreads)
    state_kernel(UpdateRange range, Rule rule, const G* gradient, State<S, Rule::kStates> state,
                 const float* clip, const StepArgs* args) {
  if (args->update == 0 || clip[1] == 0.0f) return;
  const int64_t begin = first_element();
  if (!kCompact<S> && begin >= range.elements) return;

  Elements<Rule::kStates> e{};
  with_count(range, begin, [&](auto count) {
    load(gradient + begin, e.g, count);
    if constexpr (!kCompact<S>) load_state(state, begin, e, count);
  });
  if constexpr (kCompact<S>) load_compact<Rule>(state, range.elements, begin, e);
  advance_all(Step<Rule>(rule, *args, nullptr), clip[1], e);
  if constexpr (kStochastic && sizeof(S) == sizeof(bf16)) {
    round_all<false, true>(e, range, *args, range.first + begin);
  }
  if constexpr (kCompact<S>) {
    store_compact<Rule>(state, range.elements, begin, e);
  } else {
    with_count(range, begin, [&](auto count) { store_state(state, begin, e, count); });
  }
}

template <bool kMoments, class Rule, class G, class S>
auto pick_kernel(const Masters& masters, bool stochastic) {
  if (masters.residual != nullptr) {
    return stochastic ? weights_kernel<From::Joined, true, kMoments, Rule, G, S>
                      : weights_kernel<From::Joined, false, kMoments, Rule, G, S>;
  }
  if (masters.f32 != nullptr) {
    return stochastic ? weights_kernel<From::F32, true, kMoments, Rule, G, S>
                      : weights_kernel<From::F32, false, kMoments, Rule, G, S>;
  }
  return stochastic ? weights_kernel<From::Parameters, true, kMoments, Rule, G, S>
                    : weights_kernel<From::Parameters, false, kMoments, Rule, G, S>;
}

template <class S, int kStates>
State<S, kStates> state_of(S* const (&parts)[kStates]) {
  State<S, kStates> state;
  for (int k = 0; k < kStates; ++k) state.part[k] = parts[k];
  return state;
}

}  // namespace

template <class Rule, class G, class S>
cudaError_t update_weights(const UpdateRange& range, const Rule& rule, bf16* p, const G* g,
                           S* const (&state)[Rule::kStates], const Masters& masters, const float* clip,
                           const StepArgs* args, bool stochastic, bool moments, cudaStream_t stream) {
  const auto kernel = moments ? pick_kernel<true, Rule, G, S>(masters, stochastic)
                              : pick_kernel<false, Rule, G, S>(masters, stochastic);
  return launch(kernel, dim3(blocks_for(range.elements, kThreads * kVec)), kThreads, 0, stream, range, rule,
                p, g, state_of(state), masters, clip, args);
}

template <class Rule, class G, class S>
cudaError_t update_state(const UpdateRange& range, const Rule& rule, const G* g,
                         S* const (&state)[Rule::kStates], const float* clip, const StepArgs* args,
                         bool stochastic, cudaStream_t stream) {
  const auto kernel = stochastic ? state_kernel<true, Rule, G, S> : state_kernel<false, Rule, G, S>;
  return launch(kernel, dim3(blocks_for(range.elements, kThreads * kVec)), kThreads, 0, stream, range, rule,
                g, state_of(state), clip, args);
}

// Goes at the end of the file of a rule.
#define SLUICE_INSTANTIATE_TYPES(Rule, G, S)                                                               \
  template cudaError_t update_weights(const UpdateRange&, const Rule&, bf16*, const G*,                    \
                                      S* const(&)[Rule::kStates], const Masters&, const float*,            \
                                      const StepArgs*, bool, bool, cudaStream_t);                          \
  template cudaError_t update_state(const UpdateRange&, const Rule&, const G*, S* const(&)[Rule::kStates], \
                                    const float*, const StepArgs*, bool, cudaStream_t)
#define SLUICE_INSTANTIATE_UPDATE(Rule)           \
  SLUICE_INSTANTIATE_TYPES(Rule, float, float);   \
  SLUICE_INSTANTIATE_TYPES(Rule, float, bf16);    \
  SLUICE_INSTANTIATE_TYPES(Rule, float, Compact); \
  SLUICE_INSTANTIATE_TYPES(Rule, bf16, Compact);  \
  SLUICE_INSTANTIATE_TYPES(Rule, bf16, float);    \
  SLUICE_INSTANTIATE_TYPES(Rule, bf16, bf16)

}  // namespace sluice::core::cuda
