// SPDX-License-Identifier: Apache-2.0
#include "lowering/build.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "model/flops.h"
#include "model/kinds.h"
#include "model/layers.h"
#include "ops/generation.h"
#include "ops/step_args.h"
#include "program/gradient/gradients.h"
#include "program/narrow.h"

namespace sluice::core {
namespace {

enum class GradientLife { None, Step, Persistent };

class Builder {
 public:
  Builder(const ModelSpec& spec, const StepShape& shape, const Numerics& numerics)
      : spec_(spec), shape_(shape), num_(numerics) {
    model_.shape = shape;
    model_.weights = weights_of(spec);
  }

  BuiltProgram training(const OptimizerConfig& optimizer, const LossForm& loss);
  BuiltProgram flush(const OptimizerConfig& optimizer);
  BuiltProgram evaluation(const OptimizerConfig* pending);
  BuiltProgram generation(const GenerationShape& shape);

 private:
  Program& program() { return model_.program; }

  void add_weights(GradientLife gradients);
  void add_optimizer(const OptimizerConfig& optimizer);
  void add_args() {
    const int64_t bytes = spec_.adapters.dropout > 0 ? sizeof(DropoutArgs) : sizeof(StepArgs);
    model_.args = program().add(Object{"args", "args", ObjectKind::Input, DType::U8, bytes});
  }
  void add_inputs() {
    add_args();
    add_constants();
    add_batch();
  }
  void add_constants();
  void add_batch();
  void add_cache(const GenerationShape& shape, ModelInputs& inputs);
  ObjectId metric(const std::string& name, DType dtype, int64_t elements, bool persistent = false) {
    return program().add(
        Object{name, name, ObjectKind::Metric, dtype, elements * size_of(dtype), -1, -1, -1, persistent});
  }
  void add_log_probs();
  void add_asked(int64_t numbers);  // of each token
  void add_router_sums();
  void add_loss() {
    for (int64_t i = 0; i < shape_.replicas; ++i)
      model_.loss.push_back(metric(i == 0 ? "loss" : fmt::format("loss.{}", i), DType::F64, 2));
  }

  // Copies of what passes make: these objects come after all that the model names.
  void join() { model_.program = join_copies(std::move(model_.program)); }

  ModelInputs inputs() const {
    return {model_.args, inv_freq_, window_inv_freq_, model_.batch, model_.layout, router_, {}};
  }
  std::vector<ObjectId> params() const {
    std::vector<ObjectId> out;
    for (const ParamObjects& p : model_.params) out.push_back(p.param);
    return out;
  }
  Chunking chunking() const {
    Chunking out{
        {}, std::min(shape_.seq_len, shape_.chunk_tokens), shape_.chunks_per_sequence(), shape_.packed};
    for (int64_t r = 0; r < shape_.all_rounds(); ++r) {
      std::vector<int64_t>& round = out.tokens.emplace_back();
      for (int64_t c = 0; c < shape_.chunks_in(r); ++c) round.push_back(shape_.tokens_in(r, c));
    }
    return out;
  }

  const ModelSpec& spec_;
  const StepShape shape_;
  const Numerics num_;
  BuiltProgram model_;
  ObjectId inv_freq_, window_inv_freq_;
  RouterSums router_;
};

void Builder::add_weights(GradientLife gradients) {
  for (const Weight& w : model_.weights) {
    ParamObjects& objects = model_.params.emplace_back();
    const int64_t elements = w.elements();
    const NumberFormat format = w.format.value_or(num_.compute);
    Object param{w.object, w.role, ObjectKind::Param, format, format.bytes(elements), w.layer, -1, -1, true};
    param.in_files = spec_.reads_files && may_stay_in_files(w);
    objects.param = program().add(std::move(param));
    if (gradients == GradientLife::None || !w.trainable) continue;
    objects.grad = program().add(Object{"d_" + w.object, "d_" + w.role, ObjectKind::Grad, num_.grad,
                                        NumberFormat(num_.grad).bytes(elements), w.layer, -1, -1,
                                        gradients == GradientLife::Persistent});
    // Each of several replicas has gradients of its own.
    for (int64_t i = 0; shape_.replicas > 1 && i < shape_.replicas; ++i) {
      Object of = program().object(objects.grad);
      of.name += fmt::format(".{}", i);
      of.persistent = false;
      objects.replicas.push_back(program().add(std::move(of)));
    }
  }
}

void Builder::add_optimizer(const OptimizerConfig& optimizer) {
  std::vector<std::vector<int64_t>> owners(model_.weights.size());
  if (optimizer.sharded.is()) owners = owners_of(model_.weights, optimizer, num_);
  for (size_t w = 0; w < model_.weights.size(); ++w) {
    if (model_.params[w].grad.valid())
      add_state(model_.weights[w], optimizer, num_, program(), model_.params[w], std::move(owners[w]));
  }
  model_.clip = metric("clip", DType::F32, 2, optimizer.deferred);
}

void Builder::add_constants() {
  // An object without readers has no place in a step.
  for (const bool of_windows : {false, true}) {
    const auto rotates = std::ranges::find_if(spec_.layers, [&](const LayerSpec& layer) {
      const Attention* const a = layer.attention();
      return a != nullptr && a->rotated && spec_.rotates_as_window(*a) == of_windows;
    });
    if (rotates == spec_.layers.end()) continue;
    const int64_t head_dim = rotates->attention()->head_dim;
    const char* name = of_windows ? "window_inv_freq" : "inv_freq";
    const RopeScaling& rope = of_windows ? *spec_.window_rope : spec_.rope;
    const ObjectId object = program().add(Object{name, name, ObjectKind::Constant, DType::F32,
                                                 head_dim / 2 * size_of(DType::F32), -1, -1, -1, true});
    (of_windows ? window_inv_freq_ : inv_freq_) = object;
    model_.constants.push_back({object, rope_inv_freq(rope, head_dim, shape_.seq_len, spec_.rotated.rows)});
  }
}

void Builder::add_batch() {
  for (int r = 0; r < shape_.all_rounds(); ++r) {
    std::vector<ObjectId>& row = model_.batch.emplace_back();
    for (int c = 0; c < shape_.chunks_in(r); ++c) {
      row.push_back(program().add(Object{fmt::format("batch.r{}c{}", r, c), "batch", ObjectKind::Input,
                                         model_.layout.type(), model_.layout.bytes(shape_.tokens_in(r, c)),
                                         -1, r, c, false}));
    }
  }
}

void Builder::add_log_probs() {
  for (int r = 0; r < shape_.all_rounds(); ++r) {
    std::vector<ObjectId>& row = model_.log_probs.emplace_back();
    for (int c = 0; c < shape_.chunks_in(r); ++c) {
      row.push_back(
          program().add(Object{fmt::format("log_probs.r{}c{}", r, c), "log_probs", ObjectKind::Metric,
                               DType::F32, shape_.tokens_in(r, c) * size_of(DType::F32), -1, r, c}));
    }
  }
}

void Builder::add_asked(int64_t numbers) {
  for (int r = 0; r < shape_.all_rounds(); ++r) {
    int64_t tokens = 0;
    for (int c = 0; c < shape_.chunks_in(r); ++c) tokens += shape_.tokens_in(r, c);
    model_.asked.push_back(
        program().add(Object{fmt::format("asked.r{}", r), "asked", ObjectKind::ActGrad, DType::F32,
                             2 * tokens * numbers * size_of(DType::F32), -1, r}));
  }
}

void Builder::add_router_sums() {
  int64_t mixtures = 0;
  for (size_t l = 0; l < spec_.layers.size(); ++l) {
    const Experts* const experts = spec_.layers[l].experts();
    router_.layers.push_back(experts == nullptr ? ObjectId()
                                                : metric(fmt::format("router_load.L{}", l), DType::F64,
                                                         LoadLayout{experts->count}.elements()));
    mixtures += experts != nullptr ? 1 : 0;
  }
  model_.router_load = router_.layers;
  if (spec_.router_balance == 0 && spec_.router_z == 0) return;
  const LayerSpec& any =
      *std::ranges::find_if(spec_.layers, [](const LayerSpec& l) { return l.experts() != nullptr; });
  const int64_t rounds = shape_.all_rounds() * shape_.processes;
  for (int r = 0; r < shape_.all_rounds(); ++r) {
    if (spec_.router_balance != 0)
      router_.rounds.push_back(program().add(
          Object{fmt::format("router_load.r{}", r), "router_load_round", ObjectKind::ActGrad, DType::F64,
                 LoadLayout{any.experts()->count}.elements() * size_of(DType::F64), -1, r}));
    int64_t tokens = 0;
    for (int c = 0; c < shape_.chunks_in(r); ++c) tokens += shape_.tokens_in(r, c);
    router_.losses.push_back({.balance = float(spec_.router_balance / double(rounds)),
                              .z = float(spec_.router_z / double(shape_.tokens_of_all())),
                              .n = tokens * mixtures});
  }
}

// Every chunk passes a layer before the next layer starts. The head's turn comes in the backward pass, chunk
// by chunk: what it makes of a chunk is used up before the next one's. Where a caller's loss is asked in
// between, the head is in both.
BuiltProgram Builder::training(const OptimizerConfig& optimizer, const LossForm& loss) {
  if (loss.weighted || loss.asked) model_.layout.add(BatchColumn::Weights);
  SLUICE_CHECK(loss.top == 0 || loss.asked, "{} tokens beside each target, of which nobody is asked",
               loss.top);
  if (loss.top > 0) {
    model_.layout.add(BatchColumn::TopTokens, loss.top);
    model_.layout.add(BatchColumn::TopWeights, loss.top);
  }
  add_weights(optimizer.deferred ? GradientLife::Persistent : GradientLife::Step);
  add_optimizer(optimizer);
  add_inputs();
  add_loss();
  if (loss.log_probs || loss.asked) add_log_probs();
  if (loss.asked) add_asked(1 + loss.top);
  if (spec_.has_experts()) add_router_sums();
  const auto slots = int64_t(norm_slots(model_.weights).size());
  const ObjectId sums = program().add(
      Object{"grad_sums", "grad_sums", ObjectKind::ActGrad, DType::F64, slots * size_of(DType::F64)});
  Gradients gradients(program(), num_.grad);
  const ModelInputs in = inputs();
  Forward forward(spec_, model_.weights, params(), chunking(), num_, in, program(), &gradients);
  for (int r = 0; r < shape_.all_rounds(); ++r) {
    const int64_t replica = r / shape_.rounds;
    if (r % shape_.rounds == 0) {
      for (const ParamObjects& p : model_.params) {
        if (p.grad.valid()) gradients.want(p.param, p.of_replica(size_t(replica)));
      }
    }
    const ObjectId sum = model_.loss[size_t(replica)];
    const std::vector<ObjectId> x = forward.layers(r);
    for (int c = 0; c < int(x.size()); ++c) {
      const ObjectId log_probs =
          model_.log_probs.empty() ? ObjectId{} : model_.log_probs[size_t(r)][size_t(c)];
      if (loss.asked) {
        const ObjectId all = model_.asked[size_t(r)], h = forward.last_norm(x[size_t(c)], r, c);
        forward.gather_weights(h, log_probs, all, shape_.head_tokens, num_.grad, r, c);
        gradients.record_later([&, r, c, h, all, sum] {
          forward.head_loss(h, sum, {}, all, shape_.head_tokens, num_.grad, r, c);
        });
        continue;
      }
      gradients.record_later([&, r, c, log_probs, sum] {
        const ObjectId h = forward.last_norm(x[size_t(c)], r, c);
        forward.head_loss(h, sum, log_probs, {}, shape_.head_tokens, num_.grad, r, c);
      });
    }
    gradients.backward();
  }
  program().facts.tokens = shape_.tokens_of_all();
  program().facts.model_flops = double(shape_.tokens()) * model_flops_per_token(spec_, shape_.seq_len);
  join();
  model_.program = place_updates(program(), model_.weights, model_.params,
                                 {model_.args, model_.clip, sums, shape_.processes}, optimizer, num_);
  return std::move(model_);
}

BuiltProgram Builder::flush(const OptimizerConfig& optimizer) {
  add_weights(GradientLife::Persistent);
  add_optimizer(optimizer);
  add_args();
  model_.program = place_updates(program(), model_.weights, model_.params, {model_.args, model_.clip, {}},
                                 optimizer, num_);
  return std::move(model_);
}

BuiltProgram Builder::evaluation(const OptimizerConfig* pending) {
  add_weights(pending != nullptr ? GradientLife::Persistent : GradientLife::None);
  if (pending != nullptr) add_optimizer(*pending);
  add_inputs();
  for (int c = 0; c < shape_.chunks_in(0); ++c)
    model_.losses.push_back(metric(fmt::format("losses.c{}", c), DType::F64, 2 * shape_.tokens_in(0, c)));
  const ModelInputs in = inputs();
  Forward forward(spec_, model_.weights, params(), chunking(), num_, in, program(), nullptr);
  const std::vector<ObjectId> x = forward.layers(0);
  for (int c = 0; c < int(x.size()); ++c) {
    forward.token_losses(forward.last_norm(x[size_t(c)], 0, c), model_.losses[size_t(c)], shape_.head_tokens,
                         num_.grad, 0, c);
  }
  program().facts.tokens = shape_.tokens();
  join();
  if (pending != nullptr) {
    // No backward pass follows, in which moments could come late.
    OptimizerConfig update = *pending;
    update.late_moments = false;
    model_.program =
        place_updates(program(), model_.weights, model_.params, {model_.args, model_.clip, {}}, update, num_);
  }
  return std::move(model_);
}

void Builder::add_cache(const GenerationShape& shape, ModelInputs& inputs) {
  const auto add = [&](std::string name, const char* role, ObjectKind kind, DType dtype, int64_t elements,
                       int layer) {
    return program().add(
        Object{std::move(name), role, kind, dtype, elements * size_of(dtype), layer, -1, -1, layer >= 0});
  };
  model_.spans = add("spans", "spans", ObjectKind::Input, DType::I32, 2 * shape.rows, -1);
  inputs.cache.spans = model_.spans;
  const auto add_rows = [&](const char* name, int64_t rows) {
    return add(name, name, ObjectKind::Input, DType::I32, rows, -1);
  };
  if (shape.slots > 0) inputs.cache.slots = model_.slots = add_rows("slots", shape.rows);
  if (shape.copies) inputs.cache.copies = model_.copies = add_rows("copies", shape.cache_rows());
  inputs.cache.rows = shape.cache_rows();
  int64_t width = spec_.dim;
  for (const LayerSpec& layer : spec_.layers) width += layer.input;
  model_.embedded =
      add("x.L0", "x", ObjectKind::Input, num_.compute, shape.rows * shape.new_tokens * width, -1);
  inputs.cache.embedded = model_.embedded;
  inputs.cache.capacity = shape.capacity;
  for (size_t l = 0; l < spec_.layers.size(); ++l) {
    const LayerSpec& layer = spec_.layers[l];
    const int64_t elements =
        shape.cache_rows() *
        std::visit([&](const auto& mixer) { return cached_elements(mixer, spec_.dim, shape.capacity); },
                   layer.mixer);
    const Attention* const a = layer.attention();
    const bool shares = a != nullptr && a->keys_of >= 0;
    inputs.cache.layers.push_back(shares ? ObjectId()
                                         : add(fmt::format("cache.L{}", l), "cache", ObjectKind::Cache,
                                               num_.compute, elements, int(l)));
    const int64_t state = std::visit([](const auto& mixer) { return state_elements(mixer); }, layer.mixer);
    inputs.cache.states.push_back(state == 0 ? ObjectId()
                                             : add(fmt::format("state.L{}", l), "state", ObjectKind::Cache,
                                                   DType::F32, shape.cache_rows() * state, int(l)));
  }
}

BuiltProgram Builder::generation(const GenerationShape& shape) {
  std::vector<Weight>& all = model_.weights;
  const auto others = std::stable_partition(all.begin(), all.end(), [&](const Weight& w) {
    return !is_looked_up(w) || (w.layer < 0 && spec_.tied_embeddings);
  });
  model_.looked_up.assign(std::make_move_iterator(others), std::make_move_iterator(all.end()));
  all.erase(others, all.end());
  add_weights(GradientLife::None);
  // Batches' positions are read only by rotations and by learnt positions.
  const bool reads_positions =
      spec_.positions > 0 || std::ranges::any_of(spec_.layers, [](const LayerSpec& layer) {
        return layer.attention() != nullptr && layer.attention()->rotated;
      });
  add_constants();
  if (reads_positions) add_batch();
  model_.capacity = shape.capacity;
  const int64_t logits = shape.rows * spec_.vocab;
  if (!shape.draws) model_.logits = metric("logits", DType::F32, logits);
  ModelInputs in = inputs();
  if (model_.batch.empty()) in.batch.assign(1, {ObjectId()});
  add_cache(shape, in);
  Forward forward(spec_, model_.weights, params(), chunking(), num_, in, program(), nullptr);
  const std::vector<ObjectId> x = forward.layers(0);
  const ObjectId h = forward.last_norm(x[0], 0, 0);
  if (shape.draws) {
    const ObjectId scores = program().add(Object{"logits", "logits", ObjectKind::Activation, DType::F32,
                                                 logits * size_of(DType::F32), -1, 0, 0});
    model_.draws = program().add(Object{"draws", "draws", ObjectKind::Input, DType::F64,
                                        shape.cache_rows() * int64_t{sizeof(TokenDraw)}});
    model_.drawn =
        metric("drawn", DType::F64, shape.cache_rows() * int64_t{sizeof(DrawnToken) / sizeof(double)});
    forward.last_logits(h, scores, 0, 0);
    forward.draw_tokens(scores, model_.draws, model_.drawn, shape.cache_rows(), 0, 0);
  } else {
    forward.last_logits(h, model_.logits, 0, 0);
  }
  program().facts.tokens = shape.rows * shape.new_tokens;
  return std::move(model_);
}

}  // namespace

BuiltProgram::BuiltProgram() = default;
BuiltProgram::BuiltProgram(const BuiltProgram&) = default;
BuiltProgram::BuiltProgram(BuiltProgram&&) noexcept = default;
BuiltProgram& BuiltProgram::operator=(const BuiltProgram&) = default;
BuiltProgram& BuiltProgram::operator=(BuiltProgram&&) noexcept = default;
BuiltProgram::~BuiltProgram() = default;

BuiltProgram build_training(const ModelSpec& spec, const StepShape& shape, const Numerics& numerics,
                            const OptimizerConfig& optimizer, const LossForm& loss) {
  return Builder(spec, shape, numerics).training(optimizer, loss);
}

BuiltProgram build_flush(const ModelSpec& spec, const Numerics& numerics, const OptimizerConfig& optimizer) {
  return Builder(spec, {}, numerics).flush(optimizer);
}

BuiltProgram build_evaluation(const ModelSpec& spec, const StepShape& shape, const Numerics& numerics,
                              const OptimizerConfig* pending) {
  return Builder(spec, shape, numerics).evaluation(pending);
}

BuiltProgram build_generation(const ModelSpec& spec, const GenerationShape& g, const Numerics& numerics) {
  const StepShape shape{g.new_tokens, g.rows * g.new_tokens, 1, 1, 0, false};
  return Builder(spec, shape, numerics).generation(g);
}

}  // namespace sluice::core
