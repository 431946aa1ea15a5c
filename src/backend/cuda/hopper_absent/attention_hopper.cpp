// SPDX-License-Identifier: Apache-2.0
// Builds for GPUs of which none has compute capability 9.0: nobody calls this attention.
#include "backend/cuda/kernels/attention_hopper.h"

namespace sluice::core::cuda {

bool hopper_attention(int64_t /*head_dim*/) {
  return false;
}
cudaError_t hopper_attention_fwd(const AttentionBlock<bf16>& /*block*/, bf16* /*o*/, float* /*lse*/,
                                 cudaStream_t /*stream*/) {
  return cudaErrorNotSupported;
}
cudaError_t hopper_attention_bwd(const AttentionBlock<bf16>& /*block*/, const bf16* /*d_o*/,
                                 const float* /*lse*/, const float* /*delta*/, bf16* /*dq*/, bf16* /*dkv*/,
                                 cudaStream_t /*stream*/) {
  return cudaErrorNotSupported;
}

}  // namespace sluice::core::cuda
