// SPDX-License-Identifier: Apache-2.0
// One small program under many plans.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>

#include "checkpoint/weights.h"
#include "equivalence/small_runs.h"
#include "search/planner.h"

namespace sluice::core {

// Two layers, two chunks per sequence, two rounds, documents across chunks: everything a plan can get wrong,
// in about 300 tasks.
inline const StepShape kShape{16, 8, 2, 2, 8, true};

// A program on one backend with room for every plan tried.
class ManyPlans {
 public:
  ManyPlans(const Numerics& numerics, Updates updates) : ManyPlans(numerics, updates, rig::small_backend()) {}
  ManyPlans(const Numerics& numerics, Updates updates, std::unique_ptr<Backend> taken)
      : ManyPlans(small_request(kShape, numerics, updates), std::move(taken)) {}
  ManyPlans(const NamedNumerics& formats, Updates updates, std::unique_ptr<Backend> taken)
      : ManyPlans(named_request(kShape, formats, updates), std::move(taken)) {}
  // Of another model of that shape.
  ManyPlans(Question request, std::unique_ptr<Backend> taken)
      : request_(std::move(request)),
        model_(build_training(request_.model, request_.shape, request_.numerics, request_.optimizer)),
        backend_(std::move(taken)),
        profile_(rig::profile_of(*backend_)),
        tokens_(rig::random_tokens(kShape, request_.model.vocab, 3)) {
    std::vector<SharedOp> all;
    for (const Task& task : model_.program.tasks()) all.push_back(task.op);
    for (const Op& op : all) workspaces_.push_back(backend_->workspace_bytes(op));
    device_bytes_ =
        4 * (footprint(model_.program).total + *std::max_element(workspaces_.begin(), workspaces_.end()));
    BytesByTier bytes;
    for (const Tier tier : backend_->lanes().tiers()) bytes[tier] = device_bytes_;
    arenas_ = rig::must(backend_->reserve(bytes));
    rig::must(backend_->prepare(all));
  }

  // What is learnt from here on.
  rig::Tokens& tokens() { return tokens_; }
  const Program& program() const { return model_.program; }
  const Profile& profile() const { return profile_; }
  Backend& backend() { return *backend_; }
  Status check(const Plan& plan) const { return verify(model_.program, plan, workspaces_); }
  // What the arenas hold.
  BytesByTier room() const { return BytesByTier(device_bytes_); }
  bool fits(const Plan& plan) const {
    return std::ranges::all_of(plan.arenas.tiers(),
                               [&](Tier tier) { return plan.arenas[tier].bytes <= device_bytes_; });
  }

  // Two steps from a fresh state, the arenas full of NaNs before.
  rig::History run(const Plan& plan, Backend& backend) {
    rig::poison(*backend_, plan.arena_bytes());
    Executor executor(model_.program, plan, backend, arenas_);
    rig::must(initialize(model_, 1, executor, [](int64_t, int64_t) {}));
    rig::History out;
    for (int64_t step = 1; step <= 2; ++step) {
      StepArgs args = rig::args_for(step, tokens_.counted());
      args.update = request_.optimizer.deferred && step == 1 ? 0 : 1;
      rig::write_tokens(executor, model_, tokens_);
      rig::write_args(executor, model_, args);
      rig::must(executor.step());
      const rig::Losses losses = rig::read_losses(executor, model_, tokens_);
      out.losses.push_back(losses.loss);
      out.norms.push_back(losses.norm);
    }
    out.state = rig::read_state(executor, {ObjectKind::Param, ObjectKind::OptState});
    if (request_.optimizer.deferred) out.state.merge(rig::read_state(executor, {ObjectKind::Grad}));
    return out;
  }
  rig::History run(const Plan& plan) { return run(plan, *backend_); }

 private:
  Question request_;
  BuiltProgram model_;
  std::unique_ptr<Backend> backend_;
  Profile profile_;
  rig::Tokens tokens_;
  int64_t device_bytes_ = 0;
  Arenas arenas_;
  std::vector<int64_t> workspaces_;
};

}  // namespace sluice::core
