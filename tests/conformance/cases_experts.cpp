// SPDX-License-Identifier: Apache-2.0
#include "conformance/case_list.h"

namespace sluice::core::conformance {
namespace {

// Few tokens and many, experts that are no power of two, one choice and all of them, more of everything than
// one block.
constexpr Mixture kSmall{13, 5, 2};
constexpr Mixture kMixtures[] = {kSmall, {1, 2, 1}, {37, 64, 8}, {130, 8, 8}, {300, 16, 4}, {64, 8, 2}};
constexpr std::pair<Spread, const char*> kSpreads[] = {
    {Spread::Random, "any"}, {Spread::OneExpert, "one expert first"}, {Spread::FirstHalf, "lower half"}};

void add_routers(List& list) {
  for (const Mixture& m : kMixtures) {
    list.add(Route{m, RouterScore::Softmax});
    list.add(Route{m, RouterScore::Chosen, false, false, 2.5f});
    list.add(Route{m, RouterScore::Sigmoid, true, true, 1.5f});
    list.add(SortByExpert{m});
    list.add(RouterLoad{m, false, false, true});
    for (const DType dtype : kDTypes) {
      list.add(RouteBwd{m, dtype, RouterScore::Softmax});
      list.add(RouteBwd{m, dtype, RouterScore::Chosen, false, 2.5f});
      list.add(RouteBwd{m, dtype, RouterScore::Sigmoid, true, 1.5f});
    }
  }
  const RouterLosses both{0.4f, 0.05f, 26};
  for (const RouterScore score : {RouterScore::Softmax, RouterScore::Chosen, RouterScore::Sigmoid}) {
    list.add(RouteBwd{kSmall, kF32, score, false, 1, both});
    list.add(RouteBwd{{300, 16, 4}, kBf16, score, false, 1, {0, 0.05f, 300}});
  }
  list.add(Route{kSmall, RouterScore::Sigmoid});
  list.add(Route{{40, 512, 32}, RouterScore::Softmax}, "most");
  list.add(Route{kSmall, RouterScore::Chosen}, "ties", {.ties = true});
  list.add(Route{{70, 60, 4}, RouterScore::Softmax}, "ties", {.ties = true});
  list.add(RouterLoad{kSmall, true, false});
  list.add(RouterLoad{{300, 16, 4}, false, true});
  list.add(SortByExpert{{3000, 60, 4}});
  for (const auto& [spread, note] : kSpreads) list.add(SortByExpert{{300, 16, 4}}, note, {.experts = spread});
}

void add_grouped(List& list) {
  struct Sizes {
    Mixture mixture;
    ExpertGroup group;
    int64_t in, out;
  };
  const Sizes sizes[] = {{kSmall, {0, 5}, 12, 10},
                         {{37, 64, 8}, {16, 32}, 24, 40},
                         {{300, 16, 4}, {0, 8}, 72, 56},
                         {{130, 8, 8}, {6, 2}, 40, 136},
                         {{64, 8, 2}, {0, 8}, 136, 264}};
  for (const auto& [m, group, in, out] : sizes) {
    for (const DType dtype : kDTypes) {
      for (const bool flag : {false, true}) {
        list.add(GroupedLinear{m, group, in, out, dtype, flag, group.first > 0, flag});
        if (group.count < m.experts)
          list.add(GroupedLinear{m, group, in, out, dtype, flag, group.first == 0, !flag});
        list.add(GroupedDgrad{m, group, in, out, dtype, flag, group.first > 0});
      }
      list.add(CombineExperts{m, in, dtype, true, true});
      list.add(CombineExperts{m, out, dtype, false, false});
    }
    for (const auto& [dtype, grad] : kGradDTypes) {
      for (const bool flag : {false, true}) {
        list.add(GroupedWgrad{m, group, in, out, dtype, grad, flag, !flag, flag});
        list.add(GroupedBiasGrad{m, out, dtype, grad, flag, !flag});
      }
    }
  }
  // Few tokens, and more of an expert's than one task takes.
  for (const DType dtype : kDTypes) {
    for (const bool gathers : {false, true})
      list.add(GroupedLinear{{{5, 8, 2}, {2, 4}, 72, 56, dtype}, gathers, true, gathers});
    const Mixture m{600, 2, 1};
    const Data one{.experts = Spread::OneExpert};
    list.add(GroupedLinear{m, {0, 2}, 200, 40, dtype, true, false, true}, "one expert first", one);
    list.add(GroupedDgrad{m, {0, 2}, 40, 200, dtype, true, false}, "one expert first", one);
    list.add(GroupedWgrad{m, {0, 2}, 40, 56, dtype, kF32, false, true, true}, "one expert first", one);
  }
  for (const auto& [spread, note] : kSpreads) {
    const Data data{.experts = spread};
    const Mixture m{70, 8, 2};
    const ExpertGroup group{2, 4};
    for (const DType dtype : kDTypes) {
      list.add(GroupedLinear{m, group, 48, 40, dtype, true, false}, note, data);
      list.add(GroupedDgrad{m, group, 48, 40, dtype, false, true}, note, data);
      list.add(GroupedWgrad{m, group, 48, 40, dtype, kF32, true, false, false}, note, data);
      list.add(GroupedWgrad{m, group, 48, 40, dtype, dtype, false, true, true}, note, data);
      list.add(CombineExperts{m, 48, dtype, true, true}, note, data);
    }
  }
}

// Ranks of no whole vector, parts that leave columns on either side, experts without rows and with many.
void add_experts_adapters(List& list) {
  for (const ExpertRank s : {ExpertRank{8, 2, 24, 0, 48}, {3, 1, 7, 2, 11}, {16, 1, 40, 40, 80}}) {
    for (const auto& [m, group] : {std::pair{Mixture{33, 8, 2}, ExpertGroup{0, 8}}, {{70, 8, 2}, {2, 4}}}) {
      for (const DType dtype : kDTypes) {
        list.add(GroupedLowRank{m, group, s, dtype, 2});
        list.add(GroupedLowRank{m, group, {s.rank, 1, s.columns, 0, s.columns}, dtype, 0.5f, true});
        // Rows of other experts keep what they have: where the group has all, there are none.
        for (const bool gathers : {false, true})
          list.add(
              GroupedLowRankDgrad{m, group, s, dtype, 0.3f, gathers, !gathers && group.count < m.experts});
      }
      for (const auto& [dtype, grad] : kGradDTypes) {
        for (const bool gathers : {false, true})
          list.add(GroupedLowRankWgrad{m, group, s, dtype, 0.3f, grad, gathers, gathers});
      }
    }
  }
  const ExpertRank s{16, 2, 136, 0, 272};
  const Mixture m{200, 4, 2};
  for (const auto& [spread, note] : kSpreads) {
    const Data data{.experts = spread};
    list.add(GroupedLowRank{m, {0, 4}, s, kBf16, 2}, note, data);
    list.add(GroupedLowRankDgrad{m, {1, 2}, s, kBf16, 1, true, false}, note, data);
    list.add(GroupedLowRankWgrad{m, {0, 4}, s, kBf16, 1, kF32, true, true}, note, data);
  }
}

void add_gates(List& list) {
  using enum GateActivation;
  for (const DType dtype : kDTypes) {
    for (const Mixture& m : {kSmall, Mixture{37, 64, 8}, Mixture{130, 8, 8}}) {
      for (const int64_t dim : {8, 136}) list.add(ExpertGluBwd{m, dim, dtype});
      list.add(ExpertGluBwd{m, 40, dtype, QuickGelu, 1.25f, 56});
      list.add(ExpertGluBwd{m, 40, dtype, GeluTanh, 0, 24});
      list.add(ExpertGluBwd{m, 40, dtype, Gelu});
    }
    for (const bool residual : {false, true}) {
      list.add(GatedAdd{13, 24, dtype, residual});
      list.add(GatedAdd{130, 520, dtype, residual});
    }
    list.add(GatedAddBwd{13, 24, dtype});
    list.add(GatedAddBwd{130, 520, dtype});
  }
  // Odd sizes.
  list.add(ExpertGluBwd{kSmall, 19, kF32});
  list.add(GatedAdd{5, 19, kF32, true});
  list.add(GatedAddBwd{5, 19, kF32});
  list.add(CombineExperts{kSmall, 19, kF32, true, false});
  // What a router multiplies with.
  for (const int64_t out : {1, 8, 60, 64, 128}) {
    Linear op{.tokens = 70, .in = 48, .out = out, .dtype = kBf16, .has_bias = out == 64};
    op.f32_result = true;
    list.add(op);
    // Of few tokens, as decoding has them.
    op.tokens = 3, op.in = 1024;
    list.add(op);
    list.add(LinearDgrad{70, 48, out, kBf16, true});
    list.add(LinearWgrad{70, 48, out, kBf16, kF32, false});
  }
}

}  // namespace

void add_experts(List& list) {
  add_routers(list);
  add_grouped(list);
  add_experts_adapters(list);
  add_gates(list);
}

}  // namespace sluice::core::conformance
