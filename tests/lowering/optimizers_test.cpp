// SPDX-License-Identifier: Apache-2.0
// What every optimizer module says of itself, against what its ops say.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "lowering/build.h"
#include "ops/compact_format.h"
#include "ops/op.h"

namespace sluice::core {
namespace {

const ModelSpec kSpec =
    model_of({.dim = 64, .layers = 1, .heads = 4, .kv_heads = 2, .head_dim = 16, .ffn = 96, .vocab = 61});

const Numerics kNumerics[] = {
    {DType::F32, DType::F32, DType::F32, MasterWeights::Off, false},
    {DType::BF16, DType::BF16, DType::BF16, MasterWeights::Off, true},
    {DType::BF16, DType::F32, DType::F32, MasterWeights::F32, false},
    {DType::BF16, DType::BF16, DType::I8, MasterWeights::I8, true},
};

// Programs whose ops disagree with the state that they are bound to would write past it.
TEST(Optimizers, ProgramsKeepTheRulesInEveryFormat) {
  for (const Optimizer* optimizer : optimizers()) {
    for (const Numerics& numerics : kNumerics) {
      for (const bool late : {false, true}) {
        SCOPED_TRACE(testing::Message()
                     << optimizer->name << ", state " << name_of(numerics.state) << (late ? ", late" : ""));
        OptimizerConfig config;
        config.optimizer = optimizer;
        config.values = OptimizerConfig::defaults_of(*optimizer);
        config.part_elements = 2048;
        config.deferred = config.late_moments = late;
        std::vector<BuiltProgram> models{build_training(kSpec, {16, 32, 2, 2, 16}, numerics, config)};
        if (late) models.push_back(build_flush(kSpec, numerics, config));
        for (const BuiltProgram& model : models) {
          const Status status = verify(model.program);
          EXPECT_TRUE(status.ok()) << status.message();
        }
      }
    }
  }
}

// The ops of a rule for a part of 64 x 64: its update, with the state and without, and what makes up for the
// state.
std::vector<Op> ops_of(const UpdateRule& rule, const Numerics& numerics, std::span<const double> values) {
  const UpdatePart part{rule.whole ? UpdateExtent{0, 64, 64} : UpdateExtent{0, 1, 4096}, 1, true, numerics};
  std::vector<Op> ops{rule.update(part, values, true)};
  if (rule.update_state == nullptr) return ops;
  ops.push_back(rule.update(part, values, false));
  if (const auto late = rule.update_state(part, values)) ops.push_back(*late);
  return ops;
}

void expect_state(const UpdateRule& rule, const Numerics& numerics, const Operands& operands) {
  const auto gradient =
      std::find_if(operands.begin(), operands.end(), [](const Operand& o) { return o.name == "g"; });
  ASSERT_GT(operands.end() - gradient, ptrdiff_t(rule.state.size()));
  for (size_t i = 0; i < rule.state.size(); ++i) {
    const StateSlot& slot = rule.state[i];
    const Operand& operand = gradient[ptrdiff_t(i) + 1];
    EXPECT_EQ(operand.name, slot.role);
    EXPECT_EQ(operand.format, slot.format_in(numerics));
    EXPECT_EQ(operand.values == Values::Squares, slot.squares);
  }
}

TEST(Optimizers, StateIsBoundToTheOperandsOfItsNames) {
  for (const Optimizer* optimizer : optimizers()) {
    for (const UpdateRule& rule : optimizer->rules) {
      for (const Numerics& numerics : kNumerics) {
        for (const Op& op : ops_of(rule, numerics, OptimizerConfig::defaults_of(*optimizer))) {
          SCOPED_TRACE(to_text(op));
          expect_state(rule, numerics, operands(op));
        }
      }
    }
  }
}

// Every attribute but those that are marked as of a step.
template <class O>
std::string planned_text(const O& op) {
  std::string text(O::kName);
  op.fields([&](std::string_view name, auto value, auto... mark) {
    if constexpr ((std::is_same_v<decltype(mark), OfStep> || ...)) return;
    if constexpr (std::is_same_v<decltype(value), NumberFormat>) {
      text += fmt::format(" {}={}", name, to_text(value));
    } else {
      text += fmt::format(" {}={}", name, double(value));
    }
  });
  return text;
}

std::string planned_text(const Op& op) {
  return std::visit([](const auto& o) { return planned_text(o); }, op);
}

// A step may have other hyperparameters than were planned: their attributes say so (kOfStep).
TEST(Optimizers, HyperparametersAreAttributesOfAStep) {
  for (const Optimizer* optimizer : optimizers()) {
    const std::vector<double> defaults = OptimizerConfig::defaults_of(*optimizer);
    for (size_t h = 0; h < defaults.size(); ++h) {
      SCOPED_TRACE(testing::Message() << optimizer->name << ", " << optimizer->hyperparameters[h].name);
      std::vector<double> values = defaults;
      const Hyperparameter& of = optimizer->hyperparameters[h];
      values[h] = of.flag ? 1 - of.value : std::min(of.high, of.value / 2 + 0.25);
      bool heeded = false;
      for (const UpdateRule& rule : optimizer->rules) {
        const std::vector<Op> planned = ops_of(rule, kNumerics[0], defaults),
                              now = ops_of(rule, kNumerics[0], values);
        heeded |= to_text(now[0]) != to_text(planned[0]);
        for (size_t i = 0; i < std::min(now.size(), planned.size()); ++i)
          EXPECT_EQ(planned_text(now[i]), planned_text(planned[i]));
      }
      EXPECT_TRUE(heeded);
    }
  }
}

}  // namespace
}  // namespace sluice::core
