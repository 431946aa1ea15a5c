// SPDX-License-Identifier: Apache-2.0
// A program with two losses, one in its middle and one at its end: the backward pass that is derived has the
// gradients of their sum.
#include <gtest/gtest.h>

#include <map>

#include "ops/op.h"
#include "planner/planner.h"
#include "program/gradient/gradients.h"
#include "reference/finite_difference.h"

namespace sluice::core {
namespace {

constexpr int64_t kTokens = 24, kDim = 16, kVocab = 17;
constexpr float kScale = 1.0f / kTokens;

// Embedding, loss, a layer of one product, loss. The head is shared, and the tokens of the first loss have
// weights.
class TwoLosses {
 public:
  TwoLosses() {
    const ObjectId table = param("table", kVocab * kDim), head = param("head", kVocab * kDim);
    const ObjectId w = param("w", kDim * kDim);
    const ObjectId norms[] = {param("norm0", kDim), param("norm1", kDim), param("norm2", kDim)};
    ids_ = add("ids", ObjectKind::Input, DType::I32, kTokens);
    targets_ = add("targets", ObjectKind::Input, DType::I32, kTokens);
    weights_ = add("weights", ObjectKind::Input, DType::F32, kTokens);
    args_ = add("args", ObjectKind::Input, DType::U8, sizeof(StepArgs));
    for (const char* name : {"middle", "end"}) sums_.push_back(add(name, ObjectKind::Metric, DType::F64, 2));
    Gradients gradients(program, DType::F32);
    for (const auto& [name, id] : params) gradients.want(id, grads.at(name));
    const auto task = [&](const char* name, auto op, std::initializer_list<ObjectId> uses) {
      program.add(name, std::move(op), uses, Phase::Forward, -1, 0, 0);
      gradients.record();
    };
    const auto norm = [&](const char* name, ObjectId x, ObjectId weight) {
      const ObjectId y = activation(name);
      task(name, RmsNorm{kTokens, kDim, 1e-5f, DType::F32}, {x, weight, y});
      return y;
    };
    const auto loss = [&](const char* name, ObjectId x, ObjectId sums, bool weighted) {
      const HeadLoss op{.tokens = kTokens,
                        .dim = kDim,
                        .vocab = kVocab,
                        .sub_tokens = kTokens,
                        .dtype = DType::F32,
                        .grad_dtype = DType::F32,
                        .accumulate_loss = false,
                        .accumulate_dw = false,
                        .forward_only = true,
                        .weighted = weighted};
      std::vector<Bound> uses{x, head, targets_, args_, sums};
      if (weighted) uses.emplace_back(weights_);
      gradients.record_fused(make_task(name, op, uses, Phase::Backward, -1, 0, 0));
    };
    const ObjectId x = activation("x"), end = activation("x_end");
    task("embed", Embed{kTokens, kVocab, kDim, DType::F32}, {ids_, table, x});
    loss("middle_loss", norm("h_middle", x, norms[0]), sums_[0], true);
    const ObjectId h = norm("h", x, norms[1]);
    Linear product{.tokens = kTokens, .in = kDim, .out = kDim, .dtype = DType::F32};
    product.has_residual = true;
    task("product", product, {h, w, end, x});
    loss("end_loss", norm("h_end", end, norms[2]), sums_[1], false);
    gradients.backward();
  }

  ObjectId add(const std::string& name, ObjectKind kind, DType dtype, int64_t elements) {
    const bool stays = kind == ObjectKind::Param || kind == ObjectKind::Grad;
    return program.add(Object{name, name, kind, dtype, elements * size_of(dtype), -1, 0, 0, stays});
  }
  ObjectId param(const std::string& name, int64_t elements) {
    params[name] = add(name, ObjectKind::Param, DType::F32, elements);
    grads[name] = add("d_" + name, ObjectKind::Grad, DType::F32, elements);
    return params[name];
  }
  ObjectId activation(const std::string& name) {
    return add(name, ObjectKind::Activation, DType::F32, kTokens * kDim);
  }

  // What the gradients are of.
  double loss(Executor& run) const {
    rig::must(run.step());
    double sum = 0;
    for (const ObjectId id : sums_) {
      double values[2];
      rig::must(run.read(id, std::as_writable_bytes(std::span(values))));
      sum += values[0];
    }
    return sum * kScale;
  }
  void fill(Executor& run) const {
    std::mt19937_64 random(5);
    std::normal_distribution<float> normal;
    for (const auto& [name, id] : params) {
      std::vector<float> values(size_t(program.object(id).elements()));
      for (float& v : values)
        v = name.starts_with("norm") ? 1 + 0.2f * normal(random) : 0.3f * normal(random);
      rig::write_floats(run, id, values);
    }
    std::vector<float> weights(kTokens);
    for (float& v : weights) v = normal(random);
    rig::write_floats(run, weights_, weights);
    for (const ObjectId id : {ids_, targets_}) {
      std::vector<int32_t> values(kTokens);
      for (int32_t& v : values) v = int32_t(random() % kVocab);
      rig::must(run.write(id, std::as_bytes(std::span(values)), 0));
    }
    StepArgs args = rig::args_for(1, kTokens);
    args.loss_scale = kScale;
    rig::must(run.write(args_, std::as_bytes(std::span(&args, 1)), 0));
  }

  Program program;
  std::map<std::string, ObjectId> params, grads;

 private:
  ObjectId ids_, targets_, weights_, args_;
  std::vector<ObjectId> sums_;
};

TEST(TwoLosses, HaveTheGradientsOfTheirSum) {
  const TwoLosses model;
  rig::must(verify(model.program));
  const auto backend = rig::small_backend();
  const Plan plan = rig::must(make_plan(model.program, rig::profile_of(*backend), {.quick = true}));
  const Arenas arenas = rig::must(backend->reserve(plan.arena_bytes()));
  std::vector<SharedOp> ops;
  for (const Task& task : model.program.tasks()) ops.push_back(task.op);
  rig::must(backend->prepare(ops));
  rig::poison(*backend, plan.arena_bytes());
  Executor run(model.program, plan, *backend, arenas);
  model.fill(run);
  (void)model.loss(run);
  std::map<std::string, std::vector<float>> gradients;
  for (const auto& [name, id] : model.grads) gradients[name] = rig::read_floats(run, id);
  expect_slopes(
      run, gradients, [&](const std::string& name) { return model.params.at(name); },
      [&] { return model.loss(run); });
}

}  // namespace
}  // namespace sluice::core
