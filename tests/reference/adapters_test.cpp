// SPDX-License-Identifier: Apache-2.0
// Adapters add to a model what adding them to its weights would, and are all that it trains.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "equivalence/rig/rig.h"
#include "model/weights.h"

namespace sluice::core {
namespace {

const StepShape kShape{16, 8, 4, 2, 8};
constexpr int64_t kVocab = 61;

ModelSpec small_model() {
  ModelSpec spec = model_of(
      {.dim = 32, .layers = 3, .heads = 4, .kv_heads = 2, .head_dim = 8, .ffn = 48, .vocab = kVocab});
  spec.layers[1].mixer = Convolution{.width = 3};
  return spec;
}

StageRequest request_for(const ModelSpec& spec) {
  StageRequest request;
  request.model = spec;
  request.shape = kShape;
  request.optimizer.deferred = false;
  request.quick = true;
  return request;
}

std::vector<float> values_of(rig::Rig& run, const std::string& object) {
  return rig::read_floats(run.training(), rig::find(run.model().program, object));
}

// A model with the weights of another, to which each adapter's product is added.
void merge(rig::Rig& adapted, rig::Rig& merged, double scale) {
  for (const Weight& base : merged.model().weights) {
    std::vector<float> values = values_of(adapted, base.object);
    const auto adapter = std::ranges::find_if(adapted.model().weights, [&](const Weight& w) {
      return w.layer == base.layer && w.role == adapter_b(base.role);
    });
    if (adapter != adapted.model().weights.end()) {
      const LowRankSizes s = *adapter->adds;
      const std::string a_object = std::prev(adapter)->object;
      const std::vector<float> a = values_of(adapted, a_object), b = values_of(adapted, adapter->object);
      const int64_t cols = base.sources.front().cols;
      for (int64_t o = 0; o < s.adapted(); ++o) {
        for (int64_t i = 0; i < cols; ++i) {
          double sum = 0;
          for (int64_t j = 0; j < s.rank; ++j)
            sum += double(b[size_t(o * s.rank + j)]) * a[size_t((o / s.part * s.rank + j) * cols + i)];
          values[size_t((s.first + o) * cols + i)] += float(scale * sum);
        }
      }
    }
    rig::write_floats(merged.training(), rig::find(merged.model().program, base.object), values);
  }
}

TEST(Adapters, AddWhatTheirProductsAddToTheWeights) {
  for (const std::vector<std::string>& targets :
       {std::vector<std::string>{}, {"*.v_proj", "*.up_proj", "*.in_proj"}}) {
    ModelSpec spec = small_model();
    rig::Rig merged(request_for(spec));
    spec.adapters = {.rank = 4, .scale = 2, .targets = targets};
    ASSERT_TRUE(validate(spec).ok());
    rig::Rig adapted(request_for(spec));
    for (rig::Rig* run : {&adapted, &merged}) run->initialize();
    std::mt19937_64 random(5);
    std::normal_distribution<float> normal;
    for (const Weight& w : adapted.model().weights) {
      if (w.part != ModelPart::Adapter) continue;
      const ObjectId id = rig::find(adapted.model().program, w.object);
      std::vector<float> values(size_t(w.elements()));
      for (float& v : values) v = 0.2f * normal(random);
      rig::write_floats(adapted.training(), id, values);
    }
    merge(adapted, merged, spec.adapters.scale);
    const rig::Tokens tokens = rig::random_tokens(kShape, kVocab, 3);
    const double one = adapted.measure(tokens).loss, other = merged.measure(tokens).loss;
    EXPECT_NEAR(one, other, 2e-5 * other) << targets.size() << " targets";
  }
}

TEST(Adapters, AddNothingAtFirstAndAreAllThatIsTrained) {
  ModelSpec spec = small_model();
  rig::Rig plain(request_for(spec));
  spec.adapters = {.rank = 8, .scale = 2};
  rig::Rig adapted(request_for(spec));
  for (rig::Rig* run : {&plain, &adapted}) run->initialize();
  const rig::Tokens tokens = rig::random_tokens(kShape, kVocab, 3);
  const double first = adapted.step(1, tokens).loss;
  EXPECT_EQ(first, plain.measure(tokens).loss);
  double loss = first;
  for (int64_t step = 2; step <= 6; ++step) loss = adapted.step(step, tokens).loss;
  EXPECT_LT(loss, first);
  int64_t adapters = 0;
  for (const Weight& w : adapted.model().weights) {
    const bool adapter = w.part == ModelPart::Adapter;
    adapters += adapter ? w.elements() : 0;
    EXPECT_EQ(w.trainable, adapter) << w.object;
    if (adapter) continue;
    EXPECT_EQ(values_of(adapted, w.object), values_of(plain, w.object)) << w.object;
  }
  // q, k, v, o, gate, up and down of two layers; in_proj, out_proj, gate, up and down of one.
  const int64_t attention = (32 + 32) + 2 * (32 + 16) + (32 + 32), mlp = 3 * (32 + 48),
                conv = (32 + 96) + (32 + 32);
  EXPECT_EQ(adapters, 8 * (2 * attention + 3 * mlp + conv));
}

TEST(Adapters, AreRefusedWhereTheyHaveNoPlace) {
  ModelSpec spec = small_model();
  spec.adapters = {.rank = 8, .targets = {"*.norm"}};
  EXPECT_EQ(validate(spec).message(), "model: adapters of no tensor");
  spec = small_model();
  spec.adapters.rank = 8;
  spec.names.qkv = "self_attn.qkv_proj";
  EXPECT_EQ(validate(spec).message(),
            "model: an adapter of model.layers.0.self_attn.qkv_proj.weight, which holds several weights or "
            "is turned");
}

}  // namespace
}  // namespace sluice::core
