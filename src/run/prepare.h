// SPDX-License-Identifier: Apache-2.0
// Everything decided before a run takes memory or opens its data: machine, shape and plans brought together.
#pragma once

#include <string>

#include "config/config.h"
#include "machine/machine.h"
#include "measure/row_sample.h"
#include "run/plan_cache.h"
#include "run/stages.h"
#include "sluice/observer.h"

namespace sluice::core {

// Where the time before the first step went, in seconds.
struct StartUp {
  double measure_s = 0;  // costs of ops and links that were not in the cache
  double plan_s = 0;
  double reserve_s = 0;     // taking the arenas
  double prepare_s = 0;     // kernels and library plans
  double initialize_s = 0;  // making or loading the state
  double pin_s = 0;         // what was left of pinning the host arena then

  double total_s() const { return measure_s + plan_s + reserve_s + prepare_s + initialize_s + pin_s; }
};

struct CalibrateOptions;

// Everything decided before memory is taken: what `sluice plan` shows.
struct Prepared {
  RunConfig config;
  ModelSpec model;
  Numerics numerics;
  OptimizerConfig optimizer;
  StepShape shape;
  std::string why_shape;
  double least_bound = 1;       // of the shapes that were tried: see ShapeChoice
  int64_t document_tokens = 0;  // of the data that costs are measured for; 0: rows are taken for one document
  Machine machine;
  Machine resolved;  // the machine before costs were measured: what the shape was chosen for
  Stages stages;
  StartUp start_up;  // up to the plan
};

// What a run asks of its programs beside its configuration: what follows from its model and its data.
struct RunNeeds {
  ModelSpec model;
  bool packed = false;  // documents may begin inside a sequence
  RowSample rows;       // how they lie there, where the data is open
  LossForm loss;
  bool evaluate = false;      // evaluation is planned, too
  int64_t sample_window = 0;  // tokens that the program which samples looks back; 0: none is planned
};
// As the configuration says it. `between_steps`: with what it evaluates and samples.
Result<RunNeeds> needs_of(const RunConfig& config, bool between_steps);

struct PrepareOptions {
  PassRunner* passes = nullptr;      // what runs the planner's passes for training; null: all run, unseen
  const PlanCache* cache = nullptr;  // null: everything is searched for
  Observer* observer = &silent_observer();
  // Asked to stop, it ends when what is measured has been, or in the midst of a search: the error is
  // Cancelled.
  std::stop_token stop = {};
};

// `preset`: plan for that machine instead of this one. `between_steps`: also plan evaluation and sampling.
Result<Prepared> prepare(RunConfig config, const std::string& preset, bool between_steps,
                         PassRunner* passes = nullptr, Observer& observer = silent_observer());
// Where the plans of a run are kept.
PlanCache plan_cache_of(const RunConfig& config);
// As prepare() on a machine that is resolved already. Several threads may prepare for one that is only
// simulated.
Result<Prepared> prepare_on(RunConfig config, Machine machine, bool between_steps,
                            const PrepareOptions& options = {});
// The same for needs that are given; what the configuration says of model and data does not matter.
Result<Prepared> prepare_on(RunConfig config, Machine machine, RunNeeds needs,
                            const PrepareOptions& options = {});
// Whether prepare_on(config, machine, true) finds plans, without the search for the fastest. A refusal names
// the tier and nothing else.
Status check_fit(RunConfig config, Machine machine);
// The same for needs that are given.
Status check_fit(RunConfig config, Machine machine, RunNeeds needs);
// How the costs of its steps are measured and learnt.
CalibrateOptions calibration_of(const Prepared& p);

}  // namespace sluice::core
