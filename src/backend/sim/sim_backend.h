// A backend on a virtual clock: moves no data, computes nothing, and says when everything would have happened if every
// command took the time its plan predicts.
#pragma once

#include <array>

#include "backend/backend.h"

namespace sluice {

class SimBackend final : public Backend {
 public:
  std::string_view name() const override { return "sim"; }
  int64_t alignment() const override { return 256; }
  int64_t workspace_bytes(const Op&) const override { return 0; }
  Result<Arenas> reserve(int64_t device_bytes, int64_t host_bytes) override;
  Status prepare(std::span<const Op>) override { return {}; }
  Status begin(uint32_t commands) override;
  Status submit(const Command& command) override;
  std::optional<Fault> finish(std::vector<Interval>* timeline) override;
  Status upload(std::byte*, const std::byte*, int64_t) override { return {}; }
  Status download(std::byte*, const std::byte*, int64_t) override { return {}; }
  MemoryUse memory() const override { return memory_; }

 private:
  std::vector<Interval> timeline_;
  std::array<double, kLaneCount> lane_end_ns_{};
  MemoryUse memory_;
};

}  // namespace sluice
