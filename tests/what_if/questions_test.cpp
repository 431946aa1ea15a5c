// SPDX-License-Identifier: Apache-2.0
// Questions about tuning that plans answer: docs/questions.md has the commands.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "config/files/load_config.h"
#include "cost/card.h"
#include "equivalence/rig/rig.h"
#include "support/temp_dir.h"
#include "what_if/outlook.h"

namespace sluice::core {
namespace {

using rig::must;

constexpr const char* kModel =
    R"({"model_type": "llama", "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 2, "intermediate_size": 512, "vocab_size": 256, "rms_norm_eps": 1e-5,
  "rope_theta": 10000, "max_position_embeddings": 2048})";

// 16 sequences of 512 tokens in so many rounds.
RunConfig step_of(int64_t rounds, const std::string& device_mem = "none") {
  static const TempDir dir;
  static const std::string model = dir.add("config.json", kModel).string();
  return must(load_config(
      "", {"model.config=" + model, "train.seq_len=512", "train.tokens_per_step=8192",
           fmt::format("shape.chunk_tokens={}", 8192 / rounds), fmt::format("shape.rounds={}", rounds),
           "sample.tokens=0", "shape.head_tokens=1024", "memory.device=" + device_mem}));
}
Outlook planned(const RunConfig& config) {
  return must(outlook(config, must(resolve_machine(config, "rtx4090"))));
}

// Accumulation keeps activations of a part of the batch, at the price of reading the weights, and writing
// their gradients, once more for each part.
TEST(Questions, GradientAccumulation) {
  const Outlook whole = planned(step_of(1)), parts = planned(step_of(4));
  ASSERT_TRUE(whole.fits());
  ASSERT_TRUE(parts.fits());
  EXPECT_EQ(whole.shape.tokens(), parts.shape.tokens());
  EXPECT_GT(parts.step_ns, whole.step_ns);
  EXPECT_DOUBLE_EQ(parts.speed.model_tflops * parts.step_ns, whole.speed.model_tflops * whole.step_ns);
  // Without a cap nothing has to be saved: the smallest that works shows what is.
  const auto smallest = [](int64_t rounds) {
    const Machine machine = must(resolve_machine(step_of(rounds), "rtx4090"));
    LeastCaps least(
        [&](const BytesByTier& caps) {
          RunConfig config = step_of(rounds);
          config.caps = caps;
          return fits(std::move(config), machine);
        },
        512);
    return must(least.cap(kDevice, BytesByTier(kUnlimited))) - kHeldByDevice;
  };
  EXPECT_LT(smallest(4), smallest(1));
}

// Checkpointing is the planner's decision: under a cap that activations do not fit under, without a host to
// store them to, layers run again, and hardware FLOPs are more than the model's.
TEST(Questions, Checkpointing) {
  RunConfig config = step_of(1);
  config.caps[kHost] = kHeldByHost + 64 * kMiB;
  const Outlook kept = planned(config);
  ASSERT_TRUE(kept.fits());
  const int64_t room = kept.bytes[kDevice] - kHeldByDevice;
  config.caps[kDevice] = kHeldByDevice + room * 2 / 3;
  const Outlook again = planned(config);
  ASSERT_TRUE(again.fits()) << again.refusal->message;
  EXPECT_LE(again.bytes[kDevice], config.caps[kDevice]);
  EXPECT_GT(again.speed.hardware_tflops / again.speed.model_tflops,
            kept.speed.hardware_tflops / kept.speed.model_tflops);
  EXPECT_GT(again.step_ns, kept.step_ns);
  EXPECT_GT(again.speed.hfu, again.speed.mfu);
}

}  // namespace
}  // namespace sluice::core
