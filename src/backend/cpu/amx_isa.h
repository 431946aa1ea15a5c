// Compiles a file of inner loops for CPUs with AMX and AVX512-BF16, into namespace sluice::cpu::amx; see
// each_isa.h.
#include "backend/cpu/simd_includes.h"

#if defined(__x86_64__)
#pragma GCC push_options
#pragma GCC target("arch=x86-64-v4,avx512bf16,amx-tile,amx-bf16")
#define SLUICE_REGISTERS 32
namespace sluice::cpu::amx {
namespace {
#include "backend/cpu/simd.h"
//
#include "backend/cpu/amx_blocks.h"
//
#include SLUICE_LOOPS
}  // namespace
}  // namespace sluice::cpu::amx
#undef SLUICE_REGISTERS
#pragma GCC pop_options
#endif

#undef SLUICE_AMX_LOOP
#if defined(__x86_64__)
#define SLUICE_AMX_LOOP(function, ...) ::sluice::cpu::amx::function(__VA_ARGS__)
#else
#define SLUICE_AMX_LOOP(function, ...) SLUICE_CHECK(false, "{}: no AMX on this architecture", #function)
#endif
#undef SLUICE_LOOPS
