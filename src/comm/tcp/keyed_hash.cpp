// SPDX-License-Identifier: Apache-2.0
#include "comm/tcp/keyed_hash.h"

#include <bit>
#include <utility>

namespace sluice::core {
namespace {

struct State {
  uint64_t v0, v1, v2, v3;

  void rounds(int count) {
    for (int i = 0; i < count; ++i) {
      v0 += v1, v1 = std::rotl(v1, 13) ^ v0, v0 = std::rotl(v0, 32);
      v2 += v3, v3 = std::rotl(v3, 16) ^ v2;
      v0 += v3, v3 = std::rotl(v3, 21) ^ v0;
      v2 += v1, v1 = std::rotl(v1, 17) ^ v2, v2 = std::rotl(v2, 32);
    }
  }
  void take(uint64_t word) {
    v3 ^= word;
    rounds(2);
    v0 ^= word;
  }
};

}  // namespace

KeyedHash KeyedHash::of_secret(std::string_view secret) {
  const auto bytes = std::as_bytes(std::span(secret));
  return KeyedHash(KeyedHash(0, 1)(bytes), KeyedHash(0, 2)(bytes));
}

uint64_t KeyedHash::operator()(std::span<const std::byte> bytes) const {
  State s{k0_ ^ 0x736f6d6570736575, k1_ ^ 0x646f72616e646f6d, k0_ ^ 0x6c7967656e657261,
          k1_ ^ 0x7465646279746573};
  uint64_t word = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    word |= uint64_t(bytes[i]) << (8 * (i % 8));
    if (i % 8 == 7) s.take(std::exchange(word, 0));
  }
  s.take(word | uint64_t(bytes.size()) << 56);
  s.v2 ^= 0xff;
  s.rounds(4);
  return s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
}

}  // namespace sluice::core
