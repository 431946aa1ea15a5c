// SPDX-License-Identifier: Apache-2.0
#include "model/layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "ops/op.h"

namespace sluice::core {

Forward::Forward(const ModelSpec& spec, const std::vector<Weight>& table,
                 const std::vector<ObjectId>& weights, const Chunking& chunking, const Numerics& numerics,
                 const ModelInputs& inputs, Program& program, Gradients* gradients)
    : spec_(spec),
      chunking_(chunking),
      activations_(numerics.compute),
      inputs_(inputs),
      program_(program),
      gradients_(gradients),
      weights_(spec.layers.size() + 1),
      adapters_(spec.layers.size() + 1) {
  for (size_t w = 0; w < table.size(); ++w) {
    const size_t layer = size_t(table[w].layer + 1);
    weights_[layer][table[w].role] = weights[w];
    if (table[w].adds) adapters_[layer][table[w].role] = *table[w].adds;
    products_[weights[w].value] = table[w].product;
  }
  if (spec.tied_embeddings) weights_[0]["head"] = weight("embedding", -1);
}

ObjectId Forward::weight(std::string_view role, int layer) const {
  const auto& of_layer = weights_[size_t(layer + 1)];
  const auto it = of_layer.find(role);
  SLUICE_CHECK(it != of_layer.end(), "layer {} has no weight {}", layer, role);
  return it->second;
}

ObjectId Forward::multiplied(std::string_view role, const Place& at) {
  const ObjectId stored = weight(role, at.layer);
  const ProductFormats& product = products_.at(stored.value);
  const NumberFormat to = product.x ? NumberFormat(activations_) : product.w.value_or(activations_);
  const auto& of_layer = weights_[size_t(at.layer + 1)];
  const bool parted = of_layer.contains(part_name(role, 1));
  if (program_.object(stored).format == to && !parted) return stored;
  SLUICE_CHECK(to.block == 0, "{} of layer {}: products take it in {}", role, at.layer, to_text(to));
  ObjectId& cast = casts_[stored.value];
  if (cast.valid()) return cast;
  std::vector<std::pair<std::string, ObjectId>> parts;
  int64_t all = 0, first = 0;
  for (std::string name(role); of_layer.contains(name); name = part_name(role, parts.size())) {
    parts.emplace_back(name, weight(name, at.layer));
    all += program_.object(parts.back().second).elements();
  }
  cast = sized(fmt::format("{}_cast", role), to.type, all, at);
  for (const auto& [name, part] : parts) {
    const Object& object = program_.object(part);
    Cast op{object.elements(), object.format, to.type};
    if (parted) op.first = first, op.all = all;
    first += op.elements;
    task("cast_" + name, op, {part, cast}, at);
  }
  return cast;
}

ObjectId Forward::quantized(ObjectId x, const NumberFormat& format, int64_t cols, bool turned,
                            const Place& at) {
  Copies& copies = copies_[x.value];
  const Object of = program_.object(x);
  Quantize op{of.elements() / cols,   cols,
              activations_,           format,
              !copies.by_row.valid(), turned && !copies.turned.valid()};
  if (!op.by_row && !op.by_column) return copies.by_row;
  std::vector<Bound> uses{x};
  const auto add = [&](const char* ending, int64_t row) {
    Object copy = of;
    copy.role += ending;
    copy.name = copy.role + of.name.substr(of.role.size());
    copy.kind = ObjectKind::Activation;
    copy.format = format.over(row);
    copy.bytes = copy.format.bytes(of.elements());
    copy.persistent = false;
    copy.stream = Stream::No;
    return uses.emplace_back(program_.add(std::move(copy))).object;
  };
  if (op.by_row) copies.by_row = add(kByRow, op.cols);
  if (op.by_column) copies.turned = add(kTurned, op.rows);
  program_.add(made("quantize_" + of.role + (op.by_row ? "" : kTurned), op, uses, at));
  if (gradients_ != nullptr) {
    gradients_->stands_for(copies.by_row, x);
    gradients_->turned_copy(copies.by_row, copies.turned);
  }
  return copies.by_row;
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
                             ObjectKind::Activation, dtype, NumberFormat(dtype).bytes(elements), at.layer,
                             at.round, at.chunk, false, stream});
}

Task Forward::made(std::string_view what, SharedOp op, std::span<const Bound> uses, const Place& at) const {
  return make_task(name_at(what, at.layer, at.round, at.chunk), std::move(op), uses, Phase::Forward, at.layer,
                   at.round, at.chunk);
}

ObjectId Forward::norm(std::string_view what, ObjectId x, std::string_view y, const Place& at, float scale) {
  const ObjectId out = activation(y, spec_.dim, at);
  if (spec_.norm.centred) {
    const LayerNorm op{.tokens = tokens(at),
                       .dim = spec_.dim,
                       .eps = float(spec_.stream_norm_eps()),
                       .dtype = activations_,
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
                   .dtype = activations_,
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
                   .dtype = activations_,
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
  const auto& adapters = adapters_[size_t(at.layer + 1)];
  const auto own = adapters.find(adapter_b(p.weight, 0));
  if (own == adapters.end() || own->second.magnitudes.empty())
    return multiply(p, x, y, adapt(p, x, residual, at), at);
  Projection plain = p;
  plain.bias = {};
  const ObjectId z = activation(std::string(p.task) + "_unscaled", p.out, at);
  multiply(plain, x, z, adapt(p, x, {}, at), at);
  record();
  return magnify(p, own->second, weight(own->first, at.layer), z, y, residual, at);
}

TaskId Forward::multiply(const Projection& p, ObjectId x, ObjectId y, std::optional<ObjectId> residual,
                         const Place& at) {
  const bool rotated = p.rope_heads > 0;
  Linear op{.tokens = tokens(at), .in = p.in, .out = p.out, .dtype = activations_};
  op.has_residual = residual.has_value();
  const ProductFormats& product = products_.at(weight(p.weight, at.layer).value);
  op.f32_result = product.y == NumberFormat(DType::F32) && activations_ != DType::F32;
  op.rope_heads = p.rope_heads;
  op.head_dim = rotated ? attention(at).head_dim : 0;
  op.rope_scale = rotated ? rope_scale(at) : 1;
  if (rotated) op.still_scale = still_scale(at);
  op.temperature = p.temperature;
  op.has_bias = !p.bias.empty();
  ObjectId w = multiplied(p.weight, at);
  // The turned copies are what gradients of x and of w read.
  if (product.x && product.w && !decodes()) {
    const ObjectId of_x = x, of_w = w;
    const auto wanted = [&](ObjectId o) { return gradients_ != nullptr && gradients_->wanted(o); };
    const bool makes_dw = wanted(of_w) && is_narrow(tokens(at));
    x = quantized(of_x, *product.x, p.in, makes_dw && !gradients_->makes_again(of_x), at);
    w = quantized(of_w, *product.w, p.in, wanted(of_x), at);
    op.x_format = program_.object(x).format;
    if (gradients_ != nullptr && product.dy) gradients_->read_in(w, *product.dy);
  }
  if (const NumberFormat& format = program_.object(w).format; format != activations_)
    op.weight_format = format;
  std::vector<Bound> uses{x, w, y};
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
             .dtype = activations_,
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
       Embed{tokens(at), spec_.positions, spec_.dim, activations_, float(1 / spec_.residual_scale), true},
       {batch(at, BatchColumn::Positions), weight("positions", -1), x, embedded}, at);
  record();
  return x;
}

// One block of the paper: x_mid = x + attention(norm1(x)); x_out = x_mid + ffn(norm2(x_mid)). Norms may stand
// behind the halves instead, or too; and both halves may read x.
ObjectId Forward::layer(ObjectId x, const Place& at) {
  const LayerSpec& spec = spec_.layers[size_t(at.layer)];
  const bool before = spec.norms != Norms::After;
  const ObjectId h1 = before ? norm("norm1", x, "h1", at) : x;
  // Before attention, so that in the backward pass what comes to x along the residual comes first.
  const auto second_norm = [&](ObjectId read) {
    return !before ? read : spec.norm2 ? norm("norm2", read, "h2", at) : h1;
  };
  const ObjectId beside = spec.parallel ? second_norm(x) : ObjectId();
  const ObjectId o = std::visit([&](const auto& mixer) { return mix(mixer, h1, at); }, spec.mixer);
  const ObjectId x_mid = activation("x_mid", spec_.dim, at, Stream::Within);
  const Projection out = std::visit([&](const auto& mixer) { return out_of(mixer); }, spec.mixer);
  add_half(out, "attn_out", "norm1_after", o, x, x_mid, at);

  const ObjectId h2 = spec.parallel ? beside : second_norm(x_mid);
  ObjectId x_out =
      std::visit([&](const auto& half) { return feed_forward(half, h2, x_mid, at); }, spec.feed_forward);
  if (spec.input > 0) x_out = add_input(x_out, at);
  if (spec.scaled) {
    const ObjectId whole = stream_after(at, Part::Scaled);
    task("scale", ScaleBy{tokens(at) * spec_.dim, activations_},
         {x_out, weight("layer_scale", at.layer), whole}, at);
    record();
    x_out = whole;
  }
  if (gradients_ != nullptr) gradients_->record_input(x);
  return x_out;
}

// x + norm(W_out (activation(W_gate x) * input)), where the input is a token's row of the layer's table
// beside a normalised projection of the embedding, over the root of two.
ObjectId Forward::add_input(ObjectId x, const Place& at) {
  const int64_t width = spec_.layers[size_t(at.layer)].input, dim = spec_.dim;
  const ObjectId raw = activation("input_raw", width, at), input = activation("input", width, at);
  Bound rows(inputs_.cache.embedded, tokens(at) * (dim + at.layer * width) * size_of(activations_));
  if (!decodes()) {
    const ObjectId found = activation("input_rows", width, at);
    task("input_rows", Embed{tokens(at), spec_.vocab, width, activations_, std::sqrt(0.5f * float(width))},
         {batch(at, BatchColumn::Tokens), weight("input_table", at.layer), found}, at);
    record();
    rows = found;
  }
  project({"input_proj", "winput", "", dim, width}, embedded_[size_t(at.chunk)], raw, {}, at);
  record();
  // The projection is over the root of dim: its squares are as much smaller as epsilon is larger here.
  const RmsNorm op{.tokens = tokens(at),
                   .dim = width,
                   .eps = float(spec_.norm_eps * double(dim)),
                   .dtype = activations_,
                   .offset = float(spec_.norm_offset),
                   .scale = std::sqrt(0.5f),
                   .has_residual = true};
  task("input_norm", op, {raw, weight("input_norm", -1), input, rows}, at);
  record();
  const ObjectId gate = activation("input_gate", width, at), act = activation("input_act", width, at);
  project({"input_gate", "winput_gate", "", dim, width}, x, gate, {}, at);
  record();
  Swiglu glu{{.tokens = tokens(at), .dim = width, .dtype = activations_}};
  glu.activation = spec_.layers[size_t(at.layer)].mlp().activation;
  glu.apart = true;
  task("input_act", glu, {gate, act, input}, at);
  record();
  const ObjectId out = activation("input_out", dim, at), sum = stream_after(at, Part::Input);
  project({"input_out", "winput_out", "", width, dim}, act, out, {}, at);
  record();
  norm_after("input_after", out, x, sum, at);
  return sum;
}

std::vector<ObjectId> Forward::layers(int round) {
  const size_t chunks = inputs_.batch[size_t(round)].size(), layers = spec_.layers.size();
  kv_.assign(layers, std::vector<ObjectId>(chunks));
  tails_.assign(layers, std::vector<ObjectId>(chunks));
  states_.assign(layers, std::vector<ObjectId>(chunks));
  casts_.clear();
  std::vector<ObjectId> x;
  const bool embedded = decodes();
  for (size_t c = 0; c < chunks; ++c)
    x.push_back(embedded ? add_positions(inputs_.cache.embedded, round, int(c)) : embed(round, int(c)));
  embedded_ = x;
  for (size_t l = 0; l < layers; ++l) {
    for (size_t c = 0; c < chunks; ++c) x[c] = layer(x[c], {int(l), round, int(c)});
  }
  return x;
}

ObjectId Forward::last_norm(ObjectId x, int round, int chunk) {
  return norm("norm", x, "h", {-1, round, chunk}, float(spec_.logit_scale));
}

Forward::Head Forward::head(ObjectId h, ObjectId out, int64_t sub_tokens, DType grad, const Place& at) {
  Head head{.op = {.tokens = tokens(at),
                   .dim = spec_.dim,
                   .vocab = spec_.vocab,
                   .sub_tokens = std::min(sub_tokens, tokens(at)),
                   .dtype = activations_,
                   .grad_dtype = grad,
                   .accumulate_loss = false,
                   .accumulate_dw = false,
                   .forward_only = true},
            .uses = {h, weight("head", -1), batch(at, BatchColumn::Targets), inputs_.args, out}};
  head.op.softcap = float(spec_.logit_softcap);
  // Without gradients nothing is turned, so a chunk may have any number of rows, but parts of one may not.
  const bool turns = gradients_ != nullptr;
  const bool parts = is_narrow(head.op.sub_tokens) || head.op.sub_tokens == tokens(at);
  if (spec_.narrow_head && parts && (!turns || is_narrow(tokens(at)))) {
    const ObjectId w = weight("head", -1);
    const bool makes_dw = turns && gradients_->wanted(w);
    head.uses[HeadLoss::kX] = quantized(h, kFloat8, spec_.dim, makes_dw, at);
    head.uses[HeadLoss::kW] = quantized(w, kFloat8, spec_.dim, turns, at);
    head.op.x_format = kFloat8.over(spec_.dim);
  }
  head.op.weighted = inputs_.layout.has(BatchColumn::Weights);
  if (head.op.weighted) head.uses.push_back(batch(at, BatchColumn::Weights));
  return head;
}

int64_t Forward::tokens_before(const Place& at) const {
  const std::vector<int64_t>& chunks = chunking_.tokens[size_t(at.round)];
  return std::accumulate(chunks.begin(), chunks.begin() + at.chunk, int64_t{0});
}

int64_t Forward::tokens_of_round(const Place& at) const {
  const std::vector<int64_t>& chunks = chunking_.tokens[size_t(at.round)];
  return std::accumulate(chunks.begin(), chunks.end(), int64_t{0});
}

int64_t Forward::top() const {
  return inputs_.layout.has(BatchColumn::TopTokens) ? inputs_.layout.width(BatchColumn::TopTokens) : 0;
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
  op.top = top();
  if (op.top > 0) {
    SLUICE_CHECK(all.valid(), "round {}, chunk {}: nobody says the weights of others than targets", round,
                 chunk);
    uses.push_back(batch(at, BatchColumn::TopTokens));
    uses.emplace_back(all, (tokens_of_round(at) + op.top * tokens_before(at)) * size_of(DType::F32));
  }
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
  op.top = top();
  const Bound weights = std::exchange(uses.back(), log_probs);
  ObjectId top_log_probs;
  if (op.top > 0) {
    top_log_probs = object("top_log_probs", DType::F32, op.top, at);
    uses.push_back(batch(at, BatchColumn::TopTokens));
    uses.emplace_back(top_log_probs);
  }
  program_.add(made("log_probs", op, uses, at));
  const int64_t targets = tokens_of_round(at), numbers = targets * (1 + op.top);
  task("gather_weights", GatherWeights{.tokens = tokens(at), .first = tokens_before(at), .round = numbers},
       {weights, log_probs, all}, at);
  if (op.top == 0) return;
  task("gather_top_weights",
       GatherWeights{
           .tokens = tokens(at) * op.top, .first = targets + tokens_before(at) * op.top, .round = numbers},
       {batch(at, BatchColumn::TopWeights), top_log_probs, all}, at);
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
                  .dtype = activations_,
                  .softcap = float(spec_.logit_softcap)},
       {h, weight("head", -1), inputs_.cache.spans, logits}, at);
}

void Forward::draw_tokens(ObjectId logits, ObjectId draws, ObjectId drawn, int64_t count, int round,
                          int chunk) {
  const Place at{-1, round, chunk};
  task("draw", DrawTokens{count, rows(at), spec_.vocab}, {logits, draws, drawn}, at);
}

void Forward::add_cached(std::string_view what, SharedOp op, std::vector<Bound> uses, ObjectId cache,
                         const Place& at) {
  const auto& c = inputs_.cache;
  if (c.slots.valid()) uses.emplace_back(c.slots);
  program_.add(made(what, std::move(op), uses, at));
  if (!c.copies.valid()) return;
  const Object& object = program_.object(cache);
  task(fmt::format("{}_copies", what), CopyRows{c.rows, object.elements() / c.rows, object.format.type},
       {c.copies, cache}, at);
}

}  // namespace sluice::core
