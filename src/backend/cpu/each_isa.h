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

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("arch=x86-64-v4"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("arch=x86-64-v4")
#endif
#define SLUICE_REGISTERS 32
#define SLUICE_VECTOR_BYTES 64
namespace sluice::core::cpu::v4 {
namespace {
#include "backend/cpu/simd.h"
//
#include SLUICE_LOOPS
}  // namespace
}  // namespace sluice::core::cpu::v4
#undef SLUICE_REGISTERS
#undef SLUICE_VECTOR_BYTES
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("arch=x86-64-v3"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("arch=x86-64-v3")
#endif
#define SLUICE_REGISTERS 8
#define SLUICE_VECTOR_BYTES 32
namespace sluice::core::cpu::v3 {
namespace {
#include "backend/cpu/simd.h"
//
#include SLUICE_LOOPS
}  // namespace
}  // namespace sluice::core::cpu::v3
#undef SLUICE_REGISTERS
#undef SLUICE_VECTOR_BYTES
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif

#if defined(__aarch64__)
#define SLUICE_REGISTERS 8
#else
#define SLUICE_REGISTERS 4
#endif
#define SLUICE_VECTOR_BYTES 16
namespace sluice::core::cpu::base {
namespace {
#include "backend/cpu/simd.h"
//
#include SLUICE_LOOPS
}  // namespace
}  // namespace sluice::core::cpu::base
#undef SLUICE_REGISTERS
#undef SLUICE_VECTOR_BYTES

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
