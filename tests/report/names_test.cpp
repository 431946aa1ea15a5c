// SPDX-License-Identifier: Apache-2.0
// Every object of a program that a page shows by name has words.
#include <gtest/gtest.h>

#include "report/small_plan.h"

namespace sluice::core {
namespace {

// A model with everything that some family has: biases and norms of heads.
Program everything(bool head_norm) {
  ModelSpec model = model_of({32, 2, 4, 2, 8, 48, 61});
  for (LayerSpec& layer : model.layers) {
    layer.attention()->qkv_bias = layer.attention()->o_bias = layer.mlp().bias = !head_norm;
    layer.attention()->qk_norm = head_norm ? QkNorm::Heads : QkNorm::None;
    if (head_norm) layer.norms = Norms::Around;
  }
  if (!head_norm) model.norm = {.centred = true, .bias = true};
  // Chunks of half a sequence, so that attention sums over blocks.
  return build_training(model, {16, 8, 2, 1, 8}, {}, {}).program;
}

TEST(Names, EveryRoleHasWords) {
  for (const bool head_norm : {false, true}) {
    const Program program = everything(head_norm);
    ASSERT_FALSE(program.objects().empty());
    for (const Object& object : program.objects()) {
      const bool derived = object.kind == ObjectKind::Grad || object.kind == ObjectKind::OptState ||
                           (object.kind == ObjectKind::ActGrad && object.role.starts_with("d"));
      EXPECT_TRUE(derived || !describe_role(object.role).empty()) << object.role;
    }
  }
}

TEST(Names, AreThoseOfTheProgram) {
  const PlanReport report = random_small_plan(1).report();
  std::map<std::string, std::string> names(report.names.begin(), report.names.end());
  EXPECT_EQ(names.size(), report.names.size()) << "each once";
  EXPECT_TRUE(names.contains("gu"));
  EXPECT_TRUE(names.contains("wgu"));
  EXPECT_FALSE(names.contains("bgu")) << "this model has no biases";
  EXPECT_EQ(report.names.front().first, "x") << "activations come first, in the order of a layer";
}

}  // namespace
}  // namespace sluice::core
