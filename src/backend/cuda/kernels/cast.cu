// SPDX-License-Identifier: Apache-2.0
// Conversions between element types, adding gradients, and a factor of all elements.
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/vec.cuh"
#include "ops/float8.h"

namespace sluice::core::cuda {
namespace {

constexpr int kThreads = 256;

template <class In, class Out>
__global__ void cast_kernel(const In* x, Out* y, int64_t elements, bool accumulate) {
  const int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kVec;
  if (i + kVec <= elements) {
    float v[kVec];
    load8(x + i, v);
    if (accumulate) {
      float old[kVec];
      load8(y + i, old);
      for (int j = 0; j < kVec; ++j) v[j] += old[j];
    }
    store8(y + i, v);
    return;
  }
  for (int64_t k = i; k < elements; ++k) {
    store_float(y + k, to_float(x[k]) + (accumulate ? to_float(y[k]) : 0.0f));
  }
}

// The block of an element: division of 64 bits would take longer than the bytes.
__device__ int64_t block_of(int64_t i, int64_t block, int64_t elements) {
  return elements <= UINT32_MAX ? static_cast<uint32_t>(i) / static_cast<uint32_t>(block) : i / block;
}
__device__ float scale_at(const float* scales, int64_t block) {
  return scales[block];
}
__device__ float scale_at(const uint8_t* scales, int64_t block) {
  return float_of_e8m0(scales[block]);
}

// Elements of f8e4m3, times the scale of their block; eight that a thread has are of one block.
template <class Scale, class Out>
__global__ void expand_kernel(const uint8_t* x, const Scale* scales, Out* y, int64_t elements,
                              int64_t block) {
  const int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kVec;
  const float scale = block == 0 || i >= elements ? 1.0f : scale_at(scales, block_of(i, block, elements));
  if (i + kVec <= elements) {
    static_assert(kVec == sizeof(uint2));
    const uint2 bytes = *reinterpret_cast<const uint2*>(x + i);
    float v[kVec];
    for (int j = 0; j < kVec; ++j)
      v[j] = E4m3::value(static_cast<uint8_t>((j < 4 ? bytes.x : bytes.y) >> (j % 4 * 8))) * scale;
    store8(y + i, v);
    return;
  }
  for (int64_t k = i; k < elements; ++k) store_float(y + k, E4m3::value(x[k]) * scale);
}

struct Numbers16 {
  float of[16];
};

// Likewise codes of 4 bits, whose numbers lie in shared memory.
template <class Scale, class Out>
__global__ void expand_halves_kernel(Numbers16 numbers, const uint8_t* x, const Scale* scales, Out* y,
                                     int64_t elements, int64_t block) {
  __shared__ float of[16];
  if (threadIdx.x < 16) of[threadIdx.x] = numbers.of[threadIdx.x];
  __syncthreads();
  const int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kVec;
  const float scale = block == 0 || i >= elements ? 1.0f : scale_at(scales, block_of(i, block, elements));
  if (i + kVec <= elements) {
    static_assert(kVec == 2 * sizeof(uint32_t));
    const uint32_t codes = *reinterpret_cast<const uint32_t*>(x + i / 2);
    float v[kVec];
    for (int j = 0; j < kVec; ++j) v[j] = of[codes >> 4 * j & 15] * scale;
    store8(y + i, v);
    return;
  }
  for (int64_t k = i; k < elements; ++k) store_float(y + k, of[x[k / 2] >> k % 2 * 4 & 15] * scale);
}

template <class X, class Y, class Z>
__global__ void add_kernel(const X* x, const Y* y, Z* z, int64_t elements) {
  const int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kVec;
  if (i + kVec <= elements) {
    float v[kVec], w[kVec];
    load8(x + i, v);
    load8(y + i, w);
    for (int j = 0; j < kVec; ++j) v[j] += w[j];
    store8(z + i, v);
    return;
  }
  for (int64_t k = i; k < elements; ++k) store_float(z + k, to_float(x[k]) + to_float(y[k]));
}

template <class T>
__global__ void scale_kernel(const T* x, const float* factor, T* y, int64_t elements) {
  const int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kVec;
  const float s = *factor;
  if (i + kVec <= elements) {
    float v[kVec];
    load8(x + i, v);
    for (int j = 0; j < kVec; ++j) v[j] *= s;
    store8(y + i, v);
    return;
  }
  for (int64_t k = i; k < elements; ++k) store_float(y + k, to_float(x[k]) * s);
}

template <class In, class Out>
cudaError_t run(const In* x, Out* y, int64_t elements, bool accumulate, cudaStream_t stream) {
  return launch(cast_kernel<In, Out>, dim3(blocks_for(elements, kThreads * kVec)), kThreads, 0, stream, x, y,
                elements, accumulate);
}

}  // namespace

template <class In, class Out>
cudaError_t cast(const In* x, Out* y, int64_t elements, cudaStream_t stream) {
  return run(x, y, elements, false, stream);
}
template cudaError_t cast(const float*, bf16*, int64_t, cudaStream_t);
template cudaError_t cast(const float*, float*, int64_t, cudaStream_t);
template cudaError_t cast(const bf16*, float*, int64_t, cudaStream_t);

namespace {

template <class Scale, class Out>
cudaError_t expand(const PackedRows& x, const Scale* scales, Out* y, int64_t elements, cudaStream_t stream) {
  const dim3 grid(blocks_for(elements, kThreads * kVec));
  if (x.numbers == nullptr)
    return launch(expand_kernel<Scale, Out>, grid, kThreads, 0, stream, x.codes, scales, y, elements,
                  x.block);
  Numbers16 numbers;
  for (int c = 0; c < 16; ++c) numbers.of[c] = x.numbers[c];
  return launch(expand_halves_kernel<Scale, Out>, grid, kThreads, 0, stream, numbers, x.codes, scales, y,
                elements, x.block);
}

}  // namespace

template <class Out>
cudaError_t expand(const PackedRows& x, Out* y, int64_t elements, cudaStream_t stream) {
  if (x.powers != nullptr) return expand(x, x.powers, y, elements, stream);
  return expand(x, x.scales, y, elements, stream);
}
template cudaError_t expand(const PackedRows&, bf16*, int64_t, cudaStream_t);
template cudaError_t expand(const PackedRows&, float*, int64_t, cudaStream_t);

template <class T, class G>
cudaError_t add_gradient(const T* x, G* y, int64_t elements, bool accumulate, cudaStream_t stream) {
  return run(x, y, elements, accumulate, stream);
}
template cudaError_t add_gradient(const float*, float*, int64_t, bool, cudaStream_t);
template cudaError_t add_gradient(const bf16*, float*, int64_t, bool, cudaStream_t);
template cudaError_t add_gradient(const bf16*, bf16*, int64_t, bool, cudaStream_t);

template <class X, class Y, class Z>
cudaError_t add_gradients(const X* x, const Y* y, Z* z, int64_t elements, cudaStream_t stream) {
  return launch(add_kernel<X, Y, Z>, dim3(blocks_for(elements, kThreads * kVec)), kThreads, 0, stream, x, y,
                z, elements);
}
template cudaError_t add_gradients(const float*, const float*, float*, int64_t, cudaStream_t);
template cudaError_t add_gradients(const float*, const float*, bf16*, int64_t, cudaStream_t);
template cudaError_t add_gradients(const float*, const bf16*, float*, int64_t, cudaStream_t);
template cudaError_t add_gradients(const float*, const bf16*, bf16*, int64_t, cudaStream_t);
template cudaError_t add_gradients(const bf16*, const float*, float*, int64_t, cudaStream_t);
template cudaError_t add_gradients(const bf16*, const float*, bf16*, int64_t, cudaStream_t);
template cudaError_t add_gradients(const bf16*, const bf16*, float*, int64_t, cudaStream_t);
template cudaError_t add_gradients(const bf16*, const bf16*, bf16*, int64_t, cudaStream_t);

template <class T>
cudaError_t scale_by(const T* x, const float* factor, T* y, int64_t elements, cudaStream_t stream) {
  return launch(scale_kernel<T>, dim3(blocks_for(elements, kThreads * kVec)), kThreads, 0, stream, x, factor,
                y, elements);
}
template cudaError_t scale_by(const float*, const float*, float*, int64_t, cudaStream_t);
template cudaError_t scale_by(const bf16*, const float*, bf16*, int64_t, cudaStream_t);

}  // namespace sluice::core::cuda
