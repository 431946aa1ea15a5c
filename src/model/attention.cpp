// SPDX-License-Identifier: Apache-2.0
// Layers whose mixer is attention.
#include <fmt/format.h>

#include "model/kinds.h"
#include "model/layers.h"
#include "model/weight_table.h"
#include "ops/op.h"

namespace sluice::core {

Status validate(const Attention& a) {
  SLUICE_TRY(check_positive("num_attention_heads", a.heads));
  SLUICE_TRY(check_positive("num_key_value_heads", a.kv_heads));
  SLUICE_TRY(check_positive("head_dim", a.head_dim));
  if (a.heads > kMostWidth / a.head_dim) {
    return error("model: num_attention_heads x head_dim is {} x {}; at most {} is allowed", a.heads,
                 a.head_dim, kMostWidth);
  }
  if (a.heads % a.kv_heads != 0) {
    return error("model: num_attention_heads {} is not a multiple of num_key_value_heads {}", a.heads,
                 a.kv_heads);
  }
  if (a.head_dim % 2 != 0) {
    return error("model: head_dim is {}; rotary embedding needs an even number", a.head_dim);
  }
  if (a.qk_norm != QkNorm::None && !a.rotated)
    return error("model: heads that are normalised must be rotated, too");
  if ((a.values != BehindHeads::Copied || a.keys_of >= 0) && a.qk_norm != QkNorm::Heads)
    return error("model: values that are normalised, or keys of another layer, without norms of heads");
  if (a.scale != 0 && !a.rotated)
    return error(
        "model: the scale of attention's scores is {}; layers that are not rotated have none of their own",
        a.scale);
  if (a.window < 0) return error("model: sliding_window is {}; it must be positive", a.window);
  return {};
}

double product_columns(const Attention& a, int64_t) {
  return (a.gated ? 3 : 2) * double(a.q_dim()) + double(a.kv_columns());
}

int64_t cached_elements(const Attention& a, int64_t, int64_t capacity) {
  return a.keys_of >= 0 ? 0 : 2 * a.kv_dim() * capacity;
}

std::string text_of(const Attention& a) {
  return fmt::format("{} query and {} key-value heads of {}", a.heads, a.kv_heads, a.head_dim);
}

int64_t looks_back(const Attention&) {
  return 0;
}

int64_t state_elements(const Attention&) {
  return 0;
}

void WeightTable::add(const Attention& a) {
  const int64_t d = spec_.dim, q = a.q_dim(), kv = a.kv_dim();
  const bool own = a.keys_of < 0;
  const TensorNames& names = spec_.names;
  matrix("wq", ModelPart::Projection, {projection(a, at(names.q), Qkv::Q, ".weight", d)});
  if (a.qkv_bias) bias("bq", {projection(a, at(names.q), Qkv::Q, ".bias", 1)});
  if (a.gated) {
    matrix("wq_gate", ModelPart::Projection, {gate(a, ".weight", d)});
    if (a.qkv_bias) bias("bq_gate", {gate(a, ".bias", 1)});
  }
  const auto keys_and_values = [&](const char* kind, int64_t cols) {
    std::vector<WeightSource> out{projection(a, at(names.k), Qkv::K, kind, cols)};
    if (a.values != BehindHeads::Again) out.push_back(projection(a, at(names.v), Qkv::V, kind, cols));
    return out;
  };
  if (own) matrix("wkv", ModelPart::Projection, keys_and_values(".weight", d));
  if (own && a.qkv_bias) bias("bkv", keys_and_values(".bias", 1));
  if (a.qk_norm != QkNorm::None) {
    const bool whole = a.qk_norm == QkNorm::Whole;
    plain_norm("q_norm", at(names.q_norm) + ".weight", whole ? q : a.head_dim);
    turn_like_heads(a);
    if (own) {
      plain_norm("k_norm", at(names.k_norm) + ".weight", whole ? kv : a.head_dim);
      turn_like_heads(a);
    }
  }
  if (a.sinks) bias("sinks", {{at(names.sinks), a.heads, 1}});
  matrix_into_stream("wo", ModelPart::AttentionOut, {{at(names.o) + ".weight", d, q}});
  if (a.o_bias) bias("bo", {{at(names.o) + ".bias", d, 1}});
}

WeightSource WeightTable::projection(const Attention& a, const std::string& own, Qkv which, const char* kind,
                                     int64_t cols) const {
  const TensorNames& names = spec_.names;
  const int64_t rows = which == Qkv::Q ? a.q_dim() : a.kv_dim();
  WeightSource out{own + kind, rows, cols};
  if (names.qkv != nullptr) {
    out.tensor = fmt::format("{}.{}.{}{}", names.layers, layer_, names.qkv, kind);
    out.tensor_rows = a.q_dim() + 2 * a.kv_dim();
    const int64_t q = names.qkv_by_heads ? a.head_dim : a.q_dim();
    const int64_t kv = names.qkv_by_heads ? a.head_dim : a.kv_dim();
    out.first_row = which == Qkv::Q ? 0 : which == Qkv::K ? q : q + kv;
  }
  const bool turned = a.rotated && which != Qkv::V && spec_.rotated != RotatedRows{};
  const bool with_gate = a.gated && which == Qkv::Q;
  if (with_gate) out.tensor_rows = 2 * a.q_dim();
  if (!turned && !names.qkv_by_heads && !with_gate) return out;
  const int64_t each = names.qkv_by_heads ? 3 : with_gate ? 2 : 1;  // heads of the tensor, for one of these
  out.blocks = {.rows = a.head_dim, .step = each * a.head_dim};
  if (!turned) return out;
  out.blocks.paired = spec_.rotated_rows(a);
  out.blocks.interleaved = spec_.rotated.neighbours;
  return out;
}

// The rows of a head's gate follow those of its query.
WeightSource WeightTable::gate(const Attention& a, const char* kind, int64_t cols) const {
  return {.tensor = at(spec_.names.q) + kind,
          .rows = a.q_dim(),
          .cols = cols,
          .first_row = a.head_dim,
          .tensor_rows = 2 * a.q_dim(),
          .blocks = {.rows = a.head_dim, .step = 2 * a.head_dim}};
}

// The norm that was added last has its elements as the heads that it is of.
void WeightTable::turn_like_heads(const Attention& a) {
  if (!a.rotated || spec_.rotated == RotatedRows{}) return;
  out_.back().sources.front().blocks = {.rows = a.head_dim,
                                        .step = a.head_dim,
                                        .paired = spec_.rotated_rows(a),
                                        .interleaved = spec_.rotated.neighbours};
}

ObjectId Forward::mix(const Attention&, ObjectId x, const Place& at) {
  const Projected p = project_rotated(x, at);
  const ObjectId o = decodes() ? attend_to_cache(p, at) : attend(p, at);
  return p.gate.valid()
             ? gate_heads("attn_gated", o, p.gate, attention(at).heads, attention(at).head_dim, "", at)
             : o;
}

ObjectId Forward::gate_heads(std::string_view what, ObjectId x, ObjectId z, int64_t heads, int64_t head_dim,
                             std::string_view norm, const Place& at) {
  const ObjectId y = activation(what, heads * head_dim, at);
  const HeadGate op{tokens(at), heads, head_dim, activations_, !norm.empty(), float(spec_.norm_eps)};
  std::vector<Bound> uses{x, z, y};
  if (op.normed) uses.emplace_back(weight(norm, at.layer));
  program_.add(made(what, op, uses, at));
  record();
  return y;
}

Forward::Projection Forward::out_of(const Attention& a) const {
  return {"o_proj", "wo", a.o_bias ? "bo" : "", a.q_dim(), spec_.dim};
}

// Queries, and keys beside values, as attention reads them.
Forward::Projected Forward::project_rotated(ObjectId x, const Place& at) {
  const Attention& a = attention(at);
  // Heads that are normalised are rotated after that. A product of a few rows rotates by itself.
  const bool finished = a.qk_norm == QkNorm::None, rotated = finished && a.rotated,
             at_once = rotated && decodes() && !spec_.adapters.any();
  std::vector<TaskId> products, rotations;
  const ObjectId q = activation(finished ? "q" : "q_raw", a.q_dim(), at);
  products.push_back(project({"q_proj", "wq", a.qkv_bias ? "bq" : "", spec_.dim, a.q_dim(),
                              at_once ? a.heads : 0, at_once ? temperature(at) : Temperature()},
                             x, q, {}, at));
  // Right behind the product: nothing else needs room between the two.
  if (rotated && !at_once) rotations.push_back(rotate("q_rope", q, a.heads, 0, at));
  ObjectId gate;
  if (a.gated) {
    gate = activation("attn_gate", a.q_dim(), at);
    products.push_back(project(
        {"attn_gate_proj", "wq_gate", a.qkv_bias ? "bq_gate" : "", spec_.dim, a.q_dim()}, x, gate, {}, at));
  }
  ObjectId& kept = kv_[size_t(at.layer)][size_t(at.chunk)];
  ObjectId kv;
  if (a.keys_of >= 0) {
    kept = kv_[size_t(a.keys_of)][size_t(at.chunk)];
  } else {
    const int64_t columns = a.kv_columns();
    kv = kept = activation(finished ? "kv" : "kv_raw", columns, at);
    products.push_back(
        project({"kv_proj", "wkv", a.qkv_bias ? "bkv" : "", spec_.dim, columns, at_once ? a.kv_heads : 0}, x,
                kv, {}, at));
  }
  if (rotated && !at_once) rotations.push_back(rotate("k_rope", kv, a.kv_heads, a.kv_dim(), at));
  record_products(products);
  if (gradients_ != nullptr && !rotations.empty()) gradients_->record(rotations);
  if (finished) return {q, kept, gate};
  const ObjectId normed = norm_heads("q_norm", q, "q", a.heads, 0, at);
  if (kv.valid()) kept = norm_heads("k_norm", kv, "kv", a.kv_heads, a.kv_dim(), at);
  return {normed, kept, gate};
}

TaskId Forward::rotate(std::string_view what, ObjectId x, int64_t heads, int64_t rest, const Place& at) {
  return task(what,
              Rope{.tokens = tokens(at),
                   .heads = heads,
                   .head_dim = attention(at).head_dim,
                   .rest = rest,
                   .dtype = activations_,
                   .rope_scale = rope_scale(at),
                   .still_scale = still_scale(at),
                   .temperature = rest == 0 ? temperature(at) : Temperature()},
              {x, batch(at, BatchColumn::Positions), inv_freq(at)}, at);
}

// Norms and rotates the first heads of every row; the `rest` columns behind them stay.
ObjectId Forward::norm_heads(std::string_view what, ObjectId x, std::string_view y, int64_t heads,
                             int64_t rest, const Place& at) {
  const Attention& a = attention(at);
  const int64_t head_dim = a.head_dim;
  const ObjectId out = activation(y, heads * head_dim + rest, at);
  task(what,
       HeadNormRope{{.tokens = tokens(at),
                     .heads = heads,
                     .head_dim = head_dim,
                     .rest = rest,
                     .eps = float(spec_.norm_eps),
                     .rope_scale = rope_scale(at),
                     .offset = float(spec_.norm_offset),
                     .whole = a.qk_norm == QkNorm::Whole,
                     .behind = rest > 0 ? a.values : BehindHeads::Copied},
                    activations_},
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
                  .dtype = activations_};
  // A window that reaches the first key hides nothing of the block.
  if (shape.distance + length > a.window) shape.window = a.window;
  shape.softcap = float(a.softcap);
  return shape;
}

// Attention of a chunk over every block of its sequence so far that its window, if there is one, reaches. A
// single block needs no merging; several are merged in fp32 by log-sum-exp, the diagonal one first.
ObjectId Forward::attend(const Projected& p, const Place& at) {
  const Attention& a = attention(at);
  const ObjectId o = activation("o", a.q_dim(), at);
  const ObjectId lse = object("lse", DType::F32, a.heads, at);
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
    attend_to(0, o, activations_);
    record();
    return o;
  }
  const ObjectId sum = object("o_sum", DType::F32, a.q_dim(), at);
  for (int earlier = 0; earlier < blocks; ++earlier) attend_to(earlier, sum, DType::F32);
  task("o_cast", Cast{.elements = tokens(at) * a.q_dim(), .in = DType::F32, .dtype = activations_}, {sum, o},
       at);
  record(uint32_t(blocks) + 1);
  return o;
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
                           .dtype = activations_,
                           // One that reaches the first key hides nothing.
                           .window = a.window < inputs_.cache.capacity ? a.window : 0,
                           .softcap = float(a.softcap),
                           .has_sinks = a.sinks,
                           .cache_rows = slotted_rows()};
  // Keys of another layer are written to its cache once more, as they are there.
  const auto keys_of = size_t(a.keys_of < 0 ? at.layer : a.keys_of);
  const ObjectId cache = inputs_.cache.layers[keys_of];
  std::vector<Bound> uses{p.q, p.kv, inputs_.cache.spans, cache, o};
  if (op.has_sinks) uses.emplace_back(weight("sinks", at.layer));
  add_cached("attn", op, std::move(uses), cache, at);
  return o;
}

}  // namespace sluice::core
