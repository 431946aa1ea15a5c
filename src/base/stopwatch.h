// SPDX-License-Identifier: Apache-2.0
// Seconds since something began.
#pragma once

#include <chrono>

namespace sluice::core {

class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }
  // Seconds so far; begins again.
  double lap() {
    const double s = seconds();
    begin_ = std::chrono::steady_clock::now();
    return s;
  }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace sluice::core
