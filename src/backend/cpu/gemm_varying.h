// SPDX-License-Identifier: Apache-2.0
// Products of which a size is known as they run only: m, or k where A is turned round. By our own kernels,
// which need no preparation, and sum an element in the order of k whatever the sizes are.
#pragma once

#include <span>

#include "backend/cpu/gemm.h"
#include "backend/cpu/isa.h"

namespace sluice::core::cpu {

// The workspace of varying_multiply() for a product of this shape, or of one whose m or k is less, on any
// CPU.
int64_t varying_workspace_bytes(const GemmShape& most);
int64_t varying_scratch_bytes(const GemmShape& most);

// As Gemm::run().
void varying_multiply(CpuIsa isa, const GemmShape& shape, ThreadPool& pool,
                      std::span<std::byte* const> scratch, const void* a, const void* b, void* c,
                      std::byte* workspace);

}  // namespace sluice::core::cpu
