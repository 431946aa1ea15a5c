// SPDX-License-Identifier: Apache-2.0
// Tiers: the memories that bytes lie in. Near ones come before far ones.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <utility>

namespace sluice::core {

class Tier {
 public:
  static constexpr size_t kMostDevices = 64;
  static constexpr size_t kCount = kMostDevices + 1;

  // The first device.
  constexpr Tier() = default;
  // REQUIRES: number < kMostDevices.
  static constexpr Tier device(size_t number) { return Tier(number); }
  static constexpr Tier host() { return Tier(kMostDevices); }
  // REQUIRES: index < kCount.
  static constexpr Tier of_index(size_t index) { return Tier(index); }

  constexpr size_t index() const { return index_; }
  constexpr bool is_device() const { return index_ < kMostDevices; }
  constexpr auto operator<=>(const Tier&) const = default;

 private:
  constexpr explicit Tier(size_t index) : index_(static_cast<uint8_t>(index)) {}

  uint8_t index_ = 0;
};

// Where one device is all there is, and where work for the first one is decided.
inline constexpr Tier kDevice = Tier::device(0);
inline constexpr Tier kHost = Tier::host();

// "device", "device1", ..., "host".
std::string_view name_of(Tier tier);
std::optional<Tier> find_tier(std::string_view name);

// Every tier that there can be.
constexpr std::array<Tier, Tier::kCount> kTiers = [] {
  std::array<Tier, Tier::kCount> all;
  for (size_t i = 0; i < all.size(); ++i) all[i] = Tier::of_index(i);
  return all;
}();

// A value for every tier.
template <class T>
class ByTier {
 public:
  constexpr ByTier() : values_{} {}
  constexpr explicit ByTier(const T& all) { values_.fill(all); }
  // The values of some tiers; the others are T().
  constexpr ByTier(std::initializer_list<std::pair<Tier, T>> some) : values_{} {
    for (const auto& [tier, value] : some) (*this)[tier] = value;
  }

  constexpr T& operator[](Tier tier) { return values_[tier.index()]; }
  constexpr const T& operator[](Tier tier) const { return values_[tier.index()]; }
  bool operator==(const ByTier&) const = default;

 private:
  std::array<T, Tier::kCount> values_;
};

using BytesByTier = ByTier<int64_t>;

// Whether it is no more in any tier.
constexpr bool within(const BytesByTier& bytes, const BytesByTier& caps) {
  for (const Tier tier : kTiers) {
    if (bytes[tier] > caps[tier]) return false;
  }
  return true;
}

constexpr int64_t sum(const BytesByTier& bytes) {
  int64_t all = 0;
  for (const Tier tier : kTiers) all += bytes[tier];
  return all;
}
constexpr int64_t fullest_device(const BytesByTier& bytes) {
  int64_t most = 0;
  for (const Tier tier : kTiers) most = tier.is_device() && bytes[tier] > most ? bytes[tier] : most;
  return most;
}

constexpr int64_t kNowhere = -1;

// A place in a tier's arena.
struct Location {
  Tier tier;
  int64_t offset = kNowhere;

  bool operator==(const Location&) const = default;
};

}  // namespace sluice::core
