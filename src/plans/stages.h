// SPDX-License-Identifier: Apache-2.0
// The plans of a run: one for training, and one for each program that runs between steps in the room that the
// training plan keeps free for it.
#pragma once

#include <functional>
#include <string_view>

#include "cost/profile.h"
#include "exec/executor.h"
#include "planner/shape.h"
#include "plans/beside.h"

namespace sluice::core {

// The names of those beside training. A long evaluation brings each weight once for several chunks: where
// that takes longer than computing one, it is there beside the short one. One that updates is a long one
// which makes the pending update on its way: where the two take longer one after the other, it is there, too.
inline constexpr std::string_view kEvaluation = "evaluation", kLongEvaluation = "long evaluation",
                                  kUpdatingEvaluation = "updating evaluation", kSampling = "sampling",
                                  kSamplingPrompts = "sampling prompts", kFlush = "flush";

// A step, by all that it computes but how it is cut.
struct StepSpec {
  ModelSpec model;
  Numerics numerics;
  OptimizerConfig optimizer;
  LossForm loss;
  bool packed = false;        // documents may begin inside a sequence
  bool evaluate = false;      // evaluation is planned, too
  int64_t sample_window = 0;  // tokens that a sampled text looks back at most; 0: none is planned
  int64_t sample_rows = 1;    // texts that are sampled at once
};

// How hard plans are searched for: see PlanRequest. None of it is part of what is asked.
struct Effort {
  int threads = 1;
  bool quick = false, weigh_memory = false, explain = true;
  std::stop_token stop = {};
  SearchWatch watch = {};
  PassRunner* passes = nullptr;                   // for the training plan
  std::shared_ptr<const KnownSettings> settings;  // for the training plan
};

// A step that is cut, and where it runs.
struct StageRequest : StepSpec, Effort {
  StepShape shape;
  BytesByTier caps = BytesByTier(kUnlimited);
  BytesByTier held_bytes;  // Machine::held_bytes; 0: nothing that is kept is too small
};

// The programs that a request asks for, without plans.
Stages build_stages(const StageRequest& request);
// Plans them. One that is optional and saves nothing is left out.
Status plan_stages(Stages& stages, const StageRequest& request, const Profile& profile);
// The same programs under other caps, or with other costs: a model in memory can adopt these plans
// (run/passes/loaded.h). An optional program that is not there stays left out.
Result<Stages> plan_again(Stages stages, const BytesByTier& caps, const Profile& profile, int threads,
                          std::stop_token stop = {});
// Both.
Result<Stages> make_stages(const StageRequest& request, const Profile& profile);
// Room that the programs between steps take beside a shape's plan; for which evaluates, what the request says
// of that and of sampling counts, not its shape. Borrows both.
std::function<BytesByTier(const StepShape&)> room_between_steps(const StageRequest& request,
                                                                const Profile& profile);

// The subject of the choice of a shape. Borrows the model.
ShapeSubject subject_of(const ModelSpec& model, const Numerics& numerics, const OptimizerConfig& optimizer,
                        const LossForm& loss = {});
// Shape of one evaluation: a single chunk, or all chunks of one sequence.
StepShape evaluation_shape(const StepShape& training);
// 8B's weights take 0.64 s to come at 25 GB/s, in which an H100 computes less than three chunks of 8,192
// tokens, and slower cards fewer: four in a pass hide it.
inline constexpr int64_t kLongChunks = 4;
// The same of several chunks.
StepShape long_evaluation_shape(const StepShape& training);
// The evaluation for the next pass where so many sequences are left: the long one if these fill it. REQUIRES:
// there is an evaluation.
const Stage& evaluation_of(const Stages& stages, int64_t sequences);

}  // namespace sluice::core
