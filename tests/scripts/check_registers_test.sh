#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# scripts/check_registers fails for a loop whose sums do not fit the registers, and passes one whose sums do.
#
#   check_registers_test.sh COMPILER
set -euo pipefail
check=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)/scripts/check_registers
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
[[ $(uname -m) == x86_64 ]] && command -v objdump >/dev/null || { echo "skipped: it needs objdump on x86-64 (apt-get install binutils)"; exit 77; }

# made SUMS: a function of namespace v3 that keeps so many sums of eight floats.
made() {
  cat >"$work/loop.cpp" <<END
#include <immintrin.h>
namespace sluice::core::cpu::v3 {
__attribute__((target("arch=x86-64-v3"))) void loop(const float* a, float* c, long n) {
  __m256 sums[$1] = {};
  for (long i = 0; i < n; ++i) {
#pragma GCC unroll 32
    for (int r = 0; r < $1; ++r) sums[r] = _mm256_fmadd_ps(_mm256_set1_ps(a[i * $1 + r]), _mm256_loadu_ps(c + 8 * r), sums[r]);
  }
  for (int r = 0; r < $1; ++r) _mm256_storeu_ps(c + 8 * r, sums[r]);
}
}  // namespace sluice::core::cpu::v3
END
  "$compiler" -O3 -c -o "$work/loop.o" "$work/loop.cpp"
}
compiler=$1
made 10
"$check" "$work/loop.o"
made 28
if "$check" "$work/loop.o" >"$work/said"; then
  echo "28 sums in 16 registers were not found"
  exit 1
fi
cat "$work/said"
