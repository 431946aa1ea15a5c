// SPDX-License-Identifier: Apache-2.0
// Matrix products, by kernels of our own: few rows (gemm_few.h), bf16 in tiles where the CPU has what
// multiplies them (gemm_tiles.h), and all else in f32 (gemm_vector.h).
//
// Each element of a product is summed up in an order that depends on the shape alone. So results depend
// neither on scheduling nor on the number of threads. With `exact` the number of rows does not matter either.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "backend/cpu/isa.h"
#include "backend/cpu/thread_pool.h"
#include "base/dtype.h"

namespace sluice::core::cpu {

// How the operands of C[m, n] lie in memory, row-major and without gaps.
enum class Layout : uint8_t {
  NT,  // A[m, k], B[n, k]: C = A B^T
  NN,  // A[m, k], B[k, n]: C = A B
  TN,  // A[k, m], B[k, n]: C = A^T B
};

// C (+)= A B; A and B in `in`, C in `out`, sums in f32. in, out: F32 and F32, BF16 and BF16, or BF16 and F32.
struct GemmShape {
  Layout layout;
  int64_t m, n, k;
  DType in, out;
  bool accumulate;
  bool exact = false;  // few rows are summed up in the order that many are

  auto operator<=>(const GemmShape&) const = default;
};

// "A B^T 512x320x864 bf16 -> f32"
std::string to_text(const GemmShape& shape);

// Scratch bytes of multiply(), shared by all threads, and those of each thread; functions of the shape and
// the instruction set alone, multiples of 64.
int64_t workspace_bytes(CpuIsa isa, const GemmShape& shape);
int64_t scratch_bytes(CpuIsa isa, const GemmShape& shape);

// REQUIRES: `workspace` and the blocks of `scratch`, one per thread of the pool, have the sizes told above
// and are aligned to 64 bytes.
void multiply(CpuIsa isa, const GemmShape& shape, ThreadPool& pool, std::span<std::byte* const> scratch,
              const void* a, const void* b, void* c, std::byte* workspace);

}  // namespace sluice::core::cpu
