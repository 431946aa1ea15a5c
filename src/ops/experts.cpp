// SPDX-License-Identifier: Apache-2.0
#include "ops/experts.h"

#include <algorithm>

#include "ops/gpu_partials.h"

namespace sluice::core {
using enum Access;
using enum DType;
using enum Values;

namespace {

// Rows come in tiles of so many, of which every expert leaves half a one empty.
constexpr double kTileRows = 128;

// Experts of a group that have rows: of few tokens not all.
double experts_met(const Mixture& mixture, const ExpertGroup& group) {
  return double(group.count) * double(std::min(mixture.experts, mixture.rows())) / double(mixture.experts);
}

// The work of a product over a group's share of all rows.
Work grouped_product(const Mixture& mixture, const ExpertGroup& group, int64_t in, int64_t out) {
  const double rows = double(mixture.rows()) * double(group.count) / double(mixture.experts);
  const double of_row = 2 * double(in) * double(out);
  return {.unit = Unit::GroupedProduct,
          .flops = rows * of_row,
          .idle_flops = experts_met(mixture, group) * kTileRows / 2 * of_row};
}

// Bytes that a group's rows have of `elements` of all, which are read, or written.
double share_of(const Mixture& mixture, const ExpertGroup& group, const Operand& operand) {
  return double(operand.bytes()) * double(group.count) / double(mixture.experts);
}

}  // namespace

Operand routing_operand(const Mixture& mixture) {
  return {"routing", Read,           I32, RoutingLayout{mixture.experts, mixture.rows()}.elements(),
          Routing,   mixture.experts};
}

Operands Route::operands() const {
  Operands o{{"logits", Read, F32, mixture.tokens * mixture.experts, Activations},
             {"gates", Write, F32, mixture.rows(), Activations},
             {"chosen", Write, I32, mixture.rows(), Ids, mixture.experts}};
  if (has_bias) o.push_back({"bias", Read, F32, mixture.experts, Weights});
  return o;
}

Operands RouteBwd::operands() const {
  Operands o{{"logits", Read, F32, mixture.tokens * mixture.experts, Activations},
             {"chosen", Read, I32, mixture.rows(), Ids, mixture.experts},
             {"dgates", Read, F32, mixture.rows(), Activations},
             {"dlogits", Write, dtype, mixture.tokens * mixture.experts, Activations}};
  if (reads_round()) o.push_back({"round", Read, F64, LoadLayout{mixture.experts}.elements(), Squares});
  return o;
}

Operands ScaleGates::operands() const {
  return {{"gates", Read, F32, mixture.rows(), Activations},
          {"chosen", Read, I32, mixture.rows(), Ids, mixture.experts},
          {"scales", Read, dtype, mixture.experts, Weights},
          {"y", Write, F32, mixture.rows(), Activations}};
}

Operands ScaleGatesBwd::operands() const {
  return {{"gates", Read, F32, mixture.rows(), Activations},
          {"chosen", Read, I32, mixture.rows(), Ids, mixture.experts},
          {"scales", Read, dtype, mixture.experts, Weights},
          {"dy", Read, F32, mixture.rows(), Activations},
          {"dgates", Write, F32, mixture.rows(), Activations},
          {"dscales", write_or(accumulate), grad_dtype, mixture.experts, Activations}};
}
int64_t ScaleGatesBwd::workspace_bytes(const GpuLibraries&) const {
  return bias_partials(mixture.tokens) * mixture.experts * size_of(F32);
}

Operands RouterLoad::operands() const {
  const int64_t elements = LoadLayout{mixture.experts}.elements();
  Operands o{{"logits", Read, F32, mixture.tokens * mixture.experts, Activations},
             {"chosen", Read, I32, mixture.rows(), Ids, mixture.experts},
             {"layer", write_or(accumulate_layer), F64, elements, Squares}};
  if (!alone) o.push_back({"round", write_or(accumulate_round), F64, elements, Squares});
  return o;
}
int64_t RouterLoad::workspace_bytes(const GpuLibraries&) const {
  return bias_partials(mixture.tokens) * LoadLayout{mixture.experts}.elements() * size_of(F64);
}

Operands SortByExpert::operands() const {
  Operand routing = routing_operand(mixture);
  routing.access = Write;
  return {{"chosen", Read, I32, mixture.rows(), Ids, mixture.experts}, routing};
}
int64_t SortByExpert::workspace_bytes(const GpuLibraries&) const {
  return sort_partials(mixture.rows()) * mixture.experts * size_of(I32);
}

Work GroupedProduct::work() const {
  return grouped_product(mixture, group, in, out);
}
Work GroupedAdapters::work() const {
  return grouped_product(mixture, group, sizes.rank, sizes.adapted());
}

Operands GroupedLinear::operands() const {
  Operands o{{"x", Read, dtype, (gathers ? mixture.tokens : mixture.rows()) * in, Activations},
             {"w", Read, dtype, group.count * out * in, Weights},
             routing_operand(mixture),
             {"y", write_or(accumulate), dtype, mixture.rows() * out, Activations}};
  if (has_bias) o.push_back({"bias", Read, dtype, group.count * out, Weights});
  return o;
}
double GroupedLinear::traffic() const {
  const Operands o = operands();
  return share_of(mixture, group, o[kX]) +
         double(o[kW].bytes()) / double(group.count) * experts_met(mixture, group) +
         double(o[kRouting].bytes()) + (accumulate ? share_of(mixture, group, o[kY]) : double(o[kY].bytes()));
}

Operands GroupedDgrad::operands() const {
  return {{"dy", Read, dtype, (gathers ? mixture.tokens : mixture.rows()) * out, Activations},
          {"w", Read, dtype, group.count * out * in, Weights},
          routing_operand(mixture),
          {"dx", write_or(accumulate), dtype, mixture.rows() * in, Activations}};
}
double GroupedDgrad::traffic() const {
  const Operands o = operands();
  return share_of(mixture, group, o[kDy]) +
         double(o[kW].bytes()) / double(group.count) * experts_met(mixture, group) +
         double(o[kRouting].bytes()) +
         (accumulate ? share_of(mixture, group, o[kDx]) : double(o[kDx].bytes()));
}

Operands GroupedWgrad::operands() const {
  return {{"dy", Read, dtype, (gathers_dy ? mixture.tokens : mixture.rows()) * out, Activations},
          {"x", Read, dtype, (gathers_x ? mixture.tokens : mixture.rows()) * in, Activations},
          routing_operand(mixture),
          {"dw", write_or(accumulate), grad_dtype, group.count * out * in, Activations}};
}
double GroupedWgrad::traffic() const {
  const Operands o = operands();
  return share_of(mixture, group, o[kDy]) + share_of(mixture, group, o[kX]) + double(o[kRouting].bytes()) +
         double(o[kDw].bytes()) * (accumulate ? 2 : 1);
}

Operands GroupedLowRank::operands() const {
  return {{"u", Read, dtype, mixture.rows() * sizes.inner(), Activations},
          {"b", Read, dtype, group.count * sizes.adapted() * sizes.rank, Weights},
          routing_operand(mixture),
          {"y", Accumulate, dtype, mixture.rows() * sizes.columns, Activations}};
}
double GroupedLowRank::traffic() const {
  const Operands o = operands();
  return share_of(mixture, group, o[kU]) + double(o[kB].bytes()) + double(o[kRouting].bytes()) +
         2 * share_of(mixture, group, o[kY]) * double(sizes.adapted()) / double(sizes.columns);
}

Operands GroupedLowRankDgrad::operands() const {
  return {{"dy", Read, dtype, (gathers ? mixture.tokens : mixture.rows()) * sizes.columns, Activations},
          {"b", Read, dtype, group.count * sizes.adapted() * sizes.rank, Weights},
          routing_operand(mixture),
          {"du", write_or(accumulate), dtype, mixture.rows() * sizes.inner(), Activations}};
}
double GroupedLowRankDgrad::traffic() const {
  const Operands o = operands();
  return share_of(mixture, group, o[kDy]) + double(o[kB].bytes()) + double(o[kRouting].bytes()) +
         (accumulate ? share_of(mixture, group, o[kDu]) : double(o[kDu].bytes()));
}

Operands GroupedLowRankWgrad::operands() const {
  return {{"dy", Read, dtype, (gathers ? mixture.tokens : mixture.rows()) * sizes.columns, Activations},
          {"u", Read, dtype, mixture.rows() * sizes.inner(), Activations},
          routing_operand(mixture),
          {"db", write_or(accumulate), grad_dtype, group.count * sizes.adapted() * sizes.rank, Activations}};
}
double GroupedLowRankWgrad::traffic() const {
  const Operands o = operands();
  return share_of(mixture, group, o[kDy]) + share_of(mixture, group, o[kU]) + double(o[kRouting].bytes()) +
         double(o[kDb].bytes()) * (accumulate ? 2 : 1);
}

Operands GroupedBiasGrad::operands() const {
  Operands o{{"dy", Read, dtype, (gathers ? mixture.tokens : mixture.rows()) * out, Activations},
             routing_operand(mixture),
             {"dbias", write_or(accumulate), grad_dtype, mixture.experts * out, Activations}};
  if (gathers) o.push_back({"gates", Read, F32, mixture.rows(), Activations});
  return o;
}

Operands CombineExperts::operands() const {
  Operands o{{"x", Read, dtype, mixture.rows() * dim, Activations},
             routing_operand(mixture),
             {"y", Write, dtype, mixture.tokens * dim, Activations}};
  if (has_gates) o.push_back({"gates", Read, F32, mixture.rows(), Activations});
  if (has_residual) o.push_back({"residual", Read, dtype, mixture.tokens * dim, Activations});
  return o;
}

Operands ExpertGluBwd::operands() const {
  Operands o{{"gu", Read, dtype, mixture.rows() * 2 * dim, Activations},
             {"dy", Read, dtype, mixture.rows() * dim, Activations},
             {"gates", Read, F32, mixture.rows(), Activations},
             routing_operand(mixture),
             {"dgu", Write, dtype, mixture.rows() * 2 * dim, Activations},
             {"gated", Write, dtype, mixture.rows() * dim, Activations},
             {"dgates", Write, F32, mixture.rows(), Activations}};
  if (biased > 0) {
    o.push_back({"bias", Read, dtype, mixture.experts * biased, Weights});
    o.push_back({"dout", Read, dtype, mixture.tokens * biased, Activations});
  }
  return o;
}

Operands GatedAdd::operands() const {
  Operands o{{"x", Read, dtype, tokens * dim, Activations},
             {"gate", Read, F32, tokens, Activations},
             {"y", Write, dtype, tokens * dim, Activations}};
  if (has_residual) o.push_back({"residual", Read, dtype, tokens * dim, Activations});
  return o;
}

Operands GatedAddBwd::operands() const {
  return {{"x", Read, dtype, tokens * dim, Activations},
          {"gate", Read, F32, tokens, Activations},
          {"dy", Read, dtype, tokens * dim, Activations},
          {"dx", Write, dtype, tokens * dim, Activations},
          {"dgate", Write, dtype, tokens, Activations}};
}

}  // namespace sluice::core
