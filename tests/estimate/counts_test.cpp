// SPDX-License-Identifier: Apache-2.0
#include "estimate/counts.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "estimate/memory.h"
#include "lowering/build.h"
#include "model/families/families.h"
#include "model/flops.h"

namespace sluice::core {
namespace {

struct Counted {
  int64_t params;
  ModelSpec spec;
};

// Models of every family with the parameters that transformers counts.
std::vector<Counted> models() {
  std::vector<Counted> out;
  std::ifstream file(SLUICE_ESTIMATE_TESTS "/parameter_counts.txt");
  for (std::string line; std::getline(file, line);) {
    auto spec = parse_model_config(line.substr(line.find('\t') + 1));
    EXPECT_TRUE(spec.ok()) << spec.message();
    if (spec.ok()) out.push_back({std::stoll(line), *spec});
  }
  return out;
}

TEST(Counts, ParametersAreThoseOfTransformers) {
  const auto all = models();
  EXPECT_EQ(all.size(), 27u);
  for (const auto& [params, spec] : all) {
    EXPECT_EQ(parameter_parts(spec).all(), params) << to_text(spec);
    EXPECT_EQ(spec.params(), params) << to_text(spec);
  }
}

// The formulas that stand beside the counts.
TEST(Counts, PartsFollowTheirFormulas) {
  for (const auto& [params, spec] : models()) {
    const Parts p = parameter_parts(spec);
    const LayerSpec& layer = spec.layers.front();
    const auto layers = int64_t(spec.layers.size());
    EXPECT_EQ(p.embedding, spec.vocab * spec.dim);
    EXPECT_EQ(p.head, spec.tied_embeddings ? 0 : spec.vocab * spec.dim);
    EXPECT_EQ(p.attention,
              layers * 2 * spec.dim * (layer.attention()->q_dim() + layer.attention()->kv_dim()));
    EXPECT_EQ(p.ffn, layers * spec.dim * (layer.mlp().up_dim() + layer.mlp().ffn));
  }
}

TEST(Counts, AreBytesOfTheProgramsObjects) {
  const BatchShape shape{64, 2};
  const Numerics bf16{.compute = DType::BF16, .grad = DType::BF16, .state = DType::BF16, .stochastic = true};
  for (const auto& [params, spec] : models()) {
    const TrainingCounts counts = count_training(spec, shape, bf16, *optimizers().front());
    EXPECT_EQ(counts.weight_bytes, 2 * params);
    EXPECT_EQ(counts.grad_bytes, 2 * params);
    EXPECT_EQ(counts.state_bytes, 4 * params);
    const ForwardCounts forward = count_forward(spec, shape, DType::BF16);
    const LayerSpec& layer = spec.layers.front();
    const Attention& a = spec.attention();
    const auto layers = int64_t(spec.layers.size());
    EXPECT_EQ(forward.kv_bytes, 2 * layers * a.kv_dim() * 2 * shape.tokens());
    EXPECT_EQ(counts.blocks.bytes, (layers + 1) * spec.dim * 2 * shape.tokens());
    // The stream between halves beside each other is read by nothing in the backward pass.
    const int64_t inputs = layer.parallel ? 1 : 2;
    EXPECT_EQ(counts.sublayers.bytes, (inputs * layers + 1) * spec.dim * 2 * shape.tokens());
    // Norms of heads keep what they read beside what they write: q, and keys and values.
    const int64_t raw = a.qk_norm != QkNorm::None ? a.q_dim() + 2 * a.kv_dim() : 0;
    // The stream at the halves' inputs, and what each norm of it reads or writes beside.
    const int64_t wide = inputs + (layer.norms == Norms::Around ? 4 : layer.norm2 ? 2 : 1);
    const int64_t layer_numbers =
        wide * spec.dim + 2 * a.q_dim() + 2 * a.kv_dim() + layer.mlp().up_dim() + 2 * a.heads + raw;
    EXPECT_EQ(counts.everything.bytes, (layers * layer_numbers + spec.dim) * 2 * shape.tokens())
        << to_text(spec);
    EXPECT_EQ(counts.everything.again_flops, 0);
  }
}

TEST(Counts, ArithmeticIsTheSumOverTasks) {
  const BatchShape shape{64, 2};
  for (const auto& [params, spec] : models()) {
    StepShape step;
    step.seq_len = 64, step.chunk_tokens = 128, step.head_tokens = 128;
    const BuiltProgram model = build_training(spec, step, {.compute = DType::BF16}, {});
    double flops = 0;
    for (const Task& task : model.program.tasks()) flops += work(task.op).flops;
    const TrainingCounts counts =
        count_training(spec, shape, {.compute = DType::BF16}, *optimizers().front());
    EXPECT_EQ(counts.flops, flops);
    // The formula of MFU counts S of S + 1 pairs, and so a little less.
    const double by_formula = model_flops_per_token(spec, 64) * 128;
    EXPECT_GE(flops, by_formula);
    EXPECT_LT(flops, by_formula * 1.001);
    EXPECT_NEAR(count_forward(spec, shape, DType::BF16).flops, flops / 3, 1e-9 * flops);
  }
}

// What an update computes is not of its tokens.
TEST(Counts, FlopsOfTrainingAreThoseOfItsPasses) {
  const ModelSpec spec = models().front().spec;
  const BatchShape shape{64, 1};
  const Numerics bf16{.compute = DType::BF16};
  const TrainingCounts adamw = count_training(spec, shape, bf16, *find_optimizer("adamw")),
                       muon = count_training(spec, shape, bf16, *find_optimizer("muon"));
  EXPECT_EQ(muon.flops, adamw.flops);
  EXPECT_EQ(adamw.update_flops, 0);
  EXPECT_GT(muon.update_flops, 0);
}

// What is computed again is what the forward pass of the layers computes, less the last product of what is
// kept: all but the down projection with each layer's input, and but the output projection with each half's,
// which halves beside each other have in common.
TEST(Counts, ComputedAgainIsTheForwardPassOfTheLayers) {
  const BatchShape shape{64, 1};
  for (const auto& [params, spec] : models()) {
    const TrainingCounts counts =
        count_training(spec, shape, {.compute = DType::BF16}, *optimizers().front());
    const ForwardCounts forward = count_forward(spec, shape, DType::BF16);
    const LayerSpec& layer = spec.layers.front();
    const auto layers = double(spec.layers.size()), tokens = double(shape.tokens());
    // A norm behind a half reads what its last product makes.
    const double last = layer.norms == Norms::Before ? 1 : 0;
    const double down = last * 2 * tokens * double(spec.dim * layer.mlp().ffn);
    const double o = last * 2 * tokens * double(spec.dim * layer.attention()->q_dim());
    EXPECT_NEAR(counts.blocks.again_flops, layers * (forward.layer_flops - down - (layer.parallel ? o : 0)),
                1e-9 * counts.flops);
    EXPECT_NEAR(counts.sublayers.again_flops, layers * (forward.layer_flops - down - o), 1e-9 * counts.flops);
  }
}

TEST(Recipes, ThatRunHaveTheirProgramsBytes) {
  const ModelSpec spec = *model_preset("tiny");
  const Parts parts = parameter_parts(spec);
  int run = 0;
  for (const Recipe& r : recipes()) {
    if (!r.runs()) continue;
    ++run;
    ASSERT_TRUE(validate(r.numerics).ok()) << r.name;
    const Optimizer* optimizer = find_optimizer(r.optimizer);
    ASSERT_NE(optimizer, nullptr) << r.name;
    const TrainingCounts counts = count_training(spec, {32, 1}, r.numerics, *optimizer);
    const StaticBytes bytes =
        static_bytes(r, double(parts.all()), double(parts.attention + parts.ffn), &spec);
    EXPECT_EQ(double(counts.weight_bytes), bytes.weights) << r.name;
    EXPECT_EQ(double(counts.grad_bytes), bytes.grads) << r.name;
    // Vectors keep their state and masters in f32 where those of matrices are compact.
    const double state = r.numerics.state == DType::I8 ? 8 - r.state : 0,
                 master = r.numerics.master == MasterWeights::I8 ? 4 - r.masters : 0,
                 apart = (state + master) * double(parts.norms);
    EXPECT_EQ(double(counts.state_bytes), bytes.state + bytes.masters + apart) << r.name;
  }
  EXPECT_EQ(run, 15);
}

TEST(Recipes, AdafactorKeepsNextToNothing) {
  const ModelSpec spec = *model_preset("tiny");
  const Parts parts = parameter_parts(spec);
  int64_t rows_and_columns = 0;
  for (const Weight& weight : weights_of(spec)) {
    for (const WeightSource& source : weight.sources)
      rows_and_columns += weight.matrix ? source.rows + source.cols : 1 + source.elements();
  }
  const Recipe& recipe = *find_recipe("adafactor-bf16");
  EXPECT_EQ(static_bytes(recipe, double(parts.all()), double(parts.attention + parts.ffn), &spec).state,
            4 * double(rows_and_columns));
  EXPECT_LT(rows_and_columns, parts.all() / 50);
}

TEST(Recipes, MuonKeepsTwoMomentsOfWhatIsNoMatrixOfALayer) {
  EXPECT_EQ(static_bytes(*find_recipe("muon-mixed"), 100, 60).state, 4 * 60 + 8 * 40);
  EXPECT_EQ(find_recipe("adam"), nullptr);
}

TEST(Counts, ProductsAreThoseOfTheStep) {
  const ModelSpec spec = *model_preset("tiny");
  const BatchShape shape{128, 1};
  double flops = 0;
  for (const MatrixProduct& p : products_of(spec, shape, {})) {
    flops += 2 * double(p.m) * double(p.n) * double(p.k) * double(p.count);
  }
  const TrainingCounts counts = count_training(spec, shape, {}, *optimizers().front());
  const double attention = 3 * count_forward(spec, shape, DType::F32).attention_flops;
  // Of the head, the product forward stands for its three.
  const double head = 2 * 2.0 * 128 * double(spec.vocab * spec.dim);
  EXPECT_NEAR(flops, counts.flops - attention - head, 1e-9 * flops);
}

}  // namespace
}  // namespace sluice::core
