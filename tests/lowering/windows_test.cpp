// SPDX-License-Identifier: Apache-2.0
// Programs of models whose layers have windows, or are not rotated.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "lowering/build.h"
#include "model/blocks.h"
#include "model/flops.h"
#include "ops/op.h"

namespace sluice::core {
namespace {

constexpr int64_t kLength = 64;

ModelSpec model_with(int64_t window) {
  ModelSpec spec = model_of(EqualLayers{16, 2, 2, 1, 8, 24, 17});
  for (LayerSpec& layer : spec.layers) layer.attention()->window = window;
  return spec;
}
Program training_of(const ModelSpec& spec, int64_t chunk) {
  return build_training(spec, {kLength, chunk, kLength / chunk, 1, chunk}, {}, {}).program;
}

struct AttentionTasks {
  int64_t forward = 0, backward = 0;
  double pairs = 0;  // of the forward pass and one layer
};
AttentionTasks attention_of(const Program& program) {
  AttentionTasks out;
  for (const Task& task : program.tasks()) {
    if (const auto* op = std::get_if<AttnFwd>(&*task.op)) {
      EXPECT_TRUE(op->shape.is_in_window()) << task.name;
      EXPECT_GT(op->shape.pairs(), 0) << task.name;
      ++out.forward;
      if (task.layer == 0) out.pairs += op->shape.pairs();
    }
    out.backward += std::holds_alternative<AttnBwd>(*task.op) ? 1 : 0;
  }
  return out;
}

// The first block of a chunk takes the sinks, which are so in the sum once; of weights that are frozen there
// is no gradient; and a cache's attention reads them, too.
TEST(Sinks, AreInTheSumOnce) {
  ModelSpec spec = model_with(0);
  spec.layers[1].attention()->sinks = true;
  const auto count = [&](const Program& program) {
    int64_t gradients = 0;
    for (const Task& task : program.tasks()) {
      if (const auto* op = std::get_if<AttnFwd>(&*task.op)) {
        EXPECT_EQ(op->has_sinks, task.layer == 1 && op->shape.distance == 0) << task.name;
      }
      gradients += std::holds_alternative<SinkGrad>(*task.op) ? 1 : 0;
    }
    return gradients;
  };
  EXPECT_EQ(count(training_of(spec, 16)), 4);
  spec.freeze = {"*.sinks"};
  EXPECT_EQ(count(training_of(spec, 16)), 0);
  const Program cached = build_generation(spec, {.rows = 2, .new_tokens = 1, .capacity = 32}, {}).program;
  int64_t reads = 0;
  for (const Task& task : cached.tasks()) {
    const auto* op = std::get_if<CachedAttention>(&*task.op);
    if (op == nullptr) continue;
    EXPECT_EQ(op->has_sinks, task.layer == 1);
    if (!op->has_sinks) continue;
    ++reads;
    EXPECT_EQ(cached.object(task.uses[CachedAttention::kSinks].object).role, "sinks");
  }
  EXPECT_EQ(reads, 1);
}

// Every pair within the window is in one block, and no block is made without one.
TEST(Windows, BlocksOutsideAreNotThere) {
  for (int64_t window = 1; window <= kLength; ++window) {
    double pairs = 0;
    for (int64_t i = 0; i < kLength; ++i) pairs += double(std::min(i + 1, window));
    for (const int64_t chunk : {4, 16, 64}) {
      SCOPED_TRACE(testing::Message() << "window " << window << " chunk " << chunk);
      const AttentionTasks tasks = attention_of(training_of(model_with(window), chunk));
      EXPECT_EQ(tasks.pairs, pairs);
      EXPECT_EQ(tasks.backward, tasks.forward);
      int64_t blocks = 0;
      for (int64_t c = 0; c < kLength / chunk; ++c) {
        // The newest earlier key is 1 behind the first query of the chunk, then 1 + chunk, and so on.
        for (int64_t b = 0; b <= c; ++b) blocks += b == 0 || (b - 1) * chunk + 1 < window ? 1 : 0;
      }
      EXPECT_EQ(tasks.forward, 2 * blocks);
      const int64_t chunks = kLength / chunk;
      EXPECT_DOUBLE_EQ(earlier_blocks(model_with(window), kLength, chunk) * double(chunks),
                       double(blocks - chunks));
    }
  }
}

// Blocks that a window does not cut are those of models without one.
TEST(Windows, ThatReachTheFirstTokenAreNone) {
  for (const int64_t chunk : {16, 64}) {
    const uint64_t none = training_of(model_with(0), chunk).hash();
    EXPECT_EQ(training_of(model_with(kLength), chunk).hash(), none);
    EXPECT_NE(training_of(model_with(kLength - 1), chunk).hash(), none);
  }
}

// The first chunk of a sequence, and one whose window ends with it, need no sum over blocks.
TEST(Windows, OfOneTokenNeedNoOtherBlock) {
  const Program program = training_of(model_with(1), 16);
  for (const Object& object : program.objects()) EXPECT_NE(object.role, "o_sum") << object.name;
}

// What a later chunk does not look at any more need not be kept for it.
TEST(Windows, EndTheUseOfKeysAndValues) {
  const Program program = training_of(model_with(17), 16);
  std::map<std::string, std::set<int>> chunks_of;
  for (const Task& task : program.tasks()) {
    if (std::holds_alternative<AttnFwd>(*task.op) && task.layer == 0)
      chunks_of[program.object(task.uses[AttnFwd::kKv].object).name].insert(task.chunk);
  }
  EXPECT_EQ(chunks_of["kv.L0.r0c0"], (std::set<int>{0, 1}));
  EXPECT_EQ(chunks_of["kv.L0.r0c3"], (std::set<int>{3}));
}

TEST(Windows, CountInModelFlops) {
  const double whole = model_flops_per_token(model_with(0), kLength);
  EXPECT_EQ(model_flops_per_token(model_with(kLength), kLength), whole);
  // Scores and values of two layers of 16 columns, forward and back: 12 FLOPs for a pair and column. Twice
  // the pairs of a token, on average: S, or W (2 - W / S).
  EXPECT_DOUBLE_EQ(whole - model_flops_per_token(model_with(16), kLength), 2 * 6 * 16 * (64 - 16 * 1.75));
}

TEST(Unrotated, LayersHaveNoRotationAndGradientsOfTheirOwnType) {
  ModelSpec spec = model_with(0);
  spec.layers[1].attention()->rotated = false;
  const Numerics bf16{DType::BF16, DType::BF16, DType::BF16, MasterWeights::Off, true};
  const Program program = build_training(spec, {kLength, 16, 4, 1, 16}, bf16, {}).program;
  for (const Task& task : program.tasks()) {
    const bool rotates = std::holds_alternative<RopeBwd>(*task.op) || std::holds_alternative<Rope>(*task.op);
    EXPECT_TRUE(!rotates || task.layer == 0) << task.name;
  }
  EXPECT_TRUE(verify(program).ok()) << verify(program).message();
}

}  // namespace
}  // namespace sluice::core
