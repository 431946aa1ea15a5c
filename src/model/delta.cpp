// SPDX-License-Identifier: Apache-2.0
// Layers whose mixer is a gated delta rule.
#include "model/kinds.h"
#include "model/layers.h"
#include "model/weight_table.h"
#include "ops/op.h"

namespace sluice::core {

Status validate(const GatedDelta& d) {
  const DeltaSizes& s = d.sizes;
  const std::pair<const char*, int64_t> sizes[] = {{"linear_num_key_heads", s.key_heads},
                                                   {"linear_num_value_heads", s.value_heads},
                                                   {"linear_key_head_dim", s.key_dim},
                                                   {"linear_value_head_dim", s.value_dim}};
  constexpr int64_t kMostSize = 4096;
  for (const auto& [key, value] : sizes) SLUICE_TRY(check_positive(key, value, kMostSize));
  if (s.value_heads % s.key_heads != 0)
    return error("model: linear_num_value_heads {} is not a multiple of linear_num_key_heads {}",
                 s.value_heads, s.key_heads);
  if (d.width >= 2 && d.width <= kMostConvWidth) return {};
  return error("model: linear_conv_kernel_dim is {}; allowed are 2 to {}", d.width, kMostConvWidth);
}

double product_columns(const GatedDelta& d, int64_t) {
  return double(d.sizes.columns() + 2 * d.sizes.values() + 2 * d.sizes.value_heads);
}

int64_t cached_elements(const GatedDelta& d, int64_t, int64_t) {
  return (d.width - 1) * d.sizes.columns();
}

std::string text_of(const GatedDelta& d) {
  return fmt::format("gated delta rule of {} key heads of {} and {} value heads of {}, convolution of {}",
                     d.sizes.key_heads, d.sizes.key_dim, d.sizes.value_heads, d.sizes.value_dim, d.width);
}

int64_t looks_back(const GatedDelta& d) {
  return d.width - 1;
}

int64_t state_elements(const GatedDelta& d) {
  return d.sizes.state();
}

void WeightTable::add(const GatedDelta& delta) {
  const DeltaSizes& s = delta.sizes;
  const auto named = [&](const char* name) { return at(spec_.names.delta) + name; };
  // Rows of a tensor that has others, too: one after the other, or so by key heads.
  struct TensorRows {
    const char* tensor;
    int64_t all, of_group;  // of the tensor, and of what of it a key head has
    int64_t begin, count;   // in what a key head has
  };
  const auto rows = [&](const TensorRows& r) {
    return WeightSource{.tensor = named(r.tensor),
                        .rows = r.count * s.key_heads,
                        .cols = spec_.dim,
                        .first_row = r.begin,
                        .tensor_rows = r.all,
                        .blocks = {.rows = r.count, .step = r.of_group}};
  };
  const int64_t values = s.shared() * s.value_dim, group = 2 * (s.key_dim + values), d = spec_.dim;
  if (spec_.names.delta_by_heads) {
    const auto of = [&](int64_t begin, int64_t count) {
      return rows({".in_proj_qkvz.weight", group * s.key_heads, group, begin, count});
    };
    const auto gates = [&](int64_t begin) {
      return rows({".in_proj_ba.weight", 2 * s.value_heads, 2 * s.shared(), begin, s.shared()});
    };
    matrix("wdelta_qkv", ModelPart::ConvProjection,
           {of(0, s.key_dim), of(s.key_dim, s.key_dim), of(2 * s.key_dim, values)});
    matrix("wdelta_z", ModelPart::ConvProjection, {of(2 * s.key_dim + values, values)});
    matrix("wdelta_ba", ModelPart::ConvProjection, {gates(0), gates(s.shared())}, kF32Result);
  } else {
    matrix("wdelta_qkv", ModelPart::ConvProjection, {{named(".in_proj_qkv.weight"), s.columns(), d}});
    matrix("wdelta_z", ModelPart::ConvProjection, {{named(".in_proj_z.weight"), s.values(), d}});
    matrix("wdelta_ba", ModelPart::ConvProjection,
           {{named(".in_proj_b.weight"), s.value_heads, d}, {named(".in_proj_a.weight"), s.value_heads, d}},
           kF32Result);
  }
  matrix("wconv", ModelPart::Convolution, {{named(".conv1d.weight"), s.columns(), delta.width}});
  out_.back().sources.front().of_conv = true;
  constexpr float kMostRate = 16;
  kept("a_log", ModelPart::Bias, named(".A_log"), s.value_heads, {Init::LogUniform, kMostRate});
  kept("dt_bias", ModelPart::Bias, named(".dt_bias"), s.value_heads, {Init::Ones});
  kept("delta_norm", ModelPart::Norm, named(".norm.weight"), s.value_dim, {Init::Ones});
  matrix_into_stream("wdelta_out", ModelPart::ConvProjection, {{named(".out_proj.weight"), d, s.values()}});
}

ObjectId Forward::mix(const GatedDelta& d, ObjectId x, const Place& at) {
  const DeltaSizes& s = d.sizes;
  const int64_t dim = spec_.dim, gate_columns = 2 * s.value_heads;
  const ObjectId raw = activation("delta_raw", s.columns(), at), z = activation("delta_z", s.values(), at);
  const ObjectId ba = object("delta_ba", DType::F32, gate_columns, at);
  std::vector<TaskId> products{
      project({"delta_qkv", "wdelta_qkv", "", dim, s.columns()}, x, raw, {}, at),
      project({"delta_z", "wdelta_z", "", dim, s.values()}, x, z, {}, at),
      project({.task = "delta_ba", .weight = "wdelta_ba", .in = dim, .out = gate_columns}, x, ba, {}, at)};
  record_products(products);
  const ObjectId qkv = convolve("delta_conv", raw, s.columns(), d.width, true, at);
  const ObjectId gates = object("delta_gates", DType::F32, gate_columns, at);
  task("delta_gates", DeltaGates{tokens(at), s.value_heads, activations_},
       {ba, weight("a_log", at.layer), weight("dt_bias", at.layer), gates}, at);
  record();
  const ObjectId o = activation("delta_o", s.values(), at);
  if (decodes()) {
    const ObjectId state = inputs_.cache.states[size_t(at.layer)];
    add_cached(
        "delta",
        CachedDelta{rows(at), chunking_.row_tokens, inputs_.cache.capacity, s, activations_, slotted_rows()},
        {qkv, gates, inputs_.cache.spans, state, o}, state, at);
  } else {
    const DeltaRule op{tokens(at), s, activations_, has_before(at), has_after(at)};
    std::vector<Bound> uses{qkv, gates, batch(at, BatchColumn::Positions), o};
    std::vector<ObjectId>& states = states_[size_t(at.layer)];
    if (op.has_before) uses.emplace_back(states[size_t(at.chunk) - 1]);
    if (op.has_after) {
      states[size_t(at.chunk)] = sized("delta_state", DType::F32, s.state(), at);
      uses.emplace_back(states[size_t(at.chunk)]);
    }
    program_.add(made("delta", op, uses, at));
    record();
  }
  return gate_heads("delta_gated", o, z, s.value_heads, s.value_dim, "delta_norm", at);
}

Forward::Projection Forward::out_of(const GatedDelta& d) const {
  return {"delta_out", "wdelta_out", "", d.sizes.values(), spec_.dim};
}

}  // namespace sluice::core
