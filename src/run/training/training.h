// SPDX-License-Identifier: Apache-2.0
// The loop over steps, with what happens between them.
#pragma once

#include <functional>
#include <optional>

#include "run/session/session.h"
#include "run/training/replan.h"
#include "run/training/saver.h"

namespace sluice::core {

enum class TrainingEnd : uint8_t {
  Done,
  Asked,     // to stop
  NoBetter,  // the schedule's patience is over
};

struct TrainingOptions {
  Saver* saver = nullptr;      // null: nothing is saved
  std::function<bool()> stop;  // asked before every step, and in evaluations
  // Agreement of several processes before every step: from this one's ending to that of all; nothing: the
  // step. May be empty.
  std::function<std::optional<TrainingEnd>(std::optional<TrainingEnd>)> agree;
  Replanner* replanner = nullptr;  // null: the plan stays
  std::function<bool()> replan;    // asked after every step, whether to plan again; empty: no
  std::function<bool()> save;      // asked after every step, whether to save and go on; empty: no
  // Gets every step when it is done with, and what an evaluation after it found, else null; before any
  // checkpoint that has it. May be empty.
  std::function<Status(const StepEvent&, const EvaluationEvent*)> log;
  // The same of an evaluation before the first step that is made here.
  std::function<Status(const EvaluationEvent&)> log_first;
  // After every sample_every steps but the last, when they are logged; empty: never.
  std::function<Status(int64_t step)> sample;
  int64_t sample_every = 0;
  // Gets the timeline of the second step, which is the first that runs warm, and what ran on the device then.
  // Empty: no step is traced.
  std::function<Status(std::span<const Interval>, std::vector<DeviceActivity>)> trace;
};

// Steps until the schedule's last one, until it is asked to stop or until its patience is over. Evaluates
// when the schedule says so and after the last step. Whoever asks to stop does not wait for that: what was
// left out is made up for by the run that goes on. An error that every process of a job has has the detail
// "of all". The observer is told of each. A save may still be going on beside when it returns.
Result<TrainingEnd> train(Session& session, Observer& observer, const TrainingOptions& options);

}  // namespace sluice::core
