// SPDX-License-Identifier: Apache-2.0
// Attention of heads of 129 to 512 for compute capability 9.0, as attention.cu and attention_bwd.cu call it.
#pragma once

#include "backend/cuda/kernels/kernels.h"

namespace sluice::core::cuda {

// Whether the current device has what it needs, it is in this build, and it takes such heads.
bool hopper_attention(int64_t head_dim);

cudaError_t hopper_attention_fwd(const AttentionBlock<bf16>& block, bf16* o, float* lse, cudaStream_t stream);
cudaError_t hopper_attention_bwd(const AttentionBlock<bf16>& block, const bf16* d_o, const float* lse,
                                 const float* delta, bf16* dq, bf16* dkv, cudaStream_t stream);

}  // namespace sluice::core::cuda
