// SPDX-License-Identifier: Apache-2.0
// Who knows a secret, without saying it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace sluice::core {

// SipHash-2-4 (Aumasson and Bernstein, 2012): of bytes that both sides know, a number that only those find
// who have the key.
class KeyedHash {
 public:
  explicit KeyedHash(uint64_t k0, uint64_t k1) : k0_(k0), k1_(k1) {}
  // A key that follows from a text of any length.
  static KeyedHash of_secret(std::string_view secret);

  uint64_t operator()(std::span<const std::byte> bytes) const;

 private:
  uint64_t k0_, k1_;
};

}  // namespace sluice::core
