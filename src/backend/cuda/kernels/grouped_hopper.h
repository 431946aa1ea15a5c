// SPDX-License-Identifier: Apache-2.0
// Products over the rows of each expert for compute capability 9.0, as grouped.cu calls them. Rows of other
// experts are not touched.
#pragma once

#include "backend/cuda/kernels/kernels.h"

namespace sluice::core::cuda {

// Whether the current device has what they need, and they are in this build.
bool hopper_products(int64_t experts);

cudaError_t hopper_linear(const Grouping& g, const bf16* x, const bf16* w, const bf16* bias, bf16* y,
                          int64_t out, int64_t in, bool gathers, cudaStream_t stream);
cudaError_t hopper_dgrad(const Grouping& g, const bf16* dy, const bf16* w, bf16* dx, int64_t out, int64_t in,
                         bool gathers, cudaStream_t stream);
// At most one of the matrices has rows of tokens.
template <class G>
cudaError_t hopper_wgrad(const Grouping& g, const bf16* dy, const bf16* x, G* dw, int64_t out, int64_t in,
                         bool gathers_dy, bool gathers_x, bool accumulate, cudaStream_t stream);

}  // namespace sluice::core::cuda
