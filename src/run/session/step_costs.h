// SPDX-License-Identifier: Apache-2.0
// What a model in memory learns of its costs from its own steps, and what it predicts of them by that.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/interval.h"
#include "cost/profile.h"
#include "setup/beside.h"

namespace sluice::core {

// One thread uses it. What bits depend on, it never changes.
class StepCosts {
 public:
  // Beyond this part a step differs from its prediction.
  static constexpr double kMargin = 0.05;
  // A link that is faster by less than this part is not: how fast it seems depends on what else is copied.
  static constexpr double kFaster = 0.1;

  // `shares_cores`: as the backend's traits say. Timestamps are there anyway then, while a GPU's events hold
  // kernels up: a timed step takes up to 2 % longer.
  explicit StepCosts(bool shares_cores) : shares_cores_(shares_cores) {}

  // From here on steps run under this plan, which was searched for with `planned`. A second call keeps what
  // was learnt, as for_search() has it. Borrows the stage.
  void follow(const Stage& main, const Profile& planned);
  // Has the next step timed, whatever that costs.
  void want() { wanted_ = true; }
  // Whether the next step is to be timed: one of the first warm ones, the one behind a step that differs, and
  // as many others as cost next to nothing.
  bool wants_timeline() const;
  // After every step; `timeline` is empty where it was not timed.
  void add(double step_s, std::span<const Interval> timeline);

  // The next step's time: by costs as of now, with the part that costs do not explain.
  double predicted_s() const { return simulated_s_ * (1 + rest_); }
  // Without that part.
  double simulated_s() const { return simulated_s_; }
  // The part by which the last step was longer than predicted; 0: it was not warm.
  double off() const { return off_; }
  // Whether the last step was timed.
  bool fresh() const { return fresh_; }
  const Profile& planned() const { return planned_; }
  // A step by those.
  double planned_s() const { return planned_s_; }
  const Profile& now() const { return now_; }
  // Costs for plans that keep the devices busier than this one may do. A device that waits has power to spare
  // for a higher clock: as far as that may explain it, ops do not take less than planned.
  Profile for_search() const;
  // Why a plan that was searched for with `then` may not be the best one any more: a step takes another time
  // than `then_s`, or a link has become faster. Empty: there is no reason.
  std::string changed(const Profile& then, double then_s) const;
  // In a few words, what takes another time than the plan was made with: "ops +4 %, loads 18.2 of 25.1 GB/s".
  std::string differs() const;

 private:
  // By this part equal steps differ from their predictions at most.
  double usual_off() const;
  // Whether costs are the timeline's alone from here on.
  bool learn(std::span<const Interval> timeline);
  // The sum over all runs of a step; `computing`: without those that exchange.
  double ops_ns(const Profile& profile, bool computing = false) const;
  // Simulates a step by costs as of now.
  void simulate();

  const bool shares_cores_;
  const Stage* main_ = nullptr;
  Profile planned_, now_;
  double planned_ops_ns_ = 0, ops_ns_ = 0;
  double planned_s_ = 0, simulated_s_ = 0;
  double busy_ = 1;  // the part of a step in which devices compute
  double rest_ = 0, off_ = 0;
  std::vector<double> sizes_;  // of off_, of the last steps but those that show a change
  int64_t taken_ = 0;          // steps under this plan
  int differing_ = 0;          // the last so many of them
  int timelines_ = 0;          // that were learnt from, under any
  int rests_ = 0;              // steps that rest_ is the mean of; 0: not one that was not timed
  bool fresh_ = false, wanted_ = false;
  double stepped_s_ = 0, spent_s_ = 0;  // steps, and what learning from them took
};

}  // namespace sluice::core
