// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/gemm_tiles.h"

#include <algorithm>

#include "backend/cpu/gemm_packed.h"

namespace sluice::core::cpu {
namespace {

// Tiles along k that are multiplied before the next rows' turn.
[[maybe_unused]] constexpr int64_t kMaxChunk = 10;

// k in tiles.
int64_t depth_of(int64_t k) {
  return (k + 31) / 32;
}

PackedSizes sizes_of(const GemmShape& s) {
  return {s, depth_of(s.k) * 64, kPanel};
}

// A is read in place when its rows lie along k in whole tiles.
[[maybe_unused]] bool packs_a(const GemmShape& s) {
  return s.layout == Layout::TN || s.k % 32 != 0;
}

}  // namespace
}  // namespace sluice::core::cpu

#define SLUICE_LOOPS "backend/cpu/gemm_tiles_loops.h"
#include "backend/cpu/amx_isa.h"

namespace sluice::core::cpu {

int64_t tiles_workspace_bytes(const GemmShape& shape) {
  return sizes_of(shape).workspace_bytes();
}

int64_t tiles_scratch_bytes(const GemmShape& shape) {
  return sizes_of(shape).scratch_bytes();
}

void tiles_multiply(CpuIsa isa, const GemmShape& shape, ThreadPool& pool, std::span<std::byte* const> scratch,
                    const void* a, const void* b, void* c, std::byte* workspace) {
  multiply_packed(
      shape, shape.k, sizes_of(shape), pool, scratch, a, b, c, workspace,
      [](const Packing& p, int64_t begin, int64_t end) { SLUICE_AMX_LOOP(pack, p, begin, end); },
      [isa](const Slice& s) { SLUICE_AMX_LOOP(multiply_slice, isa, s); });
}

}  // namespace sluice::core::cpu
