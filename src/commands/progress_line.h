// SPDX-License-Identifier: Apache-2.0
// Progress on the console.
#pragma once

#include <cstdio>
#include <string>

namespace sluice::core {

// "1:02:03", "4:05" or "7 s".
std::string format_duration(double seconds);

// Progress on a terminal is one line rewritten in place, which ends with this object at the latest; elsewhere
// one line now and then.
class ProgressLine {
 public:
  // `out` is rewritten in place if it is a terminal.
  explicit ProgressLine(FILE* out = stdout);
  ProgressLine(FILE* out, bool terminal) : out_(out), terminal_(terminal) {}
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  ~ProgressLine() { end(); }
  // Shows `text` now on a terminal; elsewhere when some seconds have passed or when `important`.
  void show(const std::string& text, bool important);
  // Ends the line, so that other output can follow.
  void end();

 private:
  FILE* const out_;
  const bool terminal_;
  double shown_ns_ = 0;
  size_t width_ = 0;
};

}  // namespace sluice::core
