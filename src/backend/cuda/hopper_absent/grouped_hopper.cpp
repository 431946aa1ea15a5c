// SPDX-License-Identifier: Apache-2.0
// Builds for GPUs of which none has compute capability 9.0: nobody calls these products.
#include "backend/cuda/kernels/grouped_hopper.h"

namespace sluice::core::cuda {

bool hopper_products(int64_t /*experts*/) {
  return false;
}
cudaError_t hopper_linear(const Grouping& /*g*/, const bf16* /*x*/, const bf16* /*w*/, const bf16* /*bias*/,
                          bf16* /*y*/, int64_t /*out*/, int64_t /*in*/, bool /*gathers*/,
                          cudaStream_t /*stream*/) {
  return cudaErrorNotSupported;
}
cudaError_t hopper_dgrad(const Grouping& /*g*/, const bf16* /*dy*/, const bf16* /*w*/, bf16* /*dx*/,
                         int64_t /*out*/, int64_t /*in*/, bool /*gathers*/, cudaStream_t /*stream*/) {
  return cudaErrorNotSupported;
}
template <class G>
cudaError_t hopper_wgrad(const Grouping& /*g*/, const bf16* /*dy*/, const bf16* /*x*/, G* /*dw*/,
                         int64_t /*out*/, int64_t /*in*/, bool /*gathers_dy*/, bool /*gathers_x*/,
                         bool /*accumulate*/, cudaStream_t /*stream*/) {
  return cudaErrorNotSupported;
}
template cudaError_t hopper_wgrad(const Grouping&, const bf16*, const bf16*, float*, int64_t, int64_t, bool,
                                  bool, bool, cudaStream_t);
template cudaError_t hopper_wgrad(const Grouping&, const bf16*, const bf16*, bf16*, int64_t, int64_t, bool,
                                  bool, bool, cudaStream_t);

}  // namespace sluice::core::cuda
