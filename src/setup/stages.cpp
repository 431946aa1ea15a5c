// SPDX-License-Identifier: Apache-2.0
#include "setup/stages.h"

#include <algorithm>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include "model/blocks.h"

namespace sluice::core {
namespace {

// A program that runs between steps of a shape.
struct BesideSteps {
  std::string_view name;
  std::function<BuiltProgram(const StepShape&)> build;
  bool by_shape = false;  // the shape decides what is built
  bool optional = false;  // see Stage
  // One inside it, if there is one.
  std::string_view inner = {};
  std::function<BuiltProgram(const StepShape&)> build_inner = {};
};

// Tokens of the one sampled text that a pass reads: one, but for its prompt. More would take computing time
// of every pass.
constexpr int64_t kSampleTokens = 16;
// A pass over prompts of several texts reads so many tokens of so many of them.
constexpr int64_t kPromptTokens = 64, kPromptRows = 8;

// The least share of a token's time that a long evaluation saves, and of both times for an updating one.
constexpr double kLongSaves = 0.03;

// The programs of a step, always in the same order. Borrows it.
std::vector<BesideSteps> programs_beside(const StepSpec& r) {
  std::vector<BesideSteps> out;
  const bool evaluates = r.wants(kEvaluation) != nullptr;
  if (evaluates) {
    const auto build = [&r](const StepShape& shape) {
      return build_evaluation(r.model, evaluation_shape(shape), r.numerics);
    };
    out.push_back({kEvaluation, build, /*by_shape=*/true});
  }
  if (const Wanted* const texts = r.wants(kSampling)) {
    const bool one = texts->rows == 1;
    const auto build = [&r, texts, one](const StepShape&) {
      const GenerationShape shape{.rows = texts->rows,
                                  .new_tokens = one ? std::min(kSampleTokens, texts->window) : 1,
                                  .capacity = texts->window,
                                  .draws = !one};
      return build_generation(r.model, shape, r.numerics);
    };
    BesideSteps sampling{kSampling, build};
    if (!one) {
      sampling.inner = kSamplingPrompts;
      sampling.build_inner = [&r, texts](const StepShape&) {
        const GenerationShape shape{.rows = std::min(kPromptRows, texts->rows),
                                    .new_tokens = std::min(kPromptTokens, texts->window),
                                    .capacity = texts->window,
                                    .slots = texts->rows,
                                    .copies = true,
                                    .draws = true};
        return build_generation(r.model, shape, r.numerics);
      };
    }
    out.push_back(std::move(sampling));
  }
  if (r.optimizer.deferred) {
    out.push_back({kFlush, [&r](const StepShape&) { return build_flush(r.model, r.numerics, r.optimizer); }});
  }
  // Optional ones last: what is kept of plans ends before one that was left out.
  if (evaluates) {
    const auto build = [&r](const StepShape& shape) {
      return build_evaluation(r.model, long_evaluation_shape(shape), r.numerics);
    };
    out.push_back({kLongEvaluation, build, /*by_shape=*/true, /*optional=*/true});
  }
  // Process 0 evaluates, and all update where state is sharded.
  if (evaluates && r.optimizer.deferred && !r.optimizer.sharded.is()) {
    const auto build = [&r](const StepShape& shape) {
      return build_evaluation(r.model, long_evaluation_shape(shape), r.numerics, &r.optimizer);
    };
    out.push_back({kUpdatingEvaluation, build, /*by_shape=*/true, /*optional=*/true});
  }
  return out;
}

double ns_of_a_token(const Stage& stage) {
  return stage.plan.makespan_ns / double(stage.model.shape.tokens());
}

void leave_out_what_saves_nothing(Stages& stages) {
  const auto leave_out = [&stages](std::string_view name) {
    std::erase_if(stages.beside, [name](const Stage& s) { return s.name == name; });
  };
  const Stage *one = stages.find(kEvaluation), *many = stages.find(kLongEvaluation);
  if (many != nullptr && ns_of_a_token(*many) > (1 - kLongSaves) * ns_of_a_token(*one)) {
    leave_out(kLongEvaluation);
    many = nullptr;
  }
  const Stage* const updating = stages.find(kUpdatingEvaluation);
  if (updating == nullptr) return;
  if (many == nullptr || updating->plan.makespan_ns >
                             (1 - kLongSaves) * (many->plan.makespan_ns + stages.at(kFlush).plan.makespan_ns))
    leave_out(kUpdatingEvaluation);
}

// The caps, and room at the boundary for the largest of the programs between steps.
Result<PlanRequest> request_for_training(const Stages& stages, const BytesByTier& caps, const Effort& effort,
                                         const Profile& profile) {
  PlanRequest request{effort, caps};
  for (const Stage& stage : stages.beside) {
    if (stage.optional || !stage.inside.empty()) continue;
    const auto inner = std::ranges::find(stages.beside, stage.name, &Stage::inside);
    SLUICE_ASSIGN(const BytesByTier room,
                  room_with(stage.model.program,
                            inner != stages.beside.end() ? &inner->model.program : nullptr, profile));
    raise_to(room, request.boundary_bytes);
  }
  return request;
}

// Room that the programs between steps take beside a shape's plan. Borrows both.
std::function<BytesByTier(const StepShape&)> room_between_steps(const StepSpec& r, const Profile& profile) {
  const auto add_room = [&profile](const BesideSteps& p, const StepShape& shape, BytesByTier& bytes) {
    const BuiltProgram model = p.build(shape), inner = p.build_inner ? p.build_inner(shape) : BuiltProgram();
    const auto room = room_with(model.program, p.build_inner ? &inner.program : nullptr, profile);
    if (room.ok()) raise_to(*room, bytes);
  };
  BytesByTier always;
  std::vector<BesideSteps> by_shape;
  for (BesideSteps& p : programs_beside(r)) {
    if (p.optional) continue;
    if (p.by_shape) {
      by_shape.push_back(std::move(p));
    } else {
      add_room(p, {}, always);
    }
  }
  if (by_shape.empty()) return [always](const StepShape&) { return always; };
  struct Known {
    std::mutex mutex;
    std::map<int64_t, BytesByTier> by_chunk;
  };
  return [add_room, by_shape, always, known = std::make_shared<Known>()](const StepShape& shape) {
    const std::lock_guard lock(known->mutex);
    const auto [it, is_new] = known->by_chunk.try_emplace(shape.chunk_tokens, always);
    if (is_new) {
      for (const BesideSteps& p : by_shape) add_room(p, shape, it->second);
    }
    return it->second;
  };
}

}  // namespace

ShapeSubject subject_of(const Question& q, const Profile& profile) {
  ShapeSubject subject = subject_of(q.model, q.numerics, q.optimizer, q.loss);
  subject.room_between_steps = room_between_steps(q, profile);
  return subject;
}

ShapeSubject subject_of(const ModelSpec& model, const Numerics& numerics, const OptimizerConfig& optimizer,
                        const LossForm& loss) {
  ShapeSubject subject;
  subject.program = [&model, numerics, optimizer, loss](const StepShape& shape, bool late_moments) {
    OptimizerConfig update = optimizer;
    update.late_moments = late_moments;
    return build_training(model, shape, numerics, update, loss).program;
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
  shape.replicas = shape.processes = 1;
  spread(shape, std::max<int64_t>(training.chunk_tokens / training.seq_len, 1), 1);
  return shape;
}

StepShape long_evaluation_shape(const StepShape& training) {
  StepShape shape = evaluation_shape(training);
  const int64_t more = std::max<int64_t>(1, kLongChunks * shape.chunk_tokens / shape.tokens());
  spread(shape, more * shape.sequences(), 1);
  return shape;
}

const Stage& evaluation_of(const Stages& stages, int64_t sequences) {
  const Stage* const many = stages.find(kLongEvaluation);
  return many != nullptr && many->model.shape.sequences() <= sequences ? *many : stages.at(kEvaluation);
}

Stages build_stages(const Question& r) {
  Stages stages;
  stages.main = {build_training(r.model, r.shape, r.numerics, r.optimizer, r.loss), {}, "training"};
  const bool may_be_long = long_evaluation_shape(r.shape) != evaluation_shape(r.shape);
  for (const BesideSteps& p : programs_beside(r)) {
    if (p.optional && !may_be_long) continue;
    stages.beside.push_back({p.build(r.shape), {}, std::string(p.name), p.optional});
    if (p.build_inner)
      stages.beside.push_back(
          {p.build_inner(r.shape), {}, std::string(p.inner), p.optional, std::string(p.name)});
  }
  return stages;
}

Status plan_stages(Stages& stages, const BytesByTier& caps, const Effort& effort, const Profile& profile) {
  SLUICE_ASSIGN(const PlanRequest request, request_for_training(stages, caps, effort, profile));
  SLUICE_ASSIGN(stages.main.plan, make_plan(stages.main.model.program, profile, request));
  if (effort.watch && !stages.beside.empty()) effort.watch({"planning what runs between steps"});
  SLUICE_TRY(plan_beside(stages, request.boundary_bytes, profile, effort.stop));
  leave_out_what_saves_nothing(stages);
  return {};
}

Result<Stages> plan_again(Stages stages, const BytesByTier& caps, const Profile& profile, int threads,
                          std::stop_token stop) {
  SLUICE_TRY(plan_stages(stages, caps, {.threads = threads, .stop = std::move(stop)}, profile));
  return stages;
}

Result<Stages> make_stages(const Question& q, const Profile& profile) {
  Stages stages = build_stages(q);
  SLUICE_TRY(plan_stages(stages, q.caps, q, profile));
  return stages;
}

}  // namespace sluice::core
