// SPDX-License-Identifier: Apache-2.0
// f32 products by OpenBLAS, each slice on one thread.
#include <cblas.h>

#include <algorithm>

#include "backend/cpu/gemm.h"

namespace sluice::core::cpu {
namespace {

// A slice is this many rows of the output, by the shape alone: OpenBLAS's order of sums may depend on it.
int64_t slice_rows(const GemmShape& s) {
  const int64_t slices = std::clamp<int64_t>(s.m / 128, 2, 64);
  return (std::max<int64_t>(32, (s.m + slices - 1) / slices) + 31) / 32 * 32;
}

}  // namespace

struct GemmProvider::Impl {};

// Its own threads would compete with ours.
GemmProvider::GemmProvider(CpuIsa) {
  openblas_set_num_threads(1);
}
GemmProvider::~GemmProvider() = default;

std::string GemmProvider::name() {
  return openblas_get_config();
}

void GemmProvider::thread_start() {}

int64_t GemmProvider::workspace_bytes(const GemmShape&) const {
  return 0;
}

int64_t GemmProvider::scratch_bytes(const GemmShape&) const {
  return 0;
}

Status GemmProvider::prepare(const GemmShape& s) {
  if (std::max({s.m, s.n, s.k}) > INT32_MAX) return error("product {} is too large for OpenBLAS", to_text(s));
  return {};
}

Status GemmProvider::run(const GemmShape& s, ThreadPool& pool, std::span<std::byte* const>, const void* a,
                         const void* b, void* c, std::byte*) const {
  const bool a_transposed = s.layout == Layout::TN, b_transposed = s.layout == Layout::NT;
  const int64_t rows = slice_rows(s);
  pool.parallel_for((s.m + rows - 1) / rows, [&](int64_t slice, int) {
    const int64_t first = slice * rows;
    cblas_sgemm(CblasRowMajor, a_transposed ? CblasTrans : CblasNoTrans,
                b_transposed ? CblasTrans : CblasNoTrans, static_cast<blasint>(std::min(rows, s.m - first)),
                static_cast<blasint>(s.n), static_cast<blasint>(s.k), 1.0f,
                static_cast<const float*>(a) + first * (a_transposed ? 1 : s.k),
                static_cast<blasint>(a_transposed ? s.m : s.k), static_cast<const float*>(b),
                static_cast<blasint>(b_transposed ? s.k : s.n), s.accumulate ? 1.0f : 0.0f,
                static_cast<float*>(c) + first * s.n, static_cast<blasint>(s.n));
  });
  return {};
}

}  // namespace sluice::core::cpu
