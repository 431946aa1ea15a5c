// SPDX-License-Identifier: Apache-2.0
// Models written anew: what goes in comes out, and nothing else is touched.
#include "checkpoint/export.h"

#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "base/half.h"
#include "config/files/load_config.h"
#include "io/elements.h"
#include "model/families/families.h"
#include "run/forged_checkpoint.h"
#include "run/inputs/resolve.h"
#include "run/small_session.h"

namespace sluice::core {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

const ExportProgress kQuiet = [](std::string_view, int64_t, int64_t) { return Status(); };

// Of each tensor its type, shape and bytes.
std::map<std::string, std::string> tensors_in(const fs::path& dir) {
  const TensorFiles files = must(TensorFiles::open(dir));
  std::map<std::string, std::string> out;
  for (const std::string_view name : files.names()) {
    const SafeTensor& tensor = *must(files.get(name));
    std::string& all = out[std::string(name)];
    all = fmt::format("{} {}: ", name_of(tensor.info.type), tensor.info.shape.size());
    for (const int64_t extent : tensor.info.shape) all += fmt::format("{} ", extent);
    all.append(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
  }
  return out;
}

std::vector<float> values_of(const fs::path& dir, std::string_view name) {
  const TensorFiles files = must(TensorFiles::open(dir));
  const SafeTensor& tensor = *must(files.get(name));
  std::vector<float> out;
  read_elements(tensor.info.type, tensor.bytes, out);
  return out;
}

constexpr const char* kSmallFiles[] = {
    "tokenizer.json", "tokenizer_config.json", "generation_config.json", "chat_template.jinja",
    "merges.txt",     "tokenizer.model"};

// A fixture's model in a folder of its own, with a key that nobody knows and files beside it.
fs::path model_in(const TempDir& dir, const char* fixture) {
  const fs::path from = fs::path(SLUICE_FIXTURES) / fixture;
  Json config = Json::parse(file_bytes(from / "config.json"));
  config["of_somebody_else"] = {{"list", {1, 2.5e-7, "\u00e4", nullptr}}};
  dir.add("model/config.json", config.dump(4));
  for (const auto& entry : fs::directory_iterator(from)) {
    if (is_weights_file(entry.path().filename().string()) || entry.path().filename() == kWeightsIndexName)
      fs::copy_file(entry.path(), dir / "model" / entry.path().filename().string());
  }
  for (const char* file : kSmallFiles)
    dir.add(std::string("model/") + file, std::string("\0\xff of ", 6) + file);
  dir.add("model/LICENSE", "theirs");
  dir.add("model/README.md", "theirs");
  return dir / "model";
}

Exported exported(const fs::path& from, const fs::path& to, const ExportOptions& options = {}) {
  return must(export_model(from, to, options, kQuiet));
}

std::string refusal(const fs::path& from, const fs::path& to, const ExportOptions& options = {}) {
  const auto done = export_model(from, to, options, kQuiet);
  return done.ok() ? "" : done.message();
}

void expect_same_files(const fs::path& a, const fs::path& b) {
  for (const char* file : kSmallFiles) EXPECT_EQ(file_bytes(a / file), file_bytes(b / file)) << file;
}

class RoundTrip : public testing::TestWithParam<const char*> {};

// In the format it has, and in each it is brought to first: in shards, and whole again.
TEST_P(RoundTrip, IsBitForBit) {
  const TempDir dir;
  const fs::path model = model_in(dir, GetParam());
  const Json given = Json::parse(file_bytes(model / "config.json"));
  const char* const key = given.contains("dtype") ? "dtype" : "torch_dtype";
  const std::pair<std::optional<TensorType>, const char*> formats[] = {{std::nullopt, ""},
                                                                       {TensorType::F32, "float32"},
                                                                       {TensorType::BF16, "bfloat16"},
                                                                       {TensorType::F16, "float16"}};
  for (const auto& [type, name] : formats) {
    const fs::path in = type ? dir / (std::string("in") + name) : model;
    const fs::path shards = dir / (std::string("shards") + name), out = dir / (std::string("out") + name);
    if (type) exported(model, in, {type, kShardBytes});
    const Exported cut = exported(in, shards, {std::nullopt, 2000});
    const Exported whole = exported(shards, out);
    EXPECT_GT(cut.weights.size(), 3u);
    EXPECT_EQ(whole.weights, std::vector<std::string>{"model.safetensors"});
    for (const fs::path& other : {shards, out}) {
      EXPECT_TRUE(tensors_in(other) == tensors_in(in)) << other;
      EXPECT_EQ(file_bytes(other / "config.json"), file_bytes(in / "config.json"));
      expect_same_files(other, model);
      EXPECT_FALSE(fs::exists(other / "LICENSE") || fs::exists(other / "README.md"));
    }
    Json expected = given;
    if (type) expected[key] = name;
    EXPECT_EQ(Json::parse(file_bytes(out / "config.json")), expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, RoundTrip,
                         testing::Values("llama_tiny", "llama_tiny_tied", "llama_tiny_biases",
                                         "llama_tiny_dynamic", "llama_tiny_gelu", "mistral_tiny",
                                         "mistral_tiny_yarn", "qwen2_tiny", "qwen2_tiny_window", "qwen3_tiny",
                                         "qwen3_tiny_tied", "smollm3_tiny", "phi3_tiny", "gpt_neox_tiny",
                                         "gpt2_tiny", "lfm2_tiny", "mixtral_tiny", "olmoe_tiny",
                                         "qwen2_moe_tiny", "qwen3_moe_tiny", "lfm2_moe_tiny", "gpt_oss_tiny",
                                         "qwen3_5_tiny", "qwen3_5_moe_tiny", "qwen3_next_tiny",
                                         "gemma4_unified_tiny", "gemma4_tiny", "gemma4_tiny_moe"),
                         [](const auto& test) { return std::string(test.param); });

TEST(Export, RoundsToNearestTiesToEven) {
  const TempDir dir;
  const fs::path model = model_in(dir, "llama_tiny");
  exported(model, dir / "f16", {TensorType::F16, kShardBytes});
  exported(model, dir / "bf16", {TensorType::BF16, kShardBytes});
  int64_t rounded = 0;
  for (const char* name : {"model.embed_tokens.weight", "lm_head.weight", "model.norm.weight"}) {
    const std::vector<float> exact = values_of(model, name), half = values_of(dir / "f16", name),
                             brain = values_of(dir / "bf16", name);
    ASSERT_EQ(half.size(), exact.size());
    for (size_t i = 0; i < exact.size(); ++i) {
      EXPECT_EQ(half[i], float(F16(exact[i])));
      EXPECT_EQ(brain[i], float(Bf16(exact[i])));
      rounded += half[i] != exact[i];
    }
  }
  EXPECT_GT(rounded, 1000);
}

// Writes tensors of f32, as a file of them.
void write_f32(const fs::path& path, const std::map<std::string, std::vector<float>>& tensors,
               const std::map<std::string, std::vector<int64_t>>& shapes) {
  std::vector<TensorInfo> infos;
  for (const auto& [name, values] : tensors) infos.push_back({name, TensorType::F32, shapes.at(name)});
  SafeTensorsWriter writer = must(SafeTensorsWriter::create(path, infos));
  for (const auto& [name, values] : tensors) must(writer.write(name, 0, std::as_bytes(std::span(values))));
  must(writer.commit());
}

// The fixture's tensors, to be changed.
struct Tensors {
  explicit Tensors(const fs::path& dir) {
    const TensorFiles files = must(TensorFiles::open(dir));
    for (const std::string_view name : files.names()) {
      values[std::string(name)] = values_of(dir, name);
      shapes[std::string(name)] = must(files.get(name))->info.shape;
    }
  }
  std::map<std::string, std::vector<float>> values;
  std::map<std::string, std::vector<int64_t>> shapes;
};

TEST(Export, RefusesWhatAFormatHasNoNumberFor) {
  const TempDir dir;
  const fs::path model = model_in(dir, "llama_tiny");
  Tensors tensors(model);
  tensors.values["model.layers.1.mlp.up_proj.weight"][17] = -65520;
  write_f32(model / "model.safetensors", tensors.values, tensors.shapes);
  const std::string said = refusal(model, dir / "out", {TensorType::F16, kShardBytes});
  EXPECT_NE(said.find("tensor model.layers.1.mlp.up_proj.weight: element 17 is -65520"), std::string::npos)
      << said;
  EXPECT_FALSE(fs::exists(dir / "out") || fs::exists(dir / "out.tmp"));
  EXPECT_EQ(refusal(model, dir / "out", {TensorType::BF16, kShardBytes}), "");
  // The largest there is stays.
  tensors.values["model.layers.1.mlp.up_proj.weight"][17] = -65504;
  write_f32(model / "model.safetensors", tensors.values, tensors.shapes);
  exported(model, dir / "largest", {TensorType::F16, kShardBytes});
  EXPECT_EQ(values_of(dir / "largest", "model.layers.1.mlp.up_proj.weight")[17], -65504);
}

// Some checkpoints have the head beside an embedding that it is tied to, or buffers.
TEST(Export, WritesTheModelsTensorsAndNoOthers) {
  const TempDir dir;
  const fs::path model = model_in(dir, "llama_tiny_tied");
  const auto before = tensors_in(model);
  Tensors tensors(model);
  tensors.values["lm_head.weight"] = tensors.values["model.embed_tokens.weight"];
  tensors.shapes["lm_head.weight"] = tensors.shapes["model.embed_tokens.weight"];
  tensors.values["model.layers.0.self_attn.rotary_emb.inv_freq"] = {1, 0.1f};
  tensors.shapes["model.layers.0.self_attn.rotary_emb.inv_freq"] = {2};
  write_f32(model / "model.safetensors", tensors.values, tensors.shapes);
  const Exported done = exported(model, dir / "out");
  EXPECT_EQ(done.left_out,
            (std::vector<std::string>{"lm_head.weight", "model.layers.0.self_attn.rotary_emb.inv_freq"}));
  EXPECT_TRUE(tensors_in(dir / "out") == before);
}

TEST(Export, NamesWhatIsMissingOrHasAnotherShape) {
  const TempDir dir;
  const fs::path model = model_in(dir, "llama_tiny");
  Tensors tensors(model);
  tensors.shapes["model.norm.weight"] = {2, 16};
  write_f32(model / "model.safetensors", tensors.values, tensors.shapes);
  EXPECT_NE(refusal(model, dir / "out").find("model.norm.weight has shape [2, 16], the model needs [32]"),
            std::string::npos);
  tensors.values.erase("model.norm.weight");
  write_f32(model / "model.safetensors", tensors.values, tensors.shapes);
  EXPECT_NE(refusal(model, dir / "out").find("no tensor 'model.norm.weight'"), std::string::npos);
  EXPECT_FALSE(fs::exists(dir / "out"));
  EXPECT_NE(refusal(dir / "nowhere", dir / "out").find("there is no such folder"), std::string::npos);
}

TEST(Export, OverwritesNothing) {
  const TempDir dir;
  const fs::path model = model_in(dir, "llama_tiny");
  dir.add("full/mine", "mine");
  dir.add("file", "mine");
  dir.add("next.tmp/mine", "mine");
  for (const char* to : {"full", "file", "next", "model"}) {
    const std::string said = refusal(model, dir / to);
    EXPECT_NE(said.find("it is there already, and nothing is overwritten"), std::string::npos) << said;
  }
  for (const char* mine : {"full/mine", "file", "next.tmp/mine"}) EXPECT_EQ(file_bytes(dir / mine), "mine");
  EXPECT_FALSE(fs::exists(dir / "next") || fs::exists(dir / "full.tmp") || fs::exists(dir / "file.tmp"));
}

// Not by way of a link either, whether there is something at its end or not.
TEST(Export, FollowsNoLink) {
  const TempDir dir;
  const fs::path model = model_in(dir, "llama_tiny");
  const fs::path precious = dir.add("outside/precious", "precious");
  fs::create_symlink(dir / "outside", dir / "link");
  fs::create_symlink(dir / "nowhere", dir / "dangling");
  fs::create_symlink(dir / "outside", dir / "next.tmp");
  for (const char* to : {"link", "dangling", "next"}) {
    const std::string said = refusal(model, dir / to);
    EXPECT_NE(said.find("it is there already, and nothing is overwritten"), std::string::npos) << to << said;
  }
  EXPECT_EQ(file_bytes(precious), "precious");
  EXPECT_FALSE(fs::exists(dir / "nowhere"));
  EXPECT_EQ(std::distance(fs::directory_iterator(dir / "outside"), fs::directory_iterator()), 1);
}

TEST(Export, ThatIsStoppedLeavesNothing) {
  const TempDir dir;
  const fs::path model = model_in(dir, "llama_tiny");
  int64_t calls = 0;
  const auto done = export_model(model, dir / "out", {}, [&](std::string_view, int64_t, int64_t) -> Status {
    return ++calls == 3 ? Status(error(ErrorKind::Cancelled, "asked to stop")) : Status();
  });
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.error().kind, ErrorKind::Cancelled);
  EXPECT_FALSE(fs::exists(dir / "out") || fs::exists(dir / "out.tmp"));
}

// A run of two steps in bf16 with masters.
std::vector<std::string> with_masters(const std::string& model, const std::string& type = "f32") {
  return {"model.config=" + model, "model.weights=" + model, "train.compute=bf16", "train.master=" + type};
}

// A folder whose config.json wraps a fixture's model, which is in f32, with a tensor in bf16 beside it.
fs::path wrapped_in(const TempDir& dir, const char* fixture, const char* type) {
  const fs::path text = model_in(dir, fixture);
  Tensors tensors(text);
  std::map<std::string, std::vector<float>> values;
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const auto& [name, of] : tensors.values) values[std::string(kTextPart) + name] = of;
  for (const auto& [name, of] : tensors.shapes) shapes[std::string(kTextPart) + name] = of;
  values["vision_tower.weight"] = {1, 2.5f, -3, 1e-3f, 5, 6};
  shapes["vision_tower.weight"] = {2, 3};
  dir.add("wrapped/config.json", Json{{"model_type", type},
                                      {"text_config", Json::parse(file_bytes(text / "config.json"))},
                                      {"vision_config", {{"depth", 1}}}}
                                     .dump(1));
  write_f32(dir / "wrapped/model.safetensors", values, shapes);
  return dir / "wrapped";
}

// Adapters of a text model within another have the names of transformers' class of that.
TEST(Export, OfAnAdapterHasTheNamesOfTheModelThatWrapsItsBase) {
  constexpr std::string_view kInClass = "model.language_model.";
  const TempDir dir;
  const fs::path wrapped = wrapped_in(dir, "gemma3_tiny", "gemma3");
  const std::vector<std::string> settings{"model.config=",
                                          "model.path=" + wrapped.string(),
                                          "train.compute=f32",
                                          "adapter.rank=2",
                                          "adapter.targets=[\"q_proj\", \"layers.1.mlp\"]",
                                          "adapter.tokens=3"};
  (void)run_session(must(prepare_small(dir, settings)), 2, dir / "run");
  for (const auto& [name, bytes] : tensors_in(dir / "run"))
    EXPECT_TRUE(name.starts_with(std::string(kAdapterPart).append(kInClass))) << name;
  const Json config = Json::parse(file_bytes(dir / "run/adapter_config.json"));
  for (const std::string target : config["target_modules"])
    EXPECT_TRUE(target.starts_with(kInClass)) << target;
  ExportOptions options;
  options.base = wrapped;
  exported(dir / "run", dir / "out", options);
  EXPECT_TRUE(tensors_in(dir / "out") == tensors_in(dir / "run"));
  // Another run begins from it, with the patterns of that file.
  const RunConfig from =
      must(load_config("", {"model.path=" + (dir / "out").string(), "adapter.base=" + wrapped.string()}));
  EXPECT_EQ(must(resolve_model(from)).adapters.tokens, std::vector<int64_t>{3});
  options.merged = true;
  exported(dir / "out", dir / "merged", options);
  auto merged = tensors_in(dir / "merged"), base = tensors_in(wrapped);
  ASSERT_EQ(merged.size(), base.size());
  std::set<std::string> changed;
  for (const auto& [name, bytes] : base) {
    if (merged[name] != bytes) changed.insert(name.substr(name.rfind('.', name.rfind('.') - 1) + 1));
  }
  EXPECT_EQ(changed, (std::set<std::string>{"down_proj.weight", "embed_tokens.weight", "gate_proj.weight",
                                            "q_proj.weight", "up_proj.weight"}));
}

TEST(Export, OfAModelThatWrapsATextModelHasItsOtherTensors) {
  for (const auto& [fixture, type] : {std::pair{"gemma3_tiny", "gemma3"}, {"mistral_tiny", "mistral3"}}) {
    const TempDir dir;
    const fs::path wrapped = wrapped_in(dir, fixture, type);
    std::ofstream(wrapped / "processor_config.json") << "{}";
    exported(wrapped, dir / "out");
    EXPECT_EQ(file_bytes(dir / "out/processor_config.json"), "{}");
    EXPECT_TRUE(tensors_in(dir / "out") == tensors_in(wrapped));
    EXPECT_EQ(file_bytes(dir / "out/config.json"), file_bytes(wrapped / "config.json"));
    // In another format than the text model's.
    exported(wrapped, dir / "bf16", {TensorType::BF16});
    EXPECT_EQ(tensors_in(dir / "bf16")["vision_tower.weight"], tensors_in(wrapped)["vision_tower.weight"]);
    EXPECT_NE(tensors_in(dir / "bf16"), tensors_in(wrapped));

    // Trained, it is a text model, until it is put into the whole again.
    std::vector<std::string> settings{"model.config=" + wrapped.string(), "model.weights=" + wrapped.string(),
                                      "train.compute=f32"};
    (void)run_session(must(prepare_small(dir, settings)), 2, dir / "run");
    const auto trained = tensors_in(dir / "run");
    EXPECT_FALSE(trained.contains("vision_tower.weight"));
    EXPECT_FALSE(fs::exists(dir / "run/processor_config.json"));
    EXPECT_EQ(Json::parse(file_bytes(dir / "run/config.json"))["model_type"],
              parse_model_config(file_bytes(wrapped / "config.json"))->family);
    exported(dir / "run", dir / "again", {.around = wrapped});
    auto expected = tensors_in(wrapped);
    for (const auto& [name, tensor] : trained) expected.at(std::string(kTextPart) + name) = tensor;
    EXPECT_TRUE(tensors_in(dir / "again") == expected);
    EXPECT_EQ(file_bytes(dir / "again/config.json"), file_bytes(wrapped / "config.json"));
    EXPECT_EQ(file_bytes(dir / "again/processor_config.json"), "{}");
    EXPECT_NE(refusal(dir / "run", dir / "no", {.around = dir / "model"}).find("wraps no text model"),
              std::string::npos);
  }
}

// Experts of a layer in one tensor, as transformers' classes have them.
void stack_experts(std::map<std::string, std::vector<float>>& values,
                   std::map<std::string, std::vector<int64_t>>& shapes) {
  constexpr std::string_view kExperts = ".mlp.experts.";
  for (auto at = values.begin(); at != values.end();) {
    const std::string name = at->first;
    const size_t end = name.find(kExperts);
    if (end == name.npos || name.ends_with("_up_proj") || name.ends_with("experts.down_proj")) {
      ++at;
      continue;
    }
    const bool down = name.ends_with(".down_proj.weight");
    const std::string whole = name.substr(0, end) + ".mlp.experts." + (down ? "down_proj" : "gate_up_proj");
    values[whole].insert(values[whole].end(), at->second.begin(), at->second.end());
    std::vector<int64_t>& shape = shapes[whole];
    if (shape.empty()) shape = {0, 0, shapes.at(name)[1]};
    shape[0] += name.ends_with(".up_proj.weight") ? 0 : 1;
    shape[1] = int64_t(values[whole].size()) / shape[0] / shape[2];
    shapes.erase(name);
    at = values.erase(at);
  }
}

TEST(Export, AroundAModelWhoseExpertsAreOneTensorWritesThemSo) {
  const TempDir dir;
  const fs::path apart = wrapped_in(dir, "qwen3_5_moe_tiny", "qwen3_5_moe");
  const auto in_one = [](Tensors tensors) {
    stack_experts(tensors.values, tensors.shapes);
    return tensors;
  };
  const Tensors whole = in_one(Tensors(apart));
  EXPECT_LT(whole.values.size(), Tensors(apart).values.size());
  dir.add("stacked/config.json", file_bytes(apart / "config.json"));
  write_f32(dir / "stacked/model.safetensors", whole.values, whole.shapes);
  exported(dir / "stacked", dir / "out");
  EXPECT_TRUE(tensors_in(dir / "out") == tensors_in(dir / "stacked"));

  const std::string folder = (dir / "stacked").string();
  (void)run_session(
      must(prepare_small(dir, {"model.config=" + folder, "model.weights=" + folder, "train.compute=f32"})), 2,
      dir / "run");
  exported(dir / "run", dir / "again", {.around = folder});
  const Tensors trained = in_one(Tensors(dir / "run")), again(dir / "again");
  EXPECT_EQ(again.shapes, whole.shapes);
  int compared = 0;
  for (const auto& [name, values] : trained.values) {
    EXPECT_EQ(again.values.at(std::string(kTextPart) + name), values) << name;
    compared += values != whole.values.at(std::string(kTextPart) + name);
  }
  EXPECT_GT(compared, 4);

  // Other tensors by name.
  exported(dir / "run", dir / "less", {.around = folder, .without = "vision_tower"});
  EXPECT_FALSE(tensors_in(dir / "less").contains("vision_tower.weight"));
  EXPECT_EQ(tensors_in(dir / "less").size() + 1, tensors_in(dir / "again").size());
  const std::string refused = refusal(dir / "run", dir / "no", {.around = folder, .without = "mtp"});
  EXPECT_NE(refused.find("--without mtp"), refused.npos) << refused;
  EXPECT_NE(refused.find("allowed are vision_tower"), refused.npos) << refused;
}

// A checkpoint in its own format and in f32, and what exports make of the first.
struct Masters {
  const char *type, *model, *tensor;
};
void PrintTo(const Masters& m, std::ostream* out) {
  *out << m.model << "_" << m.type;
}
class ExportOfMasters : public testing::TestWithParam<Masters> {};
// One is of two weights' rows, and one has its rows in another order.
INSTANTIATE_TEST_SUITE_P(Types, ExportOfMasters,
                         testing::Values(Masters{"f32", "qwen3_tiny", "self_attn.k_proj"},
                                         Masters{"i8", "qwen3_tiny", "self_attn.k_proj"},
                                         Masters{"f32", "phi3_tiny", "self_attn.qkv_proj"},
                                         Masters{"f32", "glm4_tiny", "self_attn.k_proj"}),
                         testing::PrintToStringParamName());

TEST_P(ExportOfMasters, TakesThemFromACheckpoint) {
  const TempDir dir;
  const std::string model = model_in(dir, GetParam().model).string();
  std::vector<std::string> settings = with_masters(model, GetParam().type);
  (void)run_session(must(prepare_small(dir, settings)), 2, dir / "own");
  settings.emplace_back("run.export_dtype=f32");
  (void)run_session(must(prepare_small(dir, settings)), 2, dir / "f32");
  const Exported wide = exported(dir / "own", dir / "wide", {TensorType::F32, kShardBytes});
  EXPECT_TRUE(wide.from_masters);
  EXPECT_TRUE(tensors_in(dir / "wide") == tensors_in(dir / "f32"));
  EXPECT_EQ(Json::parse(file_bytes(dir / "wide/config.json")),
            Json::parse(file_bytes(dir / "f32/config.json")));
  const Exported same = exported(dir / "own", dir / "same", {TensorType::BF16, kShardBytes});
  EXPECT_FALSE(same.from_masters);
  EXPECT_TRUE(tensors_in(dir / "same") == tensors_in(dir / "own"));
  // f16 is finer than bf16: what is rounded are the masters.
  exported(dir / "own", dir / "f16", {TensorType::F16, kShardBytes});
  const std::string name = fmt::format("model.layers.0.{}.weight", GetParam().tensor);
  const std::vector<float> masters = values_of(dir / "f32", name), half = values_of(dir / "f16", name);
  for (size_t i = 0; i < masters.size(); ++i) EXPECT_EQ(half[i], float(F16(masters[i])));
  expect_same_files(dir / "f16", model);
}

// Rows of a tensor that two weights have get one format, though those of keys and values alone are few enough
// for f32; also where their order is another.
TEST(Export, OfRowsOfOneTensorTakesMastersOfOneType) {
  const TempDir dir;
  Json config = Json::parse(file_bytes(fs::path(SLUICE_FIXTURES) / "phi3_tiny/config.json"));
  config.update({{"hidden_size", 32}, {"num_attention_heads", 4}, {"num_key_value_heads", 1}});
  config.update({{"intermediate_size", 64}, {"vocab_size", 64}, {"partial_rotary_factor", 0.5}});
  dir.add("model/config.json", config.dump());
  std::vector<std::string> settings = {"model.config=" + (dir / "model").string(), "train.compute=bf16",
                                       "train.master=i8"};
  (void)run_session(must(prepare_small(dir, settings)), 2, dir / "own");
  const auto state = must(SafeTensorsFile::open(dir / "own/optimizer.safetensors"));
  for (const char* master : {"master_wq.L0.p0", "master_wkv.L0.p0"}) {
    const auto of =
        std::ranges::find(state.tensors(), master, [](const SafeTensor& t) { return t.info.name; });
    ASSERT_NE(of, state.tensors().end()) << master;
    EXPECT_EQ(of->info.type, TensorType::I8) << master;
  }
  settings.emplace_back("run.export_dtype=f32");
  (void)run_session(must(prepare_small(dir, settings)), 2, dir / "f32");
  EXPECT_TRUE(exported(dir / "own", dir / "wide", {TensorType::F32, kShardBytes}).from_masters);
  EXPECT_TRUE(tensors_in(dir / "wide") == tensors_in(dir / "f32"));
}

// Parts of masters are all of one type; and what bytes make of weights is finite.
TEST(Export, OfForgedMastersIsRefused) {
  const TempDir dir;
  const std::string model = model_in(dir, "qwen3_tiny").string();
  const auto part = [](int index, TensorType type) {
    constexpr int64_t kElements = 576;  // half of the weight's
    return ForgedTensor{{fmt::format("master_wgu.L0.p{}", index), type, {kElements}},
                        std::vector<std::byte>(size_t(kElements * size_of(type)))};
  };
  using enum TensorType;
  for (const auto& [first, second] : {std::pair{I8, F32}, {I8, U8}, {F32, I8}, {F32, U8}}) {
    std::filesystem::remove_all(dir / "saved");
    (void)run_session(must(prepare_small(dir, with_masters(model, "i8"))), 1, dir / "saved");
    forge(dir / "saved", "optimizer.safetensors", "master_wgu.L0.p0", {part(0, first), part(1, second)});
    const std::string said = refusal(dir / "saved", dir / "out", {F32, kShardBytes});
    EXPECT_NE(said.find("or of several types"), std::string::npos) << said;
  }
}

TEST(Export, OfMastersThatAreNotFiniteIsRefused) {
  const TempDir dir;
  const std::string model = model_in(dir, "qwen3_tiny").string(),
                    name = "model.layers.0.mlp.gate_proj.weight";
  (void)run_session(must(prepare_small(dir, with_masters(model, "i8"))), 1, dir / "saved");
  const auto tensor = [&](const char* file, const std::string& of) {
    const auto from = must(SafeTensorsFile::open(dir / "saved" / file));
    for (const SafeTensor& t : from.tensors())
      if (t.info.name == of) return ForgedTensor{t.info, {t.bytes.begin(), t.bytes.end()}};
    return ForgedTensor{};
  };
  ForgedTensor weights = tensor("model.safetensors", name),
               bytes = tensor("optimizer.safetensors", "master_wgu.L0.p0");
  weights.bytes[0] = weights.bytes[1] = std::byte{0};
  bytes.bytes[0] = std::byte{0x80};  // zero less something is the largest number with its sign, which is none
  forge(dir / "saved", "model.safetensors", name, {weights});
  forge(dir / "saved", "optimizer.safetensors", "master_wgu.L0.p0", {bytes});
  const std::string said = refusal(dir / "saved", dir / "out", {TensorType::F32, kShardBytes});
  EXPECT_NE(said.find("element 0 is -nan; only finite values can be trained on"), std::string::npos) << said;
  for (const char* master : {"train.master=i8", "train.master=f32"}) {
    RunConfig config = must(load_config(
        "", small_run(dir, {"model.config=" + model, "model.weights=" + model, "train.compute=bf16",
                            "train.state=i8", master, "run.resume=" + (dir / "saved").string()})));
    config.allow = {"formats"};
    const auto session = Session::open(must(prepare(config, "", false)));
    ASSERT_FALSE(session.ok()) << master;
    EXPECT_NE(session.message().find("element 0 is -nan"), std::string::npos) << session.message();
  }
}

TEST(Export, OfARunIsItsNewestCheckpoint) {
  const TempDir dir;
  const Prepared prepared = must(prepare_small(dir));
  const auto session = must(Session::open(prepared));
  CheckpointStore store = must(CheckpointStore::open(checkpoints_in(dir / "run")));
  for (int64_t step = 1; step <= 2; ++step) {
    (void)must(session->step());
    must(session->save(store));
  }
  const Exported done = exported(dir / "run", dir / "out");
  EXPECT_EQ(done.from, dir / "run/checkpoints/step-2");
  EXPECT_TRUE(tensors_in(dir / "out") == tensors_in(dir / "run/checkpoints/step-2"));
}

TEST(Export, OfADamagedCheckpointIsRefused) {
  const TempDir dir;
  const std::string model = model_in(dir, "qwen3_tiny").string();
  (void)run_session(must(prepare_small(dir, with_masters(model))), 1, dir / "saved");
  for (const char* file : {"model.safetensors", "optimizer.safetensors", "tokenizer.json"}) {
    const std::string whole = file_bytes(dir / "saved" / file);
    std::string bytes = whole;
    bytes.back() = char(bytes.back() ^ 1);
    dir.add(std::string("saved/") + file, bytes);
    const std::string said = refusal(dir / "saved", dir / "out", {TensorType::F32, kShardBytes});
    EXPECT_NE(said.find(std::string(file) + ": it is damaged"), std::string::npos) << said;
    EXPECT_FALSE(fs::exists(dir / "out") || fs::exists(dir / "out.tmp"));
    dir.add(std::string("saved/") + file, whole);
  }
  EXPECT_EQ(refusal(dir / "saved", dir / "out", {TensorType::F32, kShardBytes}), "");
}

// What llama.cpp computes otherwise is said when the folder is made, and only then.
TEST(Export, SaysWhatOthersWouldDoOtherwise) {
  const auto notices = [](const char* fixture, const char* key, const Json& value) {
    const TempDir dir;
    const fs::path model = model_in(dir, fixture);
    if (key != nullptr) {
      Json config = Json::parse(file_bytes(model / "config.json"));
      config[key] = value;
      dir.add("model/config.json", config.dump());
    }
    std::string all;
    for (const std::string& notice : exported(model, dir / "out").notices) all += notice + "\n";
    return all;
  };
  // model_in() puts a key into it.
  EXPECT_EQ(notices("llama_tiny", nullptr, {}),
            "config.json has keys that Sluice does not know, and passes over: of_somebody_else\n");
  // Of what families usually are nothing is said.
  for (const char* other : {"gemma_tiny", "gpt2_tiny", "granite_tiny", "lfm2_tiny", "glm4_tiny_plain"})
    EXPECT_EQ(notices(other, nullptr, {}).find("llama.cpp"), std::string::npos) << other;
  EXPECT_NE(notices("gemma3_tiny", "layer_types", Json::array({"full_attention", "sliding_attention"}))
                .find("windows where they have them usually"),
            std::string::npos);
  EXPECT_NE(notices("starcoder2_tiny", "sliding_window", 4).find("llama.cpp passes the window over"),
            std::string::npos);
  EXPECT_NE(notices("qwen2_tiny_window", nullptr, {}).find("llama.cpp passes the window over"),
            std::string::npos);
  EXPECT_NE(notices("llama_tiny_gelu", nullptr, {}).find("to be silu, which are gelu"), std::string::npos);
  EXPECT_NE(notices("llama_tiny_dynamic", nullptr, {}).find("rope_type dynamic over: texts of more than "),
            std::string::npos);
  const std::string each_second = notices("smollm3_tiny", "no_rope_layers", {1, 0, 1, 0});
  EXPECT_NE(each_second.find("layers that are not rotated"), std::string::npos) << each_second;
  EXPECT_EQ(notices("smollm3_tiny", "no_rope_layers", {1, 1, 1, 0}).find("not rotated"), std::string::npos);

  const TempDir dir;
  const fs::path model = model_in(dir, "llama_tiny");
  fs::remove(model / "tokenizer_config.json");
  const auto without = exported(model, dir / "out").notices;
  ASSERT_EQ(without.size(), 2u);
  EXPECT_NE(without[1].find("PreTrainedTokenizerFast"), std::string::npos) << without[1];
}

}  // namespace
}  // namespace sluice::core
