// SPDX-License-Identifier: Apache-2.0
// The rotation of one token's heads, see rope.cu.
//
// The angle is reduced to one turn in double precision, so that positions of a million stay exact; it is
// computed once per token and serves every head.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "backend/cuda/kernels/kernels.h"

namespace sluice::core::cuda {

constexpr int kMaxPairs = 256;  // head_dim / 2 at most

struct Rotation {
  float cos[kMaxPairs], sin[kMaxPairs];
};

// Factors of a token's cosines and sines, where an angle turns and where none does.
struct RotationScales {
  float turned, still;
};
__device__ inline RotationScales rotation_scales(const Rotary& rotary, int64_t token) {
  float factor = 1;
  if (rotary.beta != 0)
    factor = float(1 + double(rotary.beta) * log1p(double(rotary.pos[token] / rotary.context)));
  return {rotary.scale * factor, (rotary.still_scale == 0 ? rotary.scale : rotary.still_scale) * factor};
}

// All threads of the block take part; ends with a barrier. sign is -1 to rotate back.
__device__ inline void fill_rotation(Rotation& rotation, const Rotary& rotary, int64_t token, int pairs,
                                     float sign) {
  const RotationScales scales = rotation_scales(rotary, token);
  constexpr double kInverseTurn = 0.15915494309189535;  // 1 / (2 pi)
  const double pos = double(rotary.pos[token]);
  for (int i = threadIdx.x; i < pairs; i += blockDim.x) {
    const double turns = pos * double(rotary.inv_freq[i]) * kInverseTurn;
    float sin, cos;
    sincospif(float(2.0 * (turns - rint(turns))), &sin, &cos);
    rotation.cos[i] = (rotary.inv_freq[i] == 0 ? scales.still : scales.turned) * cos;
    rotation.sin[i] = sign * scales.turned * sin;
  }
  __syncthreads();
}

}  // namespace sluice::core::cuda
