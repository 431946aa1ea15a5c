// SPDX-License-Identifier: Apache-2.0
// Lanes: in-order queues of a backend. Work on different lanes overlaps unless one waits for the other.
//
// Which lanes there are is data: a LaneTable says what each joins, and lanes are found by that. A lane from a
// tier to itself computes there, or runs what its device exchanges with other processes; every other lane
// copies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/lane_kind.h"
#include "base/status.h"
#include "base/tier.h"

namespace sluice::core {

// The index of a lane in its table.
class Lane {
 public:
  constexpr Lane() = default;
  constexpr explicit Lane(size_t index) : index_(static_cast<uint16_t>(index)) {}

  constexpr size_t index() const { return index_; }
  constexpr auto operator<=>(const Lane&) const = default;

 private:
  uint16_t index_ = 0;
};

// The ends of a lane.
struct LaneEnds {
  Tier from, to;
  bool network = false;  // from a device to itself, by way of other processes

  constexpr LaneKind kind() const {
    return from != to ? LaneKind::Copy : network ? LaneKind::Network : LaneKind::Compute;
  }
  constexpr bool computes() const { return kind() == LaneKind::Compute; }
  constexpr bool copies() const { return kind() == LaneKind::Copy; }
  // A copy hands over between devices, loads to a nearer tier, or stores to a farther one.
  constexpr bool hands_over() const { return copies() && from.is_device() && to.is_device(); }
  constexpr bool loads() const { return copies() && !hands_over() && to < from; }
  constexpr bool stores() const { return copies() && !hands_over() && from < to; }
  bool operator==(const LaneEnds&) const = default;
};

// "compute", "network", "load" and "store" for the first device and the host, "read" from the disk to it,
// "compute1" and so on for others, "device>device1" between two devices.
std::string name_of(const LaneEnds& ends);
std::optional<LaneEnds> find_lane_ends(std::string_view name);

class LaneTable {
 public:
  static constexpr size_t kMost = 512;

  // The lanes of one device and a host: compute, load, store.
  LaneTable() : ends_{{kDevice, kDevice}, {kHost, kDevice}, {kDevice, kHost}} {}
  // The lanes of several devices and a host: each computes, loads and stores; where `joined`, each also
  // copies to the next and the one before, around the ring. Of one device: LaneTable(). REQUIRES: 1 <=
  // devices <= Tier::kMostDevices.
  static LaneTable of_devices(size_t devices, bool joined);
  // Any others. An error names what two lanes join, or how many there are.
  static Result<LaneTable> of(std::vector<LaneEnds> ends);

  // REQUIRES: no lane joins them yet.
  Lane add(Tier from, Tier to);
  Lane add_compute(Tier device) { return add(device, device); }
  // For every device that computes. REQUIRES: there is none yet.
  void add_networks();
  // From the disk to every device that computes. REQUIRES: there is none yet.
  void add_reads();

  std::optional<Lane> find(Tier from, Tier to) const { return find(LaneEnds{from, to}); }
  std::optional<Lane> find(const LaneEnds& ends) const;
  // REQUIRES: there is one.
  Lane copy(Tier from, Tier to) const;
  Lane compute(Tier device = kDevice) const { return copy(device, device); }
  // That runs a device's tasks of a kind. REQUIRES: there is one.
  Lane running(LaneKind kind, Tier device) const;

  const LaneEnds& operator[](Lane lane) const { return ends_[lane.index()]; }
  size_t size() const { return ends_.size(); }
  const std::vector<LaneEnds>& ends() const { return ends_; }
  // The memories that lanes join, near ones first.
  std::vector<Tier> tiers() const;
  // Whether the disk is read.
  bool reads() const { return find(kDisk, kDevice).has_value(); }
  // That compute.
  size_t devices() const;

  // for (const Lane lane : table)
  class Iterator {
   public:
    explicit Iterator(size_t index) : index_(index) {}
    Lane operator*() const { return Lane(index_); }
    Iterator& operator++() { return ++index_, *this; }
    bool operator==(const Iterator&) const = default;

   private:
    size_t index_;
  };
  Iterator begin() const { return Iterator(0); }
  Iterator end() const { return Iterator(size()); }

  bool operator==(const LaneTable&) const = default;

 private:
  std::vector<LaneEnds> ends_;
};

// A value for every lane of a table.
template <class T>
class ByLane {
 public:
  // T() for every lane.
  explicit ByLane(const LaneTable& lanes) : values_(lanes.size()) {}
  ByLane(const LaneTable& lanes, const T& all) : values_(lanes.size(), all) {}

  T& operator[](Lane lane) { return values_[lane.index()]; }
  const T& operator[](Lane lane) const { return values_[lane.index()]; }
  size_t size() const { return values_.size(); }
  auto begin() { return values_.begin(); }
  auto end() { return values_.end(); }
  auto begin() const { return values_.begin(); }
  auto end() const { return values_.end(); }

 private:
  std::vector<T> values_;
};

ByLane<std::string> names_of(const LaneTable& lanes);

}  // namespace sluice::core
