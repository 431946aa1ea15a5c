// SPDX-License-Identifier: Apache-2.0
#include "estimate/counts.h"

#include <algorithm>
#include <numeric>

#include "lowering/build.h"
#include "ops/op.h"

namespace sluice::core {
namespace {

// Rows of logits that exist at once: at most 2,048, and they divide the tokens.
StepShape step_of(const BatchShape& shape) {
  StepShape step;
  step.seq_len = shape.seq_len;
  step.chunk_tokens = shape.tokens();
  step.head_tokens = std::gcd(shape.tokens(), int64_t{2048});
  return step;
}

BuiltProgram training_model(const ModelSpec& spec, const BatchShape& shape, const Numerics& numerics,
                            const Optimizer& optimizer) {
  OptimizerConfig config;
  config.optimizer = &optimizer;
  config.values = OptimizerConfig::defaults_of(optimizer);
  config.part_elements = int64_t{1} << 50;  // a weight's state in one piece: fewer objects, the same bytes
  return build_training(spec, step_of(shape), numerics, config);
}

// The training program of one chunk, looked at between its forward and its backward pass.
class Split {
 public:
  explicit Split(const Program& program)
      : program_(program), kept_(program.objects().size()), writers_(program.objects().size()) {
    const auto& tasks = program.tasks();
    for (size_t t = 0; t < tasks.size(); ++t) {
      if (tasks[t].phase == Phase::Forward && tasks[t].layer >= 0) end_ = t + 1;
    }
    std::vector<bool> written(kept_.size());
    for (size_t t = 0; t < tasks.size(); ++t) {
      for (const Use& use : tasks[t].uses) {
        if (program.object(use.object).kind != ObjectKind::Activation) continue;
        if (t < end_) {
          written[use.object.value] = true;
          if (use.access != Access::Read) writers_[use.object.value].push_back(t);
        } else if (written[use.object.value]) {
          kept_[use.object.value] = true;
        }
      }
    }
  }

  bool is_kept(size_t object) const { return kept_[object]; }

  // Keeping the residual stream from `least` on only; Stream::No: every activation.
  Kept keep(Stream least) const {
    Kept out;
    std::vector<bool> there(kept_.size());
    std::vector<size_t> missing;
    for (size_t o = 0; o < kept_.size(); ++o) {
      if (!kept_[o]) continue;
      const Object& object = program_.objects()[o];
      there[o] = object.stream >= least;
      if (there[o]) {
        out.bytes += object.bytes;
      } else {
        missing.push_back(o);
      }
    }
    out.again_flops = flops_to_make(std::move(missing), there);
    return out;
  }

 private:
  // Counts every needed task once: those that write a missing object, and those that make its inputs.
  double flops_to_make(std::vector<size_t> missing, std::vector<bool> there) const {
    std::vector<bool> asked(kept_.size()), again(end_);
    for (const size_t o : missing) asked[o] = true;
    double flops = 0;
    while (!missing.empty()) {
      const size_t o = missing.back();
      missing.pop_back();
      for (const size_t t : writers_[o]) {
        if (again[t]) continue;
        const Task& task = program_.tasks()[t];
        again[t] = true;
        flops += work(task.op).hardware_flops();
        for (const Use& use : task.uses) {
          const size_t read = use.object.value;
          if (use.access == Access::Write || there[read] || asked[read]) continue;
          if (program_.object(use.object).kind != ObjectKind::Activation) continue;
          asked[read] = true;
          missing.push_back(read);
        }
      }
    }
    return flops;
  }

  const Program& program_;
  size_t end_ = 0;  // tasks before it are the forward pass of the layers
  // By object: whether it is written before and used after it; the tasks that write it before.
  std::vector<bool> kept_;
  std::vector<std::vector<size_t>> writers_;
};

int64_t peak_of_temporaries(const Program& program, const Split& split) {
  const size_t objects = program.objects().size(), tasks = program.tasks().size();
  std::vector<size_t> first(objects, tasks), last(objects);
  for (size_t t = 0; t < tasks; ++t) {
    for (const Use& use : program.tasks()[t].uses) {
      first[use.object.value] = std::min(first[use.object.value], t);
      last[use.object.value] = t;
    }
  }
  std::vector<int64_t> change(tasks + 1);
  for (size_t o = 0; o < objects; ++o) {
    const Object& object = program.objects()[o];
    const bool temporary = object.kind == ObjectKind::Activation || object.kind == ObjectKind::ActGrad;
    if (!temporary || object.persistent || split.is_kept(o) || first[o] == tasks) continue;
    change[first[o]] += object.bytes;
    change[last[o] + 1] -= object.bytes;
  }
  int64_t now = 0, most = 0;
  for (const int64_t bytes : change) most = std::max(most, now += bytes);
  return most;
}

std::vector<KeptRole> roles_of(const Program& program, const Split& split) {
  std::vector<KeptRole> roles;
  for (size_t o = 0; o < program.objects().size(); ++o) {
    if (!split.is_kept(o)) continue;
    const Object& object = program.objects()[o];
    auto it =
        std::find_if(roles.begin(), roles.end(), [&](const KeptRole& r) { return r.role == object.role; });
    if (it == roles.end()) it = roles.insert(it, {object.role});
    ++it->objects;
    it->bytes += object.bytes;
  }
  return roles;
}

}  // namespace

Parts parameter_parts(const ModelSpec& spec) {
  Parts parts;
  for (const Weight& w : weights_of(spec)) {
    parts.of(w.part) += w.elements();
  }
  return parts;
}

int64_t& Parts::of(ModelPart part) {
  switch (part) {
    case ModelPart::Embedding:
    case ModelPart::Table:
      return embedding;
    case ModelPart::Projection:
    case ModelPart::AttentionOut:
    case ModelPart::ConvProjection:
    case ModelPart::Convolution:
      return attention;
    case ModelPart::Mlp:
    case ModelPart::Router:
    case ModelPart::Experts:
      return ffn;
    case ModelPart::Norm:
      return norms;
    case ModelPart::Bias:
      return biases;
    case ModelPart::Head:
      return head;
    case ModelPart::Adapter:
      return adapters;
  }
  SLUICE_CHECK(false, "part {}", int(part));
}

ForwardCounts count_forward(const ModelSpec& spec, const BatchShape& shape, DType compute) {
  const BuiltProgram model = build_evaluation(spec, step_of(shape), {.compute = compute});
  ForwardCounts counts;
  for (const Task& task : model.program.tasks()) {
    const double flops = work(task.op).flops;
    counts.flops += flops;
    if (std::holds_alternative<AttnFwd>(*task.op)) counts.attention_flops += flops;
    if (task.layer == 0) counts.layer_flops += flops;
    counts.traffic_bytes += traffic(task.op) + work(task.op).pass_bytes;
  }
  for (const LayerSpec& layer : spec.layers)
    if (const Attention* a = layer.attention(); a != nullptr && a->keys_of < 0)
      counts.kv_bytes += shape.tokens() * 2 * a->kv_dim() * size_of(compute);
  return counts;
}

TrainingCounts count_training(const ModelSpec& spec, const BatchShape& shape, const Numerics& numerics,
                              const Optimizer& optimizer) {
  const BuiltProgram model = training_model(spec, shape, numerics, optimizer);
  const Program& program = model.program;
  TrainingCounts counts;
  for (const Task& task : program.tasks()) {
    const Work w = work(task.op);
    (task.phase == Phase::Update ? counts.update_flops : counts.flops) += w.flops;
    counts.again_flops += w.again_flops;
    (task.phase == Phase::Update ? counts.update_traffic_bytes : counts.traffic_bytes) +=
        traffic(task.op) + w.pass_bytes;
    if (const auto* head = std::get_if<HeadLoss>(&*task.op)) {
      counts.logits_bytes = head->sub_tokens * logits_stride(head->vocab) * size_of(DType::F32);
    } else {
      counts.workspace_bytes = std::max(counts.workspace_bytes, workspace_bytes(task.op, GpuLibraries{}));
    }
  }
  counts.traffic_bytes += counts.update_traffic_bytes;
  const Footprint bytes = footprint(program);
  counts.weight_bytes = bytes.by_kind[size_t(ObjectKind::Param)];
  counts.grad_bytes = bytes.by_kind[size_t(ObjectKind::Grad)];
  counts.state_bytes = bytes.by_kind[size_t(ObjectKind::OptState)];

  const Split split(program);
  counts.roles = roles_of(program, split);
  counts.everything = split.keep(Stream::No);
  counts.sublayers = split.keep(Stream::Within);
  counts.blocks = split.keep(Stream::Between);
  counts.temporary_bytes = peak_of_temporaries(program, split);
  return counts;
}

std::vector<MatrixProduct> products_of(const ModelSpec& spec, const BatchShape& shape,
                                       const Numerics& numerics) {
  const BuiltProgram model = training_model(spec, shape, numerics, *optimizers().front());
  std::vector<MatrixProduct> products;
  const auto add = [&](const Task& task, int64_t m, int64_t n, int64_t k) {
    std::string name = task.name.substr(0, task.name.find('.'));
    for (MatrixProduct& p : products) {
      if (p.name == name && p.m == m && p.n == n && p.k == k) return void(++p.count);
    }
    products.push_back({std::move(name), m, n, k, 1, task.op});
  };
  for (const Task& task : model.program.tasks()) {
    if (const auto* f = std::get_if<Linear>(&*task.op)) add(task, f->tokens, f->out, f->in);
    if (const auto* d = std::get_if<LinearDgrad>(&*task.op)) add(task, d->tokens, d->in, d->out);
    if (const auto* w = std::get_if<LinearWgrad>(&*task.op)) add(task, w->out, w->in, w->tokens);
    if (const auto* h = std::get_if<HeadLoss>(&*task.op)) add(task, h->sub_tokens, h->vocab, h->dim);
  }
  return products;
}

}  // namespace sluice::core
