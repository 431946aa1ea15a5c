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
  spec.trainable_ends = false;
  for (size_t l = 0; l + 1 < spec.layers.size(); ++l) spec.layers[l].trainable = false;
  return spec;
}

const StepShape kShape{16, 8, 4, 2, 8};

StageRequest request_for(const ModelSpec& spec) {
  StageRequest request;
  request.model = spec;
  request.shape = kShape;
  request.optimizer.deferred = true;
  return request;
}

TEST(Frozen, LayersHaveNoTasksForTheirGradients) {
  const Model model = build_training(only_the_last_layer(), kShape, {}, {});
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

}  // namespace
}  // namespace sluice::core
