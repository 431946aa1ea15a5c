// SPDX-License-Identifier: Apache-2.0
// How many texts a run samples: as many as are asked for, as long as they take at most 2 % of its time, or 10
// s.
#pragma once

#include <algorithm>

namespace sluice::core {

class SampleBudget {
 public:
  // Sets the expected time of a text until one was drawn.
  void expect(double text_s) {
    if (!drawn_) text_s_ = text_s;
  }
  // Whether there is time for another text in a run that takes `run_s`. Before the end of the run one text's
  // time is left for that.
  bool allows(double run_s, bool at_end) const {
    return spent_s_ + text_s_ * (at_end ? 1 : 2) <= most_s(run_s);
  }
  // A text was drawn, whole.
  void drew(double seconds) {
    text_s_ = drawn_ ? std::max(text_s_, seconds) : seconds;
    drawn_ = true;
    spent_s_ += seconds;
  }

  double text_s() const { return text_s_; }
  static double most_s(double run_s) {
    constexpr double kShare = 0.02, kLeast = 10;
    return std::max(kLeast, kShare * run_s);
  }

 private:
  double text_s_ = 0, spent_s_ = 0;
  bool drawn_ = false;
};

}  // namespace sluice::core
