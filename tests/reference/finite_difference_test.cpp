// SPDX-License-Identifier: Apache-2.0
// Gradients of a whole model against differences of its own loss: no other implementation involved.
#include <gtest/gtest.h>

#include <random>

#include "reference/finite_difference.h"
#include "reference/fixture.h"

namespace sluice::core {
namespace {

struct Case {
  const char* name;
  bool every_part;  // biases on all projections, and norms of heads
  StepShape shape;
  bool windows = false;  // in one layer, the other is not rotated; rotations scale
  bool weighted = false;
  // Norms with 1 + w around both halves, of q and k as a whole, and every multiplier; or LayerNorms and no
  // gates; or sinks, and gates that are limited; or adapters of all matrices, with dropout, or of some of
  // those that are stacked; or keys that later layers read, tables of layers, and factors.
  enum { Llama, Around, Centred, Sinks, Adapted, Dropped, SomeAdapted, Shared } parts = Llama;
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.name;
}

ModelSpec model_of(const Case& c) {
  ModelSpec spec = model_of(EqualLayers{16, 2, 2, 1, 8, 24, 17});
  for (LayerSpec& layer : spec.layers) {
    Attention& a = *layer.attention();
    a.qkv_bias = a.o_bias = layer.mlp().bias = c.every_part;
    a.qk_norm = c.every_part ? QkNorm::Heads : QkNorm::None;
  }
  if (c.parts == Case::Around) {
    for (LayerSpec& layer : spec.layers) {
      layer.norms = Norms::Around;
      layer.attention()->qk_norm = QkNorm::Whole;
      layer.attention()->scale = 0.5;
    }
    spec.norm_offset = 1;
    spec.embedding_scale = 2, spec.residual_scale = 0.7, spec.logit_scale = 1.5;
  }
  if (c.parts == Case::Centred) {
    for (LayerSpec& layer : spec.layers) {
      layer.mlp().gated = false;
      layer.mlp().activation = GateActivation::Gelu;
    }
    spec.norm = {.centred = true, .bias = true};
  }
  if (c.parts == Case::Sinks) {
    for (LayerSpec& layer : spec.layers) {
      layer.attention()->sinks = true;
      layer.mlp().activation = GateActivation::QuickGelu;
      layer.mlp().limit = 100;  // at which nothing is: there would be no slope
    }
  }
  if (c.parts == Case::Shared) {
    spec.layers.resize(3, spec.layers.front());
    spec.window_rope = RopeScaling{};
    spec.rope.kind = RopeScaling::Proportional, spec.rope.turned = 0.5;
    for (size_t l = 0; l < spec.layers.size(); ++l) {
      LayerSpec& layer = spec.layers[l];
      Attention& a = *layer.attention();
      layer.norms = Norms::Around;
      layer.input = 8, layer.scaled = true;
      a.qk_norm = QkNorm::Heads, a.scale = 0.4;
      a.values = l % 2 == 0 ? BehindHeads::Normed : BehindHeads::Again;
      a.window = l % 2 == 0 ? 10 : 0;
      a.head_dim = l % 2 == 0 ? 8 : 12;
      a.keys_of = l < 2 ? -1 : int(l) - 2;
    }
  }
  if (c.parts == Case::Adapted) spec.adapters = {.rank = 3, .alpha = 2.1};
  if (c.parts == Case::Dropped) spec.adapters = {.rank = 3, .alpha = 2.1, .dropout = 0.25};
  if (c.parts == Case::SomeAdapted)
    spec.adapters = {
        .rank = 8, .alpha = 16, .targets = {"*.v_proj", "*.gate_proj", "model.layers.1.*.k_proj"}};
  if (c.windows) {
    spec.layers[0].attention()->window = 10;
    spec.layers[1].attention()->rotated = false;
    spec.rope.attention_factor = 1.2;
  }
  return spec;
}

struct TinyModel {
  const ModelSpec config;
  StepShape shape;
  rig::Tokens tokens;
  std::unique_ptr<rig::Rig> run;

  explicit TinyModel(const Case& c)
      : config(model_of(c)), shape(c.shape), tokens(rig::random_tokens(shape, config.vocab, 3)) {
    Question request;
    request.model = config;
    request.shape = shape;
    request.optimizer.deferred = true;
    request.loss.weighted = c.weighted;
    run = std::make_unique<rig::Rig>(request);
    run->initialize();
    std::mt19937_64 random(5);
    std::normal_distribution<float> normal;
    for (const Weight& w : weights_of(config)) {
      const ObjectId id = rig::find(run->model().program, w.object);
      auto values = rig::read_floats(run->training(), id);
      // Norms behind halves would make much of little.
      const float wide = c.parts == Case::Shared ? 0.8f : 0.3f;
      for (float& v : values)
        v = w.init.kind == Init::Ones ? 1 + 0.2f * normal(random) : wide * normal(random);
      rig::write_floats(run->training(), id, values);
    }
    for (size_t t = 0; t < tokens.tokens.size(); ++t) tokens.weights.push_back(normal(random));
  }
};

class FiniteDifference : public testing::TestWithParam<Case> {};

TEST_P(FiniteDifference, AgreesWithEveryGradient) {
  TinyModel m(GetParam());
  (void)m.run->measure(m.tokens);
  std::map<std::string, std::vector<float>> gradients;
  for (const Weight& w : weights_of(m.config)) {
    if (!w.trainable) continue;
    gradients[w.object] =
        rig::read_floats(m.run->training(), rig::find(m.run->model().program, "d_" + w.object));
  }
  expect_slopes(
      m.run->training(), gradients,
      [&](const std::string& name) { return rig::find(m.run->model().program, name); },
      [&] { return m.run->measure(m.tokens).loss; });
}

const Case kCases[] = {
    {"one_chunk", false, {32, 32, 1, 1, 32}},
    {"four_chunks", false, {32, 8, 4, 1, 8}},
    {"packed", false, {16, 8, 4, 1, 8, true}},
    {"every_part_one_chunk", true, {32, 32, 1, 1, 32}},
    {"every_part_four_chunks", true, {32, 8, 4, 1, 8}},
    {"every_part_packed", true, {16, 8, 4, 1, 8, true}},
    {"windows_one_chunk", false, {32, 32, 1, 1, 32}, true},
    {"windows_four_chunks", false, {32, 8, 4, 1, 8}, true},
    {"around_four_chunks", false, {32, 8, 4, 1, 8}, false, false, Case::Around},
    {"centred_four_chunks", true, {32, 8, 4, 1, 8}, false, false, Case::Centred},
    {"sinks_four_chunks", false, {16, 4, 4, 1, 4}, false, false, Case::Sinks},
    {"sinks_packed_four_chunks", false, {16, 8, 4, 1, 8, true}, false, false, Case::Sinks},
    {"adapted_one_chunk", false, {32, 32, 1, 1, 32}, false, false, Case::Adapted},
    {"every_part_adapted_with_dropout_packed", true, {16, 8, 4, 1, 8, true}, false, false, Case::Dropped},
    {"some_adapted_four_chunks", false, {32, 8, 4, 1, 8}, false, false, Case::SomeAdapted},
    {"shared_one_chunk", false, {32, 32, 1, 1, 32}, false, false, Case::Shared},
    {"shared_packed_four_chunks", false, {16, 8, 4, 1, 8, true}, false, false, Case::Shared},
    {"weighted_four_chunks", false, {32, 8, 4, 1, 8}, false, true},
};
INSTANTIATE_TEST_SUITE_P(Shapes, FiniteDifference, testing::ValuesIn(kCases),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace sluice::core
