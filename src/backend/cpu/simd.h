// SPDX-License-Identifier: Apache-2.0
// Sixteen floats at a time, on vectors.h: compilers map them to what the instruction set has. Included by
// each_isa.h only, once per instruction set, inside that one's namespace. SLUICE_REGISTERS is the number of
// F16 values its registers hold, SLUICE_VECTOR_BYTES the width of one.

#include "backend/cpu/vectors.h"

constexpr int64_t kVec = 16;

using F16 = Lanes<float, kVec>;
using I16 = Lanes<int32_t, kVec>;
using U16 = Lanes<uint32_t, kVec>;
using H16 = Lanes<uint16_t, kVec>;

// A difference, since x - 0 is x for every x and costs nothing; x + 0 is not when x is -0.
SLUICE_INLINE F16 splat(float x) {
  return x - F16{};
}

// Which lanes are among the first `count`, as a mask.
SLUICE_INLINE auto first_lanes(int64_t count) {
  return iota<I16>() < static_cast<int32_t>(count);
}

#if SLUICE_VECTOR_BYTES == 64
SLUICE_INLINE __mmask16 mask_of(int64_t count) {
  return static_cast<__mmask16>((1u << count) - 1);
}
#endif

SLUICE_INLINE U16 zero_extend(H16 x) {
#if SLUICE_VECTOR_BYTES == 64
  return (U16)_mm512_cvtepu16_epi32((__m256i)x);
#elif SLUICE_VECTOR_BYTES == 32
  const __m128i low = _mm256_castsi256_si128((__m256i)x), high = _mm256_extracti128_si256((__m256i)x, 1);
  return {(Half<U16>)_mm256_cvtepu16_epi32(low), (Half<U16>)_mm256_cvtepu16_epi32(high)};
#else
  return convert<U16>(x);
#endif
}
// REQUIRES: x < 2^16
SLUICE_INLINE H16 truncate(U16 x) {
#if SLUICE_VECTOR_BYTES == 64
  return (H16)_mm512_cvtepi32_epi16((__m512i)x);
#elif SLUICE_VECTOR_BYTES == 32
  const __m256i packed = _mm256_packus_epi32((__m256i)x.low, (__m256i)x.high);
  return (H16)_mm256_permute4x64_epi64(packed, 0xd8);
#else
  return convert<H16>(x);
#endif
}

// b where the two are not ordered.
template <class V>
SLUICE_INLINE V max(V a, V b) {
  if constexpr (kIsTwo<V>) {
    return {max(a.low, b.low), max(a.high, b.high)};
  } else {
#if SLUICE_VECTOR_BYTES == 64
    return _mm512_max_ps(a, b);
#elif SLUICE_VECTOR_BYTES == 32
    return _mm256_max_ps(a, b);
#else
    return select(a > b, a, b);
#endif
  }
}
template <class V>
SLUICE_INLINE V min(V a, V b) {
  if constexpr (kIsTwo<V>) {
    return {min(a.low, b.low), min(a.high, b.high)};
  } else {
#if SLUICE_VECTOR_BYTES == 64
    return _mm512_min_ps(a, b);
#elif SLUICE_VECTOR_BYTES == 32
    return _mm256_min_ps(a, b);
#else
    return select(a < b, a, b);
#endif
  }
}

SLUICE_INLINE F16 widen(H16 bits) {
  return as<F16>(zero_extend(bits) << 16);
}

// Rounds to nearest even; a NaN stays one.
SLUICE_INLINE H16 narrow(F16 x) {
  const U16 u = as<U16>(x);
  const U16 rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  return truncate(select(x == x, rounded, (u >> 16) | 0x40u));
}

SLUICE_INLINE F16 load(const float* p) {
  return load_lanes<F16>(p);
}
SLUICE_INLINE F16 load(const Bf16* p) {
  return widen(load_lanes<H16>(p));
}
SLUICE_INLINE I16 load(const int32_t* p) {
  return load_lanes<I16>(p);
}
SLUICE_INLINE void store(float* p, F16 x) {
  store_lanes(p, x);
}
SLUICE_INLINE void store(Bf16* p, F16 x) {
  store_lanes(p, narrow(x));
}

// How much of a vector a loop works on: all of it, or (int64_t) the first elements, fewer than 16, or with
// SLUICE_SELDOM 16, too; the rest then reads as zero and is not written.
struct Whole {};

// Sixteen elements as they lie in memory, likewise.
template <class V>
SLUICE_INLINE V load_bits(const void* p, Whole) {
  return load_lanes<V>(p);
}
template <class V>
SLUICE_INLINE void store_bits(void* p, V x, Whole) {
  store_lanes(p, x);
}
template <class V>
SLUICE_INLINE V load_bits(const void* p, int64_t count) {
#if SLUICE_VECTOR_BYTES == 64
  if constexpr (sizeof(Element<V>) == 4) return (V)_mm512_maskz_loadu_epi32(mask_of(count), p);
  if constexpr (sizeof(Element<V>) == 2) return (V)_mm256_maskz_loadu_epi16(mask_of(count), p);
#elif SLUICE_VECTOR_BYTES == 32
  if constexpr (sizeof(Element<V>) == 4) {
    const auto mask = first_lanes(count);
    const auto* low = static_cast<const int*>(p);
    return {(Half<V>)_mm256_maskload_epi32(low, (__m256i)mask.low),
            (Half<V>)_mm256_maskload_epi32(low + 8, (__m256i)mask.high)};
  }
#endif
#ifdef SLUICE_SELDOM
  if (count == kVec) return load_lanes<V>(p);
#endif
  Element<V> padded[kVec] = {};
  std::memcpy(padded, p, static_cast<size_t>(count) * sizeof(Element<V>));
  return load_lanes<V>(padded);
}
template <class V>
SLUICE_INLINE void store_bits(void* p, V x, int64_t count) {
#if SLUICE_VECTOR_BYTES == 64
  if constexpr (sizeof(Element<V>) == 4) return _mm512_mask_storeu_epi32(p, mask_of(count), (__m512i)x);
  if constexpr (sizeof(Element<V>) == 2) return _mm256_mask_storeu_epi16(p, mask_of(count), (__m256i)x);
#elif SLUICE_VECTOR_BYTES == 32
  if constexpr (sizeof(Element<V>) == 4) {
    const auto mask = first_lanes(count);
    auto* low = static_cast<int*>(p);
    _mm256_maskstore_epi32(low, (__m256i)mask.low, (__m256i)x.low);
    return _mm256_maskstore_epi32(low + 8, (__m256i)mask.high, (__m256i)x.high);
  }
#endif
#ifdef SLUICE_SELDOM
  if (count == kVec) return store_lanes(p, x);
#endif
  Element<V> padded[kVec];
  store_lanes(padded, x);
  std::memcpy(p, padded, static_cast<size_t>(count) * sizeof(Element<V>));
}

template <class Part>
SLUICE_INLINE F16 load(const float* p, Part part) {
  return load_bits<F16>(p, part);
}
template <class Part>
SLUICE_INLINE F16 load(const Bf16* p, Part part) {
  return widen(load_bits<H16>(p, part));
}
template <class Part>
SLUICE_INLINE void store(float* p, F16 x, Part part) {
  store_bits(p, x, part);
}
template <class Part>
SLUICE_INLINE void store(Bf16* p, F16 x, Part part) {
  store_bits(p, narrow(x), part);
}

// Calls body(i, part) for i = 0, 16, 32, ... below n, where `part` says how much of the vector at i lies
// below n. With SLUICE_SELDOM the body is compiled once for both.
template <class Body>
SLUICE_INLINE void for_each_vector(int64_t n, Body&& body) {
  int64_t i = 0;
#ifdef SLUICE_SELDOM
  for (; i < n; i += kVec) body(i, std::min(kVec, n - i));
#else
  for (; i + kVec <= n; i += kVec) body(i, Whole{});
  if (i < n) body(i, n - i);
#endif
}

// Sum and maximum of the lanes, always in the same order.
SLUICE_INLINE float sum(F16 x) {
  return reduce(x, [](auto a, auto b) SLUICE_INLINE_BODY { return a + b; });
}
SLUICE_INLINE float max(F16 x) {
  return reduce(x, [](auto a, auto b) SLUICE_INLINE_BODY { return select(a > b, a, b); });
}

constexpr float kLog2E = 1.44269504088896340736f;
constexpr float kLn2 = 0.69314718055994530942f;

// The functions below take one register after the other: so what is on the way fits the registers.

template <class V>
SLUICE_INLINE V magnitude(V x) {
  return max(x, -x);
}

// 2^x within 2 ulp; exactly 1 at 0; 0 far below -126, infinity from 128 on; NaN stays.
template <class V>
SLUICE_INLINE V exp2(V x) {
  if constexpr (kIsTwo<V>) {
    const auto low = exp2(x.low);
    return {low, exp2(x.high)};
  } else {
#if SLUICE_VECTOR_BYTES == 64
    // On [0, 1) a polynomial through 1 at 0 that keeps the largest relative error (8e-8) least.
    const V f = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    V p = splat(1.867130072e-3f);
    p = p * f + 9.017030316e-3f;
    p = p * f + 5.579991311e-2f;
    p = p * f + 2.401644502e-1f;
    p = p * f + 6.931513118e-1f;
    p = p * f + 1.0f;
    return _mm512_scalef_ps(p, x);
#else
    // On [-1/2, 1/2] the Taylor series, whose last term bounds the error by 1e-8.
    const V clamped = min(V{} + 128.0f, max(V{} - 127.0f, x));
    constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
    const V n = (clamped + kMagic) - kMagic;
    const V f = clamped - n;
    V p = V{} + 1.54035304e-4f;
    p = p * f + 1.33335581e-3f;
    p = p * f + 9.61812911e-3f;
    p = p * f + 5.55041087e-2f;
    p = p * f + 2.40226507e-1f;
    p = p * f + 6.93147181e-1f;
    p = p * f + 1.0f;
    // n = -127 gives the exponent field 0, hence a factor of exactly 0; n = 128 gives infinity.
    const auto exponent = (convert<Lanes<int32_t, kLanes<V> > >(n) + 127) << 23;
    return p * as<V>(exponent);
#endif
  }
}

template <class V>
SLUICE_INLINE V exp(V x) {
  return exp2(x * kLog2E);
}

// 1 / x within 2 ulp. REQUIRES: x and 1 / x are normal
template <class V>
SLUICE_INLINE V reciprocal(V x) {
#if SLUICE_VECTOR_BYTES == 64
  // Newton's step from 14 bits: a division costs three times as much.
  const V r = _mm512_rcp14_ps(x);
  return r * (2.0f - x * r);
#else
  return 1.0f / x;
#endif
}

// From the exponential of -|x|, which cannot overflow.
template <class V>
SLUICE_INLINE V sigmoid(V x) {
  if constexpr (kIsTwo<V>) {
    const auto low = sigmoid(x.low);
    return {low, sigmoid(x.high)};
  } else {
    const V e = exp2(magnitude(x) * -kLog2E), r = reciprocal(1.0f + e);
    return select(x < 0.0f, e * r, r);
  }
}

// Within 2 ulp, also near 0: by a polynomial (of Cephes' tanhf) below 0.625, by the exponential above.
template <class V>
SLUICE_INLINE V tanh(V x) {
  if constexpr (kIsTwo<V>) {
    const auto low = tanh(x.low);
    return {low, tanh(x.high)};
  } else {
    constexpr float kMost = 16;                                      // where it is 1
    const V size = min(V{} + kMost, magnitude(x)), z = size * size;  // a NaN stays one
    V p = V{} - 5.70498872745e-3f;
    p = p * z + 2.06390887954e-2f;
    p = p * z - 5.37397155531e-2f;
    p = p * z + 1.33314422036e-1f;
    p = p * z - 3.33332819422e-1f;
    const V small = p * z * size + size, large = 1.0f - 2.0f * sigmoid(-2.0f * size);
    const V t = select(size < 0.625f, small, large);
    return select(x < 0.0f, -t, t);
  }
}

template <class V>
SLUICE_INLINE V square_root(V x) {
  if constexpr (kIsTwo<V>) {
    return {square_root(x.low), square_root(x.high)};
  } else {
#if SLUICE_VECTOR_BYTES == 64
    return _mm512_sqrt_ps(x);
#elif SLUICE_VECTOR_BYTES == 32
    return _mm256_sqrt_ps(x);
#elif defined(__aarch64__)
    return (V)vsqrtq_f32((float32x4_t)x);
#elif defined(__x86_64__)
    return _mm_sqrt_ps(x);
#else
    for (int i = 0; i < kLanes<V>; ++i) x[i] = __builtin_sqrtf(x[i]);  // compilers know the instruction
    return x;
#endif
  }
}

// a * b + c, rounded once where the instruction set can: of a plain expression with two products the compiler
// chooses which one to fuse, and not the same one everywhere.
template <class V>
SLUICE_INLINE V multiply_add(V a, V b, V c) {
  if constexpr (kIsTwo<V>) {
    return {multiply_add(a.low, b.low, c.low), multiply_add(a.high, b.high, c.high)};
  } else {
#if SLUICE_VECTOR_BYTES == 64
    return _mm512_fmadd_ps(a, b, c);
#elif SLUICE_VECTOR_BYTES == 32
    return _mm256_fmadd_ps(a, b, c);
#elif defined(__aarch64__)
    return (V)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
    return a * b + c;
#endif
  }
}
