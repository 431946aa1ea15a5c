// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/gemm.h"

#include "backend/cpu/gemm_amx.h"
#include "backend/cpu/gemm_few.h"
#include "backend/cpu/gemm_vector.h"

namespace sluice::core::cpu {

std::string to_text(const GemmShape& s) {
  constexpr std::string_view kLayouts[] = {"A B^T", "A B", "A^T B"};
  return fmt::format("{} {}x{}x{} {} -> {}", kLayouts[static_cast<size_t>(s.layout)], s.m, s.n, s.k,
                     name_of(s.in), name_of(s.out));
}

namespace {

// Whether the provider multiplies; own kernels do the rest.
bool is_provided(const GemmShape& shape) {
  switch (shape.in) {
    case DType::F32:
      return true;
    case DType::BF16:
      return false;
    case DType::F64:
    case DType::I32:
    case DType::U8:
    case DType::F8E4M3:
    case DType::F4E2M1:
    case DType::I8:
      break;
  }
  not_a_float(shape.in);
}

}  // namespace

int64_t Gemm::workspace_bytes(const GemmShape& shape) const {
  if (is_few(shape)) return 0;
  if (is_provided(shape)) return provider_.workspace_bytes(shape);
  return isa_ == CpuIsa::Amx ? amx_workspace_bytes(shape) : vector_workspace_bytes(shape);
}

int64_t Gemm::scratch_bytes(const GemmShape& shape) const {
  if (is_few(shape)) return 0;
  if (is_provided(shape)) return provider_.scratch_bytes(shape);
  return isa_ == CpuIsa::Amx ? amx_scratch_bytes(shape) : vector_scratch_bytes(shape);
}

Status Gemm::prepare(const GemmShape& shape) {
  return is_provided(shape) && !is_few(shape) ? provider_.prepare(shape) : Status();
}

Status Gemm::run(const GemmShape& shape, ThreadPool& pool, std::span<std::byte* const> scratch, const void* a,
                 const void* b, void* c, std::byte* workspace) const {
  if (is_few(shape)) {
    few_multiply(isa_, shape, pool, a, b, c);
    return {};
  }
  if (is_provided(shape)) return provider_.run(shape, pool, scratch, a, b, c, workspace);
  if (isa_ == CpuIsa::Amx) {
    amx_multiply(shape, pool, scratch, a, b, c, workspace);
  } else {
    vector_multiply(isa_, shape, pool, scratch, a, b, c, workspace);
  }
  return {};
}

}  // namespace sluice::core::cpu
