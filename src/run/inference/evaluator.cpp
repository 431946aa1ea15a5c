// SPDX-License-Identifier: Apache-2.0
#include "run/inference/evaluator.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/parallel.h"
#include "ops/step_args.h"
#include "run/inference/standing_start.h"
#include "setup/stages.h"

namespace sluice::core {
namespace {

// Larger chunks make a pass no faster, and take memory.
constexpr int64_t kMostTokens = 8192;
// Rows of logits that exist at once.
constexpr int64_t kMostHeadTokens = 1024;

// A pass over so many chunks of whole sequences, or over one sequence in its chunks.
StepShape pass_of(const EvaluatorSetup& s, int64_t chunk_tokens, int64_t chunks) {
  StepShape shape{.seq_len = s.seq_len, .chunk_tokens = chunk_tokens};
  shape.head_tokens = s.head_tokens > 0 ? s.head_tokens : std::min(chunk_tokens, kMostHeadTokens);
  shape.packed = s.packed;
  spread(shape, chunks * std::max<int64_t>(chunk_tokens / s.seq_len, 1), 1);
  return shape;
}

// Chunks of whole rows, as few passes as there are rows for; and pieces of a row, which take less memory.
std::vector<int64_t> chunks_to_try(const EvaluatorSetup& s) {
  if (s.chunk_tokens > 0) return {s.chunk_tokens};
  std::vector<int64_t> out;
  const int64_t most = std::clamp<int64_t>(kMostTokens / s.seq_len, 1, s.rows);
  for (int64_t rows = most; rows > 0; rows /= 2) out.push_back(rows * s.seq_len);
  const int64_t least = least_piece(s.model);
  for (int64_t parts = 2; parts <= 16 && s.seq_len % parts == 0 && s.seq_len / parts >= least; parts *= 2)
    out.push_back(s.seq_len / parts);
  return out;
}

Result<EvaluatorPlan> plan_with(const EvaluatorSetup& setup, int64_t chunk_tokens, int64_t chunks,
                                const Profile& profile) {
  EvaluatorPlan out{setup, pass_of(setup, chunk_tokens, chunks), {}};
  SLUICE_TRY(validate(out.shape));
  SLUICE_TRY(check_pieces(setup.model, setup.seq_len, chunk_tokens));
  out.stages.main.model = build_evaluation(setup.model, out.shape, setup.numerics);
  PlanRequest request;
  request.caps = setup.caps;
  request.threads = search_threads();
  SLUICE_ASSIGN(out.stages.main.plan, make_plan(out.stages.main.model.program, profile, request));
  return out;
}

double seconds_for_all(const EvaluatorPlan& plan) {
  const int64_t each = plan.shape.sequences();
  return double((plan.setup.rows + each - 1) / each) * plan.stages.main.plan.makespan_ns / 1e9;
}

}  // namespace

Result<EvaluatorPlan> plan_evaluator(EvaluatorSetup setup, const Profile& profile) {
  SLUICE_TRY(check_length(setup.model, setup.seq_len, "tokens of a row"));
  Result<EvaluatorPlan> best = error("no plan");
  for (const int64_t chunk : chunks_to_try(setup)) {
    auto plan = plan_with(setup, chunk, 1, profile);
    // The last refusal is of the least chunk, hence of the smallest cap.
    const bool better = plan.ok() && (!best.ok() || seconds_for_all(*plan) < seconds_for_all(*best));
    if (better || !best.ok()) {
      best = std::move(plan);
    } else if (plan.ok()) {
      break;  // smaller ones are slower still
    }
  }
  if (!best.ok() || best->shape.chunk_tokens < setup.seq_len) return best;
  // Weights that come for every pass come once for all its chunks.
  const int64_t each = best->shape.sequences(), chunk = best->shape.chunk_tokens;
  const int64_t most = std::min((setup.rows + each - 1) / each, kLongChunks);
  for (int64_t chunks = 2; chunks <= most; ++chunks) {
    auto longer = plan_with(setup, chunk, chunks, profile);
    if (longer.ok() && seconds_for_all(*longer) < seconds_for_all(*best)) best = std::move(longer);
  }
  return best;
}

Result<std::unique_ptr<Evaluator>> Evaluator::open(const EvaluatorPlan& plan, const Machine& machine,
                                                   const WeightsFrom& weights, Observer& observer) {
  SLUICE_ASSIGN(Loaded loaded, load(machine, plan.stages, plan.setup.caps, weights, observer));
  return std::unique_ptr<Evaluator>(new Evaluator(plan, std::move(loaded)));
}

Result<const TokenLosses*> Evaluator::evaluate(const Rows& rows) {
  const BuiltProgram& model = plan_.stages.main.model;
  Executor& executor = loaded_.main();
  SLUICE_TRY(feed_rows(rows, model, executor, staging_));
  StepArgs args{};
  args.loss_scale = 1;
  SLUICE_TRY(executor.write(model.args, std::as_bytes(std::span(&args, 1))));
  SLUICE_TRY(executor.step());
  SLUICE_TRY(read_token_losses(model, executor, losses_));
  SLUICE_TRY(loaded_.check_caps());
  return &losses_;
}

}  // namespace sluice::core
