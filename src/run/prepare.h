// SPDX-License-Identifier: Apache-2.0
// Everything decided before a run takes memory or opens its data: machine, shape and plans brought together.
#pragma once

#include <string>

#include "config/config.h"
#include "machine/machine.h"
#include "run/plan_cache.h"
#include "run/stages.h"

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
  Machine machine;
  Machine resolved;  // the machine before costs were measured: what the shape was chosen for
  Stages stages;
  StartUp start_up;  // up to the plan
};
// `preset`: plan for that machine instead of this one. `between_steps`: also plan evaluation and sampling.
// `passes`: what runs the planner's passes for training; null: all run, unseen.
Result<Prepared> prepare(RunConfig config, const std::string& preset, bool between_steps,
                         PassRunner* passes = nullptr);
// Where the plans of a run are kept.
PlanCache plan_cache_of(const RunConfig& config);
// As prepare() on a machine that is resolved already, with the plan cache that is given. Several threads may
// prepare for one that is only simulated.
Result<Prepared> prepare_on(RunConfig config, Machine machine, bool between_steps,
                            PassRunner* passes = nullptr, const PlanCache* cache = nullptr);
// Whether prepare_on(config, machine, false) finds plans, without the search for the fastest. A refusal names
// the tier and nothing else.
Status check_fit(RunConfig config, Machine machine);
// How the costs of its steps are measured and learnt.
CalibrateOptions calibration_of(const Prepared& p);

}  // namespace sluice::core
