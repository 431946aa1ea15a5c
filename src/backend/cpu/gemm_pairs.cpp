// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/gemm_pairs.h"

#include <algorithm>

#include "backend/cpu/gemm_packed.h"

namespace sluice::core::cpu {
namespace {

// Pairs along k that are multiplied before the next rows' turn, as in gemm_vector.cpp.
[[maybe_unused]] constexpr int64_t kMaxChunk = 160;

PackedSizes sizes_of(const GemmShape& s) {
  return {s, s.k / 2 * int64_t{sizeof(float)}, 8};
}

}  // namespace
}  // namespace sluice::core::cpu

#define SLUICE_LOOPS "backend/cpu/gemm_pairs_loops.h"
#include "backend/cpu/amx_isa.h"

namespace sluice::core::cpu {

int64_t pairs_workspace_bytes(const GemmShape& shape) {
  return sizes_of(shape).workspace_bytes();
}

int64_t pairs_scratch_bytes(const GemmShape& shape) {
  return sizes_of(shape).scratch_bytes();
}

void pairs_multiply(const GemmShape& shape, ThreadPool& pool, std::span<std::byte* const> scratch,
                    const void* a, const void* b, void* c, std::byte* workspace) {
  multiply_packed(
      shape, shape.k, sizes_of(shape), pool, scratch, a, b, c, workspace,
      [](const Packing& p, int64_t begin, int64_t end) { SLUICE_AMX_LOOP(pack_pairs, p, begin, end); },
      [](const Slice& s) { SLUICE_AMX_LOOP(multiply_pairs, s); });
}

}  // namespace sluice::core::cpu
