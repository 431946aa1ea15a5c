#include "commands/progress_line.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>

namespace sluice {

std::string format_duration(double seconds) {
  const auto s = static_cast<int64_t>(seconds + 0.5);
  if (s >= 3600) return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
  if (s >= 60) return fmt::format("{}:{:02}", s / 60, s % 60);
  return fmt::format("{} s", s);
}

ProgressLine::ProgressLine() : terminal_(isatty(STDOUT_FILENO) != 0) {}

void ProgressLine::show(const std::string& text, bool important) {
  using namespace std::chrono;
  const double now = double(duration_cast<nanoseconds>(steady_clock::now().time_since_epoch()).count());
  if (terminal_) {
    fmt::print("\r{:<{}}", text, width_);
    width_ = text.size();
  } else if (important || now - shown_ns_ >= 5e9) {
    fmt::print("{}\n", text);
    shown_ns_ = now;
  }
  std::fflush(stdout);
}

void ProgressLine::end() {
  if (terminal_ && width_ > 0) fmt::print("\n");
  width_ = 0;
  std::fflush(stdout);
}

}  // namespace sluice
