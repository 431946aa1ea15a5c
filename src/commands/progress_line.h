// Progress on the console.
#pragma once

#include <string>

namespace sluice {

// "1:02:03", "4:05" or "7 s".
std::string format_duration(double seconds);

// Progress on a terminal is one line rewritten in place; elsewhere one line now and then.
class ProgressLine {
 public:
  ProgressLine();
  // Shows `text` now on a terminal; elsewhere when some seconds have passed or when `important`.
  void show(const std::string& text, bool important);
  // Ends the line, so that other output can follow.
  void end();

 private:
  bool terminal_;
  double shown_ns_ = 0;
  size_t width_ = 0;
};

}  // namespace sluice
