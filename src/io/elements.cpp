// SPDX-License-Identifier: Apache-2.0
#include "io/elements.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/half.h"

namespace sluice::core {
namespace {

// Calls f with a value of the type that holds elements of `type`.
template <class F>
decltype(auto) with_element(TensorType type, F&& f) {
  if (type == TensorType::BF16) return f(Bf16{});
  if (type == TensorType::F16) return f(F16{});
  SLUICE_CHECK(type == TensorType::F32, "{} is no type of weights", name_of(type));
  return f(float{});
}

// The bits of an exponent that only infinities and NaN have.
template <class T>
constexpr auto kExponent = uint16_t{0x7f80};
template <>
constexpr auto kExponent<F16> = uint16_t{0x7c00};
template <>
constexpr auto kExponent<float> = uint32_t{0x7f800000};

// The first element of which the bits are such.
template <class Bits, class Such>
int64_t first_such(std::span<const std::byte> bytes, Such such) {
  const auto count = int64_t(bytes.size() / sizeof(Bits));
  const auto bits = [&](int64_t i) {
    Bits out;
    std::memcpy(&out, bytes.data() + size_t(i) * sizeof(Bits), sizeof(Bits));
    return out;
  };
  // Without a branch per element.
  constexpr int64_t kBlock = 4096;
  for (int64_t from = 0; from < count; from += kBlock) {
    const int64_t to = std::min(count, from + kBlock);
    bool none = true;
    for (int64_t i = from; i < to; ++i) none &= !such(bits(i));
    for (int64_t i = from; !none && i < to; ++i) {
      if (such(bits(i))) return i;
    }
  }
  return -1;
}

}  // namespace

bool is_weight_type(TensorType type) {
  return type == TensorType::F32 || type == TensorType::BF16 || type == TensorType::F16;
}

void read_elements(TensorType type, std::span<const std::byte> bytes, std::vector<float>& values) {
  values.resize(bytes.size() / size_t(size_of(type)));
  read_elements(type, bytes, std::span(values));
}

void read_elements(TensorType type, std::span<const std::byte> bytes, std::span<float> values) {
  with_element(type, [&]<class T>(T) {
    for (size_t i = 0; i < values.size(); ++i) {
      T element;
      std::memcpy(&element, bytes.data() + i * sizeof(T), sizeof(T));
      values[i] = float(element);
    }
  });
}

int64_t round_elements(TensorType type, std::span<const float> values, std::vector<std::byte>& bytes) {
  bytes.resize(values.size() * size_t(size_of(type)));
  with_element(type, [&]<class T>(T) {
    for (size_t i = 0; i < values.size(); ++i) {
      const T element(values[i]);
      std::memcpy(bytes.data() + i * sizeof(T), &element, sizeof(T));
    }
  });
  return first_not_finite(type, bytes);
}

int64_t first_not_finite(TensorType type, std::span<const std::byte> bytes) {
  return with_element(type, [&]<class T>(T) {
    constexpr auto kBits = kExponent<T>;
    return first_such<std::remove_const_t<decltype(kBits)>>(
        bytes, [](auto bits) { return (bits & kBits) == kBits; });
  });
}

int64_t first_negative(TensorType type, std::span<const std::byte> bytes) {
  return with_element(type, [&]<class T>(T) {
    constexpr auto kBits = kExponent<T>;
    using Bits = std::remove_const_t<decltype(kBits)>;
    constexpr auto kSign = Bits(Bits{1} << (8 * sizeof(Bits) - 1));
    constexpr auto kInfinity = Bits(kSign | kBits);
    // Above the negative zero and up to the negative infinity; beyond are those that are no numbers.
    return first_such<Bits>(bytes, [](Bits bits) { return bits > kSign && bits <= kInfinity; });
  });
}

}  // namespace sluice::core
