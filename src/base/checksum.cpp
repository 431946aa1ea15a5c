// SPDX-License-Identifier: Apache-2.0
#include "base/checksum.h"

#include <fmt/format.h>

#include <charconv>

// Compiled in: nothing needs to be linked, here or by programs that use the library.
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace sluice::core {
namespace {

Checksum checksum(XXH128_hash_t hash) {
  return {hash.high64, hash.low64};
}

bool parse_half(std::string_view digits, uint64_t& out) {
  // Small letters only: each value has one text.
  if (digits.find_first_not_of("0123456789abcdef") != digits.npos) return false;
  return std::from_chars(digits.data(), digits.data() + digits.size(), out, 16).ec == std::errc();
}

}  // namespace

struct Checksummer::State {
  XXH3_state_t xxh3;
};

Checksummer::Checksummer() : state_(std::make_unique<State>()) {
  XXH3_128bits_reset(&state_->xxh3);
}
Checksummer::Checksummer(Checksummer&&) noexcept = default;
Checksummer& Checksummer::operator=(Checksummer&&) noexcept = default;
Checksummer::~Checksummer() = default;

Checksummer& Checksummer::add(std::span<const std::byte> bytes) {
  XXH3_128bits_update(&state_->xxh3, bytes.data(), bytes.size());
  return *this;
}

Checksum Checksummer::value() const {
  return checksum(XXH3_128bits_digest(&state_->xxh3));
}

Checksum checksum_of(std::span<const std::byte> bytes) {
  return checksum(XXH3_128bits(bytes.data(), bytes.size()));
}

std::string Checksum::to_text() const {
  return fmt::format("{:016x}{:016x}", high, low);
}

std::optional<Checksum> Checksum::parse(std::string_view text) {
  constexpr size_t kHalf = 16;
  Checksum out;
  if (text.size() != 2 * kHalf || !parse_half(text.substr(0, kHalf), out.high) ||
      !parse_half(text.substr(kHalf), out.low))
    return std::nullopt;
  return out;
}

}  // namespace sluice::core
