// SPDX-License-Identifier: Apache-2.0
// A backend on a virtual clock: moves no data, computes nothing, and says when everything would have happened
// if every command took the time its plan predicts.
#pragma once

#include <utility>
#include <vector>

#include "backend/kind.h"

namespace sluice::core {

struct SimOptions {
  // Part of its speed that a compute lane loses to each copy from or to its device that is at work. With k of
  // them it runs at 1 / (1 + k * copy_slowdown). Copies lose nothing. On a CPU copies take memory bandwidth
  // and cores from products.
  double copy_slowdown = 0;
  // Part of a compute lane's speed that its device's network lane takes while it is at work.
  double network_share = 0;
};

class SimBackend final : public Backend {
 public:
  explicit SimBackend(const SimOptions& options = {}, LaneTable lanes = {})
      : options_(options), lanes_(std::move(lanes)) {}

  std::string_view name() const override { return "sim"; }
  const LaneTable& lanes() const override { return lanes_; }
  int64_t alignment() const override { return 256; }
  int64_t workspace_bytes(const Op&) const override { return 0; }
  Result<Arenas> reserve(const BytesByTier& bytes) override;
  Result<Arenas> grow(const BytesByTier& bytes) override;
  Status prepare(std::span<const SharedOp>) override { return {}; }
  Status begin(uint32_t commands, bool timed) override;
  Status submit(const Command& command) override;
  Status wait(uint32_t) override { return {}; }
  std::optional<Fault> finish(std::vector<Interval>* timeline) override;
  Status upload(Location, const std::byte*, int64_t) override { return {}; }
  Status download(std::byte*, Location, int64_t) override { return {}; }
  BytesByTier memory() const override { return memory_; }

 private:
  struct Queued {
    std::span<const uint32_t> waits;
    double cost_ns;
    uint32_t next = UINT32_MAX;  // in its lane
    Lane lane;
  };

  const SimOptions options_;
  const LaneTable lanes_;
  std::vector<Queued> queued_;  // by id
  BytesByTier memory_;
};

// The kind for machines that are not here: it runs no models. The executor makes its own to predict times
// with.
const BackendKind& sim_kind();

}  // namespace sluice::core
