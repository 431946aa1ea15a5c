// SPDX-License-Identifier: Apache-2.0
// A backend whose lanes run against each other in an unusual, but legal, order.
#pragma once

#include <chrono>
#include <deque>
#include <random>
#include <vector>

#include "backend/testing/forwarding.h"

namespace sluice::core {

struct Delays {
  uint64_t seed = 1;                    // the order and the pauses depend on nothing else
  size_t window = 64;                   // commands held back at most
  std::chrono::nanoseconds longest{0};  // of the random pauses before a command reaches its lane
};

// Commands of one lane keep their order and follow what they wait for; in all else their order is random. Up
// to `window` commands are held back, and a random lane is the next to get one, after a random pause. So a
// lane runs ahead of the others or falls behind them as far as the commands' waits allow, whatever its
// hardware would have done. Results must not depend on it. Works on every backend, as it only changes the
// order of submission.
//
// Errors of a command that was held back come with a later submit() or with finish(). Ids in faults and
// timelines are those of the caller.
class DelayingBackend final : public ForwardingBackend {
 public:
  DelayingBackend(InnerBackend inner, const Delays& delays)
      : ForwardingBackend(std::move(inner)), delays_(delays), random_(delays.seed), held_(lanes()) {}

  Status begin(uint32_t commands, bool timed) override;
  Status submit(const Command& command) override;
  Status wait(uint32_t command) override;
  std::optional<Fault> finish(std::vector<Interval>* timeline) override;

 private:
  static constexpr uint32_t kHeld = UINT32_MAX;

  // A command with what its spans point to.
  struct Held {
    Command command;
    std::vector<uint32_t> waits;
    std::vector<Buffer> operands;
  };

  // Whether everything that the lane's first command waits for has been passed on.
  bool ready(const std::deque<Held>& lane) const;
  // Passes one command on. REQUIRES: one is held back.
  Status release();
  void pause();

  Delays delays_;
  std::mt19937_64 random_;
  ByLane<std::deque<Held>> held_;
  size_t held_count_ = 0;
  std::vector<uint32_t> inner_id_;  // by the caller's id; kHeld while the command is held back
  std::vector<uint32_t> outer_id_;  // by the inner id
};

}  // namespace sluice::core
