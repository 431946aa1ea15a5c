// SPDX-License-Identifier: Apache-2.0
// What ops say of themselves to those who cost, measure and test them.
#include <gtest/gtest.h>

#include <tuple>

#include "ops/op.h"

namespace sluice::core {
namespace {

const AdamW kUpdate{.elements = 100,
                    .first = 0,
                    .object = 1,
                    .beta1 = 0.9f,
                    .beta2 = 0.99f,
                    .dtype = DType::F32,
                    .grad_dtype = DType::F32,
                    .state_dtype = DType::F32};

TEST(CostKey, IsEqualWhereOpsCostTheSame) {
  AdamW other = kUpdate;
  other.first = 100, other.object = 7;
  EXPECT_NE(to_text(kUpdate), to_text(other));
  EXPECT_EQ(cost_key(kUpdate), cost_key(other));
  other.elements = 50;
  EXPECT_NE(cost_key(kUpdate), cost_key(other));
  EXPECT_EQ(cost_key(SumSq{100, 0, 8, DType::F32, true}), cost_key(SumSq{100, 3, 9, DType::F32, false}));
}

TEST(Work, OfAttentionBackwardCountsTheScoresTwiceOnHardwareOnly) {
  const AttnShape shape{1, 64, 64, 2, 1, 32, 0, false, DType::BF16};
  const Work forward = work(AttnFwd{shape, DType::BF16, false});
  const Work backward = work(AttnBwd{shape, DType::BF16, false, false});
  EXPECT_EQ(backward.flops, 2 * forward.flops);
  EXPECT_EQ(backward.hardware_flops(), 2.5 * forward.flops);
  EXPECT_EQ(forward.hardware_flops(), forward.flops);
}

// The pairs that AttnShape's definition allows, one by one.
double pairs_of(const AttnShape& s) {
  double pairs = 0;
  for (int64_t i = 0; i < s.q_len; ++i) {
    for (int64_t j = 0; j < s.kv_len; ++j) {
      const int64_t query = s.distance + i;
      if (j <= query && (s.window == 0 || query - s.window < j)) ++pairs;
    }
  }
  return pairs * double(s.rows);
}

TEST(AttnShape, CountsThePairsWithinAWindow) {
  AttnShape s{2, 7, 7, 2, 1, 32, 0, false, DType::BF16};
  for (const auto& [q_len, kv_len, distance] : {std::tuple{7, 7, 0}, {7, 7, 7}, {7, 5, 6}, {3, 9, 20}}) {
    s.q_len = q_len, s.kv_len = kv_len, s.distance = distance;
    for (s.window = 0; s.window < 32; ++s.window) {
      EXPECT_EQ(s.pairs(), pairs_of(s)) << distance << " " << s.window;
      EXPECT_EQ(s.is_in_window(), s.pairs() > 0) << distance << " " << s.window;
    }
  }
}

// Programs without windows keep their hashes.
TEST(AttnShape, NamesAWindowOnlyWhereThereIsOne) {
  AttnShape s{2, 7, 7, 2, 1, 32, 0, false, DType::BF16};
  EXPECT_EQ(to_text(AttnFwd{s, DType::BF16, false}).find("window"), std::string::npos);
  const std::string without = cost_key(AttnFwd{s, DType::BF16, false});
  s.window = 4;
  EXPECT_NE(to_text(AttnFwd{s, DType::BF16, false}).find(" window=4"), std::string::npos);
  EXPECT_NE(cost_key(AttnFwd{s, DType::BF16, false}), without);
}

TEST(Operands, SayHowFarIdsGo) {
  for (const Op& op : {Op(Embed{4, 10, 8, DType::F32}), Op(EmbedBwd{4, 10, 8, DType::F32, DType::F32, false}),
                       Op(HeadLoss{4, 8, 10, 4, DType::F32, DType::F32, false, false, false})}) {
    int ids = 0;
    for (const Operand& operand : operands(op)) {
      if (operand.values != Values::Ids) continue;
      EXPECT_EQ(operand.limit, 10) << to_text(op);
      ++ids;
    }
    EXPECT_EQ(ids, 1) << to_text(op);
  }
}

// What an op leaves out is found by the compiler.
struct WithoutOperands {
  static constexpr std::string_view kName = "without_operands";
  void fields(auto&&) const {}
};
struct Complete : WithoutOperands {
  Operands operands() const { return {}; }
};
static_assert(OpSchema<Complete> && !OpSchema<WithoutOperands>);

}  // namespace
}  // namespace sluice::core
