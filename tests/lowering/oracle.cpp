// SPDX-License-Identifier: Apache-2.0
#include "oracle.h"
#include "ops/op.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "ops/compact_format.h"
#include "ops/step_args.h"

namespace sluice::core::oracle {
namespace {

struct WeightSource {
  int64_t rows, cols;
};
struct Weight {
  std::string object;
  std::vector<WeightSource> sources;
  bool is_norm;
};

std::vector<Weight> llama_weights(const LlamaConfig& c) {
  std::vector<Weight> out;
  out.push_back({"embedding", {{c.vocab, c.dim}}, false});
  for (int64_t l = 0; l < c.layers; ++l) {
    const auto name = [&](const char* role) { return fmt::format("{}.L{}", role, l); };
    out.push_back({name("norm1"), {{c.dim, 1}}, true});
    out.push_back({name("wq"), {{c.q_dim(), c.dim}}, false});
    out.push_back({name("wkv"), {{c.kv_dim(), c.dim}, {c.kv_dim(), c.dim}}, false});
    out.push_back({name("wo"), {{c.dim, c.q_dim()}}, false});
    out.push_back({name("norm2"), {{c.dim, 1}}, true});
    out.push_back({name("wgu"), {{c.ffn, c.dim}, {c.ffn, c.dim}}, false});
    out.push_back({name("wd"), {{c.dim, c.ffn}}, false});
  }
  out.push_back({"norm", {{c.dim, 1}}, true});
  if (!c.tied_embeddings) out.push_back({"head", {{c.vocab, c.dim}}, false});
  return out;
}

struct Model {
  Program program;
  ObjectId args, inv_freq;
  std::vector<std::vector<ObjectId>> batch;
  ObjectId loss, clip, logits;
  std::vector<ObjectId> losses;
};

// The weights of one layer and, in training, the gradients beside them.
struct LayerParams {
  ObjectId norm1, wq, wkv, wo, norm2, wgu, wd;
};

// What a (layer, chunk) leaves for its backward pass.
struct Saved {
  ObjectId x, h1, q, kv, o, lse, x_mid, h2, gu, x_out;
};

std::vector<Bound> bound(std::span<const ObjectId> ids, std::span<const int64_t> offsets) {
  std::vector<Bound> out;
  for (size_t i = 0; i < ids.size(); ++i) out.push_back({ids[i], offsets.empty() ? 0 : offsets[i]});
  return out;
}

class Builder {
 public:
  // `optimizer` is null in programs without gradients.
  Builder(const LlamaConfig& config, const StepShape& shape, const Numerics& numerics,
          const OptimizerConfig* optimizer)
      : c_(config), shape_(shape), num_(numerics), optimizer_(optimizer) {}

  Model training();
  Model flush();
  Model evaluation();

 private:
  struct Place {
    int layer, round, chunk;
  };
  struct OptimizerParts {
    std::vector<ObjectId> m, v, master;
    std::vector<int64_t> first, elements;
  };

  Program& program() { return model_.program; }

  ObjectId object(std::string_view role, ObjectKind kind, DType dtype, int64_t elements, const Place& at);
  ObjectId persistent(std::string name, std::string role, ObjectKind kind, DType dtype, int64_t elements,
                      int layer);
  int64_t tokens(const Place& at) const { return shape_.tokens_in(at.round, at.chunk); }
  ObjectId activation(std::string_view role, int64_t width, const Place& at) {
    return object(role, ObjectKind::Activation, num_.compute, tokens(at) * width, at);
  }
  ObjectId act_grad(std::string_view role, int64_t width, const Place& at) {
    return object(role, ObjectKind::ActGrad, num_.compute, tokens(at) * width, at);
  }
  // True from the second call for an object on: its first gradient is written, later ones are added.
  bool accumulates(ObjectId id) { return !seen_.insert(id.value).second; }

  void task(std::string_view what, Op op, std::initializer_list<ObjectId> uses, const Place& at);
  enum class Gradients { None, WithinStep, Persistent };
  void add_weights(Gradients gradients);
  void add_inputs();

  ObjectId grad(ObjectId param) const { return grads_.at(param.value); }
  ObjectId batch(const Place& at) const { return model_.batch[size_t(at.round)][size_t(at.chunk)]; }
  // The i32[tokens] parts of a batch object.
  enum BatchPart { kTokens, kTargets, kPositions };
  void batch_task(std::string_view what, Op op, std::initializer_list<ObjectId> uses, BatchPart part,
                  size_t operand, const Place& at);

  ObjectId embed(const Place& at);
  Saved layer_forward(ObjectId x, const Place& at);
  void attention_forward(Saved& s, const Place& at);
  void layer_backward(const Saved& s, ObjectId dx_out, ObjectId dx, const Place& at);
  ObjectId attention_backward(const Saved& s, ObjectId d_o, const Place& at);  // returns d(h1)
  ObjectId head(ObjectId x, bool forward_only, const Place& at);               // returns d(x)

  void forward(int round);
  void backward(int round);
  void add_optimizer_state();
  // Whether moments are updated in the backward pass of this round.
  bool late_moments(int round) const {
    return optimizer_ != nullptr && optimizer_->deferred && optimizer_->late_moments && round == 0;
  }
  void sum_squares(const std::vector<ObjectId>& params);
  void update(const std::vector<ObjectId>& params, bool moments = true);
  void update_moments(const std::vector<ObjectId>& params);
  std::vector<ObjectId> layer_params(int layer) const;
  std::vector<ObjectId> head_params() const;
  std::vector<ObjectId> all_params() const;
  // Index of a weight in weights_: its slot in the gradient sums and its key for random numbers.
  size_t slot(ObjectId param) const;

  AttnShape attention_shape(const Place& at, int block) const;
  int block_in_sequence(int chunk) const { return int(chunk % shape_.chunks_per_sequence()); }

  const LlamaConfig& c_;
  const StepShape shape_;
  const Numerics num_;
  const OptimizerConfig* optimizer_;
  Model model_;

  std::vector<LayerParams> layers_;
  ObjectId embedding_, norm_, head_;
  std::vector<std::pair<ObjectId, Weight>> weights_;
  std::unordered_map<uint32_t, ObjectId> grads_;
  std::unordered_map<uint32_t, OptimizerParts> parts_;
  std::unordered_set<uint32_t> seen_;
  ObjectId sums_;
  Phase phase_ = Phase::Forward;

  // [layer][chunk] of the round being built.
  std::vector<std::vector<Saved>> saved_;
  std::vector<std::vector<ObjectId>> dkv_;
  std::vector<ObjectId> x_;
};

ObjectId Builder::object(std::string_view role, ObjectKind kind, DType dtype, int64_t elements,
                         const Place& at) {
  std::string name(role);
  if (at.layer >= 0) name += fmt::format(".L{}", at.layer);
  name += fmt::format(".r{}c{}", at.round, at.chunk);
  return program().add(Object{std::move(name), std::string(role), kind, dtype, elements * size_of(dtype),
                              at.layer, at.round, at.chunk, false});
}

ObjectId Builder::persistent(std::string name, std::string role, ObjectKind kind, DType dtype,
                             int64_t elements, int layer) {
  return program().add(
      Object{std::move(name), std::move(role), kind, dtype, elements * size_of(dtype), layer, -1, -1, true});
}

void Builder::task(std::string_view what, Op op, std::initializer_list<ObjectId> uses, const Place& at) {
  std::string name(what);
  if (at.layer >= 0) name += fmt::format(".L{}", at.layer);
  if (at.round >= 0) name += fmt::format(".r{}c{}", at.round, at.chunk);
  program().add(std::move(name), std::move(op), bound(uses, {}), phase_, at.layer, at.round, at.chunk);
}

void Builder::batch_task(std::string_view what, Op op, std::initializer_list<ObjectId> uses, BatchPart part,
                         size_t operand, const Place& at) {
  std::vector<int64_t> offsets(uses.size(), 0);
  offsets[operand] = int64_t{part} * tokens(at) * size_of(DType::I32);
  std::string name(what);
  if (at.layer >= 0) name += fmt::format(".L{}", at.layer);
  name += fmt::format(".r{}c{}", at.round, at.chunk);
  program().add(std::move(name), std::move(op), bound(uses, offsets), phase_, at.layer, at.round, at.chunk);
}

void Builder::add_weights(Gradients gradients) {
  layers_.resize(size_t(c_.layers));
  for (Weight& w : llama_weights(c_)) {
    const size_t dot = w.object.find(".L");
    const std::string role = w.object.substr(0, dot);
    const int layer = dot == std::string::npos ? -1 : std::stoi(w.object.substr(dot + 2));
    int64_t elements = 0;
    for (const WeightSource& s : w.sources) elements += s.rows * s.cols;
    const ObjectId id = persistent(w.object, role, ObjectKind::Param, num_.compute, elements, layer);
    if (gradients != Gradients::None) {
      grads_[id.value] = program().add(Object{"d_" + w.object, "d_" + role, ObjectKind::Grad, num_.grad,
                                              elements * size_of(num_.grad), layer, -1, -1,
                                              gradients == Gradients::Persistent});
    }
    if (role == "embedding") embedding_ = head_ = id;
    if (role == "norm") norm_ = id;
    if (role == "head") head_ = id;
    if (layer >= 0) {
      LayerParams& p = layers_[size_t(layer)];
      const std::pair<const char*, ObjectId*> fields[] = {
          {"norm1", &p.norm1}, {"wq", &p.wq},   {"wkv", &p.wkv}, {"wo", &p.wo},
          {"norm2", &p.norm2}, {"wgu", &p.wgu}, {"wd", &p.wd}};
      for (const auto& [name, field] : fields) {
        if (role == name) *field = id;
      }
    }
    weights_.emplace_back(id, std::move(w));
  }
}

void Builder::add_inputs() {
  model_.args = program().add(Object{"args", "args", ObjectKind::Input, DType::U8, sizeof(StepArgs)});
  model_.inv_freq = persistent("inv_freq", "inv_freq", ObjectKind::Constant, DType::F32, c_.head_dim / 2, -1);
  for (int r = 0; r < shape_.rounds; ++r) {
    std::vector<ObjectId>& row = model_.batch.emplace_back();
    for (int c = 0; c < shape_.chunks_in(r); ++c) {
      const Place at{-1, r, c};
      row.push_back(object("batch", ObjectKind::Input, DType::I32, 3 * tokens(at), at));
    }
  }
}

AttnShape Builder::attention_shape(const Place& at, int block) const {
  const int64_t t = tokens(at);
  const bool whole = shape_.chunks_per_sequence() == 1;
  const int64_t rows = whole ? t / shape_.seq_len : 1;
  return {rows,          t / rows,    t / rows, c_.heads, c_.kv_heads, c_.head_dim, (at.chunk - block) * t,
          shape_.packed, num_.compute};
}

ObjectId Builder::embed(const Place& at) {
  const ObjectId x = activation("x", c_.dim, {0, at.round, at.chunk});
  batch_task("embed", Embed{tokens(at), c_.vocab, c_.dim, num_.compute}, {batch(at), embedding_, x}, kTokens,
             Embed::kIds, at);
  return x;
}

// One block of the paper: x_mid = x + attention(norm1(x)); x_out = x_mid + ffn(norm2(x_mid)).
Saved Builder::layer_forward(ObjectId x, const Place& at) {
  const LayerParams& p = layers_[size_t(at.layer)];
  const int64_t t = tokens(at);
  const DType dt = num_.compute;
  const auto eps = float(c_.norm_eps);
  Saved s;
  s.x = x;

  s.h1 = activation("h1", c_.dim, at);
  task("norm1", RmsNorm{t, c_.dim, eps, dt}, {s.x, p.norm1, s.h1}, at);
  s.q = activation("q", c_.q_dim(), at);
  task("q_proj", Linear{t, c_.dim, c_.q_dim(), dt}, {s.h1, p.wq, s.q}, at);
  batch_task("q_rope", Rope{t, c_.heads, c_.head_dim, 0, dt}, {s.q, batch(at), model_.inv_freq}, kPositions,
             Rope::kPos, at);
  s.kv = activation("kv", 2 * c_.kv_dim(), at);
  task("kv_proj", Linear{t, c_.dim, 2 * c_.kv_dim(), dt}, {s.h1, p.wkv, s.kv}, at);
  batch_task("k_rope", Rope{t, c_.kv_heads, c_.head_dim, c_.kv_dim(), dt}, {s.kv, batch(at), model_.inv_freq},
             kPositions, Rope::kPos, at);
  attention_forward(s, at);
  s.x_mid = activation("x_mid", c_.dim, at);
  task("o_proj", Linear{t, c_.q_dim(), c_.dim, dt, true}, {s.o, p.wo, s.x_mid, s.x}, at);

  s.h2 = activation("h2", c_.dim, at);
  task("norm2", RmsNorm{t, c_.dim, eps, dt}, {s.x_mid, p.norm2, s.h2}, at);
  s.gu = activation("gu", 2 * c_.ffn, at);
  task("gate_up", Linear{t, c_.dim, 2 * c_.ffn, dt}, {s.h2, p.wgu, s.gu}, at);
  const ObjectId act = activation("act", c_.ffn, at);
  task("swiglu", Swiglu{t, c_.ffn, dt}, {s.gu, act}, at);
  s.x_out = activation("x", c_.dim, {at.layer + 1, at.round, at.chunk});
  task("down", Linear{t, c_.ffn, c_.dim, dt, true}, {act, p.wd, s.x_out, s.x_mid}, at);
  return s;
}

// Attention of a chunk over every block of its sequence so far. A single block needs no merging; several are
// merged in fp32 by log-sum-exp, the diagonal one first.
void Builder::attention_forward(Saved& s, const Place& at) {
  s.o = activation("o", c_.q_dim(), at);
  s.lse = object("lse", ObjectKind::Activation, DType::F32, tokens(at) * c_.heads, at);
  const int block = block_in_sequence(at.chunk);
  const auto attend = [&](int earlier, ObjectId kv, ObjectId out, DType out_dtype, bool merge) {
    const std::string name = earlier == 0 ? "attn" : fmt::format("attn-{}", earlier);
    batch_task(name, AttnFwd{attention_shape(at, at.chunk - earlier), out_dtype, merge},
               {s.q, kv, batch(at), out, s.lse}, kPositions, AttnFwd::kPos, at);
  };
  if (block == 0) {
    attend(0, s.kv, s.o, num_.compute, false);
    return;
  }
  const int64_t elements = tokens(at) * c_.q_dim();
  const ObjectId sum = object("o_sum", ObjectKind::Activation, DType::F32, elements, at);
  attend(0, s.kv, sum, DType::F32, false);
  for (int earlier = 1; earlier <= block; ++earlier) {
    attend(earlier, saved_[size_t(at.layer)][size_t(at.chunk - earlier)].kv, sum, DType::F32, true);
  }
  task("o_cast", Cast{elements, DType::F32, num_.compute}, {sum, s.o}, at);
}

// Final norm, head and loss of a chunk; in training also their backward pass, as logits do not outlive the
// task.
ObjectId Builder::head(ObjectId x, bool forward_only, const Place& at) {
  const int64_t t = tokens(at);
  const DType dt = num_.compute;
  const auto eps = float(c_.norm_eps);
  const Place place{-1, at.round, at.chunk};
  const ObjectId h = activation("h", c_.dim, place);
  task("norm", RmsNorm{t, c_.dim, eps, dt}, {x, norm_, h}, place);
  HeadLoss op{t,     c_.dim, c_.vocab,    std::min(shape_.head_tokens, t), dt, num_.grad,
              false, false,  forward_only};
  if (forward_only) {
    const ObjectId losses = model_.losses[size_t(at.chunk)];
    batch_task("head_loss", op, {h, head_, batch(at), model_.args, losses}, kTargets, HeadLoss::kTargets,
               place);
    return {};
  }
  op.accumulate_loss = accumulates(model_.loss);
  phase_ = Phase::Backward;
  op.accumulate_dw = accumulates(grad(head_));
  const ObjectId dh = act_grad("dh", c_.dim, place);
  batch_task("head_loss", op, {h, head_, batch(at), model_.args, model_.loss, dh, grad(head_)}, kTargets,
             HeadLoss::kTargets, place);
  const ObjectId dx = act_grad("dx", c_.dim, {int(c_.layers), at.round, at.chunk});
  task("norm_bwd", RmsNormBwd{t, c_.dim, eps, dt, num_.grad, accumulates(grad(norm_)), false},
       {x, norm_, dh, dx, grad(norm_)}, place);
  return dx;
}

void Builder::layer_backward(const Saved& s, ObjectId dx_out, ObjectId dx, const Place& at) {
  const LayerParams& p = layers_[size_t(at.layer)];
  const int64_t t = tokens(at);
  const DType dt = num_.compute, gt = num_.grad;
  const auto eps = float(c_.norm_eps);
  const auto wgrad = [&](std::string_view what, ObjectId dy, ObjectId x, ObjectId w, int64_t in,
                         int64_t out) {
    task(what, LinearWgrad{t, in, out, dt, gt, accumulates(grad(w))}, {dy, x, grad(w)}, at);
  };

  const ObjectId d_act = act_grad("d_act", c_.ffn, at);
  task("down_dgrad", LinearDgrad{t, c_.ffn, c_.dim, dt, false}, {dx_out, p.wd, d_act}, at);
  const ObjectId d_gu = act_grad("d_gu", 2 * c_.ffn, at);
  const ObjectId act = act_grad("act2", c_.ffn, at);
  task("swiglu_bwd", SwigluBwd{t, c_.ffn, dt}, {s.gu, d_act, d_gu, act}, at);
  wgrad("down_wgrad", dx_out, act, p.wd, c_.ffn, c_.dim);
  const ObjectId d_h2 = act_grad("d_h2", c_.dim, at);
  task("gate_up_dgrad", LinearDgrad{t, c_.dim, 2 * c_.ffn, dt, false}, {d_gu, p.wgu, d_h2}, at);
  wgrad("gate_up_wgrad", d_gu, s.h2, p.wgu, c_.dim, 2 * c_.ffn);
  const ObjectId dx_mid = act_grad("dx_mid", c_.dim, at);
  task("norm2_bwd", RmsNormBwd{t, c_.dim, eps, dt, gt, accumulates(grad(p.norm2)), true},
       {s.x_mid, p.norm2, d_h2, dx_mid, grad(p.norm2), dx_out}, at);

  const ObjectId d_o = act_grad("d_o", c_.q_dim(), at);
  task("o_dgrad", LinearDgrad{t, c_.q_dim(), c_.dim, dt, false}, {dx_mid, p.wo, d_o}, at);
  wgrad("o_wgrad", dx_mid, s.o, p.wo, c_.q_dim(), c_.dim);
  const ObjectId d_h1 = attention_backward(s, d_o, at);
  task("norm1_bwd", RmsNormBwd{t, c_.dim, eps, dt, gt, accumulates(grad(p.norm1)), true},
       {s.x, p.norm1, d_h1, dx, grad(p.norm1), dx_mid}, at);
}

// Gradients of K and V collect contributions of every later chunk of the sequence; chunks come in reverse, so
// they are complete when the chunk itself is visited.
ObjectId Builder::attention_backward(const Saved& s, ObjectId d_o, const Place& at) {
  const LayerParams& p = layers_[size_t(at.layer)];
  const int64_t t = tokens(at);
  const DType dt = num_.compute;
  const DType sum = shape_.chunks_per_sequence() > 1 ? DType::F32 : dt;
  const auto dkv = [&](int chunk) -> ObjectId& {
    ObjectId& id = dkv_[size_t(at.layer)][size_t(chunk)];
    if (!id.valid()) {
      id = object("dkv_rot", ObjectKind::ActGrad, sum, t * 2 * c_.kv_dim(), {at.layer, at.round, chunk});
    }
    return id;
  };
  const ObjectId dq = object("dq_rot", ObjectKind::ActGrad, sum, t * c_.q_dim(), at);
  for (int earlier = 0; earlier <= block_in_sequence(at.chunk); ++earlier) {
    const int block = at.chunk - earlier;
    const ObjectId target = dkv(block);
    const std::string name = earlier == 0 ? "attn_bwd" : fmt::format("attn_bwd-{}", earlier);
    batch_task(name, AttnBwd{attention_shape(at, block), sum, accumulates(dq), accumulates(target)},
               {s.q, saved_[size_t(at.layer)][size_t(block)].kv, batch(at), s.o, s.lse, d_o, dq, target},
               kPositions, AttnBwd::kPos, at);
  }
  const ObjectId d_q = act_grad("d_q", c_.q_dim(), at);
  const ObjectId d_kv = act_grad("d_kv", 2 * c_.kv_dim(), at);
  batch_task("rope_bwd", RopeBwd{t, c_.heads, c_.kv_heads, c_.head_dim, sum, dt},
             {dq, dkv(at.chunk), batch(at), model_.inv_freq, d_q, d_kv}, kPositions, RopeBwd::kPos, at);

  const ObjectId d_h1 = act_grad("d_h1", c_.dim, at);
  task("q_dgrad", LinearDgrad{t, c_.dim, c_.q_dim(), dt, false}, {d_q, p.wq, d_h1}, at);
  task("kv_dgrad", LinearDgrad{t, c_.dim, 2 * c_.kv_dim(), dt, true}, {d_kv, p.wkv, d_h1}, at);
  task("q_wgrad", LinearWgrad{t, c_.dim, c_.q_dim(), dt, num_.grad, accumulates(grad(p.wq))},
       {d_q, s.h1, grad(p.wq)}, at);
  task("kv_wgrad", LinearWgrad{t, c_.dim, 2 * c_.kv_dim(), dt, num_.grad, accumulates(grad(p.wkv))},
       {d_kv, s.h1, grad(p.wkv)}, at);
  return d_h1;
}

// Every chunk passes a layer before the next layer starts. With a deferred update, each weight's pending
// update comes just before its first use. The head's is followed by the backward pass, so its moments are
// never late.
void Builder::forward(int round) {
  const auto chunks = int(shape_.chunks_in(round));
  const bool update_first = optimizer_ != nullptr && optimizer_->deferred && round == 0;
  const bool moments = !late_moments(round);
  saved_.assign(size_t(c_.layers), std::vector<Saved>(size_t(chunks)));
  dkv_.assign(size_t(c_.layers), std::vector<ObjectId>(size_t(chunks)));
  x_.assign(size_t(chunks), {});
  if (update_first) update({embedding_}, moments);
  phase_ = Phase::Forward;
  for (int c = 0; c < chunks; ++c) x_[size_t(c)] = embed({-1, round, c});
  for (int l = 0; l < c_.layers; ++l) {
    if (update_first) update(layer_params(l), moments);
    phase_ = Phase::Forward;
    for (int c = 0; c < chunks; ++c) {
      Saved& s = saved_[size_t(l)][size_t(c)];
      s = layer_forward(x_[size_t(c)], {l, round, c});
      x_[size_t(c)] = s.x_out;
    }
  }
  if (update_first) update(head_params());
}

// Layers and chunks in reverse. x_ holds the output of the last layer and then the gradient coming down. In
// the last round the norm of a weight's gradient is taken as soon as the gradient is complete, while it is at
// hand. Late moments take the last step's gradient before it is overwritten.
void Builder::backward(int round) {
  const auto chunks = int(shape_.chunks_in(round));
  const bool complete = round + 1 == shape_.rounds, late = late_moments(round);
  if (late && c_.tied_embeddings) update_moments({embedding_});  // whose gradient the head writes first
  for (int c = chunks - 1; c >= 0; --c) {
    phase_ = Phase::Forward;
    x_[size_t(c)] = head(x_[size_t(c)], false, {-1, round, c});
  }
  if (complete) sum_squares(head_params());
  for (int l = int(c_.layers) - 1; l >= 0; --l) {
    if (late) update_moments(layer_params(l));
    phase_ = Phase::Backward;
    for (int c = chunks - 1; c >= 0; --c) {
      const ObjectId dx = act_grad("dx", c_.dim, {l, round, c});
      layer_backward(saved_[size_t(l)][size_t(c)], x_[size_t(c)], dx, {l, round, c});
      x_[size_t(c)] = dx;
    }
    if (complete) sum_squares(layer_params(l));
  }
  if (late && !c_.tied_embeddings) update_moments({embedding_});
  phase_ = Phase::Backward;
  for (int c = chunks - 1; c >= 0; --c) {
    const Place at{-1, round, c};
    const ObjectId d = grad(embedding_);
    batch_task("embed_bwd", EmbedBwd{tokens(at), c_.vocab, c_.dim, num_.compute, num_.grad, accumulates(d)},
               {batch(at), x_[size_t(c)], d}, kTokens, EmbedBwd::kIds, at);
  }
  if (complete) sum_squares({embedding_});
}

std::vector<ObjectId> Builder::layer_params(int layer) const {
  const LayerParams& p = layers_[size_t(layer)];
  return {p.norm1, p.wq, p.wkv, p.wo, p.norm2, p.wgu, p.wd};
}

std::vector<ObjectId> Builder::head_params() const {
  if (c_.tied_embeddings) return {norm_};
  return {norm_, head_};
}

size_t Builder::slot(ObjectId param) const {
  const auto it =
      std::find_if(weights_.begin(), weights_.end(), [&](const auto& w) { return w.first == param; });
  return size_t(it - weights_.begin());
}

void Builder::sum_squares(const std::vector<ObjectId>& params) {
  phase_ = Phase::Update;
  for (const ObjectId param : params) {
    const ObjectId uses[] = {grad(param), sums_};
    const int64_t n = program().object(uses[0]).bytes / size_of(num_.grad);
    program().add("norm_of." + program().object(param).name,
                  SumSq{n, int64_t(slot(param)), int64_t(weights_.size()), num_.grad, !accumulates(sums_)},
                  bound(uses, {}), phase_, program().object(param).layer, -1, -1);
  }
}

void Builder::add_optimizer_state() {
  for (const auto& [id, weight] : weights_) {
    const Object param = program().object(id);
    const int64_t total = param.elements();
    OptimizerParts& parts = parts_[id.value];
    for (int64_t first = 0; first < total; first += optimizer_->part_elements) {
      const int64_t n = std::min(optimizer_->part_elements, total - first);
      const auto part = [&](const char* role, DType dtype) {
        return persistent(fmt::format("{}_{}.p{}", role, param.name, parts.m.size()),
                          fmt::format("{}_{}", role, param.role), ObjectKind::OptState, dtype, n,
                          param.layer);
      };
      const ObjectId m = part("m", num_.state), v = part("v", num_.state);
      if (num_.master != MasterWeights::Off)
        parts.master.push_back(part("master", format_of(num_.master).type));
      parts.m.push_back(m);
      parts.v.push_back(v);
      parts.first.push_back(first);
      parts.elements.push_back(n);
    }
  }
  model_.clip = program().add(Object{"clip", "clip", ObjectKind::Metric, DType::F32, 2 * size_of(DType::F32),
                                     -1, -1, -1, optimizer_->deferred});
}

void Builder::update(const std::vector<ObjectId>& params, bool moments) {
  phase_ = Phase::Update;
  for (const ObjectId param : params) {
    const size_t index = slot(param);
    const Weight& weight = weights_[index].second;
    const OptimizerParts& parts = parts_.at(param.value);
    for (size_t i = 0; i < parts.m.size(); ++i) {
      const float decay = weight.is_norm ? 0.f : optimizer_->weight_decay;
      const AdamW op{parts.elements[i], parts.first[i],  index,        optimizer_->beta1, optimizer_->beta2,
                     optimizer_->eps,   decay,           num_.compute, num_.grad,         num_.state,
                     num_.master,       num_.stochastic, moments};
      std::vector<ObjectId> uses{param, grad(param), parts.m[i], parts.v[i], model_.clip, model_.args};
      std::vector<int64_t> offsets{
          parts.first[i] * size_of(num_.compute), parts.first[i] * size_of(num_.grad), 0, 0, 0, 0};
      if (num_.master != MasterWeights::Off) {
        uses.push_back(parts.master[i]);
        offsets.push_back(0);
      }
      program().add(fmt::format("adamw.{}.p{}", weight.object, i), op, bound(uses, offsets), phase_,
                    program().object(param).layer, -1, -1);
    }
  }
}

// What update(params, false) left out.
void Builder::update_moments(const std::vector<ObjectId>& params) {
  phase_ = Phase::Update;
  for (const ObjectId param : params) {
    const size_t index = slot(param);
    const OptimizerParts& parts = parts_.at(param.value);
    for (size_t i = 0; i < parts.m.size(); ++i) {
      const AdamWMoments op{parts.elements[i], parts.first[i], index,      optimizer_->beta1,
                            optimizer_->beta2, num_.grad,      num_.state, num_.stochastic};
      const ObjectId uses[] = {grad(param), parts.m[i], parts.v[i], model_.clip, model_.args};
      const int64_t offsets[] = {parts.first[i] * size_of(num_.grad), 0, 0, 0, 0};
      program().add(fmt::format("adamw_moments.{}.p{}", weights_[index].second.object, i), op,
                    bound(uses, offsets), phase_, program().object(param).layer, -1, -1);
    }
  }
}

std::vector<ObjectId> Builder::all_params() const {
  std::vector<ObjectId> out;
  for (const auto& [id, weight] : weights_) out.push_back(id);
  return out;
}

Model Builder::training() {
  add_weights(optimizer_->deferred ? Gradients::Persistent : Gradients::WithinStep);
  add_optimizer_state();
  add_inputs();
  model_.loss =
      program().add(Object{"loss", "loss", ObjectKind::Metric, DType::F64, 2 * size_of(DType::F64)});
  const auto slots = int64_t(weights_.size());
  sums_ = program().add(
      Object{"grad_sums", "grad_sums", ObjectKind::ActGrad, DType::F64, slots * size_of(DType::F64)});
  for (int r = 0; r < shape_.rounds; ++r) {
    forward(r);
    backward(r);
  }
  phase_ = Phase::Update;
  task("clip", ClipScale{slots, optimizer_->clip_norm}, {sums_, model_.clip}, {-1, -1, -1});
  if (!optimizer_->deferred) update(all_params());
  return std::move(model_);
}

Model Builder::flush() {
  add_weights(Gradients::Persistent);
  add_optimizer_state();
  model_.args = program().add(Object{"args", "args", ObjectKind::Input, DType::U8, sizeof(StepArgs)});
  update(all_params());
  return std::move(model_);
}

Model Builder::evaluation() {
  add_weights(Gradients::None);
  add_inputs();
  for (int c = 0; c < shape_.chunks_per_round; ++c) {
    const std::string name = fmt::format("losses.c{}", c);
    model_.losses.push_back(program().add(Object{name, name, ObjectKind::Metric, DType::F64,
                                                 2 * shape_.tokens_in(0, c) * size_of(DType::F64)}));
  }
  forward(0);
  for (int c = 0; c < shape_.chunks_per_round; ++c) head(x_[size_t(c)], true, {-1, 0, c});
  return std::move(model_);
}

}  // namespace

Programs build(const LlamaConfig& config, const StepShape& shape, const Numerics& numerics,
               const OptimizerConfig& optimizer) {
  StepShape one = shape;
  spread(one, shape.chunks_per_sequence(), 1);
  return {Builder(config, shape, numerics, &optimizer).training().program,
          Builder(config, {}, numerics, &optimizer).flush().program,
          Builder(config, one, numerics, nullptr).evaluation().program};
}

}  // namespace sluice::core::oracle
