// SPDX-License-Identifier: Apache-2.0
// Runs on folders whose matrices are codes with scales, beside the same runs on folders that have their
// values as numbers.
#include <cstring>

#include "checkpoint/export.h"
#include "checkpoint/found_tensor.h"
#include "checkpoint/weights.h"
#include "io/elements.h"
#include "io/safetensors.h"
#include "model/families/families.h"
#include "ops/packed.h"
#include "run/inputs/resolve.h"
#include "run/small_session.h"
#include "search/refusal.h"

namespace sluice::core {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfig =
    R"("model_type": "llama", "hidden_size": 64, "intermediate_size": 192, "num_hidden_layers": 2, )"
    R"("num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 97)";
constexpr const char* kExperts =
    R"("model_type": "qwen3_moe", "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1, )"
    R"("num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32, "vocab_size": 97, "num_experts": 4, )"
    R"("num_experts_per_tok": 2, "moe_intermediate_size": 64)";
constexpr const char* kCompressed =
    R"({"quant_method": "compressed-tensors", "format": "float-quantized", "config_groups": {"group_0":
        {"weights": {"num_bits": 8, "type": "float", "strategy": "channel"}}}})";

struct Tensor {
  TensorInfo info;
  std::vector<std::byte> bytes;
};

void write_folder(const fs::path& folder, const std::string& config, const std::vector<Tensor>& tensors) {
  fs::create_directories(folder);
  must(write_file(folder / "config.json", config));
  std::vector<TensorInfo> infos;
  for (const Tensor& tensor : tensors) infos.push_back(tensor.info);
  SafeTensorsWriter writer = must(SafeTensorsWriter::create(folder / "model.safetensors", infos));
  for (const Tensor& tensor : tensors) must(writer.write(tensor.info.name, 0, tensor.bytes));
  must(writer.commit());
}

std::vector<std::byte> bytes_of(std::span<const float> values) {
  const auto bytes = std::as_bytes(values);
  return {bytes.begin(), bytes.end()};
}

// A form in which folders have matrices of layers.
struct Form {
  const char* name;
  const char* config;
  // Tensors for a matrix, with numbers of a random generator.
  std::vector<Tensor> (*make)(const std::string& name, int64_t rows, int64_t cols, std::span<const float>);
};

std::vector<Tensor> in_fp8(const std::string& name, int64_t rows, int64_t cols, std::span<const float> draws,
                           int64_t block_rows, int64_t block_cols, const char* ending) {
  std::vector<std::byte> codes;
  for (const float x : draws) codes.push_back(std::byte{E4m3::code(x * 1000)});
  const int64_t down = (rows + block_rows - 1) / block_rows, along = (cols + block_cols - 1) / block_cols;
  std::vector<float> scales;
  for (int64_t s = 0; s < down * along; ++s) scales.push_back(1e-3f + 1e-4f * draws[size_t(s)]);
  return {{{name, TensorType::F8_E4M3, {rows, cols}}, codes},
          {{name + ending, TensorType::F32, {down, along}}, bytes_of(scales)}};
}

std::vector<Tensor> in_nf4(const std::string& name, int64_t rows, int64_t cols,
                           std::span<const float> draws) {
  const std::string state = fmt::format(R"({{"blocksize": 64, "shape": [{}, {}]}})", rows, cols);
  std::vector<std::byte> codes, text;
  for (size_t i = 0; i < draws.size() / 2; ++i) codes.push_back(std::byte(int(draws[i] * 1e4f) & 255));
  for (const char c : state) text.push_back(std::byte(c));
  std::vector<float> absmax;
  for (int64_t b = 0; b < rows * cols / 64; ++b) absmax.push_back(0.05f + 0.1f * draws[size_t(b)]);
  return {{{name, TensorType::U8, {rows * cols / 2, 1}}, codes},
          {{name + ".absmax", TensorType::F32, {int64_t(absmax.size())}}, bytes_of(absmax)},
          {{name + ".quant_map", TensorType::F32, {16}}, bytes_of(kNf4Codes)},
          {{name + ".quant_state.bitsandbytes__nf4", TensorType::U8, {int64_t(text.size())}}, text}};
}

const Form kForms[] = {
    {"blocks", R"({"quant_method": "fp8", "weight_block_size": [128, 32]})",
     [](const std::string& name, int64_t rows, int64_t cols, std::span<const float> draws) {
       return in_fp8(name, rows, cols, draws, 128, 32, "_scale_inv");
     }},
    {"compressed", kCompressed,
     [](const std::string& name, int64_t rows, int64_t cols, std::span<const float> draws) {
       return in_fp8(name, rows, cols, draws, 1, cols, "_scale");
     }},
    {"nf4", R"({"quant_method": "bitsandbytes", "load_in_4bit": true, "bnb_4bit_quant_type": "nf4"})",
     in_nf4}};

class PackedBases : public testing::TestWithParam<size_t> {
 protected:
  // Both folders: of codes, and of their values. `plain`: the end of a name of which both have numbers.
  void write_folders(std::string_view plain, const char* config = kConfig) {
    const Form& form = kForms[GetParam()];
    const ModelSpec spec = must(parse_model_config(fmt::format("{{{}}}", config)));
    std::vector<Tensor> codes, numbers;
    for (const Weight& weight : weights_of(spec)) {
      int64_t first = 0;
      for (const WeightSource& source : weight.sources) {
        std::vector<float> draws;
        random_values(weight, 5, first, source.elements(), draws);
        first += source.elements();
        const Tensor own{{source.tensor, TensorType::F32, source.shape(weight.matrix)}, bytes_of(draws)};
        numbers.push_back(own);
        if (!weight.matrix || weight.layer < 0 || weight.part == ModelPart::Router ||
            (!plain.empty() && source.tensor.ends_with(plain))) {
          codes.push_back(own);
          continue;
        }
        for (Tensor& tensor : form.make(source.tensor, source.rows, source.cols, draws))
          codes.push_back(std::move(tensor));
      }
    }
    write_folder(folder("codes"), fmt::format(R"({{"quantization_config": {}, {}}})", form.config, config),
                 codes);
    const TensorFiles files = must(TensorFiles::open(folder("codes")));
    for (Tensor& tensor : numbers) {
      const auto packed = must(PackedTensor::find(files, tensor.info.name, tensor.info.shape));
      if (!packed) continue;
      std::vector<float> values(size_t(tensor.info.elements()));
      must(packed->read(0, values));
      tensor.bytes = bytes_of(values);
    }
    write_folder(folder("numbers"), fmt::format("{{{}}}", config), numbers);
  }
  fs::path folder(const char* name) const { return dir_ / name; }
  Result<Prepared> prepare_on(const char* name, std::vector<std::string> more) const {
    std::vector<std::string> settings = small_run(dir_);
    std::erase_if(settings, [](const std::string& s) { return s.starts_with("model."); });
    settings.push_back("model.path=" + folder(name).string());
    settings.insert(settings.end(), more.begin(), more.end());
    return prepare(must(load_config("", settings)), "", false);
  }
  std::vector<double> losses(const char* name, std::vector<std::string> more) const {
    const Prepared p = must(prepare_on(name, std::move(more)));
    return run_session(p, 2, dir_ / fmt::format("saved{}", saved_++));
  }
  TempDir dir_;
  mutable int saved_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Forms, PackedBases, testing::Range(size_t{0}, std::size(kForms)),
                         [](const auto& test) { return std::string(kForms[test.param].name); });

int64_t packed_weights(const Prepared& p) {
  return std::ranges::count_if(weights_of(p.model), is_packed);
}

// Adapters beside codes, which stay what they are; some of the folder's may be numbers, such as keys beside
// values that they are multiplied at once with.
TEST_P(PackedBases, GiveTheLossesOfTheirValues) {
  write_folders("1.self_attn.k_proj.weight");
  const std::string adapter = "adapter.rank=2";
  const Prepared codes = must(prepare_on("codes", {adapter}));
  EXPECT_EQ(packed_weights(codes), 2 * 5);
  EXPECT_EQ(weights_of(codes.model).size(), stacks_of(codes.model).size() + 1);
  EXPECT_EQ(run_session(codes, 2, dir_ / "whole"), losses("numbers", in_shape_of(codes, {adapter})));
  // By gradients of the same bits, in every layer.
  EXPECT_EQ(file_bytes(dir_ / "whole/adapter_model.safetensors"),
            file_bytes(dir_ / "saved0/adapter_model.safetensors"));
  // An adapter goes with the values, whichever folder has them.
  const auto going_on = must(prepare_on("numbers", {adapter, "adapter.path=" + (dir_ / "whole").string()}));
  EXPECT_TRUE(Session::open(going_on).ok());
}

// Norms of rows are those of the values, and so are magnitudes, which begin as these.
TEST_P(PackedBases, GiveTheLossesOfTheirValuesWithMagnitudes) {
  write_folders("1.up_proj.weight");
  const std::vector<std::string> adapter{"adapter.rank=2", "adapter.dora=true"};
  const Prepared codes = must(prepare_on("codes", adapter));
  EXPECT_EQ(packed_weights(codes), 2 * 5);
  EXPECT_EQ(run_session(codes, 2, dir_ / "whole"), losses("numbers", in_shape_of(codes, adapter)));
  EXPECT_EQ(file_bytes(dir_ / "whole/adapter_model.safetensors"),
            file_bytes(dir_ / "saved0/adapter_model.safetensors"));
}

TEST_P(PackedBases, HaveExpertsInCodesBesideAdapters) {
  write_folders("experts.2.up_proj.weight", kExperts);
  for (const std::vector<std::string>& adapter :
       {std::vector<std::string>{"adapter.rank=2"},
        {"adapter.rank=2", "adapter.targets=[\"self_attn\", \"experts\"]"}}) {
    const Prepared codes = must(prepare_on("codes", adapter));
    EXPECT_EQ(packed_weights(codes), 3 + 2 + 1);
    EXPECT_EQ(run_session(codes, 2, dir_ / fmt::format("whole{}", adapter.size())),
              losses("numbers", in_shape_of(codes, adapter)));
  }
}

class BasesInNf4 : public PackedBases {};
INSTANTIATE_TEST_SUITE_P(Plans, BasesInNf4, testing::Values(std::size(kForms) - 1));

// Under the least cap, and on two devices.
TEST_P(BasesInNf4, GiveThemUnderOtherPlans) {
  write_folders("");
  const Prepared codes = must(prepare_on("codes", {"adapter.rank=2"}));
  const std::vector<double> expected = run_session(codes, 2, dir_ / "whole");
  std::vector<std::string> other = in_shape_of(codes, {"adapter.rank=2", "memory.device=4KiB"});
  const auto too_little = prepare_on("codes", other);
  ASSERT_FALSE(too_little.ok());
  other[1] = fmt::format("memory.device={}B", *too_little.error().shortage->need_bytes);
  EXPECT_EQ(losses("codes", other), expected);
  other[1] = "run.devices=2";
  EXPECT_EQ(losses("codes", other), expected);
}

// What is trained, or lies in checkpoints, begins from the values.
TEST_P(PackedBases, AreNumbersWhereTheyAreTrainedOrFrozen) {
  write_folders("");
  for (const std::vector<std::string>& more : {std::vector<std::string>{},
                                               {"train.freeze=[\"model.layers\"]"},
                                               {"adapter.rank=2", "model.base_format=nf4"}})
    EXPECT_EQ(losses("codes", more), losses("numbers", more));
  const auto refused = prepare_on("codes", {"train.freeze=[\"model.layers\"]", "model.base_format=nf4"});
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.message().find("model.base_format = nf4: checkpoints have what train.freeze names"),
            std::string::npos)
      << refused.message();
}

TEST_P(PackedBases, AreExportedAsNumbers) {
  write_folders("");
  const auto quiet = [](std::string_view, int64_t, int64_t) { return Status(); };
  const auto refused = export_model(folder("codes"), folder("refused"), {}, quiet);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.message().find("--dtype says of which type"), std::string::npos) << refused.message();
  const Exported exported =
      must(export_model(folder("codes"), folder("exported"), {.type = TensorType::F32}, quiet));
  EXPECT_EQ(exported.left_out, std::vector<std::string>());
  const TensorFiles got = must(TensorFiles::open(folder("exported")));
  const TensorFiles expected = must(TensorFiles::open(folder("numbers")));
  EXPECT_EQ(got.names(), expected.names());
  for (const std::string_view name : got.names())
    EXPECT_TRUE(std::ranges::equal(must(got.get(name))->bytes, must(expected.get(name))->bytes)) << name;
  EXPECT_EQ(must(read_file(folder("exported") / "config.json")).find("quantization_config"),
            std::string::npos);
}

}  // namespace
}  // namespace sluice::core
