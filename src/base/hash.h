// SPDX-License-Identifier: Apache-2.0
// Content hash of data structures (FNV-1a, 64 bit): stable across machines and runs; not cryptographic.
#pragma once

#include <cstdint>
#include <string_view>
#include <type_traits>

namespace sluice::core {

class Hash {
 public:
  Hash& add(std::string_view bytes) {
    for (const char c : bytes) step(static_cast<unsigned char>(c));
    return step(0xff);
  }
  template <class T>
  requires std::is_integral_v<T> || std::is_enum_v<T> Hash& add(T value) {
    auto v = static_cast<uint64_t>(value);
    for (int i = 0; i < 8; ++i, v >>= 8) step(static_cast<unsigned char>(v & 0xff));
    return *this;
  }
  uint64_t value() const { return state_; }

 private:
  Hash& step(unsigned char byte) {
    state_ = (state_ ^ byte) * 0x100000001b3ull;
    return *this;
  }
  uint64_t state_ = 0xcbf29ce484222325ull;
};

}  // namespace sluice::core
