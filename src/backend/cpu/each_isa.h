// SPDX-License-Identifier: Apache-2.0
// Compiles a file of inner loops once per instruction set. Define SLUICE_LOOPS as its path, with quotes, and
// include this: the file's functions then exist in namespaces v4, v3 and base, and SLUICE_LOOP(isa, f,
// arguments...) calls the one for `isa`. Ordinary headers that the loops need go to simd_includes.h or
// before: their functions, compiled for a newer instruction set, must not reach the rest of the program.
//
// No include guard: each source file includes it for its own loops.
#include "backend/cpu/isa.h"
#include "backend/cpu/simd_includes.h"

#if SLUICE_HAS_ISAS
#define SLUICE_ISA v4
#define SLUICE_ARCH "arch=x86-64-v4"
#define SLUICE_VECTOR_BYTES 64
#include "backend/cpu/one_isa.h"
//
#define SLUICE_ISA v3
#define SLUICE_ARCH "arch=x86-64-v3"
#define SLUICE_VECTOR_BYTES 32
#include "backend/cpu/one_isa.h"
// Nearly every x86-64 of these ten years has a newer one.
#define SLUICE_SELDOM
#endif

#define SLUICE_ISA base
#define SLUICE_VECTOR_BYTES 16
#include "backend/cpu/one_isa.h"

#undef SLUICE_LOOP
#if SLUICE_HAS_ISAS
#define SLUICE_LOOP(isa, function, ...)                                     \
  ((isa) >= CpuIsa::Avx512 ? ::sluice::core::cpu::v4::function(__VA_ARGS__) \
   : (isa) == CpuIsa::Avx2 ? ::sluice::core::cpu::v3::function(__VA_ARGS__) \
                           : ::sluice::core::cpu::base::function(__VA_ARGS__))
#else
#define SLUICE_LOOP(isa, function, ...) ((void)(isa), ::sluice::core::cpu::base::function(__VA_ARGS__))
#endif
#undef SLUICE_LOOPS
