// SPDX-License-Identifier: Apache-2.0
// Mixtures of experts: routing, products over the experts' rows, and what goes back to the tokens.
//
// Every token chooses top_k of all experts. Its row of the experts' products stands once for each: there are
// tokens * top_k rows, however many an expert has, so that all sizes are known before a step. Where an
// expert's rows begin is data, which kernels alone read. No token is dropped. What is summed over a token's
// experts is summed in the order of its choices, what is summed over an expert's rows in the order of its
// tokens.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/dtype.h"
#include "ops/gate_activation.h"
#include "ops/operand.h"
#include "ops/router_score.h"
#include "ops/work.h"

namespace sluice::core {

// Beyond those that there are; kernels hold as many.
constexpr int64_t kMostExperts = 512, kMostChosen = 32;

// Sizes of a mixture over the tokens of a chunk.
struct Mixture {
  int64_t tokens, experts, top_k;

  int64_t rows() const { return tokens * top_k; }
  constexpr void fields(auto&& f) const { f("tokens", tokens), f("experts", experts), f("k", top_k); }
};

// A routing, i32, as SortByExpert makes it, in three parts that follow each other:
//   begin[experts + 1]   expert e has the rows from begin[e] to begin[e + 1]; begin[0] = 0
//   choice[rows]         that row i is of: token * top_k + the number of the choice
//   row[rows]            of each choice: row[choice[i]] = i
struct RoutingLayout {
  int64_t experts, rows;

  constexpr int64_t begin() const { return 0; }
  constexpr int64_t choice() const { return experts + 1; }
  constexpr int64_t row() const { return choice() + rows; }
  constexpr int64_t elements() const { return row() + rows; }
};
Operand routing_operand(const Mixture& mixture);

// Goals of a router beside a small loss of the tokens: that experts have equally many tokens (Fedus et al.
// 2021, over several choices as Hugging Face transformers has it), and small logits (Zoph et al. 2022).
//   balance * experts * sum_e f_e P_e,  f_e = the choices of e / n,  P_e = the sum of e's softmax scores / n
// with n = the tokens of a round times its layers, over which both sums are, and
//   z * the sum over tokens of log(sum_e exp(logit_e))^2
// `balance` and `z` are as the gradient of a step takes them, divided by all that means are taken over.
struct RouterLosses {
  float balance = 0, z = 0;
  int64_t n = 0;  // 0: neither is wanted

  constexpr void fields(auto&& f) const {
    f("balance", balance, kNoCost), f("z", z, kNoCost), f("n", n, kNoCost);
  }
};

// chosen[t] = the top_k experts of the largest logits, or of the largest sigmoid(logit) + bias, the largest
// first; of equal ones the lowest. gates[t] = their scores, which the bias is no part of, times `scale`. With
// `normalised` sigmoids are divided by their sum + 1e-6 before. All f32. REQUIRES: only of Sigmoid are there
// biases, and `normalised`; top_k <= experts.
struct Route {
  static constexpr std::string_view kName = "route";
  enum { kLogits, kGates, kChosen, kBias };
  Mixture mixture;
  RouterScore score;
  bool normalised = false, has_bias = false;
  float scale = 1;
  // The type of its gradient, which decides nothing else here.
  DType dtype = DType::F32;
  RouterLosses losses = {};

  Operands operands() const;
  constexpr void fields(auto&& f) const {
    mixture.fields(f);
    f("score", score), f("normalised", normalised), f("bias", has_bias), f("scale", scale, kNoCost),
        f("dtype", dtype, kNoCost);
    losses.fields(f);
  }
};

// The backward pass of Route: dlogits, in `dtype`, from the f32 gradients of gates and losses. The bias has
// no gradient.
struct RouteBwd {
  static constexpr std::string_view kName = "route_bwd";
  enum { kLogits, kChosen, kDgates, kDlogits, kRound };  // kRound: RouterLoad's, where there is a balance
  Mixture mixture;
  DType dtype;
  RouterScore score;
  bool normalised = false;
  float scale = 1;
  RouterLosses losses = {};

  bool reads_round() const { return losses.balance != 0; }
  Operands operands() const;
  constexpr void fields(auto&& f) const {
    mixture.fields(f);
    f("dtype", dtype), f("score", score), f("normalised", normalised), f("scale", scale, kNoCost);
    losses.fields(f);
  }
};

// y[t, j] = gates[t, j] * scales[chosen[t, j]]: a learnt factor of every expert. Gates are f32.
struct ScaleGates {
  static constexpr std::string_view kName = "scale_gates";
  enum { kGates, kChosen, kScales, kY };
  Mixture mixture;
  DType dtype;  // of the scales

  Operands operands() const;
  constexpr void fields(auto&& f) const { mixture.fields(f), f("dtype", dtype); }
};
// dgates[t, j] = dy[t, j] * scales[chosen[t, j]]; dscales[e] (+)= the sum of dy gates over the choices of e,
// in the order of tokens.
struct ScaleGatesBwd {
  static constexpr std::string_view kName = "scale_gates_bwd";
  enum { kGates, kChosen, kScales, kDy, kDgates, kDscales };
  Mixture mixture;
  DType dtype, grad_dtype;
  bool accumulate;

  Operands operands() const;
  int64_t workspace_bytes(const GpuLibraries&) const;
  constexpr void fields(auto&& f) const {
    mixture.fields(f), f("dtype", dtype), f("grad", grad_dtype), f("acc", accumulate);
  }
};

// Sums of routers, f64: of every expert how many choices fell on it, and the sum of its softmax scores. Then
// the sums over tokens of the entropy of these scores and of log(sum_e exp(logit_e))^2. Added to two sums:
// that of a layer over a step, and, unless `alone`, that of a round over its layers.
struct LoadLayout {
  int64_t experts;

  constexpr int64_t choices() const { return 0; }
  constexpr int64_t scores() const { return experts; }
  constexpr int64_t entropy() const { return 2 * experts; }
  constexpr int64_t z() const { return entropy() + 1; }
  constexpr int64_t elements() const { return z() + 1; }
};
struct RouterLoad {
  static constexpr std::string_view kName = "router_load";
  enum { kLogits, kChosen, kLayer, kRound };
  Mixture mixture;
  bool accumulate_layer, accumulate_round;
  bool alone = false;  // then kRound is absent

  Operands operands() const;
  int64_t workspace_bytes(const GpuLibraries&) const;
  constexpr void fields(auto&& f) const {
    mixture.fields(f);
    f("acc_layer", accumulate_layer), f("acc_round", accumulate_round), f("alone", alone);
  }
};

// The routing of chosen[tokens, top_k]: a counting sort by expert, then token, then choice.
struct SortByExpert {
  static constexpr std::string_view kName = "sort_by_expert";
  enum { kChosen, kRouting };
  Mixture mixture;

  Operands operands() const;
  int64_t workspace_bytes(const GpuLibraries&) const;
  constexpr void fields(auto&& f) const { mixture.fields(f); }
};

// Which experts' weights an op has: `count` from `first` on, of all that a routing knows.
struct ExpertGroup {
  int64_t first, count;

  constexpr void fields(auto&& f) const { f("first", first, kNoCost), f("count", count); }
};

// A product with the weights of a group's experts, [out, in] each, over their rows.
struct GroupedProduct {
  Mixture mixture;
  ExpertGroup group;
  int64_t in, out;
  DType dtype;

  Work work() const;
  constexpr void fields(auto&& f) const {
    mixture.fields(f), group.fields(f);
    f("in", in), f("out", out), f("dtype", dtype);
  }
};

// y[i] = x[i] w_e^T (+ bias_e) for every row i of each expert e of the group. `gathers`: x[i] is the row of
// choice[i]'s token in x[tokens, in], else x is [rows, in]. w is [count * out, in], bias [count * out]. Rows
// of other experts are left as they are if `accumulate`, else they become 0.
struct GroupedLinear : GroupedProduct {
  static constexpr std::string_view kName = "grouped_linear";
  enum { kX, kW, kRouting, kY, kBias };
  bool gathers, accumulate;
  bool has_bias = false;

  Operands operands() const;
  double traffic() const;
  constexpr void fields(auto&& f) const {
    GroupedProduct::fields(f);
    f("gathers", gathers), f("acc", accumulate), f("bias", has_bias);
  }
};

// dx[i] = dy[i] w_e, with dy [tokens, out] if it gathers, else [rows, out]; the rest as GroupedLinear.
struct GroupedDgrad : GroupedProduct {
  static constexpr std::string_view kName = "grouped_dgrad";
  enum { kDy, kW, kRouting, kDx };
  bool gathers, accumulate;

  Operands operands() const;
  double traffic() const;
  constexpr void fields(auto&& f) const {
    GroupedProduct::fields(f);
    f("gathers", gathers), f("acc", accumulate);
  }
};

// dw_e (+)= the sum over e's rows i of dy[i]^T x[i], for each expert of the group; 0 of one that has no rows.
// Either is gathered from tokens, or neither.
struct GroupedWgrad : GroupedProduct {
  static constexpr std::string_view kName = "grouped_wgrad";
  enum { kDy, kX, kRouting, kDw };
  DType grad_dtype;
  bool gathers_dy, gathers_x, accumulate;

  Operands operands() const;
  double traffic() const;
  constexpr void fields(auto&& f) const {
    GroupedProduct::fields(f);
    f("grad", grad_dtype), f("gathers_dy", gathers_dy), f("gathers_x", gathers_x), f("acc", accumulate);
  }
};

// The sizes of an expert's low-rank adapters, as LowRankSizes has those of a matrix. Results of `parts` of
// them with `part` rows each are columns [at, at + parts * part) of rows of `columns`.
struct ExpertRank {
  int64_t rank;
  int64_t parts, part;
  int64_t at, columns;

  int64_t inner() const { return parts * rank; }
  int64_t adapted() const { return parts * part; }
  constexpr void fields(auto&& f) const {
    f("rank", rank), f("parts", parts), f("part", part), f("at", at), f("columns", columns);
  }
};

// A product with the adapters of a group's experts.
struct GroupedAdapters {
  Mixture mixture;
  ExpertGroup group;
  ExpertRank sizes;
  DType dtype;
  float scale = 1;

  Work work() const;
  constexpr void fields(auto&& f) const {
    mixture.fields(f), group.fields(f), sizes.fields(f);
    f("dtype", dtype);
  }
};

// y[i, at + p part + o] += scale * sum over j of u[i, p rank + j] b_e[p part + o, j]
// for every row i of each expert e of the group. Products are rounded with the sum. b is [count * parts *
// part, rank]. `turned`: of one part, and b_e is [rank, part]. Rows of other experts, and other columns,
// stay.
struct GroupedLowRank : GroupedAdapters {
  static constexpr std::string_view kName = "grouped_low_rank";
  enum { kU, kB, kRouting, kY };
  bool turned = false;

  Operands operands() const;
  double traffic() const;
  constexpr void fields(auto&& f) const {
    GroupedAdapters::fields(f);
    f("scale", scale, kNoCost), f("turned", turned);
  }
};

// du[i, p rank + j] = scale * sum over o of dy[i, at + p part + o] b_e[p part + o, j]. dy is [tokens,
// columns] if it gathers, else [rows, columns]. Rows of other experts are left as they are if `accumulate`,
// else they become 0.
struct GroupedLowRankDgrad : GroupedAdapters {
  static constexpr std::string_view kName = "grouped_low_rank_dgrad";
  enum { kDy, kB, kRouting, kDu };
  bool gathers = false, accumulate = false;

  Operands operands() const;
  double traffic() const;
  constexpr void fields(auto&& f) const {
    GroupedAdapters::fields(f);
    f("scale", scale, kNoCost), f("gathers", gathers), f("acc", accumulate);
  }
};

// db_e[p part + o, j] (+)= scale * sum over e's rows i of dy[i, at + p part + o] u[i, p rank + j], for each
// expert of the group. It is 0 of one that has no rows. dy as of GroupedLowRankDgrad.
struct GroupedLowRankWgrad : GroupedAdapters {
  static constexpr std::string_view kName = "grouped_low_rank_wgrad";
  enum { kDy, kU, kRouting, kDb };
  DType grad_dtype;
  bool gathers = false, accumulate = false;

  Operands operands() const;
  double traffic() const;
  constexpr void fields(auto&& f) const {
    GroupedAdapters::fields(f);
    f("grad", grad_dtype), f("scale", scale, kNoCost), f("gathers", gathers), f("acc", accumulate);
  }
};

// dbias_e (+)= the sum over e's rows i of dy[i], for all experts; 0 of one that has no rows. `gathers`: dy is
// [tokens, out], and its rows are taken times the gates of their choices.
struct GroupedBiasGrad {
  static constexpr std::string_view kName = "grouped_bias_grad";
  enum { kDy, kRouting, kDbias, kGates };  // kGates: where it gathers
  Mixture mixture;
  int64_t out;
  DType dtype, grad_dtype;
  bool gathers, accumulate;

  Operands operands() const;
  constexpr void fields(auto&& f) const {
    mixture.fields(f);
    f("out", out), f("dtype", dtype), f("grad", grad_dtype), f("gathers", gathers), f("acc", accumulate);
  }
};

// y[t] = the sum over the choices j of t, in their order, of gates[t, j] * x[row[t, j]] (+ residual[t]).
// Without gates: of x alone.
struct CombineExperts {
  static constexpr std::string_view kName = "combine_experts";
  enum { kX, kRouting, kY };  // then gates and residual, where they are
  Mixture mixture;
  int64_t dim;
  DType dtype;
  bool has_gates, has_residual;

  size_t gates_operand() const { return kY + 1; }
  size_t residual_operand() const { return kY + (has_gates ? 2 : 1); }
  Operands operands() const;
  constexpr void fields(auto&& f) const {
    mixture.fields(f);
    f("dim", dim), f("dtype", dtype), f("gates", has_gates), f("res", has_residual);
  }
};

// From what experts' last products read to what their first ones wrote, with y = Swiglu(gu) of each row and g
// its gate. dy[i] is the gradient of a row's result times the down projection, before the gate: with that
//   dgates[choice[i]] = sum(dy[i] y[i]) (+ sum(dout[choice[i]'s token] bias_e))
//   dgu[i] = the gradient of Swiglu for g dy[i]
//   gated[i] = g y[i], of which the down projection's weight gradient is made
// so that no expert's result need be kept. The bias is the down projection's, [experts * out].
struct ExpertGluBwd {
  static constexpr std::string_view kName = "expert_glu_bwd";
  enum { kGu, kDy, kGates, kRouting, kDgu, kGated, kDgates, kBias, kDout };
  Mixture mixture;
  int64_t dim;
  DType dtype;
  GateActivation activation = GateActivation::Silu;
  float limit = 0;     // as Swiglu's
  int64_t biased = 0;  // columns of the bias; 0: there is none, and neither kBias nor kDout

  Operands operands() const;
  constexpr void fields(auto&& f) const {
    mixture.fields(f);
    f("dim", dim), f("dtype", dtype), f("activation", activation), f("limit", limit, kNoCost),
        f("biased", biased);
  }
};

// y = sigmoid(gate) * x (+ residual), with a gate for each token: what tokens take of an expert that all
// share. Gates are f32.
struct GatedAdd {
  static constexpr std::string_view kName = "gated_add";
  enum { kX, kGate, kY, kResidual };
  int64_t tokens, dim;
  DType dtype;
  bool has_residual = false;

  Operands operands() const;
  constexpr void fields(auto&& f) const {
    f("tokens", tokens), f("dim", dim), f("dtype", dtype), f("res", has_residual);
  }
};
// dx = sigmoid(gate) dy; dgate = sigmoid'(gate) sum(dy x), in dtype.
struct GatedAddBwd {
  static constexpr std::string_view kName = "gated_add_bwd";
  enum { kX, kGate, kDy, kDx, kDgate };
  int64_t tokens, dim;
  DType dtype;

  Operands operands() const;
  constexpr void fields(auto&& f) const { f("tokens", tokens), f("dim", dim), f("dtype", dtype); }
};

}  // namespace sluice::core
