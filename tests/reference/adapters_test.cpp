// SPDX-License-Identifier: Apache-2.0
// Adapters add to a model what adding them to its weights would, and are all that it trains.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <random>
#include <set>
#include <tuple>

#include "checkpoint/weights.h"
#include "equivalence/rig/rig.h"
#include "model/weights.h"
#include "ops/op.h"

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

Question request_for(const ModelSpec& spec) {
  Question request;
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
      return w.layer == base.layer && w.role == adapter_b(base.role, 0);
    });
    if (adapter != adapted.model().weights.end()) {
      const LowRankSizes s = adapter->adds->sizes;
      const std::string a_object = fmt::format("{}.L{}", adapter->adds->a, base.layer);
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

// q, k and v may be one tensor, whose adapter's A they share.
TEST(Adapters, AddWhatTheirProductsAddToTheWeights) {
  struct Case {
    std::vector<std::string> targets;
    const char* qkv = nullptr;
    bool by_heads = false;
  };
  const Case cases[] = {{},
                        {{"v_proj", "*.up_proj", "in_proj"}},
                        {{}, "self_attn.qkv_proj"},
                        {{"qkv_proj"}, "self_attn.qkv_proj", true}};
  for (const auto& [targets, qkv, by_heads] : cases) {
    ModelSpec spec = small_model();
    spec.names.qkv = qkv;
    spec.names.qkv_by_heads = by_heads;
    if (by_heads) {
      for (LayerSpec& layer : spec.layers)
        if (layer.attention() != nullptr) layer.attention()->kv_heads = 4;
    }
    rig::Rig merged(request_for(spec));
    spec.adapters = {.rank = 4, .alpha = 8, .targets = targets};
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
    merge(adapted, merged, 2);
    const rig::Tokens tokens = rig::random_tokens(kShape, kVocab, 3);
    const double one = adapted.measure(tokens).loss, other = merged.measure(tokens).loss;
    EXPECT_NEAR(one, other, 2e-5 * other) << targets.size() << " targets";
  }
}

// Masks are of places among a step's tokens, so each product's ops have each place once, however the step is
// cut. Evaluation has none.
TEST(Adapters, DropByPlacesThatAreOfNoShape) {
  ModelSpec spec = small_model();
  spec.adapters = {.rank = 4, .alpha = 8, .dropout = 0.5};
  std::set<uint64_t> targets;
  for (const StepShape& shape :
       {StepShape{16, 32, 2, 2, 8}, StepShape{16, 8, 4, 4, 8}, StepShape{16, 16, 8, 1, 8}}) {
    const BuiltProgram model = build_training(spec, shape, {}, {});
    std::map<uint64_t, std::map<int64_t, int64_t>> places;  // by target: tokens by where they begin
    for (const Task& task : model.program.tasks()) {
      const auto* op = std::get_if<Dropout>(&*task.op);
      if (op != nullptr && task.phase == Phase::Forward) places[op->target][op->first] += op->tokens;
    }
    std::set<uint64_t> found;
    for (const auto& [target, stretches] : places) {
      found.insert(target);
      int64_t next = 0;
      for (const auto& [first, tokens] : stretches) {
        EXPECT_EQ(first, next);
        next = first + tokens;
      }
      EXPECT_EQ(next, shape.tokens());
    }
    EXPECT_TRUE(targets.empty() || targets == found);
    targets = found;
  }
  size_t of_a = 0;
  for (const Weight& w : weights_of(spec))
    of_a += size_t(std::ranges::count_if(
        w.sources, [](const WeightSource& s) { return s.tensor.ends_with("lora_A.weight"); }));
  EXPECT_EQ(targets.size(), of_a);
  const BuiltProgram evaluation = build_evaluation(spec, {16, 32, 1, 1, 8}, {});
  for (const Task& task : evaluation.program.tasks()) EXPECT_EQ(std::get_if<Dropout>(&*task.op), nullptr);
}

TEST(Adapters, AddNothingAtFirstAndAreAllThatIsTrained) {
  ModelSpec spec = small_model();
  rig::Rig plain(request_for(spec));
  spec.adapters = {.rank = 8, .alpha = 16};
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

// Norms are those of the weights at first, and what is multiplied and divided by nearly the same stays.
TEST(Adapters, WithMagnitudesAddNothingAtFirst) {
  ModelSpec spec = small_model();
  rig::Rig plain(request_for(spec));
  spec.adapters = {.rank = 8, .alpha = 16, .dora = true};
  rig::Rig adapted(request_for(spec));
  for (rig::Rig* run : {&plain, &adapted}) run->initialize();
  rig::must(load_model(adapted.model(), std::filesystem::path(), adapted.training()));
  const std::vector<float> m = values_of(adapted, "wd_m.L0"), w = values_of(adapted, "wd.L0");
  for (size_t row : {size_t{0}, m.size() - 1}) {
    double squares = 0;
    for (size_t i = 0; i < 48; ++i) squares += double(w[row * 48 + i]) * double(w[row * 48 + i]);
    EXPECT_NEAR(m[row], std::sqrt(squares), 1e-6 * m[row]);
  }
  const rig::Tokens tokens = rig::random_tokens(kShape, kVocab, 3);
  const double first = adapted.step(1, tokens).loss;
  EXPECT_NEAR(first, plain.measure(tokens).loss, 1e-6 * first);
  double loss = first;
  for (int64_t step = 2; step <= 6; ++step) loss = adapted.step(step, tokens).loss;
  EXPECT_LT(loss, first);
  EXPECT_NE(values_of(adapted, "wd_m.L0"), m);
  EXPECT_EQ(values_of(adapted, "wd.L0"), w);
}

// Those of B are scale * dW A^T and those of A scale * B^T dW, where dW is the gradient of the sum's weight
// in a model that is trained whole.
TEST(Adapters, OfExpertsHaveTheGradientsOfTheirWeights) {
  for (const auto& [group, targets] : {std::pair{int64_t{4}, std::vector<std::string>{"experts"}},
                                       {2, {"experts.*.up_proj", "experts.*.down_proj"}}}) {
    ModelSpec spec = small_model();
    for (const size_t layer : {size_t{0}, size_t{2}})
      spec.layers[layer].feed_forward = Experts{.each = {.ffn = 24}, .count = 4, .top_k = 2, .group = group};
    Question request = request_for(spec);
    request.optimizer.deferred = true;
    rig::Rig merged(request);
    request.model.adapters = {.rank = 4, .alpha = 8, .targets = targets};
    ASSERT_TRUE(validate(request.model).ok()) << validate(request.model).message();
    rig::Rig adapted(request);
    for (rig::Rig* run : {&adapted, &merged}) run->initialize();
    std::mt19937_64 random(5);
    std::normal_distribution<float> normal;
    for (const Weight& w : adapted.model().weights) {
      if (w.part != ModelPart::Adapter) continue;
      std::vector<float> values(size_t(w.elements()));
      for (float& v : values) v = 0.2f * normal(random);
      rig::write_floats(adapted.training(), rig::find(adapted.model().program, w.object), values);
    }
    // By expert, row, rank and column: f(weight, B, A, the indices of the three).
    const auto for_each_factor = [&](const Weight& b, const Weight& base, auto&& f) {
      const LowRankSizes& s = b.adds->sizes;
      const int64_t cols = base.sources.front().cols;
      for (int64_t e = 0; e < group; ++e) {
        for (int64_t o = 0; o < s.adapted(); ++o) {
          for (int64_t j = 0; j < s.rank; ++j) {
            for (int64_t i = 0; i < cols; ++i)
              f(size_t((e * s.columns + s.first + o) * cols + i), size_t((e * s.adapted() + o) * s.rank + j),
                size_t(((e * s.parts + o / s.part) * s.rank + j) * cols + i));
          }
        }
      }
    };
    const auto adapter_beside = [&](const Weight& base) -> const Weight* {
      for (const Weight& w : adapted.model().weights) {
        if (w.layer == base.layer && w.role == adapter_b(base.role, 0)) return &w;
      }
      return nullptr;
    };
    const auto in_layer = [](const std::string& role, const Weight& w) {
      return fmt::format("{}.L{}", role, w.layer);
    };
    for (const Weight& base : merged.model().weights) {
      std::vector<float> values = values_of(adapted, base.object);
      if (const Weight* adapter = adapter_beside(base)) {
        const std::vector<float> a = values_of(adapted, in_layer(adapter->adds->a, base)),
                                 b = values_of(adapted, adapter->object);
        for_each_factor(*adapter, base,
                        [&](size_t w, size_t of_b, size_t of_a) { values[w] += 2 * b[of_b] * a[of_a]; });
      }
      rig::write_floats(merged.training(), rig::find(merged.model().program, base.object), values);
    }
    const rig::Tokens tokens = rig::random_tokens(kShape, kVocab, 3);
    const double one = adapted.measure(tokens).loss, other = merged.measure(tokens).loss;
    EXPECT_NEAR(one, other, 2e-5 * other);
    int64_t compared = 0;
    for (const Weight& base : merged.model().weights) {
      const Weight* adapter = adapter_beside(base);
      if (adapter == nullptr) continue;
      const std::string a_object = in_layer(adapter->adds->a, base);
      const std::vector<float> a = values_of(adapted, a_object), b = values_of(adapted, adapter->object),
                               dw = values_of(merged, "d_" + base.object);
      std::vector<double> da(a.size()), db(b.size());
      for_each_factor(*adapter, base, [&](size_t w, size_t of_b, size_t of_a) {
        da[of_a] += 2 * double(b[of_b]) * double(dw[w]);
        db[of_b] += 2 * double(a[of_a]) * double(dw[w]);
      });
      for (const auto& [object, expected] : {std::pair{a_object, &da}, {adapter->object, &db}}) {
        const std::vector<float> got = values_of(adapted, "d_" + object);
        ASSERT_EQ(got.size(), expected->size());
        double apart = 0, length = 0;
        for (size_t i = 0; i < got.size(); ++i) {
          apart += (got[i] - (*expected)[i]) * (got[i] - (*expected)[i]);
          length += (*expected)[i] * (*expected)[i];
        }
        EXPECT_LT(std::sqrt(apart), 2e-5 * std::sqrt(length)) << object;
        EXPECT_GT(length, 0) << object;
        ++compared;
      }
    }
    EXPECT_GT(compared, 0);
  }
}

TEST(Adapters, AreForWhatPatternsName) {
  ModelSpec spec = small_model();
  ASSERT_TRUE(adapt(spec,
                    {.rank = 8,
                     .alpha = 16,
                     .rslora = true,
                     .targets = {"self_attn", "mlp"},
                     .exclude = {"layers.2", "o_proj"},
                     .ranks = {{"down_proj", 4}},
                     .alphas = {{"layers.0.mlp.down_proj", 2}},
                     .whole = {"lm_head", "model.norm"}},
                    "adapter")
                  .ok());
  std::map<std::string, std::pair<int64_t, double>> found;
  std::set<std::string> whole;
  for (const Weight& w : weights_of(spec)) {
    if (w.part == ModelPart::Adapter) continue;
    for (const WeightSource& s : w.sources) {
      if (const auto own = adapter_of(spec, w, s.tensor))
        found[s.tensor.substr(13)] = {own->rank, own->scale};  // without "model.layers."
      if (w.trainable) whole.insert(s.tensor);
    }
  }
  const double scale = 16 / std::sqrt(8.0);
  const std::map<std::string, std::pair<int64_t, double>> expected{
      {"0.self_attn.q_proj.weight", {8, scale}}, {"0.self_attn.k_proj.weight", {8, scale}},
      {"0.self_attn.v_proj.weight", {8, scale}}, {"0.mlp.gate_proj.weight", {8, scale}},
      {"0.mlp.up_proj.weight", {8, scale}},      {"0.mlp.down_proj.weight", {4, 1}},
      {"1.mlp.gate_proj.weight", {8, scale}},    {"1.mlp.up_proj.weight", {8, scale}},
      {"1.mlp.down_proj.weight", {4, 8}}};
  EXPECT_EQ(found, expected);
  EXPECT_EQ(whole, (std::set<std::string>{"lm_head.weight", "model.norm.weight"}));
}

TEST(Adapters, AreRefusedWhereTheyHaveNoPlace) {
  ModelSpec tied = small_model(), neox = small_model();
  tied.tied_embeddings = true;
  neox.family = "gpt_neox";
  const auto refusal = [](ModelSpec spec, Adapters adapters) {
    if (adapters.rank == 0) adapters.rank = 8;
    return adapt(spec, std::move(adapters), "adapter").message();
  };
  const std::tuple<ModelSpec, Adapters, std::string> cases[] = {
      {small_model(),
       {.targets = {"qproj"}},
       "adapter.targets: 'qproj' names no tensor of this model; near names are q_proj, k_proj, o_proj"},
      {small_model(),
       {.targets = {"norm"}},
       "adapter.targets: 'norm' names no product of a layer that every token goes through, and others have "
       "no "
       "adapters; adapter.modules_to_save trains whole weights"},
      {small_model(), {.exclude = {"layers.7"}}, "adapter.exclude: 'layers.7' names no tensor"},
      {small_model(), {.exclude = {"layers"}}, "model: adapters of no tensor"},
      {small_model(), {.rank = 5000}, "model: adapters of rank 5000; 1 to 4096 are allowed"},
      {small_model(), {.ranks = {{"up_proj", 2.5}}}, "model: adapters of rank 2.5"},
      {small_model(),
       {.ranks = {{"v_proj", 4}}},
       "k_proj.weight has rank 8 and scale 0.125, that of model.layers.0.self_attn.v_proj.weight rank 4"},
      {small_model(), {.whole = {"k_proj"}}, "k_proj.weight and model.layers.0.self_attn.v_proj.weight are"},
      {neox, {.whole = {"lm_head"}}, "lm_head.weight has another name in PEFT"},
      {tied, {.whole = {"embed_tokens"}}, "model.embed_tokens.weight is the head of this model, too"},
  };
  for (const auto& [spec, adapters, says] : cases)
    EXPECT_NE(refusal(spec, adapters).find(says), std::string::npos) << refusal(spec, adapters);
}

}  // namespace
}  // namespace sluice::core
