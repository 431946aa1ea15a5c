// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/gemm_vector.h"

#include <algorithm>

#include "backend/cpu/gemm_packed.h"

namespace sluice::core::cpu {
namespace {

// Along k, multiplied before the next rows' turn: 32 columns of B and 32 rows of A then share the first-level
// cache.
constexpr int64_t kMaxChunk = 160;

PackedSizes sizes_of(const GemmShape& s) {
  return {s, s.k * int64_t{sizeof(float)}, 8};
}

// A is read in place when its rows lie along k in f32.
bool packs_a(const GemmShape& s) {
  return s.layout == Layout::TN || s.in != DType::F32;
}

}  // namespace
}  // namespace sluice::core::cpu

#define SLUICE_LOOPS "backend/cpu/gemm_vector_loops.h"
#include "backend/cpu/each_isa.h"

namespace sluice::core::cpu {

int64_t vector_workspace_bytes(const GemmShape& shape) {
  return sizes_of(shape).workspace_bytes();
}

int64_t vector_scratch_bytes(const GemmShape& shape) {
  return sizes_of(shape).scratch_bytes();
}

void vector_multiply(CpuIsa isa, const GemmShape& shape, ThreadPool& pool,
                     std::span<std::byte* const> scratch, const void* a, const void* b, void* c,
                     std::byte* workspace) {
  multiply_packed(
      shape, sizes_of(shape), pool, scratch, a, b, c, workspace,
      [isa](const Packing& p, int64_t begin, int64_t end) { SLUICE_LOOP(isa, pack, p, begin, end); },
      [isa](const Slice& s) { SLUICE_LOOP(isa, multiply_slice, s); });
}

}  // namespace sluice::core::cpu
