// SPDX-License-Identifier: Apache-2.0
// Compiles a file of inner loops for CPUs with AVX512-BF16 and AMX, into namespace sluice::core::cpu::amx;
// see each_isa.h. Only TileUnit needs AMX (tiles.h).
#include "backend/cpu/amx.h"
#include "backend/cpu/isa.h"
#include "backend/cpu/simd_includes.h"

#if SLUICE_HAS_ISAS
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("arch=x86-64-v4,avx512bf16,amx-tile,amx-bf16"))), \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("arch=x86-64-v4,avx512bf16,amx-tile,amx-bf16")
#endif
#define SLUICE_REGISTERS 32
#define SLUICE_VECTOR_BYTES 64
namespace sluice::core::cpu::amx {
namespace {
#include "backend/cpu/simd.h"
//
#include "backend/cpu/tiles.h"
//
#include SLUICE_LOOPS
}  // namespace
}  // namespace sluice::core::cpu::amx
#undef SLUICE_REGISTERS
#undef SLUICE_VECTOR_BYTES
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif

#undef SLUICE_AMX_LOOP
#if SLUICE_HAS_ISAS
#define SLUICE_AMX_LOOP(function, ...) ::sluice::core::cpu::amx::function(__VA_ARGS__)
#else
#define SLUICE_AMX_LOOP(function, ...) ::sluice::core::cpu::no_amx(__VA_ARGS__)
#endif
#undef SLUICE_LOOPS
