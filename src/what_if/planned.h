// SPDX-License-Identifier: Apache-2.0
// What no formula says of training a model: what plans under caps say. Nothing runs.
#pragma once

#include <span>
#include <vector>

#include "pages/page.h"
#include "what_if/outlook.h"

namespace sluice::core {

struct PlannedModel {
  ModelSpec model;
  RunConfig config;   // of its steps, the device cap among them; what it says of a model does not matter
  double tokens = 0;  // to train on; 0: not asked
  double usd_per_hour = 0;  // of a device; 0: unknown
};

// The result of one host cap beside the device cap of its configuration.
struct PlannedCase {
  int64_t host_cap = 0;
  Outlook found;
  // Where it fits: tokens of its longest round, and what of their activations the backward pass reads, as
  // formulas count them. Also the most activations that the plan holds at once, on all devices and the host.
  int64_t round_tokens = 0, everything_bytes = 0, device_activations = 0, host_activations = 0;
  // The most layers of the same model, its width in proportion, that a step of one sequence fits with, and
  // its parameters. 0: not even one, or the model's layers differ.
  int64_t layers = 0, params = 0;
  // The most tokens of one sequence that a step of it fits with, cut into at most 15 chunks and known to an
  // eighth of itself or to 256 tokens. 0: not even so many.
  int64_t seq_len = 0;
};

// Where searches begin and end. Sequences are told apart to a 32nd of themselves.
constexpr int64_t kMostPlannedLayers = 1024, kLeastPlannedTokens = 256, kMostPlannedTokens = int64_t{1} << 22;

// The smallest host cap that says anything: what the process holds without a model, and little beside.
int64_t least_host_cap(const Machine& machine);

// Plans for every host cap. The error of one that is stopped is Cancelled. REQUIRES: the configuration has a
// device cap, host_caps ascend.
Result<std::vector<PlannedCase>> plan_cases(const PlannedModel& asked, const Machine& machine,
                                            std::span<const int64_t> host_caps, const StudyWatch& watch = {});

// As a section of an estimate.
Section planned_section(const PlannedModel& asked, const Machine& machine,
                        std::span<const PlannedCase> cases);

}  // namespace sluice::core
