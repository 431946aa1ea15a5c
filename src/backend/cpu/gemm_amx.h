// SPDX-License-Identifier: Apache-2.0
// Products of bf16 matrices on AMX. Values below the smallest normal number (1e-38) count as zero there.
#pragma once

#include <span>

#include "backend/cpu/gemm.h"

namespace sluice::core::cpu {

// Whether the product is made of tiles.
constexpr bool is_tiled(CpuIsa isa, const GemmShape& s) {
  return isa == CpuIsa::Amx && s.in == DType::BF16;
}

// As Gemm's, of which this is a part. REQUIRES, all: amx_available(); shape.in is BF16.
int64_t amx_workspace_bytes(const GemmShape& shape);
int64_t amx_scratch_bytes(const GemmShape& shape);
void amx_multiply(const GemmShape& shape, ThreadPool& pool, std::span<std::byte* const> scratch,
                  const void* a, const void* b, void* c, std::byte* workspace);

}  // namespace sluice::core::cpu
