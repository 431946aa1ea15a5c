// Products of bf16 matrices on AMX.
//
// B is packed once per call, a group of columns at a time, by all threads; then each thread multiplies rows
// of A with it. An element of C is the sum over k in order, whatever the cut. Values below the smallest
// normal number (1e-38) count as zero, as AMX has it.
#pragma once

#include <span>

#include "backend/cpu/gemm.h"

namespace sluice::cpu {

// REQUIRES, all: amx_available(); shape.in is BF16.
int64_t amx_workspace_bytes(const GemmShape& shape);
int64_t amx_scratch_bytes(const GemmShape& shape);
void amx_multiply(const GemmShape& shape, ThreadPool& pool, std::span<std::byte* const> scratch,
                  const void* a, const void* b, void* c, std::byte* workspace);

}  // namespace sluice::cpu
