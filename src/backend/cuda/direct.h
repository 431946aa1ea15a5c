// SPDX-License-Identifier: Apache-2.0
// What processes exchange from GPU to GPU, without the host between them.
#pragma once

#include <cuda_runtime.h>

#include "base/network.h"

namespace sluice::core::cuda {

// Its memory, and the one GPU of each process, are there from the start. The calls below queue; the GPU is
// current.
class DirectNetwork : public DeviceNetwork {
 public:
  // `values`, which begin on 32 bytes, become their sums over all processes: each receives a slice of
  // everybody's, adds it by the tree of add_by_tree() (kernels.h), and sends the sums to all.
  virtual Status sum(std::byte* values, int64_t bytes, DType dtype, cudaStream_t stream) = 0;
  // They become what process `root` has.
  virtual Status broadcast(std::byte* values, int64_t bytes, int root, cudaStream_t stream) = 0;
  // The first failure of queued work. Any thread.
  virtual Status state() const = 0;
};

}  // namespace sluice::core::cuda
