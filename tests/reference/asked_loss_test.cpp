// SPDX-License-Identifier: Apache-2.0
// Weights that come in the middle of a step, by the log-probabilities of a round, against the same that were
// there before it.
#include <gtest/gtest.h>

#include <algorithm>

#include "backend/testing/delaying_backend.h"
#include "equivalence/rig/rig.h"
#include "ops/op.h"

namespace sluice::core {
namespace {

constexpr int64_t kVocab = 61;
const StepShape kRounds{16, 8, 4, 3, 3};

Question request_with(const LossForm& loss, const StepShape& shape, int64_t device_bytes = kUnlimited) {
  Question request;
  request.model = model_of(
      {.dim = 32, .layers = 3, .heads = 4, .kv_heads = 2, .head_dim = 8, .ffn = 48, .vocab = kVocab});
  request.shape = shape;
  request.optimizer.deferred = true;
  request.loss = loss;
  request.caps[kDevice] = device_bytes;
  return request;
}

rig::Tokens some_tokens(const StepShape& shape) {
  rig::Tokens tokens = rig::random_tokens(shape, kVocab, 3);
  tokens.weights.assign(tokens.tokens.size(), 1);
  return tokens;
}

// Of a loss that is no sum over tokens: each weighs as much as its round's targets are unlikely.
void weigh(std::span<const float> log_probs, std::span<float> weights) {
  float sum = 0;
  for (const float p : log_probs) sum += p;
  for (size_t t = 0; t < weights.size(); ++t) weights[t] *= log_probs[t] * 0.125f - sum * 0.0625f;
}

struct Made {
  double loss;
  rig::State gradients;
  std::vector<float> log_probs;

  bool operator==(const Made&) const = default;
};

Made made_of(rig::Rig& run, const rig::Tokens& tokens, std::span<const Amendment> changes = {}) {
  run.initialize();
  const double loss = run.measure(tokens, changes).loss;
  return {loss, rig::read_state(run.training(), {ObjectKind::Grad}), run.log_probs()};
}

std::vector<Amendment> changes_of(const BuiltProgram& model) {
  std::vector<Amendment> out;
  for (const ObjectId all : model.asked) {
    out.push_back({all, [](std::span<std::byte> bytes) {
                     const std::span values(reinterpret_cast<float*>(bytes.data()),
                                            bytes.size() / sizeof(float));
                     weigh(values.subspan(values.size() / 2), values.first(values.size() / 2));
                     return Status();
                   }});
  }
  return out;
}

// The same weights, from the log-probabilities that a step without them left.
Made known_before(const rig::Tokens& tokens, const StepShape& shape) {
  rig::Rig run(request_with({.weighted = true, .log_probs = true}, shape));
  const std::vector<float> log_probs = made_of(run, tokens).log_probs;
  rig::Tokens weighed = tokens;
  size_t first = 0;
  for (int64_t r = 0; r < shape.rounds; ++r) {
    size_t count = 0;
    for (int c = 0; c < shape.chunks_in(r); ++c) count += size_t(shape.tokens_in(r, c));
    weigh(std::span(log_probs).subspan(first, count), std::span(weighed.weights).subspan(first, count));
    first += count;
  }
  return made_of(run, weighed);
}

// Chunks that are pieces of sequences and whole sequences, one round, and rounds and chunks of other lengths.
std::vector<StepShape> shapes() {
  StepShape ragged{.seq_len = 8, .chunk_tokens = 16, .head_tokens = 16};
  spread(ragged, 9, 2);
  return {kRounds, {16, 16, 1, 4, 5}, {16, 64, 1, 1, 7}, ragged};
}

TEST(AskedLoss, IsThatOfTheSameWeights) {
  for (const StepShape& shape : shapes()) {
    SCOPED_TRACE(testing::Message() << shape.chunk_tokens << " tokens a chunk, " << shape.rounds
                                    << " rounds");
    const rig::Tokens tokens = some_tokens(shape);
    rig::Rig run(request_with({.asked = true}, shape));
    const Made asked = made_of(run, tokens, changes_of(run.model())), before = known_before(tokens, shape);
    EXPECT_EQ(asked.log_probs, before.log_probs);
    EXPECT_EQ(asked.loss, before.loss);
    EXPECT_EQ(asked.gradients, before.gradients);
  }
}

TEST(AskedLoss, IsTheBatchsWhereNobodyIsAsked) {
  rig::Tokens tokens = some_tokens(kRounds);
  for (size_t t = 0; t < tokens.weights.size(); ++t) tokens.weights[t] = 0.25f * float(t % 7) - 0.5f;
  rig::Rig asks(request_with({.asked = true}, kRounds)),
      knows(request_with({.weighted = true, .log_probs = true}, kRounds));
  EXPECT_EQ(made_of(asks, tokens), made_of(knows, tokens));
}

TEST(AskedLoss, DoesNotDependOnCapsNorOnHowLanesRun) {
  const rig::Tokens tokens = some_tokens(kRounds);
  const Made expected = known_before(tokens, kRounds);
  for (const int64_t device_bytes : {int64_t{96} << 10, int64_t{160} << 10}) {
    Question request = request_with({.asked = true}, kRounds, device_bytes);
    request.quick = true;
    const Stages stages = rig::must(make_stages(request, rig::profile_of(*rig::small_backend())));
    for (const uint64_t seed : {1, 2, 3}) {
      rig::Rig run(
          request, stages,
          std::make_unique<DelayingBackend>(rig::small_backend(), Delays{.seed = seed, .window = 64}));
      EXPECT_EQ(made_of(run, tokens, changes_of(run.model())), expected) << device_bytes << ", " << seed;
    }
  }
}

TEST(AskedLoss, IsAskedOverSeveralDevices) {
  const rig::Tokens tokens = some_tokens(kRounds);
  Question request = request_with({.asked = true}, kRounds, 256 << 10);
  request.quick = true;
  rig::Rig run(request, rig::small_devices(2, true));
  EXPECT_EQ(run.plan().devices(), 2);
  EXPECT_EQ(made_of(run, tokens, changes_of(run.model())), known_before(tokens, kRounds));
}

// An error ends the step before its next tasks.
TEST(AskedLoss, EndsTheStepWithItsError) {
  const rig::Tokens tokens = some_tokens(kRounds);
  rig::Rig run(request_with({.asked = true}, kRounds));
  run.initialize();
  int asked = 0;
  std::vector<Amendment> changes = changes_of(run.model());
  for (Amendment& change : changes) {
    change.with = [&asked](std::span<std::byte>) {
      return ++asked == 2 ? Status(error("no weights today")) : Status();
    };
  }
  rig::write_tokens(run.training(), run.model(), tokens);
  rig::write_args(run.training(), run.model(), rig::args_for(1, tokens.counted()));
  const Status stepped = run.training().step(nullptr, changes);
  EXPECT_EQ(stepped.message().find("gather_weights"), 0u) << stepped.message();
  EXPECT_NE(stepped.message().find("no weights today"), std::string::npos) << stepped.message();
  EXPECT_EQ(asked, 2);
}

}  // namespace
}  // namespace sluice::core
