// SPDX-License-Identifier: Apache-2.0
// Checksums of bytes that come back from a disk: XXH3 of 128 bits, what `xxhsum -H2` prints. They show
// damage, and tell the content of one file from that of another. Whoever can write a file can also make its
// checksum.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace sluice::core {

struct Checksum {
  uint64_t high = 0, low = 0;

  // 32 hexadecimal digits, and back; nothing for any other text.
  std::string to_text() const;
  static std::optional<Checksum> parse(std::string_view text);

  bool operator==(const Checksum&) const = default;
};

// Sums bytes that come in pieces; the cuts do not matter.
class Checksummer {
 public:
  Checksummer();
  Checksummer(Checksummer&&) noexcept;
  Checksummer& operator=(Checksummer&&) noexcept;
  ~Checksummer();

  Checksummer& add(std::span<const std::byte> bytes);
  Checksummer& add(std::string_view text) { return add(std::as_bytes(std::span(text.data(), text.size()))); }
  // The sum of everything added so far; more may follow.
  Checksum value() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

Checksum checksum_of(std::span<const std::byte> bytes);
inline Checksum checksum_of(std::string_view text) {
  return checksum_of(std::as_bytes(std::span(text.data(), text.size())));
}

}  // namespace sluice::core
