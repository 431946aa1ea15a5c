// SPDX-License-Identifier: Apache-2.0
// Operands that only some forms of an op have are found by their names.
#include "ops/linear.h"

#include <gtest/gtest.h>

namespace sluice::core {
namespace {

TEST(Linear, FindsItsOptionalOperandsInEveryForm) {
  for (bool residual : {false, true}) {
    for (int64_t rope_heads : {0, 1}) {
      for (bool bias : {false, true}) {
        const Linear op{.tokens = 3,
                        .in = 4,
                        .out = 8,
                        .dtype = DType::F32,
                        .has_residual = residual,
                        .rope_heads = rope_heads,
                        .head_dim = 4,
                        .has_bias = bias};
        const Operands operands = op.operands();
        ASSERT_EQ(operands.size(),
                  size_t{3} + (residual ? 1 : 0) + (rope_heads > 0 ? 2 : 0) + (bias ? 1 : 0));
        EXPECT_EQ(operands[Linear::kY].name, "y");
        if (residual) {
          EXPECT_EQ(operands[op.residual_operand()].name, "residual");
        }
        if (rope_heads > 0) {
          EXPECT_EQ(operands[op.pos_operand()].name, "pos");
          EXPECT_EQ(operands[op.inv_freq_operand()].name, "inv_freq");
        }
        if (bias) {
          EXPECT_EQ(operands[op.bias_operand()].name, "bias");
        }
      }
    }
  }
}

}  // namespace
}  // namespace sluice::core
