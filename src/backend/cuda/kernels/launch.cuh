// SPDX-License-Identifier: Apache-2.0
// The one place where kernels are started.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "backend/cuda/kernels/kernels.h"

namespace sluice::core::cuda {

// Dynamic shared memory that a kernel gets without asking.
constexpr size_t kPlainSharedBytes = 48 * 1024;

// Starts `kernel`; an empty grid is no launch. `shared` is the dynamic shared memory in bytes. With
// queue.early it may begin while the kernel before it on the stream runs, see await_previous().
template <class... Params, class... Args>
cudaError_t launch(void (*kernel)(Params...), dim3 grid, unsigned threads, size_t shared, Queue queue,
                   Args... args) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return cudaSuccess;
  if (shared > kPlainSharedBytes) {
    const auto status = cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                             cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared));
    if (status != cudaSuccess) return status;
  }
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared;
  config.stream = queue.stream;
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &early;
  config.numAttrs = queue.early ? 1 : 0;
  return cudaLaunchKernelEx(&config, kernel, static_cast<Params>(args)...);
}

constexpr unsigned blocks_for(int64_t items, int64_t per_block) {
  return static_cast<unsigned>((items + per_block - 1) / per_block);
}

// Threads of a block that walks `items` items: a multiple of the warp, at most `most`.
constexpr unsigned threads_for(int64_t items, int64_t most) {
  const int64_t warps = (items + 31) / 32 * 32;
  return static_cast<unsigned>(warps < 32 ? 32 : warps < most ? warps : most);
}

}  // namespace sluice::core::cuda
