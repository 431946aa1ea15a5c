// SPDX-License-Identifier: Apache-2.0
#include "run/stages.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include "base/parallel.h"
#include "model/blocks.h"
#include "run/plan_cache.h"

namespace sluice::core {
namespace {

std::optional<Model> sampling_of(const StageRequest& r) {
  if (r.sample_window == 0) return std::nullopt;
  return build_sampling(r.model, r.sample_window, r.numerics);
}

std::optional<Model> flush_of(const StageRequest& r) {
  if (!r.optimizer.deferred) return std::nullopt;
  return build_flush(r.model, r.numerics, r.optimizer);
}

// The programs, without plans.
Stages build_stages(const StageRequest& r) {
  Stages stages;
  stages.training.model = build_training(r.model, r.shape, r.numerics, r.optimizer);
  if (r.evaluate)
    stages.evaluation = Stage{build_evaluation(r.model, evaluation_shape(r.shape), r.numerics), {}};
  if (auto sampling = sampling_of(r)) stages.sampling = Stage{std::move(*sampling), {}};
  if (auto flush = flush_of(r)) stages.flush = Stage{std::move(*flush), {}};
  return stages;
}

void make_room(const BytesByTier& room, BytesByTier& bytes) {
  for (const Tier tier : kTiers) bytes[tier] = std::max(bytes[tier], room[tier]);
}

// The caps, and room at the boundary for the largest of the programs between steps.
Result<PlanRequest> request_for_training(const StageRequest& r, const Stages& stages,
                                         const Profile& profile) {
  PlanRequest request;
  request.threads = search_threads();
  request.quick = r.quick;
  request.caps = r.caps;
  request.passes = r.passes;
  for (const auto* stage : {&stages.evaluation, &stages.sampling, &stages.flush}) {
    if (!stage->has_value()) continue;
    SLUICE_ASSIGN(const BytesByTier room, room_beside((*stage)->model.program, profile));
    make_room(room, request.boundary_bytes);
  }
  return request;
}

}  // namespace

std::function<BytesByTier(const StepShape&)> room_between_steps(const StageRequest& r,
                                                                const Profile& profile) {
  BytesByTier always;
  for (const auto& model : {sampling_of(r), flush_of(r)}) {
    if (!model) continue;
    if (const auto room = room_beside(model->program, profile); room.ok()) make_room(*room, always);
  }
  if (!r.evaluate) return [always](const StepShape&) { return always; };
  struct Known {
    std::mutex mutex;
    std::map<int64_t, BytesByTier> by_chunk;
  };
  return [&r, &profile, always, known = std::make_shared<Known>()](const StepShape& shape) {
    const std::lock_guard lock(known->mutex);
    const auto [it, is_new] = known->by_chunk.try_emplace(shape.chunk_tokens, always);
    if (is_new) {
      const Model model = build_evaluation(r.model, evaluation_shape(shape), r.numerics);
      if (const auto room = room_beside(model.program, profile); room.ok()) make_room(*room, it->second);
    }
    return it->second;
  };
}

ShapeSubject subject_of(const ModelSpec& model, const Numerics& numerics, const OptimizerConfig& optimizer) {
  ShapeSubject subject;
  subject.program = [&model, numerics, optimizer](const StepShape& shape, bool late_moments) {
    OptimizerConfig update = optimizer;
    update.late_moments = late_moments;
    return build_training(model, shape, numerics, update).program;
  };
  subject.layers = int64_t(model.layers.size());
  subject.vocab = model.vocab;
  subject.earlier_blocks = [&model](int64_t seq_len, int64_t chunk) {
    return earlier_blocks(model, seq_len, chunk);
  };
  subject.may_be_late = optimizer.deferred;
  return subject;
}

StepShape evaluation_shape(const StepShape& training) {
  StepShape shape = training;
  spread(shape, std::max<int64_t>(training.chunk_tokens / training.seq_len, 1), 1);
  return shape;
}

BytesByTier Stages::arena_bytes() const {
  BytesByTier bytes;
  for_each_stage(*this, [&](const Stage& s) {
    for (const Tier tier : kTiers) bytes[tier] = std::max(bytes[tier], s.plan.arenas[tier].bytes);
  });
  return bytes;
}

Result<Stages> make_stages(const StageRequest& r, const Profile& profile, const PlanCache* cache,
                           Observer& observer) {
  Stages stages = build_stages(r);
  if (cache != nullptr && cache->find(r, profile, stages, observer)) return stages;
  SLUICE_ASSIGN(const PlanRequest request, request_for_training(r, stages, profile));
  SLUICE_ASSIGN(stages.training.plan, make_plan(stages.training.model.program, profile, request));
  for (auto* stage : {&stages.evaluation, &stages.sampling, &stages.flush}) {
    if (!stage->has_value()) continue;
    SLUICE_ASSIGN((*stage)->plan,
                  plan_beside((*stage)->model.program, stages.training, request.boundary_bytes, profile));
    SLUICE_TRY(verify_beside((*stage)->model.program, (*stage)->plan, stages.training.model.program,
                             stages.training.plan));
  }
  if (cache != nullptr) cache->keep(r, profile, stages);
  return stages;
}

std::vector<SharedOp> all_ops(const Stages& stages) {
  std::vector<SharedOp> out;
  std::unordered_set<std::string> seen;
  for_each_stage(stages, [&](const Stage& s) {
    for (const Task& task : s.model.program.tasks()) {
      if (seen.insert(text(task.op)).second) out.push_back(task.op);
    }
  });
  return out;
}

StepMix estimate_mix(const Program& program, const StageRequest& r, const Profile& profile) {
  StepMix mix{counted_ops(program), 0, 0};
  PlanRequest request;
  request.quick = true;
  request.explain = false;
  request.threads = search_threads();
  request.caps = r.caps;
  const auto plan = make_plan(program, profile, request);
  if (!plan.ok()) return mix;
  const PlanTotals sums = totals(program, *plan);
  mix.loaded_bytes = sums.loads.bytes;
  mix.stored_bytes = sums.stores.bytes;
  std::unordered_map<std::string, int64_t> runs;
  for (const Action& a : plan->actions) {
    if (a.kind == ActionKind::Run) ++runs[cost_key(program.task(a.task).op)];
  }
  for (auto& [op, count] : mix.ops) count = runs[cost_key(op)];
  return mix;
}

}  // namespace sluice::core
