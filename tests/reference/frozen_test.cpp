// SPDX-License-Identifier: Apache-2.0
// What is not trained has no gradients, no state and no tasks that make them; what is trained gets the
// gradients it would get otherwise, to the last bit.
#include <gtest/gtest.h>

#include "equivalence/rig/rig.h"
#include "ops/op.h"

namespace sluice::core {
namespace {

ModelSpec small_model() {
  return model_of({.dim = 32, .layers = 3, .heads = 4, .kv_heads = 2, .head_dim = 8, .ffn = 48, .vocab = 61});
}

ModelSpec only_the_last_layer() {
  ModelSpec spec = small_model();
  spec.freeze = {"*", "!model.layers.2"};
  return spec;
}

const StepShape kShape{16, 8, 4, 2, 8};

Question request_for(const ModelSpec& spec) {
  Question request;
  request.model = spec;
  request.shape = kShape;
  request.optimizer.deferred = true;
  request.quick = true;
  return request;
}

TEST(Frozen, LayersHaveNoTasksForTheirGradients) {
  const BuiltProgram model = build_training(only_the_last_layer(), kShape, {}, {});
  const Status status = verify(model.program);
  EXPECT_TRUE(status.ok()) << status.message();
  for (const Task& task : model.program.tasks()) {
    if (task.phase == Phase::Forward) continue;
    EXPECT_TRUE(task.layer == 2 || task.layer == -1) << task.name;
    const auto* head = std::get_if<HeadLoss>(&*task.op);
    EXPECT_TRUE(head == nullptr || head->frozen) << task.name;
    EXPECT_FALSE(std::holds_alternative<EmbedBwd>(*task.op)) << task.name;
  }
  for (size_t w = 0; w < model.weights.size(); ++w) {
    const bool trained = model.weights[w].layer == 2;
    EXPECT_EQ(model.params[w].grad.valid(), trained) << model.weights[w].object;
    EXPECT_EQ(model.params[w].parts.empty(), !trained) << model.weights[w].object;
  }
}

TEST(Frozen, OthersGetTheGradientsTheyWouldGetAnyway) {
  rig::Rig all(request_for(small_model())), last(request_for(only_the_last_layer()));
  const rig::Tokens tokens = rig::random_tokens(kShape, 61, 3);
  for (rig::Rig* run : {&all, &last}) {
    run->initialize();
    (void)run->measure(tokens);
  }
  for (const char* gradient :
       {"d_norm1.L2", "d_wq.L2", "d_wkv.L2", "d_wo.L2", "d_norm2.L2", "d_wgu.L2", "d_wd.L2"}) {
    EXPECT_EQ(rig::read_bytes(last.training(), rig::find(last.model().program, gradient)),
              rig::read_bytes(all.training(), rig::find(all.model().program, gradient)))
        << gradient;
  }
}

TEST(Frozen, TrainsWhatIsNot) {
  rig::Rig run(request_for(only_the_last_layer()));
  run.initialize();
  const rig::Tokens tokens = rig::random_tokens(kShape, 61, 3);
  const auto bytes = [&](const char* weight) {
    return rig::read_bytes(run.training(), rig::find(run.model().program, weight));
  };
  const auto frozen = bytes("wq.L1"), trained = bytes("wq.L2"), head = bytes("head");
  const double first = run.step(1, tokens).loss;
  double loss = first;
  for (int64_t step = 2; step <= 6; ++step) loss = run.step(step, tokens).loss;
  run.flush(6);
  EXPECT_LT(loss, first);
  EXPECT_EQ(bytes("wq.L1"), frozen);
  EXPECT_EQ(bytes("head"), head);
  EXPECT_NE(bytes("wq.L2"), trained);
}

// Training of everything that sets the frozen weights back after every step is the same training.
TEST(Frozen, LossesAndWeightsAreThoseOfTrainingThatSetsTheFrozenBack) {
  const std::vector<std::string> lists[] = {{"model.embed_tokens", "model.layers.[01]"},
                                            {"*.self_attn", "lm_head", "*norm*"},
                                            {"*", "!*.mlp.down_proj"}};
  for (const auto& freeze : lists) {
    Question request = request_for(small_model());
    request.optimizer.deferred = false;
    request.optimizer.clip_norm = 0;  // of other weights
    rig::Rig all(request);
    request.model.freeze = freeze;
    rig::Rig some(request);
    const std::vector<Weight>& weights = some.model().weights;
    const auto id = [](rig::Rig& run, const Weight& w) { return rig::find(run.model().program, w.object); };
    for (rig::Rig* run : {&all, &some}) run->initialize();
    std::vector<std::vector<std::byte>> before;
    for (const Weight& w : weights) before.push_back(rig::read_bytes(some.training(), id(some, w)));
    for (int64_t step = 1; step <= 4; ++step) {
      const rig::Tokens tokens = rig::random_tokens(kShape, 61, uint64_t(step));
      EXPECT_EQ(some.step(step, tokens).loss, all.step(step, tokens).loss) << step;
      for (size_t w = 0; w < weights.size(); ++w) {
        if (!weights[w].trainable) rig::must(all.training().write(id(all, weights[w]), before[w], 0));
      }
    }
    for (size_t w = 0; w < weights.size(); ++w) {
      const auto bytes = rig::read_bytes(some.training(), id(some, weights[w]));
      EXPECT_EQ(bytes == before[w], !weights[w].trainable) << weights[w].object;
      EXPECT_EQ(bytes, rig::read_bytes(all.training(), id(all, weights[w]))) << weights[w].object;
    }
  }
}

// A plan under a cap that training everything cannot have computes the same, and stores nothing that is
// frozen.
TEST(Frozen, TakesLessMemoryAndNoStores) {
  Question request = request_for(small_model());
  request.model.freeze = {"*", "!model.layers.2", "!model.norm"};
  rig::Rig free(request);
  const rig::History expected = rig::run_steps(free, 3);
  const BuiltProgram everything = build_training(small_model(), kShape, {}, request.optimizer);
  const auto persistent = [](const Program& program) {
    int64_t bytes = 0;
    for (const Object& object : program.objects()) bytes += object.persistent ? object.bytes : 0;
    return bytes;
  };
  EXPECT_LT(2 * persistent(free.model().program), persistent(everything.program));
  const BytesByTier arenas = free.plan().arena_bytes();
  request.caps[kDevice] = arenas[kDevice] * 2 / 3;
  rig::Rig tight(request);
  EXPECT_EQ(rig::run_steps(tight, 3), expected);
  int64_t loads = 0;
  for (const rig::Rig* run : {&free, &tight}) {
    for (const Action& action : run->plan().actions) {
      if (action.kind != ActionKind::Copy) continue;
      const Object& object = run->model().program.object(action.object);
      const bool frozen = object.kind == ObjectKind::Param && object.layer != 2 && object.role != "norm";
      EXPECT_FALSE(frozen && action.stores()) << object.name;
      loads += frozen;
    }
  }
  EXPECT_GT(loads, 0);
}

}  // namespace
}  // namespace sluice::core
