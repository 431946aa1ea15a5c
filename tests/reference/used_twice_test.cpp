// SPDX-License-Identifier: Apache-2.0
// Every op that has a gradient, built twice of the same inputs, which others use, too: what is derived has
// the gradients of the sum.
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <set>

#include "program/gradient/rules.h"
#include "reference/loss_program.h"

namespace sluice::core {
namespace {

constexpr auto kF32 = DType::F32;
constexpr int64_t kTokens = LossProgram::kTokens, kDim = LossProgram::kDim;
constexpr int64_t kHeads = 2, kHeadDim = 8, kKv = 16, kExperts = 3, kFfn = 12, kRank = 4;
constexpr DeltaSizes kDelta{.key_heads = 1, .value_heads = 2, .key_dim = 4, .value_dim = 8};

using Ids = std::vector<ObjectId>;

struct Case {
  const char* name;
  std::vector<int64_t> inputs;  // columns of each
  // Adds the op, with `u` in the names of what it makes, and returns that. Parameters are the same each time.
  std::function<Ids(LossProgram&, const Ids& in, const std::string& u)> build;
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.name;
}

ObjectId positions(LossProgram& p) {
  return p.input("positions", DType::I32, kTokens);
}
ObjectId frequencies(LossProgram& p) {
  return p.input("frequencies", kF32, kHeadDim / 2);
}
AttnShape shape(int64_t distance) {
  return {1, kTokens, kTokens, kHeads, 1, kHeadDim, distance, false, kF32};
}
ObjectId attend(LossProgram& p, const Ids& in, const std::string& u, bool sinks) {
  const ObjectId o = p.activation("o" + u);
  std::vector<Bound> uses{in[0], in[1], positions(p), o, p.activation("lse" + u, kHeads)};
  if (sinks) uses.emplace_back(p.param("sinks", kHeads));
  p.task("attn" + u, AttnFwd{shape(0), kF32, false, sinks}, uses);
  return o;
}

// With adapters of the rank, if it is not 0.
Ids mix(LossProgram& p, const Mixture& m, int64_t rank, const Ids& in, ObjectId routing,
        const std::string& u) {
  const ObjectId gu = p.activation("gu" + u, kExperts * 2 * kFfn);
  const ObjectId act = p.activation("act" + u, kExperts * kFfn);
  const ObjectId rows = p.activation("rows" + u, kExperts * kDim), y = p.activation("mixed" + u);
  const auto product = [&](const std::string& name, ObjectId from, int64_t cols, int64_t out, bool gathers,
                           ObjectId to) {
    for (int64_t first = 0; first < kExperts; ++first) {
      p.add(name + std::to_string(first) + u,
            GroupedLinear{m, {first, 1}, cols, out, kF32, gathers, first > 0, true},
            {from, p.param("w_" + name + std::to_string(first), out * cols), routing, to,
             Bound(p.param("b_" + name, kExperts * out), first * out * size_of(kF32))});
    }
    if (rank == 0) return;
    const ObjectId low = p.activation("u_" + name + u, kExperts * rank);
    for (int64_t first = 0; first < kExperts; ++first) {
      const std::string a = "a_" + name + std::to_string(first);
      p.add(a + u, GroupedLinear{m, {first, 1}, cols, rank, kF32, gathers, first > 0},
            {from, p.param(a, rank * cols), routing, low});
    }
    for (int64_t first = 0; first < kExperts; ++first) {
      const std::string b = "b_" + name + std::to_string(first);
      p.add(b + u, GroupedLowRank{m, {first, 1}, {rank, 1, out, 0, out}, kF32, 2},
            {low, p.param(b, out * rank), routing, to});
    }
  };
  product("up", in[0], kDim, 2 * kFfn, true, gu);
  p.add("swiglu" + u, Swiglu{{.tokens = m.rows(), .dim = kFfn, .dtype = kF32}}, {gu, act});
  product("down", act, kFfn, kDim, false, rows);
  p.add("combine" + u, CombineExperts{m, kDim, kF32, true, true}, {rows, routing, y, in[1], in[2]});
  p.gradients.record((rank > 0 ? 6 : 2) * kExperts + 2);
  return {y};
}

// All experts are chosen, so that no small step chooses others. Not recorded.
ObjectId route(LossProgram& p, ObjectId logits, ObjectId gates, const std::string& u) {
  const ObjectId chosen = p.activation("chosen" + u, kExperts, DType::I32);
  p.add("route" + u, Route{{kTokens, kExperts, kExperts}, RouterScore::Sigmoid}, {logits, gates, chosen});
  return chosen;
}

Ids experts(LossProgram& p, int64_t rank, const Ids& in, const std::string& u) {
  const ObjectId chosen = route(p, in[1], p.activation("unused" + u, kExperts), u);
  const Mixture m{kTokens, kExperts, kExperts};
  const ObjectId routing = p.sized("routing" + u, DType::I32, RoutingLayout{kExperts, m.rows()}.elements());
  p.add("sort" + u, SortByExpert{m}, {chosen, routing});
  return mix(p, m, rank, in, routing, u);
}

// Gates of the delta rule, between 0 and 1, which both uses read.
ObjectId delta_gates(LossProgram& p, ObjectId z, const std::string& name, const std::string& u) {
  constexpr int64_t kGates = 2 * kDelta.value_heads;
  const ObjectId gates = p.activation(name, kGates);
  if (u == "_1")
    p.task("make_" + name, HeadGate{kTokens, 1, kGates, kF32},
           {p.input("ones", kF32, kTokens * kGates), z, gates});
  return gates;
}

const Case kCases[] = {
    {"embed",
     {kDim},
     [](LossProgram& p, const Ids& in, const std::string& u) {
       const ObjectId y = p.activation("y" + u);
       Embed op{kTokens, LossProgram::kVocab, kDim, kF32};
       op.has_residual = true;
       p.task("op" + u, op,
              {p.input("ids", DType::I32, kTokens), p.param("other_table", LossProgram::kVocab * kDim), y,
               in[0]});
       return Ids{y};
     }},
    {"rms_norm",
     {kDim, kDim},
     [](LossProgram& p, const Ids& in, const std::string& u) {
       const ObjectId y = p.activation("y" + u);
       p.task("op" + u, RmsNorm{kTokens, kDim, 1e-5f, kF32, 0, 1, true},
              {in[0], p.param("norm", kDim), y, in[1]});
       return Ids{y};
     }},
    {"layer_norm",
     {kDim},
     [](LossProgram& p, const Ids& in, const std::string& u) {
       const ObjectId y = p.activation("y" + u);
       p.task("op" + u, LayerNorm{kTokens, kDim, 1e-5f, kF32, true, true},
              {in[0], y, p.param("norm", kDim), p.param("bias", kDim)});
       return Ids{y};
     }},
    {"head_norm_rope",
     {kHeads * kHeadDim + 8},
     [](LossProgram& p, const Ids& in, const std::string& u) {
       const ObjectId y = p.activation("y" + u, kHeads * kHeadDim + 8);
       p.task("op" + u, HeadNormRope{{kTokens, kHeads, kHeadDim, 8, 1e-5f}, kF32},
              {in[0], p.param("norm", kHeadDim), positions(p), frequencies(p), y});
       return Ids{y};
     }},
    {"linear",
     {kDim, 24},
     [](LossProgram& p, const Ids& in, const std::string& u) {
       const ObjectId y = p.activation("y" + u, 24);
       Linear op{.tokens = kTokens, .in = kDim, .out = 24, .dtype = kF32};
       op.has_residual = op.has_bias = true;
       p.task("op" + u, op, {in[0], p.param("w", 24 * kDim), y, in[1], p.param("bias", 24)});
       return Ids{y};
     }},
    {"attention",
     {kHeads * kHeadDim, kKv},
     [](LossProgram& p, const Ids& in, const std::string& u) { return Ids{attend(p, in, u, true)}; }},
    {"rotated_attention",
     {kHeads * kHeadDim, kKv},
     [](LossProgram& p, const Ids& in, const std::string& u) {
       if (u == "_1") {
         const ObjectId pos = positions(p), frequency = frequencies(p);
         p.add("q_rope", Rope{kTokens, kHeads, kHeadDim, 0, kF32}, {in[0], pos, frequency});
         p.add("k_rope", Rope{kTokens, 1, kHeadDim, kHeadDim, kF32}, {in[1], pos, frequency});
         p.gradients.record(2);
       }
       return Ids{attend(p, in, u, false)};
     }},
    // Of two pieces the first one's keys are in two blocks.
    {"attention_over_blocks",
     {kHeads * kHeadDim, kKv, kHeads* kHeadDim, kKv},
     [](LossProgram& p, const Ids& in, const std::string& u) {
       const ObjectId first = attend(p, in, u, false);
       const ObjectId sum = p.activation("sum" + u), o = p.activation("o_of_both" + u);
       const ObjectId lse = p.activation("lse_of_both" + u, kHeads);
       p.add("attn_own" + u, AttnFwd{shape(0), kF32, false}, {in[2], in[3], positions(p), sum, lse});
       p.add("attn_earlier" + u, AttnFwd{shape(kTokens), kF32, true}, {in[2], in[1], positions(p), sum, lse});
       p.add("cast" + u, Cast{kTokens * kDim, kF32, kF32}, {sum, o});
       p.gradients.record(3);
       return Ids{first, o};
     }},
    // Of two pieces the second one reads the tail of the first.
    {"conv",
     {3 * kDim, 3 * kDim},
     [](LossProgram& p, const Ids& in, const std::string& u) {
       const ObjectId w = p.param("w", 3 * kDim), pos = positions(p);
       const ObjectId tail = p.sized("tail" + u, kF32, 2 * kDim);
       Ids out{p.activation("piece" + u)};
       p.task("op" + u, ShortConv{kTokens, kDim, 3, kF32, false, true}, {in[0], w, pos, out[0], tail});
       for (const std::string name : {"next", "other"}) {
         out.push_back(p.activation(name + u));
         p.task(name + "_op" + u, ShortConv{kTokens, kDim, 3, kF32, true}, {in[1], w, pos, out.back(), tail});
       }
       return out;
     }},
    {"swiglu",
     {2 * kDim},
     [](LossProgram& p, const Ids& in, const std::string& u) {
       const ObjectId y = p.activation("y" + u);
       p.task("op" + u, Swiglu{{.tokens = kTokens, .dim = kDim, .dtype = kF32}}, {in[0], y});
       return Ids{y};
     }},
    {"head_loss",
     {kDim},
     [](LossProgram& p, const Ids& in, const std::string& u) {
       p.loss("sum" + u, in[0], true);
       return Ids{};
     }},
    {"route",
     {kExperts},
     [](LossProgram& p, const Ids& in, const std::string& u) {
       const ObjectId gates = p.activation("gates" + u, kExperts);
       route(p, in[0], gates, u);
       p.gradients.record();
       return Ids{gates};
     }},
    // No gradient passes through the choice.
    {"experts",
     {kDim, kExperts, kDim},
     [](LossProgram& p, const Ids& in, const std::string& u) { return experts(p, 0, in, u); }},
    {"experts_with_adapters",
     {kDim, kExperts, kDim},
     [](LossProgram& p, const Ids& in, const std::string& u) { return experts(p, kRank, in, u); }},
    {"scale_gates",
     {kExperts, kExperts},
     [](LossProgram& p, const Ids& in, const std::string& u) {
       const ObjectId chosen = route(p, in[1], p.activation("unused" + u, kExperts), u);
       const ObjectId y = p.activation("y" + u, kExperts);
       p.task("op" + u, ScaleGates{{kTokens, kExperts, kExperts}, kF32},
              {in[0], chosen, p.param("scales", kExperts), y});
       return Ids{y};
     }},
    {"scale_by",
     {kDim},
     [](LossProgram& p, const Ids& in, const std::string& u) {
       const ObjectId y = p.activation("y" + u);
       p.task("op" + u, ScaleBy{kTokens * kDim, kF32}, {in[0], p.input("scale", kF32, 1), y});
       return Ids{y};
     }},
    {"low_rank",
     {2 * kRank, kDim},
     [](LossProgram& p, const Ids& in, const std::string& u) {
       const ObjectId y = p.activation("y" + u);
       p.task("op" + u, LowRank{{kTokens, kRank, 2, 4, 8, kDim}, kF32, 2, true},
              {in[0], p.param("b", 8 * kRank), y, in[1]});
       return Ids{y};
     }},
    {"dropout",
     {kDim},
     [](LossProgram& p, const Ids& in, const std::string& u) {
       const ObjectId y = p.activation("y" + u);
       p.task("op" + u,
              Dropout{.tokens = kTokens, .width = kDim, .dtype = kF32, .rate = 0.5f, .seq_len = kTokens},
              {in[0], p.input("args", DType::U8, sizeof(DropoutArgs)), y});
       return Ids{y};
     }},
    // Norms are constants.
    {"magnitude",
     {kDim, kDim},
     [](LossProgram& p, const Ids& in, const std::string& u) {
       const LowRankSizes s{kTokens, kRank, 1, 8, 8, kDim};
       const ObjectId y = p.activation("y" + u), norms = p.sized("norms", kF32, s.adapted());
       if (u == "_1")
         p.add("row_norms", RowNorms{s, kDim, kF32, 1},
               {p.input("w", kF32, kDim * kDim), p.input("a", kF32, kRank * kDim),
                p.input("b", kF32, s.adapted() * kRank), norms});
       p.task("op" + u, Magnitude{kTokens, kDim, s.first, s.adapted(), kF32, true, true},
              {in[0], p.param("m", s.adapted()), norms, y, p.param("bias", kDim), in[1]});
       return Ids{y};
     }},
    {"delta_gates",
     {2 * kDelta.value_heads},
     [](LossProgram& p, const Ids& in, const std::string& u) {
       const ObjectId y = p.activation("y" + u, 2 * kDelta.value_heads);
       p.task("op" + u, DeltaGates{kTokens, kDelta.value_heads, kF32},
              {in[0], p.param("a_log", kDelta.value_heads), p.param("dt_bias", kDelta.value_heads), y});
       return Ids{y};
     }},
    // Of two pieces the second one begins with the state behind the first.
    {"delta_rule",
     {kDelta.columns(), 2 * kDelta.value_heads, kDelta.columns(), 2 * kDelta.value_heads},
     [](LossProgram& p, const Ids& in, const std::string& u) {
       const ObjectId pos = positions(p), state = p.sized("state" + u, kF32, kDelta.state());
       const ObjectId gates = delta_gates(p, in[1], "gates", u),
                      next = delta_gates(p, in[3], "next_gates", u);
       Ids out;
       const auto add = [&](const std::string& name, ObjectId qkv, ObjectId of, ObjectId at, bool later) {
         const ObjectId o = p.activation("o_" + name + u, kDelta.values());
         p.task(name + u, DeltaRule{kTokens, kDelta, kF32, later, !later}, {qkv, of, at, o, state});
         out.push_back(p.norm(name + "_normed" + u, o));
       };
       add("piece", in[0], gates, pos, false);
       for (const char* name : {"next", "other"})
         add(name, in[2], next, p.input("later", DType::I32, kTokens), true);
       return out;
     }},
    {"head_gate",
     {kHeads * kHeadDim, kHeads* kHeadDim},
     [](LossProgram& p, const Ids& in, const std::string& u) {
       const ObjectId y = p.activation("y" + u);
       p.task("op" + u, HeadGate{kTokens, kHeads, kHeadDim, kF32, true, 1e-5f},
              {in[0], in[1], y, p.param("norm", kHeadDim)});
       return Ids{y};
     }},
    {"swiglu_apart",
     {kDim, kDim},
     [](LossProgram& p, const Ids& in, const std::string& u) {
       const ObjectId y = p.activation("y" + u);
       Swiglu op{{.tokens = kTokens, .dim = kDim, .dtype = kF32}};
       op.apart = true;
       p.task("op" + u, op, {in[0], y, in[1]});
       return Ids{y};
     }},
    // Of a distillation.
    {"head_loss_of_more_than_targets",
     {kDim},
     [](LossProgram& p, const Ids& in, const std::string& u) {
       p.loss("sum" + u, in[0], true, 3);
       return Ids{};
     }},
    {"gated_add",
     {kDim, 1, kDim},
     [](LossProgram& p, const Ids& in, const std::string& u) {
       const ObjectId y = p.activation("y" + u);
       p.task("op" + u, GatedAdd{kTokens, kDim, kF32, true}, {in[0], in[1], y, in[2]});
       return Ids{y};
     }},
};

// The other readers of the inputs, a product and a residual, come after the op or between.
void build(const Case& c, bool between, LossProgram& p) {
  const ObjectId h = p.norm("h", p.embed());
  Ids in, out;
  for (const int64_t columns : c.inputs) in.push_back(p.linear("in" + std::to_string(in.size()), h, columns));
  const auto add = [&](const Ids& ids) { out.insert(out.end(), ids.begin(), ids.end()); };
  const auto add_others = [&] {
    for (size_t i = 0; i < in.size(); ++i)
      out.push_back(p.linear("beside" + std::to_string(i), in[i], c.inputs[i], in[i]));
  };
  add(c.build(p, in, "_1"));
  if (between) add_others();
  add(c.build(p, in, "_2"));
  if (!between) add_others();
  // Results are used twice, too.
  std::optional<ObjectId> stream;
  for (const std::string round : {"once", "twice"}) {
    for (size_t i = 0; i < out.size(); ++i)
      stream = p.linear(round + std::to_string(i), out[i], kDim, stream);
  }
  p.loss("loss", p.norm("last", *stream));
}

class UsedTwice : public testing::TestWithParam<std::tuple<Case, bool>> {};

TEST_P(UsedTwice, HasTheGradientsOfTheSum) {
  LossProgram p;
  build(std::get<0>(GetParam()), std::get<1>(GetParam()), p);
  p.expect_gradients();
}
std::string name_of_case(const testing::TestParamInfo<std::tuple<Case, bool>>& test) {
  return std::string(std::get<0>(test.param).name) + (std::get<1>(test.param) ? "_between" : "");
}
INSTANTIATE_TEST_SUITE_P(Ops, UsedTwice, testing::Combine(testing::ValuesIn(kCases), testing::Bool()),
                         name_of_case);

// Every op that a gradient goes through is in a case, and so is every op that makes one.
TEST(UsedTwiceOps, AreAllOps) {
  std::set<std::string_view> built;
  for (const Case& c : kCases) {
    LossProgram p;
    build(c, false, p);
    p.gradients.backward();
    for (const Task& task : p.program.tasks()) built.insert(name_of(task.op));
  }
  const auto check = [&]<class... T>(const std::variant<T...>*) {
    (
        [&] {
          const bool backward =
              std::ranges::any_of(std::array{"_bwd", "_dgrad", "_wgrad", "_grad"},
                                  [](const char* ending) { return T::kName.ends_with(ending); });
          EXPECT_TRUE(built.contains(T::kName) || !(backward || has_rule(T{}))) << T::kName;
        }(),
        ...);
  };
  check(static_cast<const AnyOp*>(nullptr));
}

// Copies in 8 bits, of what is used twice, have the gradients that it would have without, but for what they
// round.
TEST(UsedTwiceOps, OfCopiesIn8BitsAreThoseWithout) {
  const auto gradients = [](bool narrow) {
    LossProgram p;
    const ObjectId x = p.linear("in", p.norm("h", p.embed()), 2 * kDim);
    p.loss("loss_beside", p.norm("last_beside", p.linear("beside", x, kDim)));
    for (const std::string u : {"_1", "_2"})
      p.loss("loss" + u, p.norm("last" + u, p.linear("out" + u, x, kDim, {}, narrow)));
    return p.gradients_of_parameters();
  };
  const auto wide = gradients(false), narrow = gradients(true);
  for (const auto& [name, expected] : wide) {
    double error = 0, norm = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      error += std::pow(double(narrow.at(name)[i]) - double(expected[i]), 2);
      norm += std::pow(double(expected[i]), 2);
    }
    // An e4m3 is off by 2^-4 at most, which three operands in turn are.
    EXPECT_LT(std::sqrt(error / norm), 3 * 0x1p-4) << name;
    EXPECT_TRUE(error > 0 || !name.starts_with("w_out")) << name;
  }
}

// Between experts' products are the gradients of rows before they have their gates.
TEST(UsedTwiceDeathTest, WhatExpertsMakeOnTheWayIsTheirs) {
  const Case& experts = *std::ranges::find(kCases, std::string_view("experts"), &Case::name);
  LossProgram p;
  const ObjectId x = p.embed();
  const Ids mixed = experts.build(p, {x, p.linear("gates", x, kExperts), x}, "");
  const ObjectId act = p.activation("act", kExperts * kFfn);
  p.loss("loss", p.linear("leak", act, kDim, mixed[0]));
  EXPECT_DEATH(p.gradients.backward(), "combine: what its experts make on the way is used elsewhere, too");
}

}  // namespace
}  // namespace sluice::core
