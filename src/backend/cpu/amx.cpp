// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/amx.h"

#include "backend/cpu/isa.h"

#if SLUICE_HAS_ISAS
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace sluice::core::cpu {
namespace {

#if SLUICE_HAS_ISAS
bool ask() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
  constexpr unsigned kAmxBf16 = 1u << 22, kAmxTile = 1u << 24;
  if ((d & kAmxBf16) == 0 || (d & kAmxTile) == 0) return false;
  if (!__get_cpuid_count(7, 1, &a, &b, &c, &d)) return false;
  constexpr unsigned kAvx512Bf16 = 1u << 5;
  if ((a & kAvx512Bf16) == 0) return false;
  constexpr int kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}
#else
bool ask() {
  return false;
}
#endif

}  // namespace

bool amx_available() {
  static const bool available = ask();
  return available;
}

}  // namespace sluice::core::cpu
