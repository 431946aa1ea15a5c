// SPDX-License-Identifier: Apache-2.0
// A backend that does nothing but check the order of what it is told, and note it.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "backend/backend.h"

namespace sluice::core {

class FakeBackend : public Backend {
 public:
  struct Seen {
    uint32_t id;
    Lane lane;
    std::vector<uint32_t> waits;
    int64_t bytes;  // copied, or of the first operand: tells commands apart
  };
  std::vector<std::string> calls;
  std::vector<Seen> commands;        // of the last step
  std::optional<uint32_t> fault_at;  // the command that fails, if any

  std::string_view name() const override { return "fake"; }
  int64_t alignment() const override { return 32; }
  int64_t workspace_bytes(const Op&) const override { return 16; }
  Result<Arenas> reserve(const BytesByTier&) override { return calls.emplace_back("reserve"), Arenas{}; }
  Status prepare(std::span<const SharedOp>) override { return calls.emplace_back("prepare"), Status(); }
  Status begin(uint32_t, bool) override {
    commands.clear();
    return calls.emplace_back("begin"), Status();
  }
  Status submit(const Command& command) override {
    calls.emplace_back("submit");
    EXPECT_EQ(command.id, commands.size());
    for (const uint32_t id : command.waits) EXPECT_LT(id, command.id);
    const auto* launch = std::get_if<Launch>(&command.work);
    const int64_t bytes = launch ? launch->operands[0].bytes : std::get<Copy>(command.work).bytes;
    commands.push_back({command.id, command.lane, {command.waits.begin(), command.waits.end()}, bytes});
    if (fault_at && command.id >= *fault_at) return error("fault");
    return {};
  }
  Status wait(uint32_t command) override {
    calls.emplace_back("wait");
    EXPECT_LT(command, commands.size());
    if (fault_at && command >= *fault_at) return error("fault");
    return {};
  }
  // Command i runs from i to i + 1.
  std::optional<Fault> finish(std::vector<Interval>* timeline) override {
    calls.emplace_back("finish");
    if (timeline) timeline->clear();
    for (size_t i = 0; timeline && i < commands.size(); ++i) timeline->push_back({double(i), double(i + 1)});
    if (fault_at && commands.size() > *fault_at) return Fault{fault_at, Error{"fault"}};
    return {};
  }
  Status upload(Location, const std::byte*, int64_t) override {
    return calls.emplace_back("upload"), Status();
  }
  Status download(std::byte*, Location, int64_t) override { return calls.emplace_back("download"), Status(); }
  BytesByTier memory() const override { return {{kDevice, 1}, {kHost, 2}}; }
};

inline Command copy_command(uint32_t id, Lane lane, int64_t bytes, std::span<const uint32_t> waits = {}) {
  return {.id = id, .lane = lane, .waits = waits, .work = Copy{{}, {}, bytes}};
}

}  // namespace sluice::core
