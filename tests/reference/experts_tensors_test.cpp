// SPDX-License-Identifier: Apache-2.0
// Folders that have experts otherwise than they are written: those of a layer in one tensor, and in MXFP4.
#include <gtest/gtest.h>

#include <algorithm>

#include "checkpoint/export.h"
#include "reference/fixture.h"
#include "support/temp_dir.h"

namespace sluice::core {
namespace {

const ExportProgress kQuiet = [](std::string_view, int64_t, int64_t) { return Status(); };
constexpr StepShape kShape{64, 64, 1, 1, 64};

struct Held {
  TensorInfo info;
  std::vector<std::byte> bytes;
};

void write_folder(const TempDir& to, const Fixture& fixture, const std::vector<Held>& tensors) {
  to.add("config.json", rig::must(read_file(fixture.dir / "config.json")));
  std::vector<TensorInfo> infos;
  for (const Held& held : tensors) infos.push_back(held.info);
  SafeTensorsWriter writer = rig::must(SafeTensorsWriter::create(to / "model.safetensors", infos));
  for (const Held& held : tensors) rig::must(writer.write(held.info.name, 0, held.bytes));
  rig::must(writer.commit());
}

std::vector<Held> tensors_of(const Fixture& fixture) {
  const TensorFiles files = rig::must(TensorFiles::open(fixture.dir));
  std::vector<Held> out;
  for (const std::string_view name : files.names()) {
    const SafeTensor* tensor = rig::must(files.get(name));
    out.push_back({tensor->info, {tensor->bytes.begin(), tensor->bytes.end()}});
  }
  return out;
}

// Those of experts put into one tensor of a layer, as transformers' classes hold them.
std::vector<Held> stacked(const Fixture& fixture) {
  const TensorFiles files = rig::must(TensorFiles::open(fixture.dir));
  std::map<std::string, Held> out;
  for (const std::string_view name : files.names()) {
    const SafeTensor* tensor = rig::must(files.get(name));
    out[std::string(name)] = {tensor->info, {tensor->bytes.begin(), tensor->bytes.end()}};
  }
  const TensorNames& names = fixture.config.names;
  for (size_t l = 0; l < fixture.config.layers.size(); ++l) {
    const Experts* const experts = fixture.config.layers[l].experts();
    const int64_t count = experts != nullptr ? experts->count : 0;
    const std::string of_layer = fmt::format("{}.{}.{}", names.layers, l, names.experts);
    for (int64_t expert = 0; expert < count; ++expert) {
      for (const char* part : {names.expert_gate, names.expert_up, names.expert_down}) {
        const auto own = out.extract(fmt::format("{}.{}.{}.weight", of_layer, expert, part));
        const bool down = part == std::string_view(names.expert_down);
        Held& whole = out[of_layer + (down ? ".down_proj" : ".gate_up_proj")];
        const Held& piece = own.mapped();
        const int64_t rows = piece.info.shape[0] * (down ? 1 : 2);
        whole.info = {of_layer + (down ? ".down_proj" : ".gate_up_proj"),
                      piece.info.type,
                      {count, rows, piece.info.shape[1]}};
        whole.bytes.insert(whole.bytes.end(), piece.bytes.begin(), piece.bytes.end());
      }
    }
  }
  std::vector<Held> list;
  for (auto& [name, held] : out) list.push_back(std::move(held));
  return list;
}

void expect_tensors(const TensorFiles& got, const std::vector<Held>& expected) {
  ASSERT_EQ(got.names().size(), expected.size());
  for (const Held& held : expected) {
    const SafeTensor* tensor = rig::must(got.get(held.info.name));
    EXPECT_EQ(tensor->info.shape, held.info.shape) << held.info.name;
    EXPECT_TRUE(std::ranges::equal(tensor->bytes, held.bytes)) << held.info.name;
  }
}

class InOneTensor : public testing::TestWithParam<const char*> {};

// A checkpoint has them apart, an export as the folder has them.
TEST_P(InOneTensor, ExpertsAreReadAndExported) {
  Fixture fixture(GetParam());
  const std::vector<Held> apart = tensors_of(fixture), in_one = stacked(fixture);
  ASSERT_LT(in_one.size(), apart.size());
  const TempDir folder, out;
  write_folder(folder, fixture, in_one);
  fixture.dir = folder.path();
  const auto run = open_fixture(fixture, kShape, {});
  rig::must(save_weights(run->model(), out / "model.safetensors", run->training()));
  expect_tensors(rig::must(TensorFiles::open(out / "model.safetensors")), apart);
  const Exported exported = rig::must(export_model(folder.path(), out / "exported", {}, kQuiet));
  EXPECT_EQ(exported.left_out, std::vector<std::string>());
  expect_tensors(rig::must(TensorFiles::open(out / "exported")), in_one);
}

INSTANTIATE_TEST_SUITE_P(Models, InOneTensor,
                         testing::Values("mixtral_tiny", "qwen3_moe_tiny", "lfm2_moe_tiny"),
                         [](const auto& test) { return std::string(test.param); });

TEST(InOneTensor, OfAnotherShapeIsRefusedByName) {
  Fixture fixture("qwen3_moe_tiny");
  std::vector<Held> in_one = stacked(fixture);
  const auto down = std::ranges::find_if(
      in_one, [](const Held& held) { return held.info.name.ends_with("1.mlp.experts.down_proj"); });
  std::swap(down->info.shape[1], down->info.shape[2]);
  const TempDir folder;
  write_folder(folder, fixture, in_one);
  const auto run = open_fixture(fixture, kShape, {});
  const Status loaded = load_weights(run->model(), folder.path(), run->training());
  ASSERT_FALSE(loaded.ok());
  EXPECT_NE(loaded.message().find("model.layers.1.mlp.experts.down_proj has shape [12, 8, 16], the model "
                                  "needs [12, 16, 8]"),
            std::string::npos)
      << loaded.message();
}

// Its gradients are compared with transformers' in gradients_test.cpp.
TEST(Mxfp4, IsReadAndWrittenAsNumbers) {
  const Fixture fixture("gpt_oss_tiny_mxfp4");
  const auto run = open_fixture(fixture, kShape, {});
  const TempDir out;
  rig::must(save_weights(run->model(), out / "model.safetensors", run->training()));
  out.add("config.json", config_beside_weights(fixture.config, "float32", 128));
  const std::string config = rig::must(read_file(out / "config.json"));
  EXPECT_EQ(config.find("quantization_config"), std::string::npos);
  EXPECT_NE(config.find("swiglu_limit"), std::string::npos);
  const TensorFiles files = rig::must(TensorFiles::open(out.path()));
  EXPECT_EQ(rig::must(files.get("model.layers.0.mlp.experts.down_proj"))->info.shape,
            (std::vector<int64_t>{3, 32, 32}));
  // Once more, as numbers.
  Fixture again("gpt_oss_tiny_mxfp4");
  again.dir = out.path();
  const auto second = open_fixture(again, kShape, {});
  rig::must(save_weights(second->model(), out / "second.safetensors", second->training()));
  EXPECT_EQ(rig::must(read_file(out / "second.safetensors")),
            rig::must(read_file(out / "model.safetensors")));
}

TEST(Mxfp4, OfWhichSomethingIsWrongIsRefusedByName) {
  const Fixture fixture("gpt_oss_tiny_mxfp4");
  const auto run = open_fixture(fixture, kShape, {});
  const std::string part = "model.layers.0.mlp.experts.gate_up_proj";
  const auto refusal = [&](auto&& spoil) {
    std::vector<Held> tensors = tensors_of(fixture);
    spoil(*std::ranges::find(tensors, part + "_scales", [](const Held& held) { return held.info.name; }));
    const TempDir folder;
    write_folder(folder, fixture, tensors);
    const Status loaded = load_weights(run->model(), folder.path(), run->training());
    return loaded.ok() ? std::string() : loaded.message();
  };
  EXPECT_EQ(refusal([](Held&) {}), "");
  const std::string infinite = refusal([](Held& scales) { scales.bytes[70] = std::byte{255}; });
  EXPECT_NE(infinite.find(part + "_scales: element 70 is "), std::string::npos) << infinite;
  const std::string missing = refusal([](Held& scales) { scales.info.name += "s"; });
  EXPECT_NE(missing.find("no tensor '" + part + "_scales'"), std::string::npos) << missing;
  const std::string type = refusal([](Held& scales) { scales.info.type = TensorType::I8; });
  EXPECT_NE(type.find(part + "_scales is of I8, and U8 is needed"), std::string::npos) << type;
  const std::string size = refusal([](Held& scales) {
    scales.info.shape[0] = 1;
    scales.bytes.resize(scales.bytes.size() / 3);
  });
  EXPECT_NE(size.find(part + "_scales has 64 bytes, the model needs 192"), std::string::npos) << size;
}

// An export of the folder itself has what a checkpoint has, in the type that is asked for.
TEST(Mxfp4, IsExportedAsNumbers) {
  const Fixture fixture("gpt_oss_tiny_mxfp4");
  const TempDir out;
  const auto refused = export_model(fixture.dir, out / "refused", {}, kQuiet);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.message().find("has codes, which are written as numbers: --dtype says of which type"),
            std::string::npos)
      << refused.message();
  const auto run = open_fixture(fixture, kShape, {});
  rig::must(save_weights(run->model(), out / "model.safetensors", run->training()));
  ExportOptions options;
  options.type = TensorType::F32;
  EXPECT_EQ(rig::must(export_model(fixture.dir, out / "exported", options, kQuiet)).left_out,
            std::vector<std::string>());
  std::vector<Held> expected;
  const TensorFiles saved = rig::must(TensorFiles::open(out / "model.safetensors"));
  for (const std::string_view name : saved.names()) {
    const SafeTensor* tensor = rig::must(saved.get(name));
    expected.push_back({tensor->info, {tensor->bytes.begin(), tensor->bytes.end()}});
  }
  expect_tensors(rig::must(TensorFiles::open(out / "exported")), expected);
}

}  // namespace
}  // namespace sluice::core
