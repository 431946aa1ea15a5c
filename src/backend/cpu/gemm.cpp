#include "backend/cpu/gemm.h"

#include "backend/cpu/gemm_amx.h"

namespace sluice::cpu {

std::string text(const GemmShape& s) {
  constexpr std::string_view kLayouts[] = {"A B^T", "A B", "A^T B"};
  return fmt::format("{} {}x{}x{} {} -> {}", kLayouts[static_cast<size_t>(s.layout)], s.m, s.n, s.k,
                     name_of(s.in), name_of(s.out));
}

int64_t Gemm::workspace_bytes(const GemmShape& shape) const {
  return use_amx(shape) ? amx_workspace_bytes(shape) : provider_.workspace_bytes(shape);
}

int64_t Gemm::scratch_bytes(const GemmShape& shape) const {
  return use_amx(shape) ? amx_scratch_bytes(shape) : provider_.scratch_bytes(shape);
}

Status Gemm::prepare(const GemmShape& shape) {
  return use_amx(shape) ? Status() : provider_.prepare(shape);
}

Status Gemm::run(const GemmShape& shape, ThreadPool& pool, std::span<std::byte* const> scratch, const void* a,
                 const void* b, void* c, std::byte* workspace) const {
  if (!use_amx(shape)) return provider_.run(shape, pool, scratch, a, b, c, workspace);
  amx_multiply(shape, pool, scratch, a, b, c, workspace);
  return {};
}

}  // namespace sluice::cpu
