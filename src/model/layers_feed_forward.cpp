// SPDX-License-Identifier: Apache-2.0
// The second half of a layer: an MLP for every token, or experts.
#include <string>

#include "model/layers.h"
#include "ops/op.h"

namespace sluice::core {

ObjectId Forward::feed_forward(ObjectId x, ObjectId stream, const Place& at) {
  const LayerSpec& spec = spec_.layers[size_t(at.layer)];
  if (spec.experts() != nullptr) return mix(x, stream, at);
  const Mlp& mlp = spec.mlp();
  const ObjectId act = gated(mlp, "", x, at);
  const ObjectId sum = stream_after(at);
  add_half({"down", "wd", mlp.bias ? "bd" : "", mlp.ffn, spec_.dim}, "mlp_out", "norm2_after", act, stream,
           sum, at);
  return sum;
}

ObjectId Forward::gated(const Mlp& mlp, std::string_view prefix, ObjectId x, const Place& at) {
  const auto named = [&](const char* name) { return std::string(prefix) + name; };
  const std::string gate_up = named("gate_up"), wgu = named("wgu");
  const ObjectId gu = activation(named("gu"), mlp.up_dim(), at);
  project({gate_up, wgu, mlp.bias ? "bgu" : "", spec_.dim, mlp.up_dim()}, x, gu, {}, at);
  record();
  const ObjectId act = activation(named("act"), mlp.ffn, at);
  task(named("swiglu"),
       Swiglu{.tokens = tokens(at),
              .dim = mlp.ffn,
              .dtype = compute_,
              .activation = mlp.activation,
              .plain = !mlp.gated,
              .limit = float(mlp.limit)},
       {gu, act}, at);
  record();
  return act;
}

ObjectId Forward::mix(ObjectId x, ObjectId stream, const Place& at) {
  const LayerSpec& layer = spec_.layers[size_t(at.layer)];
  const Experts& e = *layer.experts();
  const Mixture mixture{tokens(at), e.count, e.top_k};
  const Routed routed = route(x, mixture, at);
  const bool joins = layer.norms == Norms::Before;
  const ObjectId sum = stream_after(at);
  const ObjectId half = joins ? sum : activation("mlp_out", spec_.dim, at);
  const std::optional<ObjectId> residual = joins ? std::optional(stream) : std::nullopt;
  if (e.shared > 0) {
    const ObjectId chosen = activation("x_chosen", spec_.dim, at);
    run_experts(x, mixture, routed, residual, chosen, at);
    share_expert(x, chosen, half, at);
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
           .out = e.count,
           .f32_result = true},
          x, logits, {}, at);
  record();
  const ObjectId gates = object("gates", DType::F32, e.top_k, at);
  const ObjectId chosen = object("chosen", DType::I32, e.top_k, at);
  Route op{.mixture = mixture,
           .score = e.score,
           .normalised = e.normalised,
           .has_bias = e.selection_bias,
           .scale = float(e.scale),
           .dtype = compute_};
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
  return {gates, routing};
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
  // Each group's rows, of all of a product's.
  const auto product = [&](const char* name, const char* weights, const char* biases, ObjectId from,
                           int64_t in, int64_t out, bool gathers, ObjectId to) {
    for (int64_t first = 0; first < e.count; first += e.group) {
      const std::string number = group_name(first / e.group);
      const GroupedLinear op{.mixture = mixture,
                             .group = {first, e.group},
                             .in = in,
                             .out = out,
                             .dtype = compute_,
                             .gathers = gathers,
                             .accumulate = first > 0,
                             .has_bias = mlp.bias};
      std::vector<Bound> uses{from, weight(weights + number, at.layer), routed.routing, to};
      if (mlp.bias) uses.push_back({weight(biases, at.layer), first * out * size_of(compute_)});
      program_.add(made(name + number, op, uses, at));
    }
  };
  const ObjectId gu = activation("gu", e.top_k * mlp.up_dim(), at);
  product("gate_up", "wgu", "bgu", x, spec_.dim, mlp.up_dim(), true, gu);
  const ObjectId act = activation("act", e.top_k * mlp.ffn, at);
  task("swiglu",
       Swiglu{.tokens = mixture.rows(),
              .dim = mlp.ffn,
              .dtype = compute_,
              .activation = mlp.activation,
              .limit = float(mlp.limit)},
       {gu, act}, at);
  const ObjectId rows = activation("expert_out", e.top_k * spec_.dim, at);
  product("down", "wd", "bd", act, mlp.ffn, spec_.dim, false, rows);
  const CombineExperts op{.mixture = mixture,
                          .dim = spec_.dim,
                          .dtype = compute_,
                          .has_gates = true,
                          .has_residual = residual.has_value()};
  std::vector<Bound> uses{rows, routed.routing, sum, routed.gates};
  if (residual) uses.emplace_back(*residual);
  program_.add(made("combine", op, uses, at));
  record(uint32_t(2 * (e.count / e.group) + 2));
}

void Forward::share_expert(ObjectId x, ObjectId residual, ObjectId sum, const Place& at) {
  const Experts& e = *spec_.layers[size_t(at.layer)].experts();
  const ObjectId act = gated({.ffn = e.shared, .activation = e.each.activation}, "shared_", x, at);
  const ObjectId out = activation("shared_out", spec_.dim, at);
  project({"shared_down", "shared_wd", "", e.shared, spec_.dim}, act, out, {}, at);
  record();
  const ObjectId gate = object("shared_gate", DType::F32, 1, at);
  project({.task = "shared_gate", .weight = "shared_gate", .in = spec_.dim, .out = 1, .f32_result = true}, x,
          gate, {}, at);
  record();
  task("shared_add",
       GatedAdd{.tokens = tokens(at), .dim = spec_.dim, .dtype = compute_, .has_residual = true},
       {out, gate, sum, residual}, at);
  record();
}

}  // namespace sluice::core
