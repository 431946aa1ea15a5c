// SPDX-License-Identifier: Apache-2.0
// Tiers: the memories that bytes lie in, and files, which are read and never written to. Near ones come
// before far ones.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <ranges>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"

namespace sluice::core {

class Tier {
 public:
  static constexpr size_t kMostDevices = 64;
  // Behind the devices come these, the disk last. A name more is a tier more: every table has a place for it.
  static constexpr auto kFarNames = std::to_array<std::string_view>({"host", "disk"});
  static constexpr size_t kFar = kFarNames.size(), kCount = kMostDevices + kFar;

  // The first device.
  constexpr Tier() = default;
  // REQUIRES: number < kMostDevices.
  static constexpr Tier device(size_t number) {
    SLUICE_CHECK(number < kMostDevices, "device {} of {}", number, kMostDevices);
    return Tier(number);
  }
  static constexpr Tier host() { return Tier(kMostDevices); }
  // Files whose bytes have places as in an arena, but of which nothing is reserved.
  static constexpr Tier disk() { return Tier(kCount - 1); }
  // REQUIRES: index < kCount.
  static constexpr Tier of_index(size_t index) {
    SLUICE_CHECK(index < kCount, "tier {} of {}", index, kCount);
    return Tier(index);
  }

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
inline constexpr Tier kDisk = Tier::disk();

// "device", "device1", ..., "host", "disk".
std::string_view name_of(Tier tier);
std::optional<Tier> find_tier(std::string_view name);

// Every tier that there can be.
constexpr std::array<Tier, Tier::kCount> kTiers = [] {
  std::array<Tier, Tier::kCount> all;
  for (size_t i = 0; i < all.size(); ++i) all[i] = Tier::of_index(i);
  return all;
}();

// The first `devices` devices, and the tiers behind devices. REQUIRES: devices <= Tier::kMostDevices.
inline auto tiers_of(size_t devices) {
  const auto of = [devices](size_t i) {
    return Tier::of_index(i < devices ? i : Tier::kMostDevices + i - devices);
  };
  return std::views::iota(size_t{0}, devices + Tier::kFar) | std::views::transform(of);
}

// A value for every tier. Devices behind the last that was given one share one more: a table is as long as
// the machine has devices.
template <class T>
class ByTier {
 public:
  ByTier() = default;
  explicit ByTier(const T& all) : rest_(all) { far_.fill(all); }
  // The values of some tiers; the others are T().
  ByTier(std::initializer_list<std::pair<Tier, T>> some) {
    for (const auto& [tier, value] : some) (*this)[tier] = value;
  }

  // Makes the table longer where it ends before `tier`: what was had of other devices is then no reference
  // any more, and nobody may read beside it.
  T& operator[](Tier tier) {
    if (!tier.is_device()) return far_[tier.index() - Tier::kMostDevices];
    if (tier.index() >= devices_.size()) devices_.resize(tier.index() + 1, rest_);
    return devices_[tier.index()];
  }
  const T& operator[](Tier tier) const {
    if (!tier.is_device()) return far_[tier.index() - Tier::kMostDevices];
    return tier.index() < devices_.size() ? devices_[tier.index()] : rest_;
  }
  // For all devices, those behind the table, too.
  void set_devices(const T& value) {
    devices_.clear();
    rest_ = value;
  }

  // Those with a value of their own, near ones first.
  auto tiers() const { return tiers_of(devices_.size()); }
  // Whether it holds of every tier's value and that of the other table.
  template <class U, class Relation>
  bool all(const ByTier<U>& other, Relation&& holds) const {
    const auto both = tiers_of(std::max(devices_.size(), other.devices_.size()));
    return holds(rest_, other.rest_) &&
           std::ranges::all_of(both, [&](Tier tier) { return holds((*this)[tier], other[tier]); });
  }
  bool operator==(const ByTier& other) const { return all(other, std::equal_to<>()); }

 private:
  template <class U>
  friend class ByTier;

  std::vector<T> devices_;
  std::array<T, Tier::kFar> far_{};
  T rest_{};
};

using BytesByTier = ByTier<int64_t>;

// Whether it is no more in any tier.
inline bool within(const BytesByTier& bytes, const BytesByTier& caps) {
  return bytes.all(caps, std::less_equal<>());
}

// REQUIRES: as do the next two, that devices behind the table have nothing.
inline int64_t sum(const BytesByTier& bytes) {
  int64_t all = 0;
  for (const Tier tier : bytes.tiers()) all += bytes[tier];
  return all;
}
inline int64_t fullest_device(const BytesByTier& bytes) {
  int64_t most = 0;
  for (const Tier tier : bytes.tiers()) most = tier.is_device() && bytes[tier] > most ? bytes[tier] : most;
  return most;
}
// Makes every value at least that of `bytes`.
inline void raise_to(const BytesByTier& bytes, BytesByTier& values) {
  for (const Tier tier : bytes.tiers()) values[tier] = std::max(values[tier], bytes[tier]);
}

constexpr int64_t kNowhere = -1;

// A place in a tier's arena.
struct Location {
  Tier tier;
  int64_t offset = kNowhere;

  bool operator==(const Location&) const = default;
};

}  // namespace sluice::core
