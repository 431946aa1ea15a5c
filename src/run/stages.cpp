#include "run/stages.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "base/parallel.h"
#include "run/plan_cache.h"

namespace sluice {
namespace {

// What a program needs in each tier when everything that outlives it lies elsewhere.
struct Room {
  int64_t device_bytes = 0, host_bytes = 0;
};

Result<Room> room_of(const Program& program, const Profile& profile) {
  PlanRequest request;
  int64_t end = 0;
  for (const Object& o : program.objects()) {
    Home home;
    if (o.persistent) {
      home.host_offset = end;
      end += align_up(o.bytes, profile.alignment);
    }
    request.fixed_homes.push_back(home);
  }
  request.host_base = end;
  request.least = true;  // which is also the one that leaves most to the host
  SLUICE_ASSIGN(const Plan plan, make_plan(program, profile, request));
  // A little more than the least, so that other residents than assumed here still leave a place for
  // everything.
  return Room{align_up(plan.device_bytes + plan.device_bytes / 16, profile.alignment),
              align_up(plan.host_bytes - end, profile.alignment)};
}

Result<Plan> plan_between_steps(const Program& program, const Stage& training, const Room& room,
                                const Profile& profile) {
  std::unordered_map<std::string_view, const Home*> homes;
  for (size_t o = 0; o < training.plan.homes.size(); ++o) {
    const Object& object = training.model.program.objects()[o];
    if (object.persistent) homes[object.name] = &training.plan.homes[o];
  }
  PlanRequest request;
  for (const Object& o : program.objects()) {
    const auto it = homes.find(o.name);
    request.fixed_homes.push_back(o.persistent && it != homes.end() ? *it->second : Home{});
  }
  request.device_base = training.plan.boundary_device_offset;
  request.host_base = training.plan.boundary_host_offset;
  request.device_cap_bytes = profile.device_overhead_bytes + request.device_base + room.device_bytes;
  request.host_cap_bytes = profile.host_overhead_bytes + request.host_base + room.host_bytes;
  return make_plan(program, profile, request);
}

// The programs, without plans.
Stages build_stages(const StageRequest& r) {
  Stages stages;
  stages.training.model = build_training(r.model, r.shape, r.numerics, r.optimizer);
  if (r.evaluate)
    stages.evaluation = Stage{build_evaluation(r.model, evaluation_shape(r.shape), r.numerics), {}};
  if (r.sample_window > 0) stages.sampling = Stage{build_sampling(r.model, r.sample_window, r.numerics), {}};
  if (r.optimizer.deferred) stages.flush = Stage{build_flush(r.model, r.numerics, r.optimizer), {}};
  return stages;
}

// The caps, and room at the boundary for the largest of the programs between steps.
Result<PlanRequest> request_for_training(const StageRequest& r, const Stages& stages,
                                         const Profile& profile) {
  PlanRequest request;
  request.threads = search_threads();
  request.quick = r.quick;
  request.device_cap_bytes = r.device_cap_bytes;
  request.host_cap_bytes = r.host_cap_bytes;
  request.passes = r.passes;
  for (const auto* stage : {&stages.evaluation, &stages.sampling, &stages.flush}) {
    if (!stage->has_value()) continue;
    SLUICE_ASSIGN(const Room room, room_of((*stage)->model.program, profile));
    request.boundary_device_bytes = std::max(request.boundary_device_bytes, room.device_bytes);
    request.boundary_host_bytes = std::max(request.boundary_host_bytes, room.host_bytes);
  }
  return request;
}

}  // namespace

ShapeSubject subject_of(const ModelSpec& model, const Numerics& numerics, const OptimizerConfig& optimizer) {
  ShapeSubject subject;
  subject.program = [&model, numerics, optimizer](const StepShape& shape, bool late_moments) {
    OptimizerConfig update = optimizer;
    update.late_moments = late_moments;
    return build_training(model, shape, numerics, update).program;
  };
  subject.layers = int64_t(model.layers.size());
  subject.vocab = model.vocab;
  subject.may_be_late = optimizer.deferred;
  return subject;
}

StepShape evaluation_shape(const StepShape& training) {
  StepShape shape = training;
  spread(shape, training.chunks_per_sequence(), 1);
  return shape;
}

int64_t Stages::device_bytes() const {
  int64_t bytes = 0;
  for_each_stage(*this, [&](const Stage& s) { bytes = std::max(bytes, s.plan.device_bytes); });
  return bytes;
}

int64_t Stages::host_bytes() const {
  int64_t bytes = 0;
  for_each_stage(*this, [&](const Stage& s) { bytes = std::max(bytes, s.plan.host_bytes); });
  return bytes;
}

Result<Stages> make_stages(const StageRequest& r, const Profile& profile, const PlanCache* cache) {
  Stages stages = build_stages(r);
  if (cache != nullptr && cache->find(r, profile, stages)) return stages;
  SLUICE_ASSIGN(const PlanRequest request, request_for_training(r, stages, profile));
  SLUICE_ASSIGN(stages.training.plan, make_plan(stages.training.model.program, profile, request));
  const Room boundary{request.boundary_device_bytes, request.boundary_host_bytes};
  for (auto* stage : {&stages.evaluation, &stages.sampling, &stages.flush}) {
    if (!stage->has_value()) continue;
    SLUICE_ASSIGN((*stage)->plan,
                  plan_between_steps((*stage)->model.program, stages.training, boundary, profile));
  }
  if (cache != nullptr) cache->keep(r, profile, stages);
  return stages;
}

Status check_stages_fit(const StageRequest& r, const Profile& profile) {
  const Stages stages = build_stages(r);
  SLUICE_ASSIGN(PlanRequest request, request_for_training(r, stages, profile));
  const Program& program = stages.training.model.program;
  const auto least = minimal_device_bytes(program, profile, request);
  if (least.ok() && r.device_cap_bytes == kUnlimited) return {};
  if (least.ok() && *least + profile.device_overhead_bytes <= r.device_cap_bytes) return {};
  request.quick = true;
  request.explain = false;
  SLUICE_ASSIGN(const Plan plan, make_plan(program, profile, request));
  return {};
}

std::vector<Op> all_ops(const Stages& stages) {
  std::vector<Op> out;
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
  request.device_cap_bytes = r.device_cap_bytes;
  request.host_cap_bytes = r.host_cap_bytes;
  const auto plan = make_plan(program, profile, request);
  if (!plan.ok()) return mix;
  const PlanTotals sums = totals(program, *plan);
  mix.loaded_bytes = sums.loaded_bytes;
  mix.stored_bytes = sums.stored_bytes;
  std::unordered_map<std::string, int64_t> runs;
  for (const Action& a : plan->actions) {
    if (a.kind == ActionKind::Run) ++runs[cost_key(program.task(a.task).op)];
  }
  for (auto& [op, count] : mix.ops) count = runs[cost_key(op)];
  return mix;
}

}  // namespace sluice
