// SPDX-License-Identifier: Apache-2.0
// Sixteen lanes on registers of any width. A vector that is wider than a register is two halves, each of
// which is a vector again. Compilers have no registers for wider ones and would keep them in memory. Included
// by simd.h, once per instruction set, inside that one's namespace; SLUICE_VECTOR_BYTES is the width of a
// register.

#define SLUICE_INLINE inline __attribute__((always_inline))
// For what is done to a whole block, where a call costs nothing: it is compiled once for all who call it.
#define SLUICE_APART inline __attribute__((noinline))
// Goes before the braces of a function object: a call per vector would be slow.
#define SLUICE_INLINE_BODY __attribute__((always_inline))

// The same bytes. No function of the standard library, as those know no wide registers.
template <class To, class From>
SLUICE_INLINE To as(From x) {
  return __builtin_bit_cast(To, x);
}

template <class V>
struct Two {
  V low, high;
};

template <class V>
constexpr bool kIsTwo = false;
template <class V>
constexpr bool kIsTwo<Two<V>> = true;

template <class T, int kCount>
struct LanesOf {
  static SLUICE_INLINE auto zero() {
    if constexpr (kCount * int{sizeof(T)} <= SLUICE_VECTOR_BYTES) {
      using V __attribute__((vector_size(kCount * sizeof(T)))) = T;
      return V{};
    } else {
      return Two<decltype(LanesOf<T, kCount / 2>::zero())>{};
    }
  }
};
// kCount lanes of T.
template <class T, int kCount>
using Lanes = decltype(LanesOf<T, kCount>::zero());

template <class V>
struct ElementOf {
  using type = std::remove_cvref_t<decltype(V{}[0])>;
};
template <class V>
struct ElementOf<Two<V>> : ElementOf<V> {};
template <class V>
using Element = typename ElementOf<V>::type;
template <class V>
constexpr int kLanes = int{sizeof(V) / sizeof(Element<V>)};
template <class V>
using Half = Lanes<Element<V>, kLanes<V> / 2>;

template <class V>
SLUICE_INLINE Two<Half<V>> halves(V x) {
  if constexpr (kIsTwo<V>) {
    return x;
  } else {
    return as<Two<Half<V>>>(x);
  }
}
template <class V>
SLUICE_INLINE Element<V> first(V x) {
  if constexpr (kIsTwo<V>) {
    return first(x.low);
  } else {
    return x[0];
  }
}

#define SLUICE_BINARY(op)                                                   \
  template <class V>                                                        \
  SLUICE_INLINE auto operator op(Two<V> a, Two<V> b) {                      \
    return Two<decltype(a.low op b.low)>{a.low op b.low, a.high op b.high}; \
  }                                                                         \
  template <class V>                                                        \
  SLUICE_INLINE auto operator op(Two<V> a, Element<V> b) {                  \
    return Two<decltype(a.low op b)>{a.low op b, a.high op b};              \
  }                                                                         \
  template <class V>                                                        \
  SLUICE_INLINE auto operator op(Element<V> a, Two<V> b) {                  \
    return Two<decltype(a op b.low)>{a op b.low, a op b.high};              \
  }
SLUICE_BINARY(+)
SLUICE_BINARY(-)
SLUICE_BINARY(*)
SLUICE_BINARY(/)
SLUICE_BINARY(&)
SLUICE_BINARY(|)
SLUICE_BINARY(^)
SLUICE_BINARY(<)
SLUICE_BINARY(<=)
SLUICE_BINARY(>)
SLUICE_BINARY(>=)
SLUICE_BINARY(==)
SLUICE_BINARY(!=)
#undef SLUICE_BINARY

template <class V>
SLUICE_INLINE Two<V> operator<<(Two<V> a, int bits) {
  return {a.low << bits, a.high << bits};
}
template <class V>
SLUICE_INLINE Two<V> operator>>(Two<V> a, int bits) {
  return {a.low >> bits, a.high >> bits};
}
template <class V>
SLUICE_INLINE Two<V> operator-(Two<V> a) {
  return {-a.low, -a.high};
}
template <class V, class B>
SLUICE_INLINE Two<V>& operator+=(Two<V>& a, B b) {
  return a = a + b;
}
template <class V, class B>
SLUICE_INLINE Two<V>& operator*=(Two<V>& a, B b) {
  return a = a * b;
}

// Lane by lane: a where the mask, which a comparison made, holds; otherwise b.
template <class M, class V>
SLUICE_INLINE V select(M mask, V a, V b) {
  if constexpr (kIsTwo<V>) {
    return {select(mask.low, a.low, b.low), select(mask.high, a.high, b.high)};
  } else {
    return mask ? a : b;
  }
}

// Each lane converted to To's element type.
template <class To, class From>
SLUICE_INLINE To convert(From x) {
  if constexpr (kIsTwo<To>) {
    const auto parts = halves(x);
    return {convert<Half<To>>(parts.low), convert<Half<To>>(parts.high)};
  } else if constexpr (kIsTwo<From>) {
    return as<To>(Two<Half<To>>{convert<Half<To>>(x.low), convert<Half<To>>(x.high)});
  } else {
    return __builtin_convertvector(x, To);
  }
}

template <class V>
SLUICE_INLINE V load_lanes(const void* p) {
  if constexpr (kIsTwo<V>) {
    using Part = Half<V>;
    return {load_lanes<Part>(p), load_lanes<Part>(static_cast<const char*>(p) + sizeof(Part))};
  } else {
    V x;
    std::memcpy(&x, p, sizeof(V));
    return x;
  }
}
template <class V>
SLUICE_INLINE void store_lanes(void* p, V x) {
  if constexpr (kIsTwo<V>) {
    store_lanes(p, x.low);
    store_lanes(static_cast<char*>(p) + sizeof(x.low), x.high);
  } else {
    std::memcpy(p, &x, sizeof(V));
  }
}

// 0, 1, 2, ...
template <class V>
SLUICE_INLINE V iota() {
  Element<V> x[kLanes<V>];
  for (int i = 0; i < kLanes<V>; ++i) x[i] = static_cast<Element<V>>(i);
  return load_lanes<V>(x);
}

// Combines the lanes pairwise, lane i with lane i + n / 2, until one is left.
template <class V, class F>
SLUICE_INLINE Element<V> reduce(V x, F&& both) {
  if constexpr (sizeof(V) > 16) {
    const auto parts = halves(x);
    return reduce(both(parts.low, parts.high), both);
  } else {
    static_assert(kLanes<V> == 4);
    const V two = both(x, __builtin_shufflevector(x, x, 2, 3, -1, -1));
    return both(two, __builtin_shufflevector(two, two, 1, -1, -1, -1))[0];
  }
}

// Exchanges the elements of two rows, kBit rows apart, whose row and column differ in that bit.
template <int kBit, class V, size_t... kLane>
SLUICE_INLINE void exchange(V& a, V& b, std::index_sequence<kLane...>) {
  constexpr size_t n = kLanes<V>;
  const V low = __builtin_shufflevector(a, b, int((kLane & kBit) ? kLane - kBit + n : kLane)...);
  b = __builtin_shufflevector(a, b, int((kLane & kBit) ? kLane + n : kLane + kBit)...);
  a = low;
}
template <int kBit, class V, int n>
SLUICE_INLINE void exchange_rows(V (&x)[n]) {
  if constexpr (kBit < n) {
#pragma GCC unroll 16
    for (int i = 0; i < n; ++i) {
      if ((i & kBit) == 0) exchange<kBit>(x[i], x[i + kBit], std::make_index_sequence<size_t(n)>());
    }
    exchange_rows<2 * kBit>(x);
  }
}

// A square of 32-bit elements, transposed: register by register, in rounds of one bit of row and column each.
template <class V, int n>
SLUICE_INLINE void transpose(V (&x)[n]) {
  static_assert(n == kLanes<V>);
  if constexpr (kIsTwo<V>) {
    constexpr int h = n / 2;
    Half<V> a[h], b[h], c[h], d[h];
#pragma GCC unroll 16
    for (int i = 0; i < h; ++i) a[i] = x[i].low, b[i] = x[i].high, c[i] = x[h + i].low, d[i] = x[h + i].high;
    transpose(a), transpose(b), transpose(c), transpose(d);
#pragma GCC unroll 16
    for (int i = 0; i < h; ++i) x[i] = {a[i], c[i]}, x[h + i] = {b[i], d[i]};
  } else {
    exchange_rows<1>(x);
  }
}

// Lane j is the sum of row j's lanes, in the order of reduce(): each round halves the rows. Uses up the rows.
template <int kBit, class V, int n>
SLUICE_INLINE V fold_rows(V (&x)[n]) {
#pragma GCC unroll 16
  for (int i = 0; i < kBit; ++i) {
    exchange<kBit>(x[i], x[i + kBit], std::make_index_sequence<size_t(n)>());
    x[i] += x[i + kBit];
  }
  if constexpr (kBit > 1) return fold_rows<kBit / 2>(x);
  return x[0];
}
template <class V, int n>
SLUICE_INLINE V sum_rows(V (&x)[n]) {
  static_assert(n == kLanes<V>);
  if constexpr (kIsTwo<V>) {
    constexpr int h = n / 2;
    Half<V> a[h], b[h];
#pragma GCC unroll 16
    for (int i = 0; i < h; ++i) a[i] = x[i].low + x[i].high, b[i] = x[h + i].low + x[h + i].high;
    return {sum_rows(a), sum_rows(b)};
  } else {
    return fold_rows<n / 2>(x);
  }
}
