// SPDX-License-Identifier: Apache-2.0
// State with a number for each row or column of a tensor is that of the tensor as the folder has it, however
// its weight keeps rows.
#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "checkpoint/tensors.h"
#include "optimizer/optimizer.h"
#include "reference/fixture.h"

namespace sluice::core {
namespace {

using rig::must;

struct Model {
  const char* name;
  bool turned = false;                // its folder has the projections transposed
  std::vector<std::string> frozen{};  // tensors that lie in several weights
};

void PrintTo(const Model& model, std::ostream* out) {
  *out << model.name;
}

// Rows that lie as the folder has them, pairs of neighbours of heads, and matrices that are turned.
const Model kModels[] = {{"gemma_tiny"}, {"cohere2_tiny"}, {"glm4_tiny"}, {"gpt2_tiny", true, {"*c_attn*"}}};

class FactoredState : public testing::TestWithParam<Model> {
 protected:
  FactoredState() : fixture_(GetParam().name) {
    if (!GetParam().frozen.empty()) must(freeze(fixture_.config, GetParam().frozen, "train.freeze"));
    OptimizerConfig config = deferred_updates();
    config.optimizer = find_optimizer("adafactor");
    config.values = OptimizerConfig::defaults_of(*config.optimizer);
    const StepShape shape{64, 64, 2, 1, 64};
    run_ = open_fixture(fixture_, shape, {}, config);
    (void)run_->step(1, fixture_.tokens("", shape.seq_len));
  }

  std::vector<float> read(TensorKind kind, std::string_view name) {
    return must(read_tensor(run_->model(), kind, name, run_->training()));
  }

  Fixture fixture_;
  std::unique_ptr<rig::Rig> run_;
};

// After one update a mean of squares is that of the gradient, times the same number everywhere.
TEST_P(FactoredState, IsOfTheRowsAndColumnsOfTensors) {
  const TensorFiles files = must(TensorFiles::open(fixture_.dir));
  std::map<std::string, std::vector<float>> gradients;
  for (const std::string_view name : files.names()) {
    auto g = read_tensor(run_->model(), {TensorKind::Gradient}, name, run_->training());
    if (g.ok() && must(files.get(name))->info.shape.size() == 2) gradients[std::string(name)] = *std::move(g);
  }
  run_->flush(1);
  double factor = 0;
  int64_t compared = 0;
  for (const auto& [name, g] : gradients) {
    const int64_t rows = must(files.get(name))->info.shape[0], cols = int64_t(g.size()) / rows;
    const bool turned = GetParam().turned && name.find("wte") == name.npos && name.find("wpe") == name.npos;
    for (const std::string_view slot : {"row", "col"}) {
      const bool by_row = (slot == "row") != turned;
      const std::vector<float> s = read({TensorKind::State, slot}, name);
      ASSERT_EQ(int64_t(s.size()), by_row ? rows : cols) << name << " " << slot;
      for (int64_t i = 0; i < int64_t(s.size()); ++i) {
        const int64_t count = by_row ? cols : rows;
        double mean = 0;
        for (int64_t j = 0; j < count; ++j) {
          const double x = g[size_t(by_row ? i * cols + j : j * cols + i)];
          mean += x * x / double(count);
        }
        if (mean < 1e-25) continue;
        if (factor == 0) factor = s[size_t(i)] / mean;
        ASSERT_NEAR(s[size_t(i)] / mean / factor, 1, 1e-4) << name << " " << slot << " " << i;
        ++compared;
      }
    }
  }
  EXPECT_GT(compared, 200);
}

TEST_P(FactoredState, IsReadAsItIsWritten) {
  run_->flush(1);
  const std::string name(GetParam().turned ? "transformer.h.0.mlp.c_fc.weight"
                                           : "model.layers.0.self_attn.q_proj.weight");
  for (const std::string_view slot : {"row", "col"}) {
    std::vector<float> s = read({TensorKind::State, slot}, name);
    std::iota(s.begin(), s.end(), 1.0f);
    must(check_write(run_->model(), {TensorKind::State, slot}, name, s));
    must(write_tensor(run_->model(), {TensorKind::State, slot}, name, s, run_->training()));
    EXPECT_EQ(read({TensorKind::State, slot}, name), s) << slot;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, FactoredState, testing::ValuesIn(kModels),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace sluice::core
