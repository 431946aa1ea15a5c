// SPDX-License-Identifier: Apache-2.0
// Questions of texts on model arithmetic, with their answers (docs/questions.md).
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "estimate/estimate.h"

namespace sluice::core {
namespace {

constexpr auto kLlama7b = "layers=32,dim=4096,ffn=11008,heads=32,vocab=32000";
constexpr double kUnknown = -1;

Device a100(double memory_bytes, double memory_rate) {
  return {.name = "A100",
          .memory_bytes = memory_bytes,
          .peak_flops = 312e12,
          .memory_rate = memory_rate,
          .multiprocessors = 108};
}
Device a100_80() {
  return a100(80e9, 2.039e12);
}
Device a100_40() {
  return a100(40e9, 1.555e12);
}

EstimateInput of(const char* model) {
  EstimateInput in;
  auto subject = parse_subject(model);
  EXPECT_TRUE(subject.ok()) << subject.message();
  in.subject = std::move(*subject);
  return in;
}
EstimateInput llama_7b(const Device& device) {
  EstimateInput in = of(kLlama7b);
  in.device = device;
  return in;
}

class Answers {
 public:
  explicit Answers(const EstimateInput& in) {
    auto page = estimate(in);
    EXPECT_TRUE(page.ok()) << page.message();
    if (page.ok()) page_ = std::move(*page);
  }

  const Fact* find(const std::string& section, const std::string& key) const {
    for (const Section& s : page_.sections) {
      for (const Fact& f : s.facts) {
        if (s.key == section && f.key == key) return &f;
      }
    }
    ADD_FAILURE() << section << "." << key << " is not there";
    return nullptr;
  }
  double value(const std::string& section, const std::string& key) const {
    const Fact* fact = find(section, key);
    return fact != nullptr ? fact->value : kUnknown;
  }
  double rule(const std::string& section, const std::string& key) const {
    const Fact* fact = find(section, key);
    return fact != nullptr && fact->rule ? fact->rule->value : kUnknown;
  }
  double cell(const std::string& section, const std::string& table, const std::string& row,
              const std::string& column) const {
    for (const Section& s : page_.sections) {
      for (const Table& t : s.tables) {
        if (s.key != section || t.key != table) continue;
        for (const Row& r : t.rows) {
          for (size_t c = 0; c < t.columns.size() && c < r.values.size(); ++c) {
            if (r.name == row && t.columns[c].key == column) return r.values[c].value_or(kUnknown);
          }
        }
      }
    }
    ADD_FAILURE() << section << "." << table << "[" << row << "]." << column << " is not there";
    return kUnknown;
  }
  // The first line of a section's picture.
  Series picture(const std::string& section) const {
    for (const Section& s : page_.sections) {
      if (s.key == section && !s.plots.empty()) return s.plots.front().series.front();
    }
    ADD_FAILURE() << section << " has no picture";
    return {};
  }

 private:
  Page page_;
};

// --- LLaMA-7B on an A100

TEST(Questions, Parameters) {
  const Answers a(of(kLlama7b));
  EXPECT_EQ(a.value("parameters", "embedding"), 131'072'000);
  EXPECT_EQ(a.value("parameters", "head"), 131'072'000);
  EXPECT_EQ(a.value("parameters", "ffn"), 4'328'521'728);
  EXPECT_EQ(a.value("parameters", "attention"), 2'147'483'648);
  EXPECT_EQ(a.value("parameters", "matrices"), 6'738'149'376);
}

TEST(Questions, KeysAndValues) {
  const Answers a(of(kLlama7b));
  EXPECT_EQ(a.value("inference", "kv_numbers"), 262'144);
  EXPECT_EQ(a.value("inference", "kv_per_token"), 512 * 1024);
}

TEST(Questions, ActivationsOfAToken) {
  const Answers a(of(kLlama7b));
  EXPECT_GE(a.value("activations", "everything"), 3.4e6);
  EXPECT_LE(a.value("activations", "everything"), 3.8e6);
  EXPECT_EQ(a.rule("activations", "sublayers"), 512 * 1024);
  // Sluice keeps the head's input, too.
  EXPECT_EQ(a.value("activations", "sublayers"), 512 * 1024 + 2 * 4096);
}

TEST(Questions, LongestContextOfInference) {
  EXPECT_EQ(Answers(llama_7b(a100_80())).cell("inference", "longest_context", "bf16", "rule_tokens"),
            126'883);
  EXPECT_EQ(Answers(llama_7b(a100_40())).cell("inference", "longest_context", "bf16", "rule_tokens"), 50'589);
  // Norms take a token's place.
  EXPECT_EQ(Answers(llama_7b(a100_80())).cell("inference", "longest_context", "bf16", "tokens"), 126'882);
}

TEST(Questions, TokensOfTraining) {
  const Answers a(llama_7b(a100_80()));
  const double left = 80e9 - 8.0 * 6'738'149'376;
  EXPECT_EQ(std::floor(left / a.rule("activations", "sublayers")), 49'771);
  // The head's input of each token: 1.5 per cent fewer.
  EXPECT_NEAR(a.cell("activations", "lengths", "input of each attention and FFN kept", "rule_tokens"), 49'771,
              0.016 * 49'771);
  // The reference rounds what a token takes, to 3.4 to 3.8 MB.
  const double tokens = a.cell("activations", "lengths", "nothing recomputed", "tokens");
  EXPECT_GE(tokens, std::floor(left / 3.8e6));
  EXPECT_LE(tokens, std::floor(left / 3.4e6));
}

TEST(Questions, TrainingDoesNotFit40GB) {
  const Answers a(llama_7b(a100_40()));
  EXPECT_NEAR(a.rule("memory", "static"), 53.9e9, 0.05e9);
  EXPECT_EQ(a.find("memory", "left")->what, "does not fit: missing");
  EXPECT_NEAR(a.value("memory", "left"), 13.9e9, 0.05e9);
}

TEST(Questions, TimeOfAToken) {
  const Answers a(llama_7b(a100_80()));
  EXPECT_NEAR(a.rule("time", "inference"), 43.2e-6, 0.05e-6);
  EXPECT_NEAR(a.rule("time", "training"), 129.6e-6, 0.05e-6);
  EXPECT_NEAR(a.rule("time", "training_recomputed"), 172.8e-6, 0.05e-6);
  EXPECT_EQ(a.rule("flops", "training"), 6.0 * 6'738'149'376);
  // By the tasks: no product with the embedding, but scores.
  EXPECT_NEAR(a.value("time", "inference"), 44.07e-6, 0.01e-6);
}

TEST(Questions, HoursAndCost) {
  const auto ask = [](double tokens, const char* what, const char* column) {
    EstimateInput in = llama_7b(a100_80());
    in.tokens = tokens;
    in.price = 2;
    return Answers(in).cell("time", "cost", what, column);
  };
  EXPECT_NEAR(ask(100e6, "evaluate", "rule_gpu_hours"), 1.20, 0.005);
  EXPECT_NEAR(ask(100e6, "evaluate", "rule_usd"), 2.40, 0.005);
  EXPECT_NEAR(ask(3e9, "train", "rule_gpu_hours"), 108, 0.5);
  EXPECT_NEAR(ask(3e9, "train", "rule_usd"), 216, 0.5);
  EXPECT_NEAR(ask(1.4e12, "train", "rule_gpu_hours"), 50'392, 0.5);
  EXPECT_NEAR(ask(1.4e12, "train", "rule_usd"), 100'784, 1);
}

TEST(Questions, ContextThatBindsDecodingToMemory) {
  EXPECT_EQ(std::round(Answers(llama_7b(a100_80())).value("inference", "memory_bound_context")), 168);
  EXPECT_EQ(std::round(Answers(llama_7b(a100_40())).value("inference", "memory_bound_context")), 128);
}

TEST(Questions, TimeOfABatch) {
  const Answers a(llama_7b(a100_80()));
  const double kept = a.value("activations", "everything") / 2, n = 6'738'149'376;
  for (const int64_t tokens : {1, 32, 1024, 32768, 1048576}) {
    const std::string row = fmt::format("{}", tokens);
    EXPECT_NEAR(a.cell("roofline", "batches", row, "rule_compute_s"), 2 * n * double(tokens) / 312e12, 1e-9);
    EXPECT_NEAR(a.cell("roofline", "batches", row, "rule_memory_s"),
                (n + 2 * kept * double(tokens)) * 2 / 2.039e12, 1e-9);
    // The tasks' own times are near: traffic of a token is a third more than what it leaves behind, twice;
    // and the rotation reads and writes q and k of 32 layers once more.
    const double exact = a.cell("roofline", "batches", row, "compute_s");
    EXPECT_NEAR(exact, 2 * n * double(tokens) / 312e12, 0.021 * exact);
    const double memory = a.cell("roofline", "batches", row, "memory_s");
    const double rotation = 32 * 2 * (4096 + 4096) * 2 * double(tokens) / 2.039e12;
    EXPECT_NEAR(memory - rotation, a.cell("roofline", "batches", row, "rule_memory_s"), 0.25 * memory);
  }
  // Where it turns: bound by memory before, by compute after.
  const double turn = a.value("roofline", "smallest_evaluation_batch");
  EXPECT_GT(turn, 128);
  EXPECT_LT(turn, 256);
  EXPECT_LT(a.cell("roofline", "batches", "128", "evaluation_mfu"), 1);
  EXPECT_EQ(a.cell("roofline", "batches", "256", "evaluation_mfu"), 1);
  EXPECT_NEAR(a.rule("roofline", "smallest_evaluation_batch"), turn, 0.05 * turn);
}

TEST(Questions, MostMfuAgainstBatch) {
  const Answers a(llama_7b(a100_80()));
  const double smallest = a.value("roofline", "smallest_training_batch");
  const Series training = a.picture("roofline");
  ASSERT_EQ(training.points.size(), 22u);  // 1 ... 2^20, and the knee
  for (const Point& p : training.points) {
    const double power = std::log2(p.x);
    if (power != std::round(power)) {
      EXPECT_EQ(p.x, smallest);
      EXPECT_EQ(p.y, 100);
      continue;
    }
    const std::string row = fmt::format("{}", std::llround(p.x));
    const double compute = a.cell("roofline", "batches", row, "training_compute_s");
    const double memory = a.cell("roofline", "batches", row, "training_memory_s");
    EXPECT_NEAR(p.y, 100 * compute / std::max(compute, memory), 1e-9);
    EXPECT_EQ(p.y >= 100, p.x >= smallest) << row;
  }
}

TEST(Questions, SmallestAndLargestModels) {
  const Answers a(llama_7b(a100_80()));
  const double smallest = a.value("scaling", "smallest_model");
  EXPECT_GT(smallest, 0);
  EXPECT_LT(smallest, 6'738'415'616);
  const auto largest = [&](const char* on) { return a.cell("scaling", "largest", on, "params"); };
  const double plain = largest("1 device, nothing recomputed"),
               again = largest("1 device, layers recomputed");
  const double eight = largest("8 devices, nothing recomputed"),
               eight_again = largest("8 devices, layers recomputed");
  // 80 GB hold the state of 10 billion parameters, eight cards that of 80.
  EXPECT_LT(plain, again);
  EXPECT_LT(again, 10e9);
  EXPECT_LT(eight, eight_again);
  EXPECT_LT(eight_again, 80e9);
  EXPECT_LE(a.cell("scaling", "largest", "8 devices, layers recomputed", "bytes"), 80e9);
}

// --- Tuning for speed

TEST(Questions, SpeedOfARun) {
  EstimateInput in = of("params=52B");
  in.batch = {2048, 16};
  in.devices = 64;
  in.step_s = 127;
  const Answers a(in);
  EXPECT_EQ(a.value("batch", "sequences"), 1024);
  EXPECT_NEAR(a.value("time", "hardware_flops"), 107.3e12, 0.05e12);
  EXPECT_NEAR(a.value("time", "model_flops"), 107.3e12 * 3 / 4, 0.05e12);
}

TEST(Questions, MfuAndHfu) {
  EstimateInput in = llama_7b(a100_80());
  in.tokens_per_s = 3000;
  const Answers a(in);
  EXPECT_NEAR(a.rule("time", "mfu"), 3000 * 6.0 * 6'738'149'376 / 312e12, 1e-9);
  EXPECT_NEAR(a.rule("time", "hfu"), 3000 * 8.0 * 6'738'149'376 / 312e12, 1e-9);
  EXPECT_GT(a.value("time", "hfu"), a.value("time", "mfu"));
}

TEST(Questions, BytesOfAParameter) {
  const Answers a(of(kLlama7b));
  const auto cell = [&](const char* recipe, const char* column) {
    return a.cell("memory", "recipes", recipe, column);
  };
  EXPECT_EQ(cell("adamw-mixed", "per_parameter"), 18);
  EXPECT_EQ(cell("adamw-mixed", "weights") + cell("adamw-mixed", "masters"), 6);
  EXPECT_EQ(cell("adamw-mixed", "state"), 8);
  EXPECT_EQ(cell("adamw-mixed", "gradients"), 4);
  EXPECT_EQ(cell("adamw-f32", "weights"), 4);
  EXPECT_EQ(cell("adamw-bf16", "state"), 4);
  EXPECT_EQ(cell("adamw-bf16", "per_parameter"), 8);
  for (const char* recipe : {"sgd-mixed", "lion-mixed"}) {
    EXPECT_EQ(cell(recipe, "state"), 4) << recipe;
  }
  EXPECT_LT(cell("adafactor-mixed", "state"), 0.002);
  EXPECT_EQ(cell("adamw-8bit", "state"), 2.25);
  EXPECT_EQ(cell("adamw-bf16", "gradients"), 2);
  const auto weights = [&](const char* format) {
    return a.cell("parameters", "bytes", format, "bytes") / 6'738'415'616;
  };
  EXPECT_EQ(weights("bf16 beside f32"), 6);
  EXPECT_EQ(weights("f32"), 4);
  EXPECT_EQ(weights("bf16 or f16"), 2);
  EXPECT_EQ(weights("8 bits"), 1);
}

TEST(Questions, WhatElseTakesMemory) {
  EstimateInput in = llama_7b(a100_80());
  in.device->overhead_bytes = 600.0 * 1024 * 1024;
  const Answers a(in);
  const auto bytes = [&](const char* what) { return a.cell("memory", "anatomy", what, "bytes"); };
  EXPECT_EQ(bytes("context and kernels"), 600.0 * 1024 * 1024);
  double sum = 0;
  for (const char* part : {"weights", "masters", "gradients", "optimizer state", "activations", "temporaries",
                           "logits", "workspace", "context and kernels"}) {
    EXPECT_GE(bytes(part), 0) << part;
    sum += bytes(part);
  }
  EXPECT_GT(bytes("temporaries"), 0);
  EXPECT_EQ(bytes("logits"), 4.0 * 32'000 * 2048);
  EXPECT_DOUBLE_EQ(bytes("sum"), sum);
}

TEST(Questions, GlobalBatch) {
  const auto sequences = [](int64_t batch, int64_t devices, int64_t tp, int64_t pp, int64_t accumulate) {
    EstimateInput in = of("params=1B");
    in.batch.rows = batch;
    in.devices = devices, in.tp = tp, in.pp = pp, in.accumulate = accumulate;
    return Answers(in).value("batch", "sequences");
  };
  EXPECT_EQ(sequences(4, 8, 1, 1, 1), 32);
  EXPECT_EQ(sequences(4, 8, 2, 2, 1), 8);
  EXPECT_EQ(sequences(4, 8, 1, 1, 4), 128);
}

// 24 B s h^2 + 4 B s^2 h: the FFN of that text has two matrices of 4 h; three of 8/3 h take as much.
TEST(Questions, ForwardOfALayer) {
  EstimateInput in = of("layers=1,dim=768,ffn=2048,heads=12,vocab=100");
  in.batch = {512, 4};
  const Answers a(in);
  const double h = 768, s = 512, rows = 4;
  EXPECT_EQ(a.rule("flops", "layer"), 24 * rows * s * h * h + 4 * rows * s * s * h);
  // Causal: half of the scores, and the diagonal.
  EXPECT_EQ(a.value("flops", "layer"), 24 * rows * s * h * h + 2 * rows * s * (s + 1) * h);
}

TEST(Questions, SizesAgainstTiles) {
  EstimateInput in = of("layers=2,dim=1600,ffn=6400,heads=25,vocab=50257");
  in.device = a100_80();
  const Answers a(in);
  EXPECT_EQ(a.cell("sizes", "dimensions", "vocabulary V", "power"), 1);
  EXPECT_EQ(a.cell("sizes", "dimensions", "vocabulary V", "better"), 50'304);
  EXPECT_EQ(a.cell("sizes", "dimensions", "width D", "power"), 64);
  EXPECT_EQ(a.cell("sizes", "dimensions", "width D", "better"), 1'664);
  EXPECT_EQ(a.cell("sizes", "dimensions", "FFN F", "better"), kUnknown);  // 256 divides it
  // 2,048 x 1,600 in tiles of 128 x 256: 13 x 8 on 108 multiprocessors.
  EXPECT_EQ(a.cell("sizes", "products", "q_proj", "tiles"), 104);
  EXPECT_NEAR(a.cell("sizes", "products", "q_proj", "idle"), 4.0 / 108, 1e-12);
}

// --- Systems assignment

TEST(Questions, ParametersOfTheZoo) {
  const auto params = [](const char* model) { return Answers(of(model)).value("parameters", "all"); };
  EXPECT_EQ(params("layers=12,dim=768,ffn=3072,heads=12,vocab=10000"), 128'625'408);
  EXPECT_EQ(params("layers=24,dim=1024,ffn=4096,heads=16,vocab=10000"), 423'183'360);
  EXPECT_EQ(params("layers=36,dim=1280,ffn=5120,heads=20,vocab=10000"), 969'411'840);
  EXPECT_EQ(params("layers=48,dim=1600,ffn=6400,heads=25,vocab=10000"), 1'998'235'200);
  EXPECT_EQ(params("layers=32,dim=2560,ffn=10240,heads=32,vocab=10000"), 3'406'809'600);
}

TEST(Questions, ActivationsWithScores) {
  EstimateInput in = of("layers=32,dim=2560,ffn=10240,heads=32,vocab=10000");
  in.batch = {512, 4};
  in.recipe = find_recipe("adamw-f32");
  const Answers a(in);
  EXPECT_EQ(a.value("activations", "naive_f32_batch"), 20'352.0 * 1024 * 1024);
  // The same, 16 bytes of each parameter and the logits are a step; of twice the length scores take four
  // times as much.
  const double weights = 16 * 3'406'809'600.0, logits = 4 * 512 * 10'000 * 4.0;
  EXPECT_EQ(a.cell("activations", "naive_steps", "4", "s_512"), weights + 20'352.0 * 1024 * 1024 + logits);
  const double scores = 32 * 4.0 * (2 * 32 * 512.0) * (4 * 512);
  EXPECT_EQ(a.cell("activations", "naive_steps", "4", "s_1024"),
            weights + 2 * (20'352.0 * 1024 * 1024 - scores) + 4 * scores + 2 * logits);
  EXPECT_EQ(a.value("memory", "per_parameter"), 16);
}

EstimateInput xxl() {
  EstimateInput in = of("layers=126,dim=16384,ffn=53248,matrices=2");
  in.recipe = find_recipe("adamw-f32");
  in.device = Device{.name = "95 GB", .memory_bytes = 95e9, .peak_flops = 4.6e14, .memory_rate = 1e12};
  return in;
}

TEST(Questions, Xxl) {
  const Answers a(xxl());
  EXPECT_EQ(a.value("parameters", "all"), 219'848'638'464);
  EXPECT_NEAR(a.value("sharding", "static"), 3517.6e9, 0.05e9);
  EXPECT_EQ(a.cell("sharding", "sharding", "weights, gradients, state alone", "smallest"), 38);
  EstimateInput of_80 = xxl();
  of_80.device->memory_bytes = 80e9;
  EXPECT_EQ(std::ceil(Answers(of_80).value("sharding", "devices_of_memory")), 44);
}

TEST(Questions, XxlSharded) {
  const Answers a(xxl());
  const double p = 219'848'638'464, activations = 2.0 * (16384 + 53248) * 126 * 2048;
  EXPECT_EQ(a.value("sharding", "activations"), activations);
  const double n = a.cell("sharding", "sharding", "all, half of activations", "smallest");
  const auto bytes = [&](double devices) { return (16 * p + activations / 2) / devices + activations / 2; };
  EXPECT_LE(bytes(n), 95e9);
  EXPECT_GT(bytes(n - 1), 95e9);
  EXPECT_EQ(a.cell("sharding", "sharding", "all, half of activations", "bytes"), bytes(1));
}

TEST(Questions, MeshBoundByCompute) {
  EstimateInput in = xxl();
  in.mesh = *parse_mesh("fsdp=16/2,tp=4/1,link=1.8e11,peak=4.6e14");
  const Answers a(in);
  EXPECT_NEAR(a.value("mesh", "tokens_per_device"), 319.4, 0.05);
  EXPECT_NEAR(a.value("mesh", "tokens"), 20'444, 0.5);
  EXPECT_NEAR(a.value("mesh", "least_ffn"), 10'222, 0.5);
  EXPECT_EQ(a.find("mesh", "ffn")->what, "F, which holds");
}

// What buys full speed with fewer tokens, and what it costs in width.
TEST(Questions, SmallerBatchesAtFullSpeed) {
  EstimateInput in = xxl();
  in.mesh = *parse_mesh("fsdp=16/2,tp=4/1,link=1.8e11,peak=4.6e14");
  const Answers a(in);
  const auto tokens = [&](const char* change) {
    return a.cell("mesh", "smaller", change, "tokens_per_device");
  };
  const auto width = [&](const char* change) { return a.cell("mesh", "smaller", change, "least_ffn"); };
  const double given = 4.6e14 / (1.8e11 * 2 * 4);
  EXPECT_DOUBLE_EQ(tokens("as given"), given);
  EXPECT_DOUBLE_EQ(tokens("tensor parallel over twice as many"), given / 2);
  EXPECT_DOUBLE_EQ(width("tensor parallel over twice as many"), 2 * width("as given"));
  EXPECT_DOUBLE_EQ(tokens("weights over one axis more"), given * 2 / 3);
  EXPECT_DOUBLE_EQ(tokens("weights gathered in 8 bits"), given / 2);
  EXPECT_DOUBLE_EQ(tokens("links twice as fast"), given / 2);
  EXPECT_DOUBLE_EQ(width("links twice as fast"), width("as given") / 2);
  EXPECT_DOUBLE_EQ(tokens("gathered once for two batches"), given / 2);
}

// A layer with a window keeps no more tokens than that, and counts the pairs inside it.
TEST(Windows, BoundKeysValuesAndAttention) {
  EstimateInput in = of(kLlama7b);
  in.batch.seq_len = 8192;
  const Answers whole(in);
  std::vector<LayerSpec>& layers = in.subject.spec->layers;
  for (size_t l = 0; l < layers.size() / 2; ++l) layers[l].attention()->window = 1024;
  const Answers half(in);
  EXPECT_DOUBLE_EQ(half.value("inference", "kv_per_sequence"),
                   whole.value("inference", "kv_per_sequence") * (0.5 + 0.5 / 8));
  // Pairs of a token: (S + 1) / 2, or W - W (W - 1) / 2 S.
  const double pairs = 1024 - 1024.0 * 1023 / 2 / 8192;
  EXPECT_NEAR(half.value("flops", "attention"),
              whole.value("flops", "attention") * (0.5 + 0.5 * pairs / (8193.0 / 2)), 1);
  const double fewer = whole.value("flops", "model") - half.value("flops", "model");
  EXPECT_NEAR(fewer, 16 * 6 * 4096.0 * (8192 - 1024 * (2 - 1.0 / 8)), 1);
}

}  // namespace
}  // namespace sluice::core
