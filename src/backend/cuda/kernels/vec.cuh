// SPDX-License-Identifier: Apache-2.0
// Eight elements at a time: 16 bytes of bf16, 32 of f32. Global memory holds either type, arithmetic is f32.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>

#include "backend/cuda/kernels/ptx.cuh"

namespace sluice::core::cuda {

using bf16 = __nv_bfloat16;

constexpr int kVec = 8;

__device__ inline float low_half(uint32_t pair) {
  return __uint_as_float(pair << 16);
}
__device__ inline float high_half(uint32_t pair) {
  return __uint_as_float(pair & 0xffff0000u);
}

// By the exponential: off by a few units of the last place of 1, for small x, too.
__device__ inline float tanh_of(float x) {
  constexpr float kMost = 16;  // where it is 1; what is not a number stays so
  const float size = fabsf(x) > kMost ? kMost : fabsf(x);
  return copysignf(1.0f - __fdividef(2.0f, 1.0f + __expf(2.0f * size)), x);
}

// Two floats rounded to nearest even; `low` takes the lower address.
__device__ inline uint32_t pack_bf16(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  uint32_t bits;
  memcpy(&bits, &pair, sizeof bits);
  return bits;
}

// Eight elements as they lie in memory; loading many before unpacking the first keeps loads in flight.
template <class T>
struct Vec8;

template <>
struct Vec8<bf16> {
  uint4 raw;

  static __device__ Vec8 load(const bf16* p) { return {*reinterpret_cast<const uint4*>(p)}; }
  __device__ void unpack(float (&x)[kVec]) const {
    const uint32_t pairs[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      x[2 * i] = low_half(pairs[i]);
      x[2 * i + 1] = high_half(pairs[i]);
    }
  }
};

template <>
struct Vec8<float> {
  float4 raw[2];

  static __device__ Vec8 load(const float* p) {
    const auto* from = reinterpret_cast<const float4*>(p);
    return {{from[0], from[1]}};
  }
  __device__ void unpack(float (&x)[kVec]) const {
    x[0] = raw[0].x, x[1] = raw[0].y, x[2] = raw[0].z, x[3] = raw[0].w;
    x[4] = raw[1].x, x[5] = raw[1].y, x[6] = raw[1].z, x[7] = raw[1].w;
  }
};

template <class T>
__device__ inline void load8(const T* p, float (&x)[kVec]) {
  Vec8<T>::load(p).unpack(x);
}
__device__ inline void store8(bf16* p, const float (&x)[kVec]) {
  store_vector(p, make_uint4(pack_bf16(x[0], x[1]), pack_bf16(x[2], x[3]), pack_bf16(x[4], x[5]),
                             pack_bf16(x[6], x[7])));
}
__device__ inline void store8(float* p, const float (&x)[kVec]) {
  const auto bits = [&](int i) { return __float_as_uint(x[i]); };
  store_vector(p, make_uint4(bits(0), bits(1), bits(2), bits(3)));
  store_vector(p + 4, make_uint4(bits(4), bits(5), bits(6), bits(7)));
}

__device__ inline float to_float(float x) {
  return x;
}
__device__ inline float to_float(bf16 x) {
  return __bfloat162float(x);
}
__device__ inline void store_float(float* p, float x) {
  *p = x;
}
__device__ inline void store_float(bf16* p, float x) {
  *p = __float2bfloat16_rn(x);
}

}  // namespace sluice::core::cuda
