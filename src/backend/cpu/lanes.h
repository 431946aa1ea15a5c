// SPDX-License-Identifier: Apache-2.0
// In-order queues of commands, one per lane, each served by its own thread.
//
// Commands of a step are numbered in order of submission, and every lane runs its own in order. So "command w
// on lane L has finished" is "L has finished everything up to w", and one counter per lane resolves every
// wait.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "backend/backend.h"

namespace sluice::core::cpu {

class Lanes {
 public:
  // Runs the launches of a lane; called on its thread.
  using LaunchFn = std::function<Status(const LaneEnds& lane, const Launch&)>;

  // Reads what lies on the disk at an offset; called on a lane's thread.
  using ReadFn = std::function<Status(int64_t offset, std::span<std::byte> to)>;

  Lanes(LaneTable table, LaunchFn launch, ReadFn read);
  // Waits for what was submitted; no thread is left afterwards.
  ~Lanes();
  Lanes(const Lanes&) = delete;
  Lanes& operator=(const Lanes&) = delete;

  const LaneTable& table() const { return table_; }

  // The four calls of Backend, with their contracts. begin() reserves the storage of the step's commands;
  // submit() copies the command, operands included, and never blocks; copies are between `arenas`. After a
  // failure the commands not yet started are passed over.
  Status begin(uint32_t commands);
  Status submit(const Command& command, const Arenas& arenas);
  Status wait(uint32_t command);
  std::optional<Fault> finish(std::vector<Interval>* timeline);

 private:
  static constexpr size_t kMaxOperands = 14;
  static constexpr uint32_t kStop = UINT32_MAX;  // in place of a command: the lane's thread ends

  // A queued command.
  struct Slot {
    uint32_t operand_count;
    const Op* op;  // null for a copy
    std::string_view task;
    std::array<Buffer, kMaxOperands> operands;
    Buffer workspace;
    std::byte* to;  // of a copy
    const std::byte* from;
    Copy copy;
  };

  struct Queue {
    std::vector<uint32_t> ids;          // of this step's commands; room for one more, kStop
    std::atomic<uint32_t> pushed{0};    // grows across steps, so that a lane notices every change
    std::atomic<uint32_t> finished{0};  // one past the last command of this step that finished
    uint32_t taken = 0;                 // lane thread only
    uint32_t base = 0;                  // `pushed` when the step began
    std::thread thread;
  };

  // One past the last command on lane `other` that must finish before command `id`; 0: none.
  uint32_t& after(uint32_t id, Lane other) { return after_[id * table_.size() + other.index()]; }
  static void push(Queue& q, uint32_t id);
  void serve(Lane lane);
  void run_command(Lane lane, uint32_t id);
  Status run_work(Lane lane, const Slot& slot);
  void fail(uint32_t id, Error error);
  double now_ns() const;

  const LaneTable table_;
  LaunchFn launch_;
  ReadFn read_;
  ByLane<Queue> queues_;
  std::vector<Slot> slots_;
  std::vector<uint32_t> after_;
  std::vector<Interval> intervals_;
  std::vector<Lane> lane_of_;
  uint32_t commands_ = 0, submitted_ = 0;
  std::chrono::steady_clock::time_point begin_;
  std::atomic<bool> failed_{false};
  std::mutex fault_mutex_;
  std::optional<Fault> fault_;  // under fault_mutex_
};

}  // namespace sluice::core::cpu
