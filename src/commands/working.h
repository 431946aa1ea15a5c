// SPDX-License-Identifier: Apache-2.0
// What a command is doing while it takes long.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "commands/progress_line.h"

namespace sluice::core {

// When and what to show: nothing in the first two seconds, then on a terminal one line that is rewritten,
// elsewhere a line now and a line every five seconds.
class WorkLine {
 public:
  WorkLine(FILE* out, bool terminal) : out_(out), line_(out, terminal), terminal_(terminal) {}

  // From `now_s` on this is done: "planning". Of `total` parts, `done` are; total 0: it has no parts. `note`
  // is shown behind. Said of the same work again, only the parts and the note change.
  void say(double now_s, std::string what, int64_t done = 0, int64_t total = 0, std::string note = "");
  // A result that is there before all are, in a line of its own: what takes long shows them as they come.
  void row(std::string text) { rows_.push_back(std::move(text)); }
  // Shows it if that is due: "planning 3/24, 12 s, ETA 1:24; note". Times never go back.
  void tick(double now_s);
  void end() { line_.end(); }

 private:
  FILE* const out_;
  ProgressLine line_;
  const bool terminal_;
  std::string what_, note_;
  std::vector<std::string> rows_;  // to be shown
  double first_s_ = 0, begin_s_ = 0, shown_s_ = 0;
  int64_t done_ = 0, total_ = 0;
};

// Shows it on standard error, where it does not mix with results, from a thread of its own.
class Working {
 public:
  explicit Working(std::string what);
  Working(const Working&) = delete;
  Working& operator=(const Working&) = delete;
  ~Working() { stop(); }

  // From any thread.
  void say(std::string what, int64_t done = 0, int64_t total = 0, std::string note = "");
  void row(std::string text);
  // Nothing is shown from here on, so that results can follow.
  void stop();

 private:
  std::mutex mutex_;  // guards line_
  WorkLine line_;
  std::condition_variable_any wake_;
  std::jthread thread_;
};

// A token for those who are asked to stop by a flag that handlers of signals set.
class StopWhenAsked {
 public:
  explicit StopWhenAsked(const std::atomic<bool>& asked);

  std::stop_token token() const { return source_.get_token(); }

 private:
  std::stop_source source_;
  std::jthread thread_;
};

}  // namespace sluice::core
