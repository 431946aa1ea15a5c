// SPDX-License-Identifier: Apache-2.0
// Whether the other processes of a job are there, beside what they compute and send.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "comm/group.h"

namespace sluice::core {

// What a rank is at: what the others are told of it while they wait.
class Activity {
 public:
  // `stage` is of the command ("planning"), `task` of a step; a stage ends the task before it. Any thread.
  void stage(std::string_view text);
  void task(std::string_view name);
  // Around a call of the group in which ranks wait for one another; `call` says which, alike on all ranks.
  void enter(std::string_view call);
  void leave();

  struct Now {
    uint64_t calls = 0;  // begun so far: every rank makes the same calls in the same order
    bool waiting = false;
    std::string call;   // the last one
    std::string doing;  // stage and task
  };
  Now now() const;

 private:
  mutable std::mutex mutex_;
  uint64_t calls_ = 0;
  bool waiting_ = false;
  std::string call_, stage_, task_;
};

struct WatchOptions {
  // No heartbeat for so long: the rank is lost. Ranks that wait for one that is late say so as often. Seconds
  // that this process itself was stopped do not count.
  std::chrono::milliseconds lost_after{30'000}, beat{1'000};
  std::string name;  // of this rank's machine, for people: "host b, 8 cores"
};

// A thread that sends a heartbeat to rank 0 over TCP, and one of rank 0 to all, with what they are at. It
// ends with a farewell; a rank whose connection ends without one is lost at once. Ranks that wait for one
// another in different calls would do so for ever: that ends the job, too.
class Watch {
 public:
  // What is called on the watch's thread. `lost` ends this process. Its text names the rank that is lost, its
  // machine and what it was at; it is empty where another rank says that, or where this one was stopped for
  // so long that the others have lost it. `late` is called on rank 0 alone.
  struct Callbacks {
    std::function<void(const std::string&text)> lost, late;
  };

  // Every rank has to call it. An error, on all, where one cannot be heard; those that can have the detail
  // kElsewhere. Borrows `activity`.
  static constexpr std::string_view kElsewhere = "elsewhere";
  static Result<std::unique_ptr<Watch>> start(ProcessGroup& group, const Activity& activity,
                                              const WatchOptions& options, Callbacks callbacks);
  // This rank makes no calls any more. It is heard until it takes leave, as a group's end may wait for all.
  void leave() { leaves_ = true; }
  // Takes leave.
  ~Watch();
  // In place of that, ends the other processes, which say nothing: this one has said why.
  void abandon();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

 private:
  struct Beat;
  class Line;
  struct Rank;
  Watch(ProcessGroup& group, const Activity& activity, const WatchOptions& options, Callbacks callbacks);
  Status connect(ProcessGroup& group);
  void run();
  void end();
  // Whether all goes on. `absent`: this process itself was stopped for so long that the others lost it.
  bool check(std::chrono::nanoseconds passed, bool absent);
  void tell_lost(const Rank* who);
  std::string name_of(int rank, std::string_view machine) const;
  bool check_who_is_late(std::chrono::nanoseconds passed);
  bool check_calls(const Activity::Now& own);

  const int rank_, size_;
  const Activity& activity_;
  const WatchOptions options_;
  const Callbacks callbacks_;
  std::vector<Rank> ranks_;  // those that this one hears: of rank 0 all others, of another rank 0
  uint64_t awaited_ = 0;     // the call that ranks wait in, and for how long it has been that one
  std::chrono::nanoseconds waited_{0};
  std::atomic<bool> leaves_ = false, abandons_ = false;
  int wake_[2] = {-1, -1};  // a pipe: the end of the thread
  std::thread thread_;
};

// A group whose calls an Activity counts; it has the tasks of a step, too.
std::unique_ptr<ProcessGroup> counted_by(Activity& activity, std::unique_ptr<ProcessGroup> group);

}  // namespace sluice::core
