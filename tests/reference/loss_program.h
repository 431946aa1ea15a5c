// SPDX-License-Identifier: Apache-2.0
// A small program with losses, whose backward pass is derived, and the differences of their sum.
#pragma once

#include <map>

#include "ops/op.h"
#include "program/gradient/gradients.h"
#include "reference/finite_difference.h"
#include "search/planner.h"

namespace sluice::core {

class LossProgram {
 public:
  static constexpr int64_t kTokens = 24, kDim = 16, kVocab = 17;

  // The object that was made with this name, or a new one.
  ObjectId input(const std::string& name, DType dtype, int64_t elements) {
    return object(name, ObjectKind::Input, dtype, elements);
  }
  ObjectId param(const std::string& name, int64_t elements) {
    if (const auto made = objects_.find(name); made != objects_.end()) return made->second;
    const ObjectId id = object(name, ObjectKind::Param, DType::F32, elements);
    gradients.want(id, object("d_" + name, ObjectKind::Grad, DType::F32, elements));
    return id;
  }
  ObjectId activation(const std::string& name, int64_t width = kDim, DType dtype = DType::F32) {
    return sized(name, dtype, kTokens * width);
  }
  ObjectId sized(const std::string& name, DType dtype, int64_t elements) {
    return object(name, ObjectKind::Activation, dtype, elements);
  }
  int64_t width(ObjectId x) const { return program.object(x).elements() / kTokens; }

  void add(const std::string& name, SharedOp op, const std::vector<Bound>& uses) {
    program.add(name, std::move(op), uses, Phase::Forward, -1, 0, 0);
  }
  void task(const std::string& name, SharedOp op, const std::vector<Bound>& uses) {
    add(name, std::move(op), uses);
    gradients.record();
  }
  ObjectId embed() {
    const ObjectId x = activation("x");
    task("embed", Embed{kTokens, kVocab, kDim, DType::F32},
         {input("ids", DType::I32, kTokens), param("table", kVocab * kDim), x});
    return x;
  }
  ObjectId norm(const std::string& name, ObjectId x) {
    const ObjectId y = activation(name);
    task(name, RmsNorm{kTokens, kDim, 1e-5f, DType::F32}, {x, param("norm_" + name, kDim), y});
    return y;
  }
  ObjectId linear(const std::string& name, ObjectId x, int64_t out, std::optional<ObjectId> residual = {}) {
    Linear op{.tokens = kTokens, .in = width(x), .out = out, .dtype = DType::F32};
    op.has_residual = residual.has_value();
    const ObjectId y = activation(name, out);
    std::vector<Bound> uses{x, param("w_" + name, width(x) * out), y};
    if (residual) uses.emplace_back(*residual);
    task(name, op, uses);
    return y;
  }
  // The head is shared.
  void loss(const std::string& name, ObjectId x, bool weighted = false) {
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
    sums_.push_back(object(name, ObjectKind::Metric, DType::F64, 2));
    std::vector<Bound> uses{x, param("head", kVocab * kDim), input("targets", DType::I32, kTokens),
                            input("args", DType::U8, sizeof(StepArgs)), sums_.back()};
    if (weighted) uses.emplace_back(input("weights", DType::F32, kTokens));
    gradients.record_fused(make_task(name + "_loss", op, uses, Phase::Backward, -1, 0, 0));
  }

  // Derives the backward pass, and compares every gradient of a parameter with differences.
  void expect_gradients() {
    gradients.backward();
    rig::must(verify(program));
    const auto backend = rig::small_backend();
    PlanRequest request;
    request.quick = true;
    const Plan plan = rig::must(make_plan(program, rig::profile_of(*backend), request));
    const Arenas arenas = rig::must(backend->reserve(plan.arena_bytes()));
    std::vector<SharedOp> ops;
    for (const Task& task : program.tasks()) ops.push_back(task.op);
    rig::must(backend->prepare(ops));
    rig::poison(*backend, plan.arena_bytes());
    Executor run(program, plan, *backend, arenas);
    fill(run);
    (void)measured(run);
    std::map<std::string, std::vector<float>> values;
    for (const auto& [name, id] : objects_) {
      if (program.object(id).kind == ObjectKind::Param)
        values[name] = rig::read_floats(run, objects_.at("d_" + name));
    }
    expect_slopes(
        run, values, [&](const std::string& name) { return objects_.at(name); },
        [&] { return measured(run); });
  }

  Program program;
  Gradients gradients{program, DType::F32};

 private:
  static constexpr float kScale = 1.0f / kTokens;

  ObjectId object(const std::string& name, ObjectKind kind, DType dtype, int64_t elements) {
    const auto [made, is_new] = objects_.try_emplace(name);
    const bool stays = kind == ObjectKind::Param || kind == ObjectKind::Grad;
    if (is_new)
      made->second = program.add(Object{name, name, kind, dtype, elements * size_of(dtype), -1, 0, 0, stays});
    return made->second;
  }
  // What the gradients are of.
  double measured(Executor& run) const {
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
    for (const auto& [name, id] : objects_) {
      const Object& object = program.object(id);
      const auto n = size_t(object.elements());
      if (object.kind == ObjectKind::Input && object.format == DType::I32) {
        std::vector<int32_t> values(n);
        for (size_t i = 0; i < n; ++i)
          values[i] = name == "positions" ? int32_t(i) : int32_t(random() % kVocab);
        rig::must(run.write(id, std::as_bytes(std::span(values)), 0));
      } else if (object.kind == ObjectKind::Input && object.format == DType::U8) {
        StepArgs args = rig::args_for(1, kTokens);
        args.loss_scale = kScale;
        rig::must(run.write(id, std::as_bytes(std::span(&args, 1)), 0));
      } else if (object.kind == ObjectKind::Input || object.kind == ObjectKind::Param) {
        std::vector<float> values(n);
        // Sinks as large as scores: of small ones the loss hardly depends on them.
        for (float& v : values)
          v = name.starts_with("norm") ? 1 + 0.2f * normal(random)
              : name == "sinks"        ? 3
              : name == "weights"      ? normal(random)
                                       : 0.3f * normal(random);
        rig::write_floats(run, id, values);
      }
    }
  }

  std::map<std::string, ObjectId> objects_;
  std::vector<ObjectId> sums_;
};

}  // namespace sluice::core
