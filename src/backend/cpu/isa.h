// SPDX-License-Identifier: Apache-2.0
// The instruction sets that inner loops are compiled for; one binary holds all of them.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/status.h"

// Whether code for instruction sets beyond the baseline is compiled in: it needs GCC's target pragma, or
// clang's.
#if defined(__x86_64__) && defined(__GNUC__)
#define SLUICE_HAS_ISAS 1
#else
#define SLUICE_HAS_ISAS 0
#endif

namespace sluice::core {

enum class CpuIsa : uint8_t {
  Baseline,    // what every CPU of the architecture has
  Avx2,        // x86-64-v3: 256-bit vectors, fused multiply-add
  Avx512,      // x86-64-v4: 512-bit vectors
  Avx512Bf16,  // that and AVX512-BF16: bf16 in tiles, by vectors of pairs
  Amx,         // that and AMX-BF16: products of bf16 tiles
};

// The best one that this machine and its operating system support.
CpuIsa best_cpu_isa();
std::string_view name_of(CpuIsa isa);

// The one that a configuration names: "baseline", "avx2", "avx512", "avx512_bf16", "amx"; empty: the best.
// One that this machine lacks is an error.
Result<CpuIsa> cpu_isa_of(std::string_view name);

}  // namespace sluice::core
