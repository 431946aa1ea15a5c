// SPDX-License-Identifier: Apache-2.0
// Products by plain vector instructions: f32, or bf16 converted to f32 while packing.
#pragma once

#include <span>

#include "backend/cpu/gemm.h"
#include "backend/cpu/isa.h"

namespace sluice::core::cpu {

// As Gemm's, of which this is a part.
int64_t vector_workspace_bytes(const GemmShape& shape);
int64_t vector_scratch_bytes(const GemmShape& shape);
void vector_multiply(CpuIsa isa, const GemmShape& shape, ThreadPool& pool,
                     std::span<std::byte* const> scratch, const void* a, const void* b, void* c,
                     std::byte* workspace);

}  // namespace sluice::core::cpu
