// SPDX-License-Identifier: Apache-2.0
#include "run/inference/evaluator.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/parallel.h"
#include "ops/step_args.h"
#include "plans/stages.h"
#include "run/inference/standing_start.h"
#include "run/passes/caps.h"

namespace sluice::core {
namespace {

// Larger chunks make a pass no faster, and take memory.
constexpr int64_t kMostTokens = 8192;
// Rows of logits that exist at once.
constexpr int64_t kMostHeadTokens = 1024;

// Of so many chunks of whole sequences, or of one sequence in its chunks.
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
  out.pass.model = build_evaluation(setup.model, out.shape, setup.numerics);
  PlanRequest request;
  request.caps = setup.caps;
  request.threads = search_threads();
  SLUICE_ASSIGN(out.pass.plan, make_plan(out.pass.model.program, profile, request));
  return out;
}

double seconds_for_all(const EvaluatorPlan& plan) {
  const int64_t each = plan.shape.sequences();
  return double((plan.setup.rows + each - 1) / each) * plan.pass.plan.makespan_ns / 1e9;
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
                                                   const std::filesystem::path& weights, uint64_t seed,
                                                   Observer& observer) {
  std::unique_ptr<Evaluator> out(new Evaluator(plan));
  SLUICE_TRY(out->start(machine, weights, seed, observer));
  return out;
}

Status Evaluator::start(const Machine& machine, const std::filesystem::path& weights, uint64_t seed,
                        Observer& observer) {
  SLUICE_ASSIGN(backend_, machine.make());
  const Plan& plan = plan_.pass.plan;
  SLUICE_ASSIGN(const Arenas arenas, take_memory(*backend_, plan, plan.arena_bytes(), observer));
  const Model& model = plan_.pass.model;
  SLUICE_TRY(backend_->prepare(all_ops(model.program)));
  executor_ = std::make_unique<Executor>(model.program, plan, *backend_, arenas);
  SLUICE_TRY(make_ready(*backend_, model, *executor_, weights, seed, observer));
  return check();
}

Status Evaluator::check() {
  const BytesByTier bytes = backend_->memory();
  raise_to(bytes, peak_);
  return check_caps(*backend_, bytes, plan_.setup.caps);
}

Result<const TokenLosses*> Evaluator::evaluate(const Rows& rows) {
  const Model& model = plan_.pass.model;
  SLUICE_TRY(feed_rows(rows, model, *executor_, staging_));
  StepArgs args{};
  args.loss_scale = 1;
  SLUICE_TRY(executor_->write(model.args, std::as_bytes(std::span(&args, 1))));
  SLUICE_TRY(executor_->step());
  SLUICE_TRY(read_token_losses(model, *executor_, losses_));
  SLUICE_TRY(check());
  return &losses_;
}

}  // namespace sluice::core
