// SPDX-License-Identifier: Apache-2.0
// Learnt positions are a table beside the embedding, which is not the embedding.
#include <gtest/gtest.h>

#include <algorithm>

#include "lowering/build.h"
#include "model/families/families.h"
#include "model/flops.h"

namespace sluice::core {
namespace {

ModelSpec learns_positions(bool tied) {
  auto spec =
      parse_model_config(R"({"model_type": "gpt2", "n_embd": 32, "n_layer": 2, "n_head": 4, "n_inner": 24,
    "n_positions": 64, "vocab_size": 37, "tie_word_embeddings": )" +
                         std::string(tied ? "true}" : "false}"));
  EXPECT_TRUE(spec.ok()) << spec.message();
  return *spec;
}

// Rows of an embedding that is no head are inputs of a pass; those of positions are not.
TEST(Positions, StayAWeightOfPassesThatGenerateText) {
  for (const bool tied : {true, false}) {
    const BuiltProgram model = build_generation(learns_positions(tied), {2, 3, 16}, {});
    const auto has = [&](ModelPart part) { return std::ranges::count(model.weights, part, &Weight::part); };
    EXPECT_EQ(has(ModelPart::Table), 1) << tied;
    EXPECT_EQ(has(ModelPart::Embedding), tied ? 1 : 0) << tied;
  }
}

// They are looked up, so that a frozen table saves no product, whoever is the head.
TEST(Positions, CostNothingWhetherTheyLearnOrNot) {
  for (const bool tied : {true, false}) {
    ModelSpec some = learns_positions(tied);
    const double all = model_flops_per_token(some, 16);
    ASSERT_TRUE(freeze(some, {"*wpe.weight"}, "train.freeze").ok());
    EXPECT_EQ(model_flops_per_token(some, 16), all) << tied;
  }
}

}  // namespace
}  // namespace sluice::core
