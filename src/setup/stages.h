// SPDX-License-Identifier: Apache-2.0
// The plans of a run: one for training, and one for each program that runs between steps in the room that the
// training plan keeps free for it.
#pragma once

#include <functional>
#include <string_view>

#include "cost/profile.h"
#include "exec/executor.h"
#include "setup/beside.h"
#include "setup/question.h"

namespace sluice::core {

// The names of those beside training. A long evaluation brings each weight once for several chunks: where
// that takes longer than computing one, it is there beside the short one. One that updates is a long one
// which makes the pending update on its way: where the two take longer one after the other, it is there, too.
inline constexpr std::string_view kEvaluation = "evaluation", kLongEvaluation = "long evaluation",
                                  kUpdatingEvaluation = "updating evaluation", kSampling = "sampling",
                                  kSamplingPrompts = "sampling prompts", kFlush = "flush";

// The programs that a question asks for, without plans.
Stages build_stages(const Question& question);
// Plans them. One that is optional and saves nothing is left out.
Status plan_stages(Stages& stages, const BytesByTier& caps, const Effort& effort, const Profile& profile);
// The same programs under other caps, or with other costs: a model in memory can adopt these plans
// (run/loaded/loaded.h). An optional program that is not there stays left out.
Result<Stages> plan_again(Stages stages, const BytesByTier& caps, const Profile& profile, int threads,
                          std::stop_token stop = {});
// Both.
Result<Stages> make_stages(const Question& question, const Profile& profile);
// The subject of the choice of a shape, with the room that the programs between steps take beside its plan.
// Borrows both.
ShapeSubject subject_of(const Question& question, const Profile& profile);
// The same of a step that has none. Borrows the model.
ShapeSubject subject_of(const ModelSpec& model, const Numerics& numerics, const OptimizerConfig& optimizer,
                        const LossForm& loss = {});
// Shape of one evaluation: a single chunk, or all chunks of one sequence.
StepShape evaluation_shape(const StepShape& training);
// 8B's weights take 0.64 s to come at 25 GB/s, in which an H100 computes less than three chunks of 8,192
// tokens, and slower cards fewer. Four in a pass hide it.
inline constexpr int64_t kLongChunks = 4;
// The same of several chunks.
StepShape long_evaluation_shape(const StepShape& training);
// The evaluation for the next pass where so many sequences are left: the long one if these fill it. REQUIRES:
// there is an evaluation.
const Stage& evaluation_of(const Stages& stages, int64_t sequences);

}  // namespace sluice::core
