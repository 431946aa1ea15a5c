// SPDX-License-Identifier: Apache-2.0
// What is decided before a run takes memory: the answer to its Question (setup/question.h), with the
// configuration and the machine that asked it.
#pragma once

#include <string>
#include <vector>

#include "config/config.h"
#include "setup/machine.h"
#include "setup/stages.h"

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

// Everything decided before memory is taken: what `sluice plan` shows.
struct Prepared : StepSpec {
  RunConfig config;
  std::vector<std::string> notices;  // a sentence each: commands show them
  StepShape shape;
  std::string why_shape;
  double least_bound = 1;       // of the shapes that were tried: see ShapeChoice
  int64_t document_tokens = 0;  // of the data that costs are measured for; 0: rows are taken for one document
  Machine machine;
  Machine unmeasured_machine;  // the machine before costs were measured: what the shape was chosen for
  Stages stages;
  StartUp start_up;  // up to the plan
};

// The vocabulary of models whose tokens are bytes: samples need no tokenizer.
inline constexpr int64_t kByteVocab = 256;
// Tokens that a sampled text is continued by, at most: it looks back no further.
int64_t sample_window_of(const RunConfig& config);
// The step of a run on random tokens, which no file changes. Its number formats and optimizer are not
// decided.
StepSpec step_without_data(const RunConfig& config, ModelSpec model);

}  // namespace sluice::core
