// Three in-order queues of commands, each served by its own thread.
//
// Commands of a step are numbered in order of submission and every lane runs its own in order, so "command w
// on lane L has finished" is "L has finished everything up to w": one counter per lane resolves every wait.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "backend/backend.h"

namespace sluice::cpu {

class Lanes {
 public:
  // Runs the compute lane's commands; called on that lane's thread only.
  using LaunchFn = std::function<Status(const Launch&)>;

  // Every lane thread calls thread_start() first.
  Lanes(LaunchFn launch, void (*thread_start)());
  // Waits for what was submitted; no thread is left afterwards.
  ~Lanes();
  Lanes(const Lanes&) = delete;
  Lanes& operator=(const Lanes&) = delete;

  // The three calls of Backend, with their contracts. begin() reserves the storage of the step's commands;
  // submit() copies the command, operands included, and never blocks. After a failure the commands not yet
  // started are passed over.
  Status begin(uint32_t commands);
  Status submit(const Command& command);
  std::optional<Fault> finish(std::vector<Interval>* timeline);

 private:
  static constexpr size_t kMaxOperands = 8;
  static constexpr uint32_t kStop = UINT32_MAX;  // in place of a command: the lane's thread ends

  // A queued command. after[L] is one past the last command on lane L that must finish first; 0: none.
  struct Slot {
    std::array<uint32_t, kLaneCount> after;
    uint32_t operand_count;
    const Op* op;  // null for a copy
    std::array<Buffer, kMaxOperands> operands;
    Buffer workspace;
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

  Queue& queue(Lane lane) { return queues_[static_cast<size_t>(lane)]; }
  static void push(Queue& q, uint32_t id);
  void serve(Lane lane, void (*thread_start)());
  void run_command(Lane lane, uint32_t id);
  Status run_work(const Slot& slot);
  void fail(uint32_t id, Error error);
  double now_ns() const;

  LaunchFn launch_;
  std::array<Queue, kLaneCount> queues_;
  std::vector<Slot> slots_;
  std::vector<Interval> intervals_;
  std::vector<Lane> lane_of_;
  uint32_t commands_ = 0, submitted_ = 0;
  std::chrono::steady_clock::time_point begin_;
  std::atomic<bool> failed_{false};
  std::mutex fault_mutex_;
  std::optional<Fault> fault_;  // under fault_mutex_
};

}  // namespace sluice::cpu
