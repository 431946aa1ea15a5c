// SPDX-License-Identifier: Apache-2.0
// Matrix products. Few rows (gemm_few.h) and bf16 go to our own kernels, the latter on AMX where the CPU has
// it; f32 goes to one provider, compiled in by SLUICE_GEMM: gemm_onednn.cpp, gemm_openblas.cpp or
// gemm_builtin.cpp.
//
// Each element of a product is summed up in an order that depends on the shape alone, so results depend
// neither on scheduling nor on the number of threads.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "backend/cpu/isa.h"
#include "backend/cpu/thread_pool.h"
#include "base/dtype.h"
#include "base/status.h"

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

  auto operator<=>(const GemmShape&) const = default;
};

// "A B^T 512x320x864 bf16 -> f32"
std::string to_text(const GemmShape& shape);

// The provider of f32 products; its functions are as those of Gemm, below. REQUIRES, all: shape.in is F32.
class GemmProvider {
 public:
  explicit GemmProvider(CpuIsa isa);
  ~GemmProvider();
  GemmProvider(const GemmProvider&) = delete;
  GemmProvider& operator=(const GemmProvider&) = delete;

  // "oneDNN 2.6.3" and alike.
  static std::string name();
  static void thread_start();

  int64_t workspace_bytes(const GemmShape& shape) const;
  int64_t scratch_bytes(const GemmShape& shape) const;
  Status prepare(const GemmShape& shape);
  Status run(const GemmShape& shape, ThreadPool& pool, std::span<std::byte* const> scratch, const void* a,
             const void* b, void* c, std::byte* workspace) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

class Gemm {
 public:
  // Our own kernels use `isa`; a provider may use what it finds.
  explicit Gemm(CpuIsa isa) : isa_(isa), provider_(isa) {}

  // Every thread that will call run() or belong to its pool calls this once.
  static void thread_start() { GemmProvider::thread_start(); }

  // Scratch bytes of run(), shared by all threads; a function of the shape only, a multiple of 64.
  int64_t workspace_bytes(const GemmShape& shape) const;
  // Scratch bytes per thread. REQUIRES: prepare(shape) succeeded.
  int64_t scratch_bytes(const GemmShape& shape) const;

  // Compiles what the shape needs. Not while run() runs.
  Status prepare(const GemmShape& shape);

  // REQUIRES: prepare(shape) succeeded; `workspace` and the blocks of `scratch`, one per thread of the pool,
  // have the sizes told above and are aligned to 64 bytes.
  Status run(const GemmShape& shape, ThreadPool& pool, std::span<std::byte* const> scratch, const void* a,
             const void* b, void* c, std::byte* workspace) const;

 private:
  CpuIsa isa_;
  GemmProvider provider_;
};

}  // namespace sluice::core::cpu
