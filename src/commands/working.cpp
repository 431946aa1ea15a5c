// SPDX-License-Identifier: Apache-2.0
#include "commands/working.h"

#include <fmt/format.h>

#include <chrono>

#include "commands/say.h"
#include "commands/terminal.h"

namespace sluice::core {
namespace {

constexpr double kPatienceSeconds = 2, kEverySeconds = 5;

double seconds_now() {
  using namespace std::chrono;
  return duration<double>(steady_clock::now().time_since_epoch()).count();
}

}  // namespace

void WorkLine::say(double now_s, std::string what, int64_t done, int64_t total, std::string note) {
  if (what != what_) {
    if (what_.empty()) first_s_ = now_s;
    what_ = std::move(what);
    begin_s_ = now_s;
  }
  done_ = done;
  total_ = total;
  note_ = std::move(note);
}

void WorkLine::tick(double now_s) {
  const double worked_s = now_s - begin_s_;
  if (what_.empty() || now_s - first_s_ < kPatienceSeconds) return;
  if (!rows_.empty()) line_.end();
  for (const std::string& row : rows_) sluice::core::say(out_, "planned: {}\n", row);
  rows_.clear();
  if (!terminal_ && shown_s_ > 0 && now_s - shown_s_ < kEverySeconds) return;
  shown_s_ = now_s;
  std::string text = what_;
  if (total_ > 0) text += fmt::format(" {}/{}", done_, total_);
  if (worked_s >= 1) text += ", " + format_duration(worked_s);
  if (done_ > 0 && done_ < total_) {
    text += ", ETA " + format_duration(worked_s / double(done_) * double(total_ - done_));
  }
  if (!note_.empty()) text += "; " + note_;
  line_.show(text, true);
}

Working::Working(std::string what) : line_(stderr, rewrites(stderr)) {
  line_.say(seconds_now(), std::move(what));
  thread_ = std::jthread([this](const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (!stop.stop_requested()) {
      wake_.wait_for(lock, stop, std::chrono::seconds(1), [] { return false; });
      if (!stop.stop_requested()) line_.tick(seconds_now());
    }
  });
}

void Working::say(std::string what, int64_t done, int64_t total, std::string note) {
  const std::lock_guard lock(mutex_);
  line_.say(seconds_now(), std::move(what), done, total, std::move(note));
}

void Working::row(std::string text) {
  const std::lock_guard lock(mutex_);
  line_.row(std::move(text));
}

StopWhenAsked::StopWhenAsked(const std::atomic<bool>& asked)
    : thread_([this, &asked](const std::stop_token& over) {
        constexpr auto kEvery = std::chrono::milliseconds(50);
        std::mutex mutex;
        std::unique_lock lock(mutex);
        std::condition_variable_any never;
        while (!over.stop_requested() && !asked) never.wait_for(lock, over, kEvery, [] { return false; });
        if (asked) source_.request_stop();
      }) {}

void Working::stop() {
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
  line_.end();
}

}  // namespace sluice::core
