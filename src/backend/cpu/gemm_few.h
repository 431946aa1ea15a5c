// SPDX-License-Identifier: Apache-2.0
// Products of few rows with weights: C[m, n] = A[m, k] B[n, k]^T, where reading B is what takes time. B is
// read once, as it lies. An element is summed up in an order that k alone gives: it does not depend on m.
#pragma once

#include <span>

#include "backend/cpu/gemm.h"

namespace sluice::core::cpu {

constexpr int64_t kFewRows = 8;

// Whether few_multiply() is for the product.
constexpr bool is_few(const GemmShape& s) {
  return s.layout == Layout::NT && s.m <= kFewRows && !s.exact;
}

// REQUIRES: is_few(shape). It needs neither workspace nor scratch.
void few_multiply(CpuIsa isa, const GemmShape& shape, ThreadPool& pool, const void* a, const void* b,
                  void* c);

// Rows of `in` elements that lie anywhere, C in f32 and whole. REQUIRES: at most kFewRows rows.
void few_multiply(CpuIsa isa, DType in, std::span<const void* const> rows, int64_t n, int64_t k,
                  ThreadPool& pool, const void* b, float* c);

}  // namespace sluice::core::cpu
