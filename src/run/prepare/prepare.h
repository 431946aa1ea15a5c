// SPDX-License-Identifier: Apache-2.0
// Everything decided before a run takes memory or opens its data: machine, shape and plans brought together.
#pragma once

#include <string>

#include "config/config.h"
#include "machine/machine.h"
#include "measure/row_sample.h"
#include "run/prepare/plan_cache.h"
#include "setup/decide.h"
#include "sluice/observer.h"

namespace sluice::core {

struct CalibrateOptions;

// The step that a configuration asks for, before its number formats and optimizer are decided.
// `between_steps`: with what it evaluates and samples.
Result<StepSpec> step_of(const RunConfig& config, bool between_steps);

struct PrepareOptions {
  PassRunner* passes = nullptr;      // what runs the planner's passes for training; null: all run, unseen
  const PlanCache* cache = nullptr;  // null: everything is searched for
  Observer* observer = &silent_observer();
  // Asked to stop, it ends when what is measured has been, or in the midst of a search: the error is
  // Cancelled.
  std::stop_token stop = {};
  // Asked, the search ends with what it has: the first plan of the fastest shape so far. A notice says so.
  std::stop_token hurry = {};
  // Facts of the data, where it is open.
  RowSample rows = {};
  int64_t longest_document = 0;
  std::optional<StepShape> shape = {};    // that another process has chosen for all
  std::vector<std::string> notices = {};  // that were said of the run
  bool compared = false;                  // with other steps: costs are as if all were measured at once
};

// `preset`: plan for that machine instead of this one. `between_steps`: also plan evaluation and sampling.
Result<Prepared> prepare(RunConfig config, const std::string& preset, bool between_steps,
                         PassRunner* passes = nullptr, Observer& observer = silent_observer(),
                         std::stop_token hurry = {});
// Where the plans of a run are kept.
PlanCache plan_cache_of(const RunConfig& config);
// As prepare() on a machine that is resolved already. Several threads may prepare for one that is only
// simulated.
Result<Prepared> prepare_on(RunConfig config, Machine machine, bool between_steps,
                            PrepareOptions options = {});
// The same for a step that is given; what the configuration says of model and data does not matter. Weights
// are not compared with the model: check_early() did.
Result<Prepared> prepare_on(RunConfig config, Machine machine, StepSpec step, PrepareOptions options = {});
// The same programs under other caps: shape and formats stay what they are, whatever these caps would choose.
Result<Prepared> prepare_under(Prepared prepared, const BytesByTier& caps, std::stop_token stop = {});
// Whether prepare_on(config, machine, true) finds plans, without the search for the fastest. A refusal names
// the tier and nothing else.
Status check_fit(RunConfig config, Machine machine);
// The same for a step that is given.
Status check_fit(RunConfig config, Machine machine, StepSpec step);
// How the costs of its steps are measured and learnt.
CalibrateOptions calibration_of(const Prepared& p);

}  // namespace sluice::core
