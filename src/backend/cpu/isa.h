// SPDX-License-Identifier: Apache-2.0
// The instruction sets that inner loops are compiled for; one binary holds all of them.
#pragma once

#include <cstdint>
#include <string_view>

// Whether code for instruction sets beyond the baseline is compiled in: it needs GCC's target pragma.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define SLUICE_HAS_ISAS 1
#else
#define SLUICE_HAS_ISAS 0
#endif

namespace sluice::core {

enum class CpuIsa : uint8_t {
  Baseline,  // what every CPU of the architecture has
  Avx2,      // x86-64-v3: 256-bit vectors, fused multiply-add
  Avx512,    // x86-64-v4: 512-bit vectors
  Amx,       // that, AVX512-BF16 and AMX-BF16: products of bf16 tiles
};

// The best one that this machine and its operating system support.
CpuIsa best_cpu_isa();
std::string_view name_of(CpuIsa isa);

}  // namespace sluice::core
