// SPDX-License-Identifier: Apache-2.0
// Vector clocks: what an action knows to have happened.
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "base/lane.h"

namespace sluice::core {

// A set of actions, closed towards the past: of every lane of a table the newest one, which stands for all
// before it on that lane. Empty when made; there is no other way to make one.
class Clock {
 public:
  explicit Clock(const LaneTable& lanes) : more_(lanes.size() > kFew ? lanes.size() - kFew : 0) {}

  void add(Lane lane, uint32_t action) { past(lane) = std::max(past(lane), action + 1); }
  void join(const Clock& other) {
    for (size_t l = 0; l < kFew; ++l) few_[l] = std::max(few_[l], other.few_[l]);
    for (size_t l = 0; l < more_.size(); ++l) more_[l] = std::max(more_[l], other.more_[l]);
  }
  bool has(Lane lane, uint32_t action) const { return past(lane) > action; }
  std::optional<uint32_t> newest(Lane lane) const {
    return past(lane) == 0 ? std::nullopt : std::optional(past(lane) - 1);
  }

 private:
  // Lanes that need no memory of their own: those of two devices. Planning makes millions of clocks.
  static constexpr size_t kFew = 8;

  uint32_t& past(Lane lane) { return lane.index() < kFew ? few_[lane.index()] : more_[lane.index() - kFew]; }
  uint32_t past(Lane lane) const {
    return lane.index() < kFew ? few_[lane.index()] : more_[lane.index() - kFew];
  }

  // One past the newest action of each lane; 0: none.
  std::array<uint32_t, kFew> few_{};
  std::vector<uint32_t> more_;
};

}  // namespace sluice::core
