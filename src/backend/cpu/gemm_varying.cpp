// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/gemm_varying.h"

#include <algorithm>

#include "backend/cpu/gemm_packed.h"
#include "backend/cpu/gemm_tiles.h"
#include "backend/cpu/gemm_vector.h"

namespace sluice::core::cpu {
namespace {

// Less of k makes packed groups, and slices, of more panels, up to what they are filled to.
constexpr int64_t kMostPacked = kPackedBytes + 4 * kKiB;
constexpr int64_t kMostSlice = kSliceBytes + kMaxSlicePanels * kPanel * kPanel * int64_t{sizeof(float)};

}  // namespace

int64_t varying_workspace_bytes(const GemmShape& most) {
  const int64_t tiles = most.in == DType::BF16 ? tiles_workspace_bytes(most) : 0;
  return align_up(std::max({kMostPacked, vector_workspace_bytes(most), tiles}), 64);
}

int64_t varying_scratch_bytes(const GemmShape& most) {
  const int64_t tiles = most.in == DType::BF16 ? tiles_scratch_bytes(most) : 0;
  return align_up(std::max({kMostSlice, vector_scratch_bytes(most), tiles}), 64);
}

void varying_multiply(CpuIsa isa, const GemmShape& shape, ThreadPool& pool,
                      std::span<std::byte* const> scratch, const void* a, const void* b, void* c,
                      std::byte* workspace) {
  if (is_tiled(isa, shape)) {
    tiles_multiply(isa, shape, pool, scratch, a, b, c, workspace);
  } else {
    vector_multiply(isa, shape, pool, scratch, a, b, c, workspace);
  }
}

}  // namespace sluice::core::cpu
