// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/gemm.h"

#include <fmt/format.h>

#include "backend/cpu/gemm_few.h"
#include "backend/cpu/gemm_tiles.h"
#include "backend/cpu/gemm_vector.h"

namespace sluice::core::cpu {

std::string to_text(const GemmShape& s) {
  constexpr std::string_view kLayouts[] = {"A B^T", "A B", "A^T B"};
  return fmt::format("{} {}x{}x{} {} -> {}", kLayouts[static_cast<size_t>(s.layout)], s.m, s.n, s.k,
                     name_of(s.in), name_of(s.out));
}

int64_t workspace_bytes(CpuIsa isa, const GemmShape& shape) {
  if (is_few(shape)) return 0;
  return is_tiled(isa, shape) ? tiles_workspace_bytes(shape) : vector_workspace_bytes(shape);
}

int64_t scratch_bytes(CpuIsa isa, const GemmShape& shape) {
  if (is_few(shape)) return 0;
  return is_tiled(isa, shape) ? tiles_scratch_bytes(shape) : vector_scratch_bytes(shape);
}

void multiply(CpuIsa isa, const GemmShape& shape, ThreadPool& pool, std::span<std::byte* const> scratch,
              const void* a, const void* b, void* c, std::byte* workspace) {
  if (is_few(shape)) {
    few_multiply(isa, shape, pool, a, b, c);
  } else if (is_tiled(isa, shape)) {
    tiles_multiply(isa, shape, pool, scratch, a, b, c, workspace);
  } else {
    vector_multiply(isa, shape, pool, scratch, a, b, c, workspace);
  }
}

}  // namespace sluice::core::cpu
