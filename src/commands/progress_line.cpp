// SPDX-License-Identifier: Apache-2.0
#include "commands/progress_line.h"

#include <fmt/format.h>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>

#include "commands/say.h"
#include "commands/terminal.h"

namespace sluice::core {

std::string format_duration(double seconds) {
  const auto s = static_cast<int64_t>(seconds + 0.5);
  if (s >= 3600) return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
  if (s >= 60) return fmt::format("{}:{:02}", s / 60, s % 60);
  return fmt::format("{} s", s);
}

ProgressLine::ProgressLine(FILE* out) : ProgressLine(out, rewrites(out)) {}

void ProgressLine::show(const std::string& text, bool important) {
  using namespace std::chrono;
  const double now = double(duration_cast<nanoseconds>(steady_clock::now().time_since_epoch()).count());
  if (terminal_) {
    // A line that goes on in the next one could not be written anew.
    const size_t columns = columns_of(out_);
    std::string shown = printable(text);
    if (columns > 0) shown.resize(std::min(shown.size(), columns - 1));
    say_exactly(out_, fmt::format("\r{:<{}}", shown, width_));
    width_ = shown.size();
  } else if (important || now - shown_ns_ >= 5e9) {
    say(out_, "{}\n", text);
    shown_ns_ = now;
  }
  std::fflush(out_);
}

void ProgressLine::end() {
  if (terminal_ && width_ > 0) say(out_, "\n");
  width_ = 0;
  std::fflush(out_);
}

}  // namespace sluice::core
