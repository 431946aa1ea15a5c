// SPDX-License-Identifier: Apache-2.0
// Products of bf16 by the instruction of AVX512-BF16 that adds two products of neighbours along k. Values
// below the smallest normal number (1e-38) count as zero there.
#pragma once

#include <span>

#include "backend/cpu/gemm.h"
#include "backend/cpu/isa.h"

namespace sluice::core::cpu {

// Whether the product is made of pairs. The others are converted to f32 (gemm_vector.h).
constexpr bool is_paired(CpuIsa isa, const GemmShape& s) {
  return isa == CpuIsa::Avx512Bf16 && s.in == DType::BF16 && s.k % 2 == 0;
}

// As Gemm's, of which this is a part. REQUIRES: is_paired()
int64_t pairs_workspace_bytes(const GemmShape& shape);
int64_t pairs_scratch_bytes(const GemmShape& shape);
void pairs_multiply(const GemmShape& shape, ThreadPool& pool, std::span<std::byte* const> scratch,
                    const void* a, const void* b, void* c, std::byte* workspace);

}  // namespace sluice::core::cpu
