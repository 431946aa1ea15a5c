// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/isa.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <span>

#include "backend/cpu/amx.h"

#if SLUICE_HAS_ISAS
#include <cpuid.h>
#endif

namespace sluice::core {

#if SLUICE_HAS_ISAS
namespace {

// Parts of x86-64-v3 that __builtin_cpu_supports of clang 16 has no name for.
bool has_f16c_movbe_lzcnt() {
  constexpr unsigned kMovbe = 1u << 22, kF16c = 1u << 29, kLzcnt = 1u << 5;
  unsigned a = 0, b = 0, basic = 0, extended = 0, d = 0;
  return __get_cpuid(1, &a, &b, &basic, &d) && __get_cpuid(0x80000001, &a, &b, &extended, &d) &&
         (basic & kMovbe) && (basic & kF16c) && (extended & kLzcnt);
}

}  // namespace
#endif

CpuIsa best_cpu_isa() {
#if SLUICE_HAS_ISAS
  __builtin_cpu_init();
  const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                  __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") && has_f16c_movbe_lzcnt();
  const bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512vl");
  if (v4 && cpu::amx_available()) return CpuIsa::Amx;
  if (v4 && __builtin_cpu_supports("avx512bf16")) return CpuIsa::Avx512Bf16;
  return v4 ? CpuIsa::Avx512 : v3 ? CpuIsa::Avx2 : CpuIsa::Baseline;
#else
  return CpuIsa::Baseline;
#endif
}

Result<CpuIsa> cpu_isa_of(std::string_view name) {
  const CpuIsa best = best_cpu_isa();
  if (name.empty()) return best;
  constexpr std::string_view kNames[] = {"baseline", "avx2", "avx512", "avx512_bf16", "amx"};
  const auto isa = static_cast<CpuIsa>(std::ranges::find(kNames, name) - std::begin(kNames));
  if (isa > best) {
    return error("'{}' is no instruction set of this processor; allowed are {}", name,
                 fmt::join(std::span(kNames).first(size_t(best) + 1), ", "));
  }
  return isa;
}

std::string_view name_of(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::Baseline:
      return "baseline";
    case CpuIsa::Avx2:
      return "AVX2";
    case CpuIsa::Avx512:
      return "AVX-512";
    case CpuIsa::Avx512Bf16:
      return "AVX-512 and BF16";
    case CpuIsa::Amx:
      return "AVX-512 and AMX";
  }
  return "";
}

}  // namespace sluice::core
