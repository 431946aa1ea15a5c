// SPDX-License-Identifier: Apache-2.0
// Tensors of a folder come out as they went in: saved by a run, and exported.
#include <gtest/gtest.h>

#include "reference/fixture.h"
#include "state/export.h"
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

INSTANTIATE_TEST_SUITE_P(Models, RoundTrip,
                         testing::Values("llama_tiny_biases", "olmo2_tiny", "olmo3_tiny", "granite_tiny",
                                         "gemma_tiny", "gemma3_tiny", "olmo_tiny", "starcoder2_tiny",
                                         "phi3_tiny", "phi3_tiny_long"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace sluice::core
