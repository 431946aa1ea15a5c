// SPDX-License-Identifier: Apache-2.0
// Plans again while a run goes on (run.replan): where ops and links take another time than the plan was made
// with, or somebody asks.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "run/session/engine.h"

namespace sluice::core {

// Searches for plans by what steps teach of ops and links (run/session/step_costs.h), on spare cores and
// within the arenas that are held. It adopts them between two steps if what they gain in the steps that are
// left is more than moving takes. One thread calls it.
class Replanner {
 public:
  // It plans again where so many steps in a row differ from what they were planned with, and it is known why.
  // Where the plan stayed twice, it takes more of them.
  static constexpr int kSteps = 2;
  // Where costs change while a search is under way, it begins again. What the last of so many in a row found
  // is taken.
  static constexpr int kSearches = 3;
  // A smaller gain does not count: predictions are off by that much.
  static constexpr double kLeastGain = 0.01;

  // `by_itself`: it plans again where steps differ; otherwise only when asked. Borrows both.
  Replanner(Engine& engine, Observer& observer, bool by_itself);
  ~Replanner();

  // Once, whatever steps take. What it came to is said as "asked for", also where it would have planned again
  // by itself by then.
  void ask();
  bool searching() const { return search_ != nullptr; }
  // Until the search that is under way has ended.
  void wait();
  // After every step that the engine made; how many are left. An error is of the model in memory: what only
  // keeps a plan from being better is said, and the run goes on.
  Status after_step(int64_t steps_left);

 private:
  struct Search;

  // Sets why_ where steps differ by now.
  void compare();
  // To plan again; nobody who asked is forgotten for another reason.
  void plan_because(std::string why);
  void begin();
  Status end(int64_t steps_left);

  Engine& engine_;
  Observer& observer_;
  StepCosts& costs_;
  const bool by_itself_;
  int differing_ = 0;  // the last so many steps of those that tell
  int stayed_ = 0;     // searches in a row after which the plan stayed
  int overtaken_ = 0;  // searches in a row during which costs changed
  // The last search, if the plan stayed: what it was made with, and a step by that.
  struct Searched {
    Profile profile;
    double step_s;
  };
  std::optional<Searched> searched_;
  std::string why_;  // to plan again; empty: there is no reason
  std::unique_ptr<Search> search_;
};

}  // namespace sluice::core
