// SPDX-License-Identifier: Apache-2.0
// A program with two losses, one in its middle and one at its end: the backward pass that is derived has the
// gradients of their sum.
#include "reference/loss_program.h"

namespace sluice::core {
namespace {

// Embedding, loss, a layer of one product, loss. The tokens of the first loss have weights.
TEST(TwoLosses, HaveTheGradientsOfTheirSum) {
  LossProgram p;
  const ObjectId x = p.embed();
  p.loss("middle", p.norm("h_middle", x), true);
  p.loss("end", p.norm("h_end", p.linear("x_end", p.norm("h", x), LossProgram::kDim, x)));
  p.expect_gradients();
}

}  // namespace
}  // namespace sluice::core
