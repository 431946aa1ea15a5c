// SPDX-License-Identifier: Apache-2.0
// f32 products by our own kernels, where no library is there.
#include "backend/cpu/gemm.h"
#include "backend/cpu/gemm_vector.h"

namespace sluice::core::cpu {

struct GemmProvider::Impl {
  CpuIsa isa;
};

GemmProvider::GemmProvider(CpuIsa isa) : impl_(new Impl{isa}) {}
GemmProvider::~GemmProvider() = default;

std::string GemmProvider::name() {
  return "own kernels";
}

void GemmProvider::thread_start() {}

int64_t GemmProvider::workspace_bytes(const GemmShape& shape) const {
  return vector_workspace_bytes(shape);
}

int64_t GemmProvider::scratch_bytes(const GemmShape& shape) const {
  return vector_scratch_bytes(shape);
}

Status GemmProvider::prepare(const GemmShape&) {
  return {};
}

Status GemmProvider::run(const GemmShape& shape, ThreadPool& pool, std::span<std::byte* const> scratch,
                         const void* a, const void* b, void* c, std::byte* workspace) const {
  vector_multiply(impl_->isa, shape, pool, scratch, a, b, c, workspace);
  return {};
}

}  // namespace sluice::core::cpu
