// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/gemm_vector.h"

#include <algorithm>

#include "backend/cpu/gemm_packed.h"

namespace sluice::core::cpu {
namespace {

// Along k, multiplied before the next rows' turn: 32 columns of B and 32 rows of A then share the first-level
// cache.
constexpr int64_t kMaxChunk = 160;

// Along k, packed together. More of it would leave room for few columns of B at once, and all of A is read,
// or packed, again for each group of columns. Sums go on from what lies in C, so they have to be f32 there.
// Where A is packed from rows that follow k, 512 are 4 to 18 % faster than 4,096 with AVX-512, 3 % with AVX2;
// of the other layouts that is no faster.
int64_t depth_of(const GemmShape& s) {
  const int64_t most = s.layout == Layout::TN ? 512 : 4096;
  return s.out == DType::F32 ? std::min(s.k, most) : s.k;
}

PackedSizes sizes_of(const GemmShape& s) {
  return {s, depth_of(s) * int64_t{sizeof(float)}, 8};
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
  const int64_t depth = depth_of(shape);
  GemmShape part = shape;
  for (int64_t k = 0; k == 0 || k < shape.k; k += depth) {
    part.k = std::min(depth, shape.k - k);
    part.accumulate = shape.accumulate || k > 0;
    // Rows of A and of B lie along k, or a row for each k.
    const int64_t of_a = k * (shape.layout == Layout::TN ? shape.m : 1) * size_of(shape.in);
    const int64_t of_b = k * (shape.layout == Layout::NT ? 1 : shape.n) * size_of(shape.in);
    multiply_packed(
        part, shape.k, sizes_of(shape), pool, scratch, static_cast<const std::byte*>(a) + of_a,
        static_cast<const std::byte*>(b) + of_b, c, workspace,
        [isa](const Packing& p, int64_t begin, int64_t end) { SLUICE_LOOP(isa, pack, p, begin, end); },
        [isa](const Slice& s) { SLUICE_LOOP(isa, multiply_slice, s); });
  }
}

}  // namespace sluice::core::cpu
