// SPDX-License-Identifier: Apache-2.0
// Plans again while a run goes on (run.replan): where steps take another time than predicted, or somebody
// asks.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>

#include "run/session/engine.h"

namespace sluice::core {

// Learns from one timed step what ops and links take now, and searches for plans by that on spare cores,
// within the arenas that are held. It adopts them between two steps if what they gain in the steps that are
// left is more than moving takes. One thread calls it.
class Replanner {
 public:
  // Steps differ from their prediction where so many in a row are off by more than this part in one
  // direction.
  static constexpr double kMargin = 0.05;
  static constexpr int kSteps = 4;
  // A smaller gain does not count: predictions are off by that much.
  static constexpr double kLeastGain = 0.01;

  // `by_itself`: it plans again where steps differ; otherwise only when asked. Borrows both.
  Replanner(Engine& engine, Observer& observer, bool by_itself);
  ~Replanner();

  // Once, whatever steps take.
  void ask();
  // Whether the next step is to be timed.
  bool wants_timeline() const { return !why_.empty() && !searching(); }
  bool searching() const { return search_ != nullptr; }
  // Until the search that is under way has ended.
  void wait();
  // After every step, with its timeline if that was wanted; how many are left. An error is of the model in
  // memory: what only keeps a plan from being better is said, and the run goes on.
  Status after_step(double step_ns, std::span<const Interval> timeline, int64_t steps_left);

 private:
  struct Search;

  // Sets why_ where steps differ by now.
  void compare(double step_s);
  void begin(std::span<const Interval> timeline);
  Status end(int64_t steps_left);

  Engine& engine_;
  Observer& observer_;
  const bool by_itself_;
  int taken_ = 0;                     // steps
  int differing_ = 0;                 // the last so many steps; below 0: they were shorter
  double sum_s_ = 0;                  // of them
  std::optional<double> expected_s_;  // by the costs that the last search learnt; nothing: the plan's own
  std::string why_;                   // to plan again; empty: there is no reason
  std::unique_ptr<Search> search_;
};

}  // namespace sluice::core
