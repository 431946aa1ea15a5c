// SPDX-License-Identifier: Apache-2.0
// Programs with other values of their optimizer than they were made with.
#include <gtest/gtest.h>

#include <algorithm>

#include "lowering/build.h"
#include "optimizer/values.h"

namespace sluice::core {
namespace {

const ModelSpec kSpec =
    model_of({.dim = 32, .layers = 2, .heads = 4, .kv_heads = 2, .head_dim = 8, .ffn = 48, .vocab = 61});

// What every optimizer may have: a value of each that is none of its defaults.
std::vector<double> others(const Optimizer& optimizer) {
  std::vector<double> out;
  for (const Hyperparameter& h : optimizer.hyperparameters)
    out.push_back(std::min(h.high, h.value / 2 + 0.25));
  return out;
}

std::vector<std::string> texts(const std::vector<SharedOp>& ops) {
  std::vector<std::string> out;
  for (const Op& op : ops) out.push_back(to_text(op));
  return out;
}
std::vector<std::string> texts(const Program& program) {
  std::vector<std::string> out;
  for (const Task& task : program.tasks()) out.push_back(to_text(task.op));
  return out;
}

TEST(UpdateValues, MakeTheOpsOfAProgramThatIsMadeWithThem) {
  for (const Optimizer* optimizer : optimizers()) {
    for (const bool late : {false, true}) {
      for (const bool master : {false, true}) {
        SCOPED_TRACE(testing::Message()
                     << optimizer->name << (late ? " late" : "") << (master ? " master" : ""));
        const Numerics numerics =
            master ? Numerics{DType::BF16, DType::F32, DType::F32, MasterWeights::F32, false}
                   : Numerics{DType::BF16, DType::BF16, DType::BF16, MasterWeights::Off, true};
        OptimizerConfig planned;
        planned.optimizer = optimizer;
        planned.values = OptimizerConfig::defaults_of(*optimizer);
        planned.part_elements = 1000;
        planned.deferred = planned.late_moments = late;
        const OptimizerConfig wanted = with_values(planned, {others(*optimizer), 0.25f});
        const StepShape shape{16, 32, 2, 2, 16};
        for (const bool flush : {false, true}) {
          const auto make = [&](const OptimizerConfig& o) {
            return flush ? build_flush(kSpec, numerics, o) : build_training(kSpec, shape, numerics, o);
          };
          const BuiltProgram model = make(planned);
          const auto same = ops_with_values(model.program, model.weights, planned, numerics);
          const auto now = ops_with_values(model.program, model.weights, wanted, numerics);
          ASSERT_TRUE(same && now);
          EXPECT_EQ(texts(*same), texts(model.program));
          EXPECT_EQ(texts(*now), texts(make(wanted).program));
          EXPECT_NE(texts(*now), texts(*same));
        }
      }
    }
  }
}

// SGD's momentum has the decayed weights in it, which are gone when the state comes late.
TEST(UpdateValues, AreNotPossibleWhereTheStateCannotFollow) {
  OptimizerConfig planned;
  planned.optimizer = find_optimizer("sgd");
  planned.values = {0.9, 0, 0};
  planned.deferred = planned.late_moments = true;
  const BuiltProgram model = build_training(kSpec, {16, 32, 2, 2, 16}, {}, planned);
  const auto possible = [&](std::vector<double> values) {
    return ops_with_values(model.program, model.weights, with_values(planned, {std::move(values), 1}), {})
        .has_value();
  };
  EXPECT_TRUE(possible({0.5, 0, 1}));
  EXPECT_FALSE(possible({0.9, 0.1, 0}));
}

}  // namespace
}  // namespace sluice::core
