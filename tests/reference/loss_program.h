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
  // `narrow`: it reads copies in 8 bits.
  ObjectId linear(const std::string& name, ObjectId x, int64_t out, std::optional<ObjectId> residual = {},
                  bool narrow = false) {
    Linear op{.tokens = kTokens, .in = width(x), .out = out, .dtype = DType::F32};
    op.has_residual = residual.has_value();
    const ObjectId y = activation(name, out);
    ObjectId w = param("w_" + name, op.in * out);
    if (narrow) {
      op.x_format = op.weight_format = kFloat8.over(op.in);
      x = copy(x, kTokens, op.in), w = copy(w, out, op.in);
      gradients.read_in(w, kFloat8);
    }
    std::vector<Bound> uses{x, w, y};
    if (residual) uses.emplace_back(*residual);
    task(name, op, uses);
    return y;
  }
  // The head is shared. `top`: of so many tokens beside each target, too.
  void loss(const std::string& name, ObjectId x, bool weighted = false, int64_t top = 0) {
    const HeadLoss op{.tokens = kTokens,
                      .dim = kDim,
                      .vocab = kVocab,
                      .sub_tokens = kTokens,
                      .dtype = DType::F32,
                      .grad_dtype = DType::F32,
                      .accumulate_loss = false,
                      .accumulate_dw = false,
                      .forward_only = true,
                      .weighted = weighted,
                      .log_probs = top > 0,
                      .top = top};
    sums_.push_back(object(name, ObjectKind::Metric, DType::F64, 2));
    std::vector<Bound> uses{x, param("head", kVocab * kDim), input("targets", DType::I32, kTokens),
                            input("args", DType::U8, sizeof(DropoutArgs)), sums_.back()};
    if (weighted) uses.emplace_back(input("weights", DType::F32, kTokens));
    if (top > 0) {
      const ObjectId all = object(name + "_top_log_probs", ObjectKind::Metric, DType::F32, kTokens * top);
      top_.emplace_back(all, input("top_weights", DType::F32, kTokens * top));
      uses.insert(uses.end(), {object(name + "_log_probs", ObjectKind::Metric, DType::F32, kTokens),
                               input("top_tokens", DType::I32, kTokens * top), top_.back().second, all});
    }
    gradients.record_fused(make_task(name + "_loss", op, uses, Phase::Backward, -1, 0, 0));
  }

  // Derives the backward pass, and compares every gradient of a parameter with differences.
  void expect_gradients() {
    const auto run = make();
    expect_slopes(
        *run, read_gradients(*run), [&](const std::string& name) { return objects_.at(name); },
        [&] { return measured(*run); });
  }
  // Or returns them, by the parameters' names.
  std::map<std::string, std::vector<float>> gradients_of_parameters() { return read_gradients(*make()); }

  Program program;
  Gradients gradients{program, DType::F32};

 private:
  static constexpr float kScale = 1.0f / kTokens;

  ObjectId object(const std::string& name, ObjectKind kind, const NumberFormat& format, int64_t elements) {
    const auto [made, is_new] = objects_.try_emplace(name);
    const bool stays = kind == ObjectKind::Param || kind == ObjectKind::Grad;
    if (is_new)
      made->second = program.add(Object{name, name, kind, format, format.bytes(elements), -1, 0, 0, stays});
    return made->second;
  }
  // x by row in 8 bits, and turned; made once.
  ObjectId copy(ObjectId x, int64_t rows, int64_t cols) {
    const std::string name = program.object(x).name;
    const auto made = objects_.find(name + kByRow);
    if (made != objects_.end()) return made->second;
    const ObjectId by_row = object(name + kByRow, ObjectKind::Activation, kFloat8.over(cols), rows * cols),
                   turned = object(name + kTurned, ObjectKind::Activation, kFloat8.over(rows), rows * cols);
    add("quantize_" + name, Quantize{rows, cols, DType::F32, kFloat8, true, true}, {x, by_row, turned});
    gradients.stands_for(by_row, x);
    gradients.turned_copy(by_row, turned);
    return by_row;
  }
  // The program, planned and filled, after a step.
  std::unique_ptr<Executor> make() {
    gradients.backward();
    rig::must(verify(program));
    backend_ = rig::small_backend();
    PlanRequest request;
    request.quick = true;
    plan_ = rig::must(make_plan(program, rig::profile_of(*backend_), request));
    const Arenas arenas = rig::must(backend_->reserve(plan_.arena_bytes()));
    std::vector<SharedOp> ops;
    for (const Task& task : program.tasks()) ops.push_back(task.op);
    rig::must(backend_->prepare(ops));
    rig::poison(*backend_, plan_.arena_bytes());
    auto run = std::make_unique<Executor>(program, plan_, *backend_, arenas);
    fill(*run);
    (void)measured(*run);
    return run;
  }
  std::map<std::string, std::vector<float>> read_gradients(const Executor& run) const {
    std::map<std::string, std::vector<float>> values;
    for (const auto& [name, id] : objects_) {
      if (program.object(id).kind == ObjectKind::Param)
        values[name] = rig::read_floats(run, objects_.at("d_" + name));
    }
    return values;
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
    for (const auto& [log_probs, weights] : top_) {
      const std::vector<float> of = rig::read_floats(run, log_probs), times = rig::read_floats(run, weights);
      for (size_t i = 0; i < of.size(); ++i) sum -= double(of[i]) * double(times[i]);
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
          values[i] = name == "positions" ? int32_t(i)
                      : name == "later"   ? int32_t(kTokens + int64_t(i))
                                          : int32_t(random() % kVocab);
        rig::must(run.write(id, std::as_bytes(std::span(values)), 0));
      } else if (object.kind == ObjectKind::Input && object.format == DType::U8) {
        DropoutArgs args{rig::args_for(1, kTokens), 1, 0};
        args.step.loss_scale = kScale;
        rig::must(run.write(id, std::as_bytes(std::span(&args, 1)).first(n), 0));
      } else if (object.kind == ObjectKind::Input || object.kind == ObjectKind::Param) {
        std::vector<float> values(n);
        // Sinks as large as scores: of small ones the loss hardly depends on them.
        for (float& v : values)
          v = name.starts_with("norm") ? 1 + 0.2f * normal(random)
              : name == "sinks"        ? 3
              : name == "weights"      ? normal(random)
              : name == "ones"         ? 1
                                       : 0.3f * normal(random);
        rig::write_floats(run, id, values);
      }
    }
  }

  std::map<std::string, ObjectId> objects_;
  std::vector<ObjectId> sums_;
  std::vector<std::pair<ObjectId, ObjectId>> top_;  // log-probabilities of tokens beside targets, and weights
  std::unique_ptr<Backend> backend_;
  Plan plan_;
};

}  // namespace sluice::core
