// SPDX-License-Identifier: Apache-2.0
// What is refused before anything is measured, searched for or written.
#include "run/prepare/checks.h"
#include "run/inputs/paths.h"
#include "setup/settle.h"

#include <nlohmann/json.hpp>

#include "host/host_memory.h"
#include "io/safetensors.h"
#include "model/families/families.h"
#include "run/inputs/resolve.h"
#include "run/small_session.h"

namespace sluice::core {
namespace fs = std::filesystem;
namespace {

// Passes when preparing fails with a message that has every one of `parts`, and neither costs nor plans were
// kept: measuring and searching end with that.
void expect_refused_early(std::vector<std::string> settings, const std::vector<std::string>& parts) {
  const TempDir dir;
  const auto prepared = prepare_small(dir, std::move(settings));
  ASSERT_FALSE(prepared.ok());
  for (const std::string& part : parts)
    EXPECT_NE(prepared.message().find(part), std::string::npos) << prepared.message() << "\nlacks: " << part;
  EXPECT_FALSE(std::filesystem::exists(dir / "cache"));
}

TEST(EarlyChecks, WeightsThatAreNotThereOrNone) {
  expect_refused_early({"model.weights=/nonexistent"}, {"model.weights = /nonexistent: no such file"});
  expect_refused_early(
      {"model.weights=nowhere/w"},
      {"model.weights: 'nowhere/w' in the working directory is /", "/nowhere/w: no such file"});
  const TempDir dir;
  expect_refused_early({"model.weights=" + dir.path().string()}, {"model.weights", "model.safetensors"});
  expect_refused_early({"model.weights=" + dir.add("w.safetensors", "no").string()},
                       {"model.weights", "w.safetensors"});
}

TEST(EarlyChecks, AConfigThatCannotBeRead) {
  expect_refused_early({"model.config=/nonexistent/config.json"},
                       {"model.config = /nonexistent/config.json: no such"});
  const TempDir empty;
  expect_refused_early(
      {"model.config=" + empty.path().string()},
      {"model.config = " + empty.path().string() + ": there is no config.json in this folder"});
}

// A folder in which tensors of a fixture are others, or more. A row of values for each name.
class OfferedWeights : public testing::Test {
 protected:
  struct More {
    std::string name;
    std::vector<int64_t> shape = {2};
    float value = 1;
  };
  // REQUIRES: the fixture's tensors are in one file.
  std::string folder(const char* fixture, const std::vector<More>& more, std::string config = "") {
    const fs::path from = fs::path(SLUICE_FIXTURES) / fixture;
    const TensorFiles files = must(TensorFiles::open(from));
    std::vector<TensorInfo> infos;
    for (const std::string_view name : files.names()) infos.push_back(files.find(name)->info);
    for (const More& m : more) infos.push_back({m.name, TensorType::F32, m.shape});
    const fs::path to = dir_ / fmt::format("m{}", made_++);
    fs::create_directories(to);
    SafeTensorsWriter writer = must(SafeTensorsWriter::create(to / "model.safetensors", infos));
    for (const std::string_view name : files.names())
      EXPECT_TRUE(writer.write(name, 0, files.find(name)->bytes).ok());
    for (size_t m = 0; m < more.size(); ++m) {
      const std::vector<float> values(size_t(infos[files.names().size() + m].elements()), more[m].value);
      EXPECT_TRUE(writer.write(more[m].name, 0, std::as_bytes(std::span(values))).ok());
    }
    EXPECT_TRUE(writer.commit().ok());
    if (config.empty()) config = file_bytes(from / "config.json");
    std::ofstream(to / "config.json") << config;
    return to.string();
  }

  // The refusal of a folder; empty: none.
  std::string said(const std::string& folder, const std::string& unread = "refuse") {
    RunConfig config =
        must(load_config("", small_run(dir_, {"model.path=" + folder, "model.unread=" + unread})));
    config.model.config = folder;
    const ModelSpec model = must(resolve_model(config));
    const auto checked = check_early(config, must(resolve_machine(config, "")), model);
    notices_ = checked.ok() ? *checked : Notices();
    return checked.ok() ? "" : checked.message();
  }

  TempDir dir_;
  int made_ = 0;
  std::vector<std::string> notices_;
};

TEST_F(OfferedWeights, TensorsThatNobodyReadsAreRefusedOrDropped) {
  struct Case {
    const char* fixture;
    const char* name;
    const char* says;
  };
  const Case cases[] = {
      {"llama_tiny", "model.layers.0.self_attn.q_proj.bias", "biases"},
      {"llama_tiny", "model.layers.1.mlp.down_proj.bias", "biases"},
      {"llama_tiny", "model.layers.7.input_layernorm.weight", "num_hidden_layers is 3"},
      {"llama_tiny", "model.layers.0.self_attn.q_norm.weight", "norms of heads"},
      {"llama_tiny", "model.layers.0.self_attn.v_proj.lora_A.weight", "merge_and_unload()"},
      {"llama_tiny", "mtp.layers.0.weight", "predict further tokens"},
      {"llama_tiny", "score.weight", "a head of another task"},
      {"llama_tiny", "model.layers.0.self_attn.sinks", "model.layers.*.self_attn.sinks"},
      {"llama_tiny", "base.model.norm.weight", "base.model.norm.weight"},
      {"llama_tiny", "model.layers.0.attn.bias", "biases"},
      {"qwen2_tiny", "model.layers.0.self_attn.o_proj.bias", "biases"},
      {"gpt2_tiny", "transformer.h.9.ln_1.weight", "num_hidden_layers is 2"},
      {"mixtral_tiny", "model.layers.0.mlp.gate_proj.weight", "mlp.gate_proj.weight"},
      {"gemma3_tiny", "vision_tower.weight", "sees images"},
  };
  for (const Case& c : cases) {
    const std::string at = folder(c.fixture, {{c.name}});
    const std::string refusal = said(at);
    EXPECT_NE(refusal.find("no weight of this"), std::string::npos) << c.name << ": " << refusal;
    EXPECT_NE(refusal.find(c.says), std::string::npos) << refusal;
    EXPECT_NE(refusal.find("model.unread = drop"), std::string::npos) << refusal;
    EXPECT_EQ(said(at, "drop"), "");
    ASSERT_EQ(notices_.size(), 1u) << c.name;
    EXPECT_NE(notices_[0].find("model.unread = drop: not read"), std::string::npos) << notices_[0];
  }
}

TEST_F(OfferedWeights, WhatNobodyLearnsSaysNothing) {
  for (const auto& [fixture, name] : {std::pair{"llama_tiny", "model.layers.0.self_attn.rotary_emb.inv_freq"},
                                      {"llama_tiny", "model.rotary_emb.inv_freq"},
                                      {"gpt2_tiny", "transformer.h.0.attn.bias"},
                                      {"gpt2_tiny", "transformer.h.1.attn.masked_bias"},
                                      {"gpt_neox_tiny", "gpt_neox.layers.0.attention.bias"},
                                      {"gpt_neox_tiny", "gpt_neox.layers.0.attention.rotary_emb.inv_freq"}}) {
    EXPECT_EQ(said(folder(fixture, {{name}})), "") << name;
    EXPECT_TRUE(notices_.empty()) << notices_.front();
  }
  // As transformers does, and says.
  for (const char* fixture : {"qwen3_next_tiny", "qwen3_5_tiny", "qwen3_5_moe_tiny"}) {
    EXPECT_EQ(said(folder(fixture, {{"mtp.fc.weight"}, {"mtp.norm.weight"}})), "");
    ASSERT_EQ(notices_.size(), 1u);
    EXPECT_NE(notices_[0].find("passed over, as transformers does: mtp.fc.weight, mtp.norm.weight"),
              std::string::npos)
        << notices_[0];
  }
  for (const auto& entry : fs::directory_iterator(SLUICE_FIXTURES)) {
    const std::string name = entry.path().filename().string();
    if (!name.ends_with("_tiny") && name.find("_tiny_") == name.npos) continue;
    if (!fs::exists(entry.path() / "config.json") || name == "chat_tiny") continue;
    EXPECT_EQ(said(entry.path().string()), "") << name;
  }
}

TEST_F(OfferedWeights, AHeadBesideATiedEmbeddingIsTheSameOrRefused) {
  const auto tied = [&](const char* fixture, bool says, float value) {
    const fs::path from = fs::path(SLUICE_FIXTURES) / fixture;
    auto config = nlohmann::json::parse(file_bytes(from / "config.json"));
    if (!says) config.erase("tie_word_embeddings");
    const TensorFiles files = must(TensorFiles::open(from));
    return folder(fixture, {{"lm_head.weight", files.find("model.embed_tokens.weight")->info.shape, value}},
                  config.dump());
  };
  for (const auto& [fixture, says] : {std::pair{"llama_tiny_tied", true},
                                      {"qwen3_tiny_tied", true},
                                      {"gemma_tiny", false},
                                      {"gemma2_tiny", false},
                                      {"starcoder2_tiny", false}}) {
    const std::string at = tied(fixture, says, 0.25f), refusal = said(at);
    EXPECT_NE(refusal.find("lm_head.weight differs from model.embed_tokens.weight"), std::string::npos)
        << fixture << ": " << refusal;
    EXPECT_NE(refusal.find("\"tie_word_embeddings\": false"), std::string::npos) << refusal;
    EXPECT_EQ(said(at, "drop"), "");
    ASSERT_EQ(notices_.size(), 1u);
    EXPECT_NE(notices_[0].find("the embedding is the head"), std::string::npos) << notices_[0];
  }
  // One that is the embedding once more says nothing.
  const fs::path from = fs::path(SLUICE_FIXTURES) / "llama_tiny_tied";
  const std::string same = tied("llama_tiny_tied", true, 0);
  const TensorFiles files = must(TensorFiles::open(from));
  std::vector<TensorInfo> infos;
  for (const std::string_view name : files.names()) infos.push_back(files.find(name)->info);
  const SafeTensor& embedding = *files.find("model.embed_tokens.weight");
  infos.push_back({"lm_head.weight", embedding.info.type, embedding.info.shape});
  SafeTensorsWriter writer = must(SafeTensorsWriter::create(fs::path(same) / "model.safetensors", infos));
  for (const std::string_view name : files.names())
    EXPECT_TRUE(writer.write(name, 0, files.find(name)->bytes).ok());
  EXPECT_TRUE(writer.write("lm_head.weight", 0, embedding.bytes).ok());
  EXPECT_TRUE(writer.commit().ok());
  EXPECT_EQ(said(same), "");
  EXPECT_TRUE(notices_.empty());
}

TEST_F(OfferedWeights, OfTwoSetsTheSingleFileIsReadAndAnAdapterBesideIsRefused) {
  const std::string at = folder("llama_tiny", {});
  std::ofstream(fs::path(at) / "model.safetensors.index.json") << R"({"weight_map": {"a": "b.safetensors"}})";
  EXPECT_EQ(said(at), "");
  ASSERT_EQ(notices_.size(), 1u);
  EXPECT_TRUE(notices_[0].ends_with("passed over, as transformers does: model.safetensors.index.json"))
      << notices_[0];
  // A shard of another time, which the index does not name.
  fs::remove(fs::path(at) / "model.safetensors.index.json");
  std::ofstream(fs::path(at) / "model-00002-of-00002.safetensors") << "x";
  EXPECT_EQ(said(at), "");
  EXPECT_TRUE(notices_[0].ends_with("does: model-00002-of-00002.safetensors")) << notices_[0];
  std::ofstream(fs::path(at) / "adapter_config.json") << "{}";
  EXPECT_NE(said(at).find("adapter_config.json lies beside the weights"), std::string::npos) << said(at);
  EXPECT_EQ(said(at, "drop"), "");
}

TEST(EarlyChecks, ADirectoryStandsForItsConfig) {
  RunConfig config;
  config.model.config = (std::filesystem::path(SLUICE_FIXTURES) / "llama_tiny").string();
  EXPECT_TRUE(resolve_model(config).ok());
}

TEST(EarlyChecks, ACheckpointThatIsNotThere) {
  expect_refused_early({"run.resume=/nonexistent"}, {"run.resume = /nonexistent: no such"});
}

TEST(EarlyChecks, ACacheThatCannotBeWritten) {
  const TempDir dir;
  const std::string below = (dir.add("file", "") / std::string("cache")).string();
  const auto prepared = prepare_small(dir, {"data.cache=" + below});
  ASSERT_FALSE(prepared.ok());
  EXPECT_EQ(prepared.message(),
            fmt::format("data.cache = {}: {} is not a directory", below, (dir / "file").string()));
}

// The head's products in 8 bits: of 8 bits alone, and of whole rows of 16 wherever they are turned.
TEST(EarlyChecks, AHeadInEightBitsThatCannotBe) {
  const TempDir dir;
  const std::string tiny = file_bytes(std::filesystem::path(SLUICE_FIXTURES) / "llama_tiny" / "config.json");
  const auto of_vocab = [&](int size) {
    std::string config = tiny;
    const size_t at = config.find("\"vocab_size\": ");
    config.replace(at, config.find_first_of(",\n", at) - at, fmt::format("\"vocab_size\": {}", size));
    return "model.config=" + dir.add(fmt::format("vocab-{}/config.json", size), config).string();
  };
  const std::string fp8 = "train.compute=fp8", whole = "shape.chunk_tokens=16", model = of_vocab(96);
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{"train.compute=bf16", whole, model}, "products read 8 bits with train.compute = fp8 alone"},
      {{fp8, model}, "chunks of 8 tokens, of which the head reads 8 at once"},
      {{fp8, whole, model, "shape.head_tokens=8"}, "chunks of 16 tokens, of which the head reads 8 at once"},
      {{fp8, whole, of_vocab(97)}, "the head has 97 rows of 32"},
      {{fp8, whole, model}, ""}};
  for (const auto& [more, part] : cases) {
    std::vector<std::string> settings = more;
    settings.push_back("train.fp8_head=true");
    const auto prepared = prepare_small(dir, settings);
    const std::string message = prepared.ok() ? "" : prepared.message();
    EXPECT_EQ(prepared.ok(), std::string_view(part).empty()) << part << ": " << message;
    EXPECT_NE(message.find(part), std::string::npos) << message;
  }
}

TEST(EarlyChecks, CapsAboveWhatThisMachineHas) {
  for (const char* tier : {"device", "host"}) {
    expect_refused_early({fmt::format("memory.{}=1000TiB", tier)},
                         {fmt::format("memory.{} = 1000TiB: {} has {}", tier, host_limit().whose,
                                      format_bytes(host_limit().bytes))});
  }
}

// Hundreds of thousands of tasks: the search would hold gigabytes.
TEST(EarlyChecks, AHostCapThatTheSearchWouldExceed) {
  const TempDir dir;
  const auto prepared =
      prepare_small(dir, {"train.tokens_per_step=1048576", "shape.chunk_tokens=8", "memory.host=512MiB"});
  ASSERT_FALSE(prepared.ok());
  EXPECT_EQ(prepared.error().kind, ErrorKind::DoesNotFit);
  EXPECT_NE(prepared.message().find("memory.host = 512MiB: the search for a plan of some"), std::string::npos)
      << prepared.message();
}

TEST(EarlyChecks, ANamedCardImpliesItsMemoryAndSaysSo) {
  const Machine card = must(resolve_machine(RunConfig(), "RTX 4090"));
  const ModelSpec model = must(model_preset("tiny"));
  RunConfig config = must(settled({}, card, model));
  EXPECT_EQ(config.caps[kDevice], 24564 * kMiB - kGiB);
  EXPECT_EQ(config.caps[kHost], kUnlimited);
  EXPECT_EQ(config.notices,
            std::vector<std::string>{
                "memory.device: 23.0 GiB, what the card RTX 4090 24 GB has less 1 GiB for its driver"});
  config = {};
  config.caps[kDevice] = 16 * kGiB;
  config = must(settled(config, card, model));
  EXPECT_EQ(config.caps[kDevice], 16 * kGiB);
  EXPECT_TRUE(config.notices.empty());
  config = {};
  config = must(settled(config, must(resolve_machine(config, "a100-40gb")), model));
  EXPECT_EQ(config.caps[kDevice], 39 * kGiB);
  config = {};
  config = must(settled(config, must(resolve_machine(config, "a100")), model));
  EXPECT_EQ(config.caps[kDevice], 79 * kGiB);
}

TEST(EarlyChecks, ACapAboveTheCardIsRefusedWithBothNumbers) {
  RunConfig config;
  config.caps[kDevice] = 200 * kGiB;
  const auto status = check_early(config, must(resolve_machine(config, "h100")), must(model_preset("tiny")));
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().kind, ErrorKind::DoesNotFit);
  for (const char* part : {"memory.device = 200GiB", "H100 80 GB", "79.65 GiB", "78.6 GiB"})
    EXPECT_NE(status.message().find(part), std::string::npos) << status.message() << "\nlacks: " << part;
}

TEST(EarlyChecks, OutputsThatCannotBeWritten) {
  const TempDir dir;
  const std::filesystem::path file = dir.add("file", "");
  EXPECT_TRUE(check_directory("run.dir", dir / "a/b/c").ok());
  EXPECT_TRUE(check_directory("run.dir", "runs/latest").ok());
  EXPECT_FALSE(std::filesystem::exists(dir / "a"));
  EXPECT_EQ(check_directory("run.dir", file / "run").message(),
            fmt::format("run.dir = {}: {} is not a directory", (file / "run").string(), file.string()));
  EXPECT_TRUE(check_output("--html", dir / "page.html").ok());
  EXPECT_TRUE(check_output("--html", file).ok());
  EXPECT_EQ(check_output("--html", dir.path()).message(),
            fmt::format("--html = {}: that is a directory; a file is needed", dir.path().string()));
  EXPECT_EQ(check_output("--html", dir / "none/page.html").message(),
            fmt::format("--html = {}: there is no directory {}", (dir / "none/page.html").string(),
                        (dir / "none").string()));
}

// The rates of a card are those of its bf16 products, and its kernels take nothing else.
TEST(Numerics, NoSpeedInF32IsPredictedFromARateInBf16) {
  RunConfig config;
  config.train.compute = DType::F32;
  const Machine card = must(resolve_machine(config, "h100"));
  const auto refused = resolve_numerics(config, card);
  ASSERT_FALSE(refused.ok());
  for (const char* part : {"train.compute = f32", "h100", "bf16", "tensor cores", "nor rates to plan by",
                           "train.master = on", "sluice bench model"})
    EXPECT_NE(refused.message().find(part), std::string::npos) << refused.message() << "\nlacks: " << part;
  config.run.backend = "cpu";
  EXPECT_EQ(must(resolve_numerics(config, must(resolve_machine(config, "")))).compute, DType::F32);
}

TEST(Numerics, MasterWeightsBringTheirState) {
  RunConfig config;
  const Machine card = must(resolve_machine(config, "h100"));
  const core::Numerics compact = must(resolve_numerics(config, card));
  EXPECT_EQ(compact.state, DType::BF16);
  EXPECT_TRUE(compact.stochastic);
  config.train.master = core::MasterWeights::F32;
  const core::Numerics masters = must(resolve_numerics(config, card));
  EXPECT_EQ(masters.master, core::MasterWeights::F32);
  EXPECT_EQ(masters.state, DType::F32);
  EXPECT_FALSE(masters.stochastic);
}

TEST(EarlyChecks, ACapThatLeavesTheSystemNothingIsSaid) {
  const Machine here = must(resolve_machine(must(load_config("", {"run.backend=cpu"})), ""));
  const auto notices = [&](int64_t host_cap, int64_t device_cap = kUnlimited) {
    RunConfig config;
    config.data.cache.clear();
    config.caps[kHost] = host_cap;
    config.caps[kDevice] = device_cap;
    return must(check_early(config, here, must(model_preset("tiny"))));
  };
  EXPECT_TRUE(notices(host_limit().bytes / 2).empty());
  const auto said = notices(host_limit().bytes);
  ASSERT_EQ(said.size(), 1u);
  EXPECT_NE(said[0].find(" to the system and other programs; "), std::string::npos) << said[0];
  // Each alone fits.
  const auto both = notices(host_limit().bytes * 3 / 4, host_limit().bytes / 2);
  ASSERT_EQ(both.size(), 1u);
  EXPECT_TRUE(both[0].starts_with("memory.device and memory.host, which share it, = ")) << both[0];
  EXPECT_NE(both[0].find("that leaves nothing of"), std::string::npos) << both[0];
}

TEST(EarlyChecks, WhatIsHeldOutOrAskedForAndNeverEvaluatedIsSaid) {
  const auto said = [](std::vector<std::string> settings) {
    const TempDir dir;
    const Prepared prepared = must(prepare_small(dir, std::move(settings)));
    return fmt::format("{}", fmt::join(prepared.notices, "; "));
  };
  EXPECT_NE(said({"eval.every=5"}).find("eval.every = 5: nothing is evaluated"), std::string::npos);
}

TEST(EarlyChecks, SettingsThatCannotTakeEffectAreSaid) {
  const auto said = [](std::vector<std::string> settings, int64_t steps = 6) {
    RunConfig config = must(load_config("", std::move(settings)));
    config.train.steps = steps;
    return fmt::format("{}", fmt::join(idle_notices(config), "; "));
  };
  EXPECT_EQ(said({}), "");
  EXPECT_EQ(said({"eval.every=3", "run.checkpoint_every=6", "eval.patience=1", "sample.texts=2"}), "");
  for (const char* key : {"eval.every", "sample.every", "run.checkpoint_every", "run.keep_every"})
    EXPECT_EQ(said({fmt::format("{}=7", key)}),
              fmt::format("{} = 7: the run ends before that, after 6 steps", key));
  EXPECT_EQ(said({"sample.every=7", "sample.tokens=0"}), "");
  EXPECT_EQ(said({"eval.every=2", "eval.patience=3"}),
            "eval.patience = 3: the run is evaluated 2 times before its end, and never ends early");
  EXPECT_EQ(said({"sample.texts=2", "sample.temperature=0"}),
            "sample.texts = 2: with sample.temperature = 0 they are all the same");
  EXPECT_EQ(said({"run.trace_kernels=true", "run.trace=false"}),
            "run.trace_kernels = true does not count: run.trace = false writes no trace");
  EXPECT_EQ(said({"adapter.rank=2", "adapter.decay=true", "train.weight_decay=0"}),
            "adapter.decay = true does not count: train.weight_decay is 0");
  EXPECT_EQ(said({"data.heldout=0.2", "data.heldout_paths=[\"a\"]"}),
            "data.heldout = 0.2 does not count: data.heldout_paths names what is held out");
  EXPECT_EQ(said({"eval.every=0", "eval.patience=1"}),
            "eval.patience = 1: the run is evaluated 0 times before its end, and never ends early");
  EXPECT_EQ(said({"train.optimizer=sgd", "train.nesterov=1", "train.momentum=0"}),
            "train.nesterov = 1 does not count: train.momentum is 0");
}

TEST(EarlyChecks, PatternsOfAdaptersThatNameNoneAreSaid) {
  const auto said = [](std::vector<std::string> more) {
    std::vector<std::string> settings{"model.config=" SLUICE_FIXTURES "/llama_tiny/config.json",
                                      "adapter.rank=2"};
    settings.insert(settings.end(), more.begin(), more.end());
    return fmt::format("{}",
                       fmt::join(must(resolve_trained_model(must(load_config("", settings)))).notices, "; "));
  };
  EXPECT_EQ(said({}), "");
  EXPECT_EQ(said({"adapter.modules_to_save=[\"o_proj\"]", "adapter.rank_pattern=[\"down_proj=3\"]"}), "");
  const std::string none = "does not count, as no tensor of that name has an adapter";
  EXPECT_EQ(said({"adapter.targets=[\"o_proj\"]", "adapter.alpha_pattern=[\"down_proj=3\"]"}),
            "adapter.alpha_pattern: 'down_proj' " + none);
  EXPECT_EQ(said({"adapter.targets=[\"o_proj\",\"down_proj\"]", "adapter.modules_to_save=[\"o_proj\"]"}),
            "adapter.targets: 'o_proj' " + none);
  EXPECT_EQ(said({"adapter.targets=[\"o_proj\"]", "adapter.exclude=[\"down_proj\"]"}),
            "adapter.exclude: 'down_proj' does not count, as adapter.targets leaves that out");
  EXPECT_NE(said({"adapter.rank=64"}).find(" tensors have adapters of a rank above their own"),
            std::string::npos);
}

TEST(EarlyChecks, KeysThatACommandGoesByAreTold) {
  EXPECT_TRUE(expect_read({"memory.host=1GiB", "run.threads=2"}, "it", keys_read({})).ok());
  EXPECT_TRUE(expect_read({"data.date=2026-01-31"}, "it", keys_read({"data.date"})).ok());
  for (const char* key : {"train.steps", "eval.rows", "data.paths", "run.dir", "run.devices_of"})
    EXPECT_TRUE(expect_read({std::string(key) + "=1"}, "it", keys_read({}))
                    .message()
                    .starts_with(std::string(key) + ": it goes by no such key; it does by memory., model.,"))
        << key;
}

TEST(EarlyChecks, DevicesAndThreadsThatACpuHasNot) {
  expect_refused_early({"run.device=3"}, {"run.device = 3: the backend cpu has one device, 0"});
  expect_refused_early({"run.device=3", "run.devices=2"}, {"run.device = 3: run.devices = 2 says which"});
  const TempDir dir;
  const Prepared prepared = must(
      prepare_small(dir, {"run.threads=1000", "run.shard_state=true", "sample.tokens=0", "sample.every=5"}));
  const auto& said = prepared.notices;
  for (const char* begins : {"run.threads = 1000: ", "run.shard_state = true: this one process has the state",
                             "sample.every: no text is sampled"})
    EXPECT_TRUE(std::ranges::any_of(said, [&](const std::string& n) { return n.starts_with(begins); }))
        << begins;
}

}  // namespace
}  // namespace sluice::core
