// SPDX-License-Identifier: Apache-2.0
// Compiles the inner loops of SLUICE_LOOPS for one instruction set, into namespace
// sluice::core::cpu::SLUICE_ISA: what compilers call SLUICE_ARCH, or the baseline where that is not defined.
// SLUICE_SELDOM: hardly a machine runs it, so compiling it takes little time. For each_isa.h and amx_isa.h.
#if SLUICE_VECTOR_BYTES == 64
#define SLUICE_REGISTERS 32
#elif SLUICE_VECTOR_BYTES == 32 || defined(__aarch64__)
#define SLUICE_REGISTERS 8
#else
#define SLUICE_REGISTERS 4
#endif

#define SLUICE_PRAGMA_OF(text) _Pragma(#text)
#define SLUICE_PRAGMA(text) SLUICE_PRAGMA_OF(text)
#if defined(SLUICE_SELDOM) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("O1")
#endif
#if !defined(SLUICE_ARCH)
#elif defined(__clang__)
SLUICE_PRAGMA(clang attribute push(__attribute__((target(SLUICE_ARCH))), apply_to = function))
#else
#pragma GCC push_options
SLUICE_PRAGMA(GCC target(SLUICE_ARCH))
#endif
namespace sluice::core::cpu::SLUICE_ISA {
namespace {
#include "backend/cpu/simd.h"
//
#ifdef SLUICE_TILES
#include "backend/cpu/tiles.h"
#endif
//
#include SLUICE_LOOPS
}  // namespace
}  // namespace sluice::core::cpu::SLUICE_ISA
#if !defined(SLUICE_ARCH)
#elif defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#if defined(SLUICE_SELDOM) && !defined(__clang__)
#pragma GCC pop_options
#endif

#undef SLUICE_SELDOM
#undef SLUICE_PRAGMA
#undef SLUICE_PRAGMA_OF
#undef SLUICE_ARCH
#undef SLUICE_ISA
#undef SLUICE_REGISTERS
#undef SLUICE_VECTOR_BYTES
