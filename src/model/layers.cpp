// SPDX-License-Identifier: Apache-2.0
#include "model/layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "ops/op.h"

namespace sluice::core {

Forward::Forward(const ModelSpec& spec, const std::vector<Weight>& table,
                 const std::vector<ObjectId>& weights, const Chunking& chunking, DType compute,
                 const ModelInputs& inputs, Program& program, Gradients* gradients)
    : spec_(spec),
      chunking_(chunking),
      compute_(compute),
      inputs_(inputs),
      program_(program),
      gradients_(gradients),
      weights_(spec.layers.size() + 1) {
  for (size_t w = 0; w < table.size(); ++w) weights_[size_t(table[w].layer + 1)][table[w].role] = weights[w];
  if (spec.tied_embeddings) weights_[0]["head"] = weight("embedding", -1);
}

ObjectId Forward::weight(std::string_view role, int layer) const {
  const auto& of_layer = weights_[size_t(layer + 1)];
  const auto it = of_layer.find(role);
  SLUICE_CHECK(it != of_layer.end(), "layer {} has no weight {}", layer, role);
  return it->second;
}

Bound Forward::batch(const Place& at, BatchColumn column) const {
  return {inputs_.batch[size_t(at.round)][size_t(at.chunk)], inputs_.layout.offset(column, tokens(at))};
}

namespace {

std::string name_at(std::string_view what, int layer, int round, int chunk) {
  std::string name(what);
  if (layer >= 0) name += fmt::format(".L{}", layer);
  return name += fmt::format(".r{}c{}", round, chunk);
}

}  // namespace

ObjectId Forward::sized(std::string_view role, DType dtype, int64_t elements, const Place& at,
                        Stream stream) {
  return program_.add(Object{name_at(role, at.layer, at.round, at.chunk), std::string(role),
                             ObjectKind::Activation, dtype, Format(dtype).bytes(elements), at.layer, at.round,
                             at.chunk, false, stream});
}

Task Forward::made(std::string_view what, SharedOp op, std::span<const Bound> uses, const Place& at) const {
  return make_task(name_at(what, at.layer, at.round, at.chunk), std::move(op), uses, Phase::Forward, at.layer,
                   at.round, at.chunk);
}

ObjectId Forward::norm(std::string_view what, ObjectId x, std::string_view y, const Place& at) {
  const ObjectId out = activation(y, spec_.dim, at);
  const float scale = at.layer < 0 ? float(spec_.logit_scale) : 1;
  if (spec_.norm.centred) {
    const LayerNorm op{.tokens = tokens(at),
                       .dim = spec_.dim,
                       .eps = float(spec_.stream_norm_eps()),
                       .dtype = compute_,
                       .has_weight = spec_.norm.weight,
                       .has_bias = spec_.norm.bias,
                       .scale = scale};
    std::vector<Bound> uses{x, out};
    if (op.has_weight) uses.emplace_back(weight(what, at.layer));
    if (op.has_bias) uses.emplace_back(weight(std::string(what) + "_bias", at.layer));
    program_.add(made(what, op, uses, at));
    record();
    return out;
  }
  const RmsNorm op{.tokens = tokens(at),
                   .dim = spec_.dim,
                   .eps = float(spec_.stream_norm_eps()),
                   .dtype = compute_,
                   .offset = float(spec_.norm_offset),
                   .scale = scale};
  task(what, op, {x, weight(what, at.layer), out}, at);
  record();
  return out;
}

void Forward::norm_after(std::string_view what, ObjectId half, ObjectId stream, ObjectId sum,
                         const Place& at) {
  const RmsNorm op{.tokens = tokens(at),
                   .dim = spec_.dim,
                   .eps = float(spec_.norm_eps),
                   .dtype = compute_,
                   .offset = float(spec_.norm_offset),
                   .has_residual = true};
  task(what, op, {half, weight(what, at.layer), sum, stream}, at);
  record();
}

void Forward::add_half(const Projection& p, std::string_view half, std::string_view norm, ObjectId x,
                       ObjectId stream, ObjectId sum, const Place& at) {
  if (spec_.layers[size_t(at.layer)].norms == Norms::Before) {
    project(p, x, sum, stream, at);
    record();
    return;
  }
  const ObjectId y = activation(half, p.out, at);
  project(p, x, y, {}, at);
  record();
  norm_after(norm, y, stream, sum, at);
}

TaskId Forward::project(const Projection& p, ObjectId x, ObjectId y, std::optional<ObjectId> residual,
                        const Place& at) {
  const bool rotated = p.rope_heads > 0;
  Linear op{.tokens = tokens(at), .in = p.in, .out = p.out, .dtype = compute_};
  op.has_residual = residual.has_value();
  op.f32_result = p.f32_result && compute_ != DType::F32;
  op.rope_heads = p.rope_heads;
  op.head_dim = rotated ? spec_.head_dim() : 0;
  op.rope_scale = rotated ? rope_scale(at) : 1;
  if (rotated) op.still_scale = still_scale(at);
  op.temperature = p.temperature;
  op.has_bias = !p.bias.empty();
  if (const auto& format = spec_.layers[size_t(at.layer)].matrices; format != compute_)
    op.weight_format = format;
  std::vector<Bound> uses{x, weight(p.weight, at.layer), y};
  if (residual) uses.emplace_back(*residual);
  if (rotated) {
    uses.push_back(batch(at, BatchColumn::Positions));
    uses.emplace_back(inv_freq(at));
  }
  if (op.has_bias) uses.emplace_back(weight(p.bias, at.layer));
  return program_.add(made(p.task, op, uses, at));
}

ObjectId Forward::embed(int round, int chunk) {
  const Place at{-1, round, chunk};
  const Place first{0, round, chunk};
  const ObjectId x = spec_.positions > 0 ? activation("x_token", spec_.dim, first)
                                         : activation("x", spec_.dim, first, Stream::Between);
  task("embed",
       Embed{.tokens = tokens(at),
             .vocab = spec_.vocab,
             .dim = spec_.dim,
             .dtype = compute_,
             .scale = float(spec_.stream_embedding_scale())},
       {batch(at, BatchColumn::Tokens), weight("embedding", -1), x}, at);
  record();
  return add_positions(x, round, chunk);
}

ObjectId Forward::add_positions(ObjectId embedded, int round, int chunk) {
  if (spec_.positions == 0) return embedded;
  const Place at{-1, round, chunk};
  const ObjectId x = activation("x", spec_.dim, {0, round, chunk}, Stream::Between);
  task("positions",
       Embed{tokens(at), spec_.positions, spec_.dim, compute_, float(1 / spec_.residual_scale), true},
       {batch(at, BatchColumn::Positions), weight("positions", -1), x, embedded}, at);
  record();
  return x;
}

// One block of the paper: x_mid = x + attention(norm1(x)); x_out = x_mid + ffn(norm2(x_mid)). Norms may stand
// behind the halves instead, or too; and both halves may read x.
ObjectId Forward::layer(ObjectId x, const Place& at) {
  const LayerSpec& spec = spec_.layers[size_t(at.layer)];
  const int64_t dim = spec_.dim;
  const bool before = spec.norms != Norms::After;
  const ObjectId h1 = before ? norm("norm1", x, "h1", at) : x;
  // Before attention, so that in the backward pass what comes to x along the residual comes first.
  const auto second_norm = [&](ObjectId read) {
    return !before ? read : spec.norm2 ? norm("norm2", read, "h2", at) : h1;
  };
  const ObjectId beside = spec.parallel ? second_norm(x) : ObjectId();
  const Attention* const a = spec.attention();
  const ObjectId o = a != nullptr ? attend(project_rotated(h1, at), at) : convolve(h1, at);
  const ObjectId x_mid = activation("x_mid", dim, at, Stream::Within);
  const Projection out = a != nullptr ? Projection{"o_proj", "wo", a->o_bias ? "bo" : "", a->q_dim(), dim}
                                      : Projection{"conv_out", "wconv_out", "", dim, dim};
  add_half(out, "attn_out", "norm1_after", o, x, x_mid, at);

  const ObjectId h2 = spec.parallel ? beside : second_norm(x_mid);
  const ObjectId x_out = feed_forward(h2, x_mid, at);
  if (gradients_ != nullptr) gradients_->record_input(x);
  return x_out;
}

// Queries, and keys beside values, as attention reads them.
Forward::Projected Forward::project_rotated(ObjectId x, const Place& at) {
  const Attention& a = attention(at);
  // Heads that are normalised are rotated after that. A product of a few rows rotates by itself.
  const bool finished = a.qk_norm == QkNorm::None, rotated = finished && a.rotated,
             at_once = rotated && decodes();
  std::vector<TaskId> products, rotations;
  const ObjectId q = activation(finished ? "q" : "q_raw", a.q_dim(), at);
  products.push_back(project({"q_proj", "wq", a.qkv_bias ? "bq" : "", spec_.dim, a.q_dim(),
                              at_once ? a.heads : 0, at_once ? temperature(at) : Temperature()},
                             x, q, {}, at));
  // Right behind the product: nothing else needs room between the two.
  if (rotated && !at_once) rotations.push_back(rotate("q_rope", q, a.heads, 0, at));
  const ObjectId kv = activation(finished ? "kv" : "kv_raw", 2 * a.kv_dim(), at);
  products.push_back(project(
      {"kv_proj", "wkv", a.qkv_bias ? "bkv" : "", spec_.dim, 2 * a.kv_dim(), at_once ? a.kv_heads : 0}, x, kv,
      {}, at));
  if (rotated && !at_once) rotations.push_back(rotate("k_rope", kv, a.kv_heads, a.kv_dim(), at));
  if (gradients_ != nullptr) gradients_->record(products);
  if (gradients_ != nullptr && !rotations.empty()) gradients_->record(rotations);
  if (finished) return {q, kv};
  return {norm_heads("q_norm", q, "q", a.heads, 0, at),
          norm_heads("k_norm", kv, "kv", a.kv_heads, a.kv_dim(), at)};
}

TaskId Forward::rotate(std::string_view what, ObjectId x, int64_t heads, int64_t rest, const Place& at) {
  return task(what,
              Rope{.tokens = tokens(at),
                   .heads = heads,
                   .head_dim = spec_.head_dim(),
                   .rest = rest,
                   .dtype = compute_,
                   .rope_scale = rope_scale(at),
                   .still_scale = still_scale(at),
                   .temperature = rest == 0 ? temperature(at) : Temperature()},
              {x, batch(at, BatchColumn::Positions), inv_freq(at)}, at);
}

// Norms and rotates the first heads of every row; the `rest` columns behind them stay.
ObjectId Forward::norm_heads(std::string_view what, ObjectId x, std::string_view y, int64_t heads,
                             int64_t rest, const Place& at) {
  const int64_t head_dim = spec_.head_dim();
  const ObjectId out = activation(y, heads * head_dim + rest, at);
  task(what,
       HeadNormRope{.tokens = tokens(at),
                    .heads = heads,
                    .head_dim = head_dim,
                    .rest = rest,
                    .eps = float(spec_.norm_eps),
                    .dtype = compute_,
                    .rope_scale = rope_scale(at),
                    .offset = float(spec_.norm_offset),
                    .whole = attention(at).qk_norm == QkNorm::Whole},
       {x, weight(what, at.layer), batch(at, BatchColumn::Positions), inv_freq(at), out}, at);
  record();
  return out;
}

AttnShape Forward::attention_shape(const Place& at, int block) const {
  const Attention& a = attention(at);
  const int64_t length = chunking_.row_tokens;
  AttnShape shape{.rows = rows(at),
                  .q_len = length,
                  .kv_len = length,
                  .q_heads = a.heads,
                  .kv_heads = a.kv_heads,
                  .head_dim = a.head_dim,
                  .distance = (at.chunk - block) * length,
                  .packed = chunking_.packed,
                  .dtype = compute_};
  // A window that reaches the first key hides nothing of the block.
  if (shape.distance + length > a.window) shape.window = a.window;
  shape.softcap = float(a.softcap);
  return shape;
}

// Attention of a chunk over every block of its sequence so far that its window, if there is one, reaches. A
// single block needs no merging; several are merged in fp32 by log-sum-exp, the diagonal one first.
ObjectId Forward::attend(const Projected& p, const Place& at) {
  if (decodes()) return attend_to_cache(p, at);
  const Attention& a = attention(at);
  const ObjectId o = activation("o", a.q_dim(), at);
  const ObjectId lse = object("lse", DType::F32, a.heads, at);
  kv_[size_t(at.layer)][size_t(at.chunk)] = p.kv;
  const auto block = int(at.chunk % chunking_.per_sequence);
  const auto attend_to = [&](int earlier, ObjectId out, DType out_dtype) {
    const std::string name = earlier == 0 ? "attn" : fmt::format("attn-{}", earlier);
    const AttnFwd op{.shape = attention_shape(at, at.chunk - earlier),
                     .out_dtype = out_dtype,
                     .merge = earlier > 0,
                     .has_sinks = a.sinks && earlier == 0};
    std::vector<Bound> uses{p.q, kv_[size_t(at.layer)][size_t(at.chunk - earlier)],
                            batch(at, BatchColumn::Positions), out, lse};
    if (op.has_sinks) uses.emplace_back(weight("sinks", at.layer));
    program_.add(made(name, op, uses, at));
  };
  int blocks = 1;
  while (blocks <= block && attention_shape(at, at.chunk - blocks).is_in_window()) ++blocks;
  if (blocks == 1) {
    attend_to(0, o, compute_);
    record();
    return o;
  }
  const ObjectId sum = object("o_sum", DType::F32, a.q_dim(), at);
  for (int earlier = 0; earlier < blocks; ++earlier) attend_to(earlier, sum, DType::F32);
  task("o_cast", Cast{.elements = tokens(at) * a.q_dim(), .in_dtype = DType::F32, .dtype = compute_},
       {sum, o}, at);
  record(uint32_t(blocks) + 1);
  return o;
}

ObjectId Forward::convolve(ObjectId x, const Place& at) {
  const int64_t width = spec_.layers[size_t(at.layer)].convolution()->width, dim = spec_.dim;
  const ObjectId bcx = activation("bcx", 3 * dim, at);
  project({"conv_in", "wconv_in", "", dim, 3 * dim}, x, bcx, {}, at);
  record();
  const ObjectId y = activation("conv", dim, at);
  if (decodes()) {
    task("conv", CachedConv{rows(at), chunking_.row_tokens, inputs_.cache.capacity, dim, width, compute_},
         {bcx, weight("wconv", at.layer), inputs_.cache.spans, inputs_.cache.layers[size_t(at.layer)], y},
         at);
    return y;
  }
  const int64_t piece = at.chunk % chunking_.per_sequence;
  const ShortConv op{tokens(at), dim, width, compute_, piece > 0, piece + 1 < chunking_.per_sequence};
  std::vector<Bound> uses{bcx, weight("wconv", at.layer), batch(at, BatchColumn::Positions), y};
  std::vector<ObjectId>& tails = tails_[size_t(at.layer)];
  if (op.has_before) uses.emplace_back(tails[size_t(at.chunk) - 1]);
  if (op.has_tail) {
    tails[size_t(at.chunk)] = sized("conv_tail", compute_, (width - 1) * dim, at);
    uses.emplace_back(tails[size_t(at.chunk)]);
  }
  program_.add(made("conv", op, uses, at));
  record();
  return y;
}

ObjectId Forward::attend_to_cache(const Projected& p, const Place& at) {
  const Attention& a = attention(at);
  const ObjectId o = activation("o", a.q_dim(), at);
  const CachedAttention op{.rows = rows(at),
                           .q_len = chunking_.row_tokens,
                           .capacity = inputs_.cache.capacity,
                           .q_heads = a.heads,
                           .kv_heads = a.kv_heads,
                           .head_dim = a.head_dim,
                           .dtype = compute_,
                           // One that reaches the first key hides nothing.
                           .window = a.window < inputs_.cache.capacity ? a.window : 0,
                           .softcap = float(a.softcap),
                           .has_sinks = a.sinks};
  std::vector<Bound> uses{p.q, p.kv, inputs_.cache.spans, inputs_.cache.layers[size_t(at.layer)], o};
  if (op.has_sinks) uses.emplace_back(weight("sinks", at.layer));
  program_.add(made("attn", op, uses, at));
  return o;
}

std::vector<ObjectId> Forward::layers(int round) {
  const size_t chunks = inputs_.batch[size_t(round)].size(), layers = spec_.layers.size();
  kv_.assign(layers, std::vector<ObjectId>(chunks));
  tails_.assign(layers, std::vector<ObjectId>(chunks));
  std::vector<ObjectId> x;
  const bool embedded = decodes();
  for (size_t c = 0; c < chunks; ++c)
    x.push_back(embedded ? add_positions(inputs_.cache.embedded, round, int(c)) : embed(round, int(c)));
  for (size_t l = 0; l < layers; ++l) {
    for (size_t c = 0; c < chunks; ++c) x[c] = layer(x[c], {int(l), round, int(c)});
  }
  return x;
}

ObjectId Forward::last_norm(ObjectId x, int round, int chunk) {
  return norm("norm", x, "h", {-1, round, chunk});
}

Forward::Head Forward::head(ObjectId h, ObjectId out, int64_t sub_tokens, DType grad, const Place& at) const {
  Head head{.op = {.tokens = tokens(at),
                   .dim = spec_.dim,
                   .vocab = spec_.vocab,
                   .sub_tokens = std::min(sub_tokens, tokens(at)),
                   .dtype = compute_,
                   .grad_dtype = grad,
                   .accumulate_loss = false,
                   .accumulate_dw = false,
                   .forward_only = true},
            .uses = {h, weight("head", -1), batch(at, BatchColumn::Targets), inputs_.args, out}};
  head.op.softcap = float(spec_.logit_softcap);
  head.op.weighted = inputs_.layout.has(BatchColumn::Weights);
  if (head.op.weighted) head.uses.push_back(batch(at, BatchColumn::Weights));
  return head;
}

int64_t Forward::tokens_before(const Place& at) const {
  const std::vector<int64_t>& chunks = chunking_.tokens[size_t(at.round)];
  return std::accumulate(chunks.begin(), chunks.begin() + at.chunk, int64_t{0});
}

void Forward::head_loss(ObjectId h, ObjectId loss, ObjectId log_probs, ObjectId all, int64_t sub_tokens,
                        DType grad, int round, int chunk) {
  SLUICE_CHECK(gradients_ != nullptr, "round {}, chunk {}: no gradients", round, chunk);
  const Place at{-1, round, chunk};
  auto [op, uses] = head(h, loss, sub_tokens, grad, at);
  op.accumulate_loss = std::exchange(loss_written_, loss) == loss;
  if (all.valid()) uses.back() = {all, tokens_before(at) * size_of(DType::F32)};
  op.log_probs = log_probs.valid();
  if (op.log_probs) uses.emplace_back(log_probs);
  gradients_->record_fused(made("head_loss", op, uses, at));
}

void Forward::gather_weights(ObjectId h, ObjectId log_probs, ObjectId all, int64_t sub_tokens, DType grad,
                             int round, int chunk) {
  const Place at{-1, round, chunk};
  // The op makes losses, too, which nobody reads.
  const ObjectId losses =
      program_.add(Object{name_at("losses", -1, round, chunk), "losses", ObjectKind::ActGrad, DType::F64,
                          2 * tokens(at) * size_of(DType::F64), -1, round, chunk});
  auto [op, uses] = head(h, losses, sub_tokens, grad, at);
  SLUICE_CHECK(op.weighted, "round {}, chunk {}: its batch has no weights", round, chunk);
  op.weighted = false;
  op.log_probs = true;
  const Bound weights = std::exchange(uses.back(), log_probs);
  program_.add(made("log_probs", op, uses, at));
  const std::vector<int64_t>& chunks = chunking_.tokens[size_t(round)];
  const int64_t all_tokens = std::accumulate(chunks.begin(), chunks.end(), int64_t{0});
  task("gather_weights", GatherWeights{.tokens = tokens(at), .first = tokens_before(at), .round = all_tokens},
       {weights, log_probs, all}, at);
}

void Forward::token_losses(ObjectId h, ObjectId losses, int64_t sub_tokens, DType grad, int round,
                           int chunk) {
  SLUICE_CHECK(gradients_ == nullptr, "round {}, chunk {}: gradients", round, chunk);
  const Place at{-1, round, chunk};
  const auto [op, uses] = head(h, losses, sub_tokens, grad, at);
  program_.add(made("head_loss", op, uses, at));
}

void Forward::last_logits(ObjectId h, ObjectId logits, int round, int chunk) {
  const Place at{-1, round, chunk};
  task("logits",
       LastLogits{.rows = rows(at),
                  .q_len = chunking_.row_tokens,
                  .dim = spec_.dim,
                  .vocab = spec_.vocab,
                  .dtype = compute_,
                  .softcap = float(spec_.logit_softcap)},
       {h, weight("head", -1), inputs_.cache.spans, logits}, at);
}

}  // namespace sluice::core
