// SPDX-License-Identifier: Apache-2.0
// Sixteen floats at a time, in GCC's vector extensions: the compiler maps them to whatever the instruction
// set has. Included by each_isa.h only, once per instruction set, inside that one's namespace;
// SLUICE_REGISTERS is the number of F16 values its registers hold.

using F16 = float __attribute__((vector_size(64)));
using I16 = int32_t __attribute__((vector_size(64)));
using U16 = uint32_t __attribute__((vector_size(64)));
using H16 = uint16_t __attribute__((vector_size(32)));
using F16Unaligned = float __attribute__((vector_size(64), aligned(4), may_alias));
using I16Unaligned = int32_t __attribute__((vector_size(64), aligned(4), may_alias));
using H16Unaligned = uint16_t __attribute__((vector_size(32), aligned(2), may_alias));

#define SLUICE_INLINE inline __attribute__((always_inline))

constexpr int64_t kVec = 16;

// A difference, since x - 0 is x for every x and costs nothing; x + 0 is not when x is -0.
SLUICE_INLINE F16 splat(float x) {
  return x - F16{};
}

#if SLUICE_REGISTERS == 32
SLUICE_INLINE U16 zero_extend(H16 x) {
  return (U16)_mm512_cvtepu16_epi32((__m256i)x);
}
SLUICE_INLINE H16 truncate(U16 x) {
  return (H16)_mm512_cvtepi32_epi16((__m512i)x);
}
// b where the two are not ordered.
SLUICE_INLINE F16 max(F16 a, F16 b) {
  return _mm512_max_ps(a, b);
}
SLUICE_INLINE F16 min(F16 a, F16 b) {
  return _mm512_min_ps(a, b);
}
#else
SLUICE_INLINE U16 zero_extend(H16 x) {
  return __builtin_convertvector(x, U16);
}
SLUICE_INLINE H16 truncate(U16 x) {
  return __builtin_convertvector(x, H16);
}
SLUICE_INLINE F16 max(F16 a, F16 b) {
  return a > b ? a : b;
}
SLUICE_INLINE F16 min(F16 a, F16 b) {
  return a < b ? a : b;
}
#endif

SLUICE_INLINE F16 widen(H16 bits) {
  return std::bit_cast<F16>(zero_extend(bits) << 16);
}

// Rounds to nearest even; a NaN stays one.
SLUICE_INLINE H16 narrow(F16 x) {
  const U16 u = std::bit_cast<U16>(x);
  const U16 rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  return truncate(x == x ? rounded : (u >> 16) | 0x40u);
}

SLUICE_INLINE F16 load(const float* p) {
  return *reinterpret_cast<const F16Unaligned*>(p);
}
SLUICE_INLINE F16 load(const Bf16* p) {
  return widen(*reinterpret_cast<const H16Unaligned*>(p));
}
SLUICE_INLINE I16 load(const int32_t* p) {
  return *reinterpret_cast<const I16Unaligned*>(p);
}
SLUICE_INLINE void store(float* p, F16 x) {
  *reinterpret_cast<F16Unaligned*>(p) = x;
}
SLUICE_INLINE void store(Bf16* p, F16 x) {
  *reinterpret_cast<H16Unaligned*>(p) = narrow(x);
}

// How much of a vector a loop works on: all of it, or (int64_t) the first elements, fewer than 16; the rest
// then reads as zero and is not written.
struct Whole {};

template <class T>
SLUICE_INLINE F16 load(const T* p, Whole) {
  return load(p);
}
template <class T>
SLUICE_INLINE void store(T* p, F16 x, Whole) {
  store(p, x);
}
template <class T>
SLUICE_INLINE F16 load(const T* p, int64_t count) {
  T padded[kVec] = {};
  for (int64_t i = 0; i < count; ++i) padded[i] = p[i];
  return load(padded);
}
template <class T>
SLUICE_INLINE void store(T* p, F16 x, int64_t count) {
  T padded[kVec];
  store(padded, x);
  for (int64_t i = 0; i < count; ++i) p[i] = padded[i];
}

// Calls body(i, part) for i = 0, 16, 32, ... below n, where `part` says how much of the vector at i lies
// below n.
template <class Body>
SLUICE_INLINE void for_each_vector(int64_t n, Body&& body) {
  int64_t i = 0;
  for (; i + kVec <= n; i += kVec) body(i, Whole{});
  if (i < n) body(i, n - i);
}
// Goes before a body's braces: a call per vector would be slow.
#define SLUICE_INLINE_BODY __attribute__((always_inline))

// Sum and maximum of the lanes, always in the same order.
SLUICE_INLINE float sum(F16 x) {
  float v[kVec];
  store(v, x);
  for (int width = 8; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) v[i] += v[i + width];
  }
  return v[0];
}
SLUICE_INLINE float max(F16 x) {
  float v[kVec];
  store(v, x);
  for (int width = 8; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) v[i] = v[i] > v[i + width] ? v[i] : v[i + width];
  }
  return v[0];
}

constexpr float kLog2E = 1.44269504088896340736f;
constexpr float kLn2 = 0.69314718055994530942f;

// 2^x within 2 ulp; exactly 1 at 0; 0 far below -126, infinity from 128 on; NaN stays.
#if SLUICE_REGISTERS == 32
// On [0, 1) a polynomial through 1 at 0 that keeps the largest relative error (8e-8) least.
SLUICE_INLINE F16 exp2(F16 x) {
  const F16 f = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
  F16 p = splat(1.867130072e-3f);
  p = p * f + 9.017030316e-3f;
  p = p * f + 5.579991311e-2f;
  p = p * f + 2.401644502e-1f;
  p = p * f + 6.931513118e-1f;
  p = p * f + 1.0f;
  return _mm512_scalef_ps(p, x);
}
#else
// On [-1/2, 1/2] the Taylor series, whose last term bounds the error by 1e-8.
SLUICE_INLINE F16 exp2(F16 x) {
  const F16 clamped = min(splat(128.0f), max(splat(-127.0f), x));
  const F16 magic = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  const F16 n = (clamped + magic) - magic;
  const F16 f = clamped - n;
  F16 p = splat(1.54035304e-4f);
  p = p * f + 1.33335581e-3f;
  p = p * f + 9.61812911e-3f;
  p = p * f + 5.55041087e-2f;
  p = p * f + 2.40226507e-1f;
  p = p * f + 6.93147181e-1f;
  p = p * f + 1.0f;
  // n = -127 gives the exponent field 0, hence a factor of exactly 0; n = 128 gives infinity.
  const I16 exponent = (__builtin_convertvector(n, I16) + 127) << 23;
  return p * std::bit_cast<F16>(exponent);
}
#endif

SLUICE_INLINE F16 exp(F16 x) {
  return exp2(x * kLog2E);
}

#if SLUICE_REGISTERS == 32
// 1 / x within 2 ulp, by Newton's step from 14 bits: a division costs three times as much.
// REQUIRES: x and 1 / x are normal
SLUICE_INLINE F16 reciprocal(F16 x) {
  const F16 r = _mm512_rcp14_ps(x);
  return r * (2.0f - x * r);
}
#else
SLUICE_INLINE F16 reciprocal(F16 x) {
  return 1.0f / x;
}
#endif

// From the exponential of -|x|, which cannot overflow.
SLUICE_INLINE F16 sigmoid(F16 x) {
  const F16 e = exp2(max(x, -x) * -kLog2E), r = reciprocal(1.0f + e);
  return x < 0.0f ? e * r : r;
}

// By the exponential: off by a few units of the last place of 1, for small x, too.
SLUICE_INLINE F16 tanh(F16 x) {
  constexpr float kMost = 16;                      // where it is 1
  const F16 size = min(splat(kMost), max(x, -x));  // a NaN stays one
  const F16 t = 1.0f - 2.0f * sigmoid(-2.0f * size);
  return x < 0.0f ? -t : t;
}

// Compilers turn the loop into one instruction.

SLUICE_INLINE F16 square_root(F16 x) {
  F16 r;
  for (int64_t i = 0; i < kVec; ++i) r[i] = __builtin_sqrtf(x[i]);
  return r;
}

// a * b + c, rounded once where the instruction set can: of a plain expression with two products the compiler
// chooses which one to fuse, and not the same one everywhere.
#if SLUICE_REGISTERS == 32
SLUICE_INLINE F16 multiply_add(F16 a, F16 b, F16 c) {
  return _mm512_fmadd_ps(a, b, c);
}
#elif SLUICE_REGISTERS == 8
SLUICE_INLINE F16 multiply_add(F16 a, F16 b, F16 c) {
  struct Halves {
    __m256 low, high;
  };
  const Halves x = std::bit_cast<Halves>(a), y = std::bit_cast<Halves>(b), z = std::bit_cast<Halves>(c);
  return std::bit_cast<F16>(
      Halves{_mm256_fmadd_ps(x.low, y.low, z.low), _mm256_fmadd_ps(x.high, y.high, z.high)});
}
#elif SLUICE_HAS_ISAS
SLUICE_INLINE F16 multiply_add(F16 a, F16 b, F16 c) {
  return a * b + c;
}
#else
// Compilers turn the loop into one instruction.
SLUICE_INLINE F16 multiply_add(F16 a, F16 b, F16 c) {
  F16 r;
  for (int64_t i = 0; i < kVec; ++i) r[i] = __builtin_fmaf(a[i], b[i], c[i]);
  return r;
}
#endif

#if SLUICE_HAS_ISAS
// A 16 x 16 transpose of 32-bit elements in four rounds; round s exchanges those whose row and column differ
// in bit s.
SLUICE_INLINE void transpose_16(F16 (&x)[kVec]) {
#pragma GCC unroll 4
  for (int bit = 1; bit < kVec; bit *= 2) {
    I16 low, high;
    for (int i = 0; i < kVec; ++i) {
      low[i] = (i & bit) ? i - bit + kVec : i;
      high[i] = (i & bit) ? i + kVec : i + bit;
    }
#pragma GCC unroll 16
    for (int i = 0; i < kVec; ++i) {
      if (i & bit) continue;
      const F16 a = x[i], b = x[i + bit];
      x[i] = __builtin_shuffle(a, b, low);
      x[i + bit] = __builtin_shuffle(a, b, high);
    }
  }
}
#else
SLUICE_INLINE void transpose_16(F16 (&x)[kVec]) {
  for (int i = 0; i < kVec; ++i) {
    for (int j = 0; j < i; ++j) {
      const float swapped = x[i][j];
      x[i][j] = x[j][i];
      x[j][i] = swapped;
    }
  }
}
#endif
