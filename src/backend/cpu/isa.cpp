// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/isa.h"

#include "backend/cpu/amx.h"

namespace sluice::core {

CpuIsa best_cpu_isa() {
#if SLUICE_HAS_ISAS
  __builtin_cpu_init();
  const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                  __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
                  __builtin_cpu_supports("f16c") && __builtin_cpu_supports("lzcnt") &&
                  __builtin_cpu_supports("movbe");
  const bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512vl");
  if (v4 && cpu::amx_available()) return CpuIsa::Amx;
  return v4 ? CpuIsa::Avx512 : v3 ? CpuIsa::Avx2 : CpuIsa::Baseline;
#else
  return CpuIsa::Baseline;
#endif
}

std::string_view name_of(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::Baseline:
      return "baseline";
    case CpuIsa::Avx2:
      return "AVX2";
    case CpuIsa::Avx512:
      return "AVX-512";
    case CpuIsa::Amx:
      return "AVX-512 and AMX";
  }
  return "";
}

}  // namespace sluice::core
