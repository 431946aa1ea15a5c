// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/gemm_few.h"

#include <algorithm>
#include <array>

#include "base/check.h"

namespace sluice::core::cpu {
namespace {

// A task's product for columns [first, end) of.
template <class T, class O>
struct FewProduct {
  const T* rows[kFewRows];
  const T* b;
  O* c;
  int64_t m, n, k;
  bool accumulate;
};

}  // namespace
}  // namespace sluice::core::cpu

#define SLUICE_LOOPS "backend/cpu/gemm_few_loops.h"
#include "backend/cpu/each_isa.h"

namespace sluice::core::cpu {
namespace {

// Columns of a task: whole vectors, of about so many bytes of B.
constexpr int64_t kColumns = 16, kTaskBytes = 64 * 1024;

template <class T, class O>
void run(CpuIsa isa, ThreadPool& pool, const FewProduct<T, O>& p) {
  const int64_t vectors = std::max<int64_t>(1, kTaskBytes / (kColumns * p.k * int64_t{sizeof(T)}));
  const int64_t columns = vectors * kColumns, tasks = (p.n + columns - 1) / columns;
  pool.parallel_for(tasks, [&](int64_t task, int) {
    const int64_t first = task * columns;
    SLUICE_LOOP(isa, few_columns, p, first, std::min(p.n, first + columns));
  });
}

template <class T, class O>
void run(CpuIsa isa, const GemmShape& s, ThreadPool& pool, const void* a, const void* b, void* c) {
  FewProduct<T, O> p{{}, static_cast<const T*>(b), static_cast<O*>(c), s.m, s.n, s.k, s.accumulate};
  for (int64_t r = 0; r < s.m; ++r) p.rows[r] = static_cast<const T*>(a) + r * s.k;
  run(isa, pool, p);
}

}  // namespace

void few_multiply(CpuIsa isa, const GemmShape& s, ThreadPool& pool, const void* a, const void* b, void* c) {
  with_type(s.in,
            [&]<class T>(T) { with_type(s.out, [&]<class O>(O) { run<T, O>(isa, s, pool, a, b, c); }); });
}

void few_multiply(CpuIsa isa, DType in, std::span<const void* const> rows, int64_t n, int64_t k,
                  ThreadPool& pool, const void* b, float* c) {
  SLUICE_CHECK(int64_t(rows.size()) <= kFewRows, "{} rows", rows.size());
  with_type(in, [&]<class T>(T) {
    FewProduct<T, float> p{{}, static_cast<const T*>(b), c, int64_t(rows.size()), n, k, false};
    for (size_t r = 0; r < rows.size(); ++r) p.rows[r] = static_cast<const T*>(rows[r]);
    run(isa, pool, p);
  });
}

}  // namespace sluice::core::cpu
