// SPDX-License-Identifier: Apache-2.0
// Random draws, for loops. Included by those that each_isa.h includes, each time.

using L8 = Lanes<uint64_t, 8>;

// Products of the lower halves.
SLUICE_INLINE L8 multiply_low(L8 a, uint32_t b) {
#if SLUICE_VECTOR_BYTES == 64
  return (L8)_mm512_mul_epu32((__m512i)a, _mm512_set1_epi64(b));
#elif SLUICE_VECTOR_BYTES == 32
  const __m256i factor = _mm256_set1_epi64x(b);
  using Four = decltype(a.low);
  return {(Four)_mm256_mul_epu32((__m256i)a.low, factor), (Four)_mm256_mul_epu32((__m256i)a.high, factor)};
#else
  return (a & 0xffffffffu) * uint64_t{b};
#endif
}

// philox() of 8 consecutive counters, in the lower halves of the lanes; the upper ones hold anything.
SLUICE_INLINE void philox_8(uint64_t key, uint64_t first, uint64_t step, L8 (&c)[4]) {
  c[0] = iota<L8>() + first;
  c[1] = c[0] >> 32;
  c[2] = L8{} + step;
  c[3] = L8{} + (step >> 32);
  auto k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
#pragma GCC unroll 10
  for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
    const L8 p0 = multiply_low(c[0], 0xD2511F53u), p1 = multiply_low(c[2], 0xCD9E8D57u);
    c[0] = (p1 >> 32) ^ c[1] ^ uint64_t { k0 };
    c[1] = p1;
    c[2] = (p0 >> 32) ^ c[3] ^ uint64_t { k1 };
    c[3] = p0;
  }
}
