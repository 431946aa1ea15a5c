// SPDX-License-Identifier: Apache-2.0
// A backend that loses a device, or the way between two, for good.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "backend/testing/forwarding.h"

namespace sluice::core {

struct Loss {
  std::vector<Lane> lanes;     // whose commands fail
  std::optional<Tier> device;  // nothing reaches it between steps either, and no step begins any more
  int64_t at = 1;              // the first of the lanes' commands that fails, counted from 1 over all steps

  // A device with all lanes that compute there or copy from or to it.
  static Loss of_device(const LaneTable& lanes, Tier device, int64_t at);
  // The copies of one lane.
  static Loss of_lane(Lane lane, int64_t at) { return {{lane}, std::nullopt, at}; }
};

// As a GPU that falls off its bus does. There submit() knows nothing of it, and other lanes go on with what
// waits for nothing that was lost. Only finish() tells, with the first command that failed: "injected loss".
// Commands behind it on their lanes, and all that wait for these, never run.
class LosingBackend final : public ForwardingBackend {
 public:
  LosingBackend(InnerBackend inner, Loss loss)
      : ForwardingBackend(std::move(inner)), loss_(std::move(loss)) {}

  // Commands of the lanes so far.
  int64_t seen() const { return seen_; }
  bool lost() const { return seen_ >= loss_.at; }

  Status begin(uint32_t commands, bool timed) override;
  Status submit(const Command& command) override;
  Status wait(uint32_t command) override;
  std::optional<Fault> finish(std::vector<Interval>* timeline) override;

 private:
  static constexpr uint32_t kNever = UINT32_MAX;

  // Whether the command can run.
  bool runs(const Command& command);
  // An error of the device once it is lost.
  Status reach(Tier tier) override;

  Loss loss_;
  int64_t seen_ = 0;
  // State of this step.
  std::set<Lane> down_;             // a command of the lane did not run
  std::vector<uint32_t> inner_id_;  // by the caller's id; kNever of what does not run
  std::vector<uint32_t> outer_id_;  // by the inner id
  std::optional<uint32_t> failed_;  // the first one
};

}  // namespace sluice::core
