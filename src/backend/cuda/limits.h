// SPDX-License-Identifier: Apache-2.0
// Limits of the kernels, for whoever asks without CUDA's headers.
#pragma once

#include <cstdint>

namespace sluice::core::cuda {

// The longest row the norm kernels take.
constexpr int64_t kMaxNormDim = 16384;
// The longest head that the own kernels of rotation and attention take.
constexpr int64_t kMaxHeadDim = 512;
// Longer ones are a multiple of 16.
constexpr int64_t kMaxHeadDimOfEights = 256;
// The longest heads of delta.cu and delta_bwd.cu.
constexpr int kMaxDeltaDim = 128;
// The longest head of head_gate.cu.
constexpr int kMaxGatedHeadDim = 256;
// Most query heads of generation.cu that may share a key head.
constexpr int64_t most_sharing(int64_t head_dim) {
  return head_dim <= 256 ? 64 : 32;
}
// Rows of experts: as many as a grid has tiles for, beside one that each expert may fill in part.
constexpr int64_t kMostExpertRows = (65535 - 512) * int64_t{128};
// The longest row that quantize.cu makes a copy of by row alone, by the compute capability's major number; 0:
// on some. A block holds a row in shared memory, of which it has 99 KiB on 8.9 and 12.
constexpr int64_t most_row_of_8_bits(int major) {
  return major == 8 || major == 12 ? 48 * 1024 : 64 * 1024;
}
// The largest rank of magnitude.cu.
constexpr int64_t kMaxNormRank = 1024;
// Rows that are a dimension of a grid.
constexpr int64_t kMostGridRows = 65535;

}  // namespace sluice::core::cuda
