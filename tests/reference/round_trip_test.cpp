// SPDX-License-Identifier: Apache-2.0
// Tensors of a folder come out as they went in: saved by a run, and exported.
#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "checkpoint/export.h"
#include "checkpoint/tensors.h"
#include "optimizer/modules.h"
#include "reference/fixture.h"
#include "support/temp_dir.h"

namespace sluice::core {
namespace {

class RoundTrip : public testing::TestWithParam<const char*> {};

void expect_same_tensors(const TensorFiles& got, const TensorFiles& expected) {
  ASSERT_EQ(got.names(), expected.names());
  for (const std::string_view name : expected.names()) {
    const SafeTensor *a = rig::must(got.get(name)), *b = rig::must(expected.get(name));
    EXPECT_EQ(a->info.shape, b->info.shape) << name;
    EXPECT_TRUE(std::ranges::equal(a->bytes, b->bytes)) << name;
  }
}

TEST_P(RoundTrip, SavedAndExportedTensorsAreThoseOfTheFolder) {
  const Fixture fixture(GetParam());
  const auto run = open_fixture(fixture, {64, 64, 1, 1, 64}, {});
  const TempDir out;
  rig::must(save_weights(run->model(), out / "model.safetensors", run->training()));
  const TensorFiles original = rig::must(TensorFiles::open(fixture.dir));
  expect_same_tensors(rig::must(TensorFiles::open(out / "model.safetensors")), original);
  (void)rig::must(export_model(fixture.dir, out / "exported", {},
                               [](std::string_view, int64_t, int64_t) { return Status(); }));
  expect_same_tensors(rig::must(TensorFiles::open(out / "exported")), original);
  EXPECT_EQ(rig::must(read_file(out / "exported" / "config.json")),
            rig::must(read_file(fixture.dir / "config.json")));
}

// By their names weights and optimizer state are read and written in the order of the folder's tensors.
TEST_P(RoundTrip, TensorsByNameAreThoseOfTheFolder) {
  const Fixture fixture(GetParam());
  const auto run = open_fixture(fixture, {64, 64, 1, 1, 64}, {});
  const TensorFiles original = rig::must(TensorFiles::open(fixture.dir));
  const TensorKind state{TensorKind::State, state_slots(run->model()).front()};
  std::set<std::string_view> fixed;  // what has no optimizer state
  const std::vector<Weight> weights = weights_of(fixture.config);
  for (const Weight& weight : weights) {
    for (const WeightSource& source : weight.sources) {
      if (!weight.trainable) fixed.insert(source.tensor);
    }
  }
  for (const std::string_view name : original.names()) {
    const SafeTensor* tensor = rig::must(original.get(name));
    std::vector<float> expected(size_t(tensor->info.elements())), counted(expected.size());
    std::memcpy(expected.data(), tensor->bytes.data(), tensor->bytes.size());
    std::iota(counted.begin(), counted.end(), 1.0f);
    Executor& executor = run->training();
    EXPECT_EQ(rig::must(read_tensor(run->model(), {}, name, executor)), expected) << name;
    for (const TensorKind& kind : {TensorKind{}, state}) {
      if (kind.of == TensorKind::State && fixed.contains(name)) {
        EXPECT_NE(check_write(run->model(), kind, name, counted).message().find("not trained"),
                  std::string::npos)
            << name;
        continue;
      }
      rig::must(check_write(run->model(), kind, name, counted));
      rig::must(write_tensor(run->model(), kind, name, counted, executor));
      EXPECT_EQ(rig::must(read_tensor(run->model(), kind, name, executor)), counted) << name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, RoundTrip,
                         testing::Values("llama_tiny_biases", "olmo2_tiny", "olmo3_tiny", "granite_tiny",
                                         "gemma_tiny", "gemma3_tiny", "olmo_tiny", "starcoder2_tiny",
                                         "phi3_tiny", "phi3_tiny_long", "phi3_tiny_partial", "glm4_tiny",
                                         "cohere2_tiny", "gpt_neox_tiny", "gpt_neox_tiny_serial", "gpt2_tiny",
                                         "lfm2_tiny", "gemma2_tiny", "ministral3_tiny", "mixtral_tiny",
                                         "qwen2_moe_tiny", "lfm2_moe_tiny", "gpt_oss_tiny", "qwen3_5_tiny",
                                         "qwen3_next_tiny", "gemma4_unified_tiny", "gemma4_tiny",
                                         "gemma4_tiny_moe"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace sluice::core
