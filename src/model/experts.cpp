// SPDX-License-Identifier: Apache-2.0
// Layers whose second half is a mixture of experts.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "model/kinds.h"
#include "model/layers.h"
#include "model/weight_table.h"
#include "ops/op.h"

namespace sluice::core {

Status validate(const Experts& e) {
  if (e.count < 1 || e.count > kMostExperts)
    return error("model: num_experts is {}; allowed are 1 to {}", e.count, kMostExperts);
  const int64_t most = std::min(e.count, kMostChosen);
  if (e.top_k < 1 || e.top_k > most)
    return error("model: num_experts_per_tok is {}; allowed are 1 to {}", e.top_k, most);
  if (e.shared < 0 || e.shared > kMostWidth)
    return error("model: shared_expert_intermediate_size is {}; allowed are 0 to {}", e.shared, kMostWidth);
  if (e.group < 1 || e.count % e.group != 0)
    return error("model: {} experts in groups of {}; equal groups are needed", e.count, e.group);
  if (!e.each.gated) return error("model: experts without gates");
  return validate(e.each);
}

// The experts that a token chooses, their router, and the shared one with its gate.
double product_columns(const Experts& e, int64_t dim) {
  return product_columns(e.each, dim) * double(e.top_k) + double(e.count) +
         double(e.shared > 0 ? 3 * e.shared + 1 : 0) + double(3 * e.beside);
}

void WeightTable::add(const Experts& e) {
  const TensorNames& names = spec_.names;
  const int64_t d = spec_.dim;
  if (e.beside > 0) {
    matrix("beside_wgu", ModelPart::Mlp,
           {{at(names.gate) + ".weight", e.beside, d}, {at(names.up) + ".weight", e.beside, d}});
    matrix_into_stream("beside_wd", ModelPart::Mlp, {{at(names.down) + ".weight", d, e.beside}});
    norm("beside_after", at(names.beside_after), d);
    plain_norm("router_norm", at(names.router_norm), d);
  }
  matrix("router", ModelPart::Router, {{at(names.router) + ".weight", e.count, d}}, kF32Result);
  if (e.router_bias) bias("router_bias", {{at(names.router) + ".bias", e.count, 1}});
  if (e.selection_bias) {
    bias("selection_bias", {{at(names.selection_bias), e.count, 1}});
    out_.back().trainable = false;
    out_.back().format = DType::F32;
  }
  if (e.gate_scales) put("gate_scales", ModelPart::Bias, {{at(names.gate_scales), e.count, 1}}, {Init::Ones});
  if (e.beside > 0) norm("experts_before", at(names.experts_before), d);
  for (int64_t first = 0; first < e.count; first += e.group) {
    std::vector<WeightSource> gate_up, down;
    for (int64_t i = first; i < first + e.group; ++i) {
      add_expert(e, i, gate_up, down);
    }
    const std::string number = group_name(first / e.group);
    matrix(("wgu" + number).c_str(), ModelPart::Experts, std::move(gate_up));
    matrix_into_stream(("wd" + number).c_str(), ModelPart::Experts, std::move(down));
  }
  if (e.each.bias) {
    std::vector<WeightSource> gate_up, down;
    for (int64_t i = 0; i < e.count; ++i) add_biases_of_expert(e, i, gate_up, down);
    bias("bgu", std::move(gate_up));
    bias("bd", std::move(down));
  }
  if (e.beside > 0) norm("experts_after", at(names.experts_after), d);
  if (e.shared == 0) return;
  matrix("shared_wgu", ModelPart::Mlp,
         {{at(names.shared_gate) + ".weight", e.shared, d}, {at(names.shared_up) + ".weight", e.shared, d}});
  matrix_into_stream("shared_wd", ModelPart::Mlp, {{at(names.shared_down) + ".weight", d, e.shared}});
  matrix("shared_gate", ModelPart::Router, {{at(names.shared_router) + ".weight", 1, d}}, kF32Result);
}

std::string WeightTable::of_expert(int64_t expert, const char* name, const char* kind) const {
  return fmt::format("{}.{}.{}{}", at(spec_.names.experts), expert, name, kind);
}
WeightSource WeightTable::of_all(const Experts& e, int64_t expert, const char* name, const char* kind,
                                 int64_t rows, int64_t cols, bool turned) const {
  return {.tensor = fmt::format("{}.{}{}", at(spec_.names.experts), name, kind),
          .rows = rows,
          .cols = cols,
          .first_row = expert * rows,
          .tensor_rows = e.count * rows,
          .transposed = turned,
          .stacked = e.count};
}

void WeightTable::add_expert(const Experts& e, int64_t expert, std::vector<WeightSource>& gate_up,
                             std::vector<WeightSource>& down) const {
  const TensorNames& names = spec_.names;
  const int64_t d = spec_.dim, f = e.each.ffn;
  if (names.experts_in_one != TensorNames::Apart) {
    const bool turned = names.experts_in_one == TensorNames::Turned;
    WeightSource& both = gate_up.emplace_back(of_all(e, expert, names.gate_up_in_one, "", 2 * f, d, turned));
    if (turned) both.blocks = {.rows = 2 * f, .step = 2 * f, .paired = 2 * f, .interleaved = true};
    down.push_back(of_all(e, expert, names.down_in_one, "", d, f, turned));
    return;
  }
  gate_up.push_back({of_expert(expert, names.expert_gate, ".weight"), f, d});
  gate_up.push_back({of_expert(expert, names.expert_up, ".weight"), f, d});
  down.push_back({of_expert(expert, names.expert_down, ".weight"), d, f});
  const std::string in_one = at(names.experts), gate_up_in_one = in_one + "." + names.gate_up_in_one;
  gate_up.end()[-2].stack = {gate_up_in_one, e.count, 2 * f, expert * 2 * f};
  gate_up.back().stack = {gate_up_in_one, e.count, 2 * f, expert * 2 * f + f};
  down.back().stack = {in_one + "." + names.down_in_one, e.count, d, expert * d};
}

void WeightTable::add_biases_of_expert(const Experts& e, int64_t expert, std::vector<WeightSource>& gate_up,
                                       std::vector<WeightSource>& down) const {
  const TensorNames& names = spec_.names;
  const int64_t d = spec_.dim, f = e.each.ffn;
  if (names.experts_in_one == TensorNames::Turned) {
    // Gates, then up: two rows, which the tensor has as two columns.
    gate_up.push_back(of_all(e, expert, names.gate_up_in_one, "_bias", 2, f, true));
    down.push_back(of_all(e, expert, names.down_in_one, "_bias", d, 1, false));
    return;
  }
  gate_up.push_back({of_expert(expert, names.expert_gate, ".bias"), f, 1});
  gate_up.push_back({of_expert(expert, names.expert_up, ".bias"), f, 1});
  down.push_back({of_expert(expert, names.expert_down, ".bias"), d, 1});
}

ObjectId Forward::feed_forward(const Experts& e, ObjectId x, ObjectId stream, const Place& at) {
  const Mixture mixture{tokens(at), e.count, e.top_k};
  ObjectId dense;
  if (e.beside > 0) {
    const ObjectId act = gated({.ffn = e.beside, .activation = e.each.activation}, "beside_", x, at);
    const ObjectId out = activation("beside_out", spec_.dim, at);
    project({"beside_down", "beside_wd", "", e.beside, spec_.dim}, act, out, {}, at);
    record();
    dense = norm("beside_after", out, "beside_normed", at);
  }
  const Routed routed = route(
      e.beside > 0 ? norm("router_norm", stream, "h_router", at, float(1 / std::sqrt(double(spec_.dim)))) : x,
      mixture, at);
  if (e.beside > 0) x = norm("experts_before", stream, "h_experts", at);
  const bool joins = spec_.layers[size_t(at.layer)].norms == Norms::Before;
  const ObjectId sum = stream_after(at);
  const ObjectId half = joins ? sum : activation("mlp_out", spec_.dim, at);
  const std::optional<ObjectId> residual = joins ? std::optional(stream) : std::nullopt;
  if (e.shared > 0) {
    const ObjectId chosen = activation("x_chosen", spec_.dim, at);
    run_experts(x, mixture, routed, residual, chosen, at);
    share_expert(x, chosen, half, at);
  } else if (e.beside > 0) {
    const ObjectId mixed = activation("experts_out", spec_.dim, at);
    run_experts(x, mixture, routed, {}, mixed, at);
    norm_after("experts_after", mixed, dense, half, at);
  } else {
    run_experts(x, mixture, routed, residual, half, at);
  }
  if (!joins) norm_after("norm2_after", half, stream, sum, at);
  return sum;
}

Forward::Routed Forward::route(ObjectId x, const Mixture& mixture, const Place& at) {
  const Experts& e = *spec_.layers[size_t(at.layer)].experts();
  const ObjectId logits = object("router_logits", DType::F32, e.count, at);
  project({.task = "router",
           .weight = "router",
           .bias = e.router_bias ? "router_bias" : "",
           .in = spec_.dim,
           .out = e.count},
          x, logits, {}, at);
  record();
  const ObjectId gates = object("gates", DType::F32, e.top_k, at);
  const ObjectId chosen = object("chosen", DType::I32, e.top_k, at);
  Route op{.mixture = mixture,
           .score = e.score,
           .normalised = e.normalised,
           .has_bias = e.selection_bias,
           .scale = float(e.scale),
           .dtype = activations_};
  if (!inputs_.router.losses.empty()) op.losses = inputs_.router.losses[size_t(at.round)];
  std::vector<Bound> uses{logits, gates, chosen};
  if (op.has_bias) uses.emplace_back(weight("selection_bias", at.layer));
  program_.add(made("route", op, uses, at));
  const bool loads = !inputs_.router.layers.empty();
  if (loads) load(mixture, logits, chosen, at);
  record(loads ? 2 : 1);
  const ObjectId routing =
      sized("routing", DType::I32, RoutingLayout{e.count, mixture.rows()}.elements(), at);
  task("sort", SortByExpert{mixture}, {chosen, routing}, at);
  if (!e.gate_scales) return {gates, routing};
  const ObjectId scaled = object("gates_scaled", DType::F32, e.top_k, at);
  task("scale_gates", ScaleGates{mixture, activations_},
       {gates, chosen, weight("gate_scales", at.layer), scaled}, at);
  record();
  return {scaled, routing};
}

void Forward::load(const Mixture& mixture, ObjectId logits, ObjectId chosen, const Place& at) {
  const ObjectId of_layer = inputs_.router.layers[size_t(at.layer)];
  RouterLoad op{.mixture = mixture,
                .accumulate_layer = !loads_written_.insert(of_layer.value).second,
                .accumulate_round = false,
                .alone = inputs_.router.rounds.empty()};
  std::vector<Bound> uses{logits, chosen, of_layer};
  if (!op.alone) {
    const ObjectId of_round = inputs_.router.rounds[size_t(at.round)];
    op.accumulate_round = !loads_written_.insert(of_round.value).second;
    uses.emplace_back(of_round);
  }
  program_.add(made("router_load", op, uses, at));
}

void Forward::run_experts(ObjectId x, const Mixture& mixture, const Routed& routed,
                          std::optional<ObjectId> residual, ObjectId sum, const Place& at) {
  const Experts& e = *spec_.layers[size_t(at.layer)].experts();
  const Mlp& mlp = e.each;
  std::vector<TaskId> tasks;
  // Each group's rows, of all of a product's.
  const auto product = [&](const char* name, const char* weights, const char* biases, ObjectId from,
                           int64_t in, int64_t out, bool gathers, ObjectId to) {
    for (int64_t first = 0; first < e.count; first += e.group) {
      const std::string number = group_name(first / e.group);
      const GroupedLinear op{
          {mixture, {first, e.group}, in, out, activations_}, gathers, first > 0, mlp.bias};
      std::vector<Bound> uses{from, multiplied(weights + number, at), routed.routing, to};
      if (mlp.bias) {
        const ObjectId all = weight(biases, at.layer);
        uses.push_back({all, program_.object(all).format.bytes(first * out)});
      }
      tasks.push_back(program_.add(made(name + number, op, uses, at)));
    }
    // Adapters add to the rows. u is made whole before it is read: a B that runs again finds it as the last A
    // left it.
    const auto& adapters = adapters_[size_t(at.layer + 1)];
    struct Adds {
      std::string number;
      GroupedLowRank op;
      ObjectId b;
    };
    std::vector<Adds> adds;
    ObjectId u;
    for (int64_t first = 0; first < e.count; first += e.group) {
      const std::string number = group_name(first / e.group);
      const auto found = adapters.find(adapter_b(weights + number, 0));
      if (found == adapters.end()) continue;
      const LowRankSizes& s = found->second.sizes;
      if (!u.valid()) u = activation(fmt::format("{}_u", name), e.top_k * s.inner(), at);
      const GroupedLinear a{{mixture, {first, e.group}, in, s.inner(), activations_}, gathers, first > 0};
      tasks.push_back(task(fmt::format("{}_a{}", name, number), a,
                           {from, weight(found->second.a, at.layer), routed.routing, u}, at));
      const ExpertRank sizes{s.rank, s.parts, s.part, s.first, s.columns};
      const GroupedLowRank b{{mixture, {first, e.group}, sizes, activations_, float(found->second.scale)}};
      adds.push_back({number, b, weight(found->first, at.layer)});
    }
    for (const Adds& each : adds)
      tasks.push_back(
          task(fmt::format("{}_b{}", name, each.number), each.op, {u, each.b, routed.routing, to}, at));
  };
  const ObjectId gu = activation("gu", e.top_k * mlp.up_dim(), at);
  product("gate_up", "wgu", "bgu", x, spec_.dim, mlp.up_dim(), true, gu);
  const ObjectId act = activation("act", e.top_k * mlp.ffn, at);
  tasks.push_back(task("swiglu",
                       Swiglu{{.tokens = mixture.rows(),
                               .dim = mlp.ffn,
                               .dtype = activations_,
                               .activation = mlp.activation,
                               .limit = float(mlp.limit)}},
                       {gu, act}, at));
  const ObjectId rows = activation("expert_out", e.top_k * spec_.dim, at);
  product("down", "wd", "bd", act, mlp.ffn, spec_.dim, false, rows);
  const CombineExperts op{.mixture = mixture,
                          .dim = spec_.dim,
                          .dtype = activations_,
                          .has_gates = true,
                          .has_residual = residual.has_value()};
  std::vector<Bound> uses{rows, routed.routing, sum, routed.gates};
  if (residual) uses.emplace_back(*residual);
  tasks.push_back(program_.add(made("combine", op, uses, at)));
  if (gradients_ != nullptr) gradients_->record(tasks);
}

void Forward::share_expert(ObjectId x, ObjectId residual, ObjectId sum, const Place& at) {
  const Experts& e = *spec_.layers[size_t(at.layer)].experts();
  const ObjectId act = gated({.ffn = e.shared, .activation = e.each.activation}, "shared_", x, at);
  const ObjectId out = activation("shared_out", spec_.dim, at);
  project({"shared_down", "shared_wd", "", e.shared, spec_.dim}, act, out, {}, at);
  record();
  const ObjectId gate = object("shared_gate", DType::F32, 1, at);
  project({.task = "shared_gate", .weight = "shared_gate", .in = spec_.dim, .out = 1}, x, gate, {}, at);
  record();
  task("shared_add",
       GatedAdd{.tokens = tokens(at), .dim = spec_.dim, .dtype = activations_, .has_residual = true},
       {out, gate, sum, residual}, at);
  record();
}

}  // namespace sluice::core
