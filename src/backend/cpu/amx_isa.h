// SPDX-License-Identifier: Apache-2.0
// Compiles a file of inner loops for CPUs with AVX512-BF16 and AMX, into namespace sluice::core::cpu::amx;
// see each_isa.h. Only TileUnit needs AMX (tiles.h).
#include "backend/cpu/amx.h"
#include "backend/cpu/isa.h"
#include "backend/cpu/simd_includes.h"

#if SLUICE_HAS_ISAS
#define SLUICE_TILES
#define SLUICE_ISA amx
#define SLUICE_ARCH "arch=x86-64-v4,avx512bf16,amx-tile,amx-bf16"
#define SLUICE_VECTOR_BYTES 64
#include "backend/cpu/one_isa.h"
#undef SLUICE_TILES
#endif

#undef SLUICE_AMX_LOOP
#if SLUICE_HAS_ISAS
#define SLUICE_AMX_LOOP(function, ...) ::sluice::core::cpu::amx::function(__VA_ARGS__)
#else
#define SLUICE_AMX_LOOP(function, ...) ::sluice::core::cpu::no_amx(__VA_ARGS__)
#endif
#undef SLUICE_LOOPS
