// SPDX-License-Identifier: Apache-2.0
// What ops say of themselves to those who cost, measure and test them.
#include <gtest/gtest.h>

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
  EXPECT_NE(text(kUpdate), text(other));
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

TEST(Operands, SayHowFarIdsGo) {
  for (const Op& op : {Op(Embed{4, 10, 8, DType::F32}), Op(EmbedBwd{4, 10, 8, DType::F32, DType::F32, false}),
                       Op(HeadLoss{4, 8, 10, 4, DType::F32, DType::F32, false, false, false})}) {
    int ids = 0;
    for (const Operand& operand : operands(op)) {
      if (operand.values != Values::Ids) continue;
      EXPECT_EQ(operand.limit, 10) << text(op);
      ++ids;
    }
    EXPECT_EQ(ids, 1) << text(op);
  }
}

// What an op leaves out is found by the compiler.
struct WithoutWork {
  static constexpr std::string_view kName = "without_work";
  Operands operands() const { return {}; }
  int64_t workspace_bytes(const GpuLibraries&) const { return 0; }
  void fields(auto&&) const {}
};
struct Complete : WithoutWork {
  Work work() const { return {}; }
};
static_assert(OpSchema<Complete> && !OpSchema<WithoutWork>);

}  // namespace
}  // namespace sluice::core
