// SPDX-License-Identifier: Apache-2.0
// Products of bf16 matrices by AMX or AVX512-BF16, in tiles (tiles.h).
#pragma once

#include <span>

#include "backend/cpu/gemm.h"
#include "backend/cpu/isa.h"

namespace sluice::core::cpu {

// Whether the product is made of tiles.
constexpr bool is_tiled(CpuIsa isa, const GemmShape& s) {
  return isa >= CpuIsa::Avx512Bf16 && s.in == DType::BF16;
}

// As Gemm's, of which this is a part. REQUIRES: is_tiled()
int64_t tiles_workspace_bytes(const GemmShape& shape);
int64_t tiles_scratch_bytes(const GemmShape& shape);
void tiles_multiply(CpuIsa isa, const GemmShape& shape, ThreadPool& pool, std::span<std::byte* const> scratch,
                    const void* a, const void* b, void* c, std::byte* workspace);

}  // namespace sluice::core::cpu
