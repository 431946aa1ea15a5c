// SPDX-License-Identifier: Apache-2.0
// Optimizers of several rules, and rules that take tensors whole.
#include <gtest/gtest.h>

#include "lowering/build.h"
#include "optimizer/placement.h"

namespace sluice::core {
namespace {

bool is_matrix(const Weight& weight) {
  return weight.matrix;
}

// Of matrices a number for each row and column, of the rest AdamW's.
struct Factored {
  const StateSlot slots[2] = {
      {.role = "row", .squares = true, .format = NumberFormat(DType::F32), .each = Each::Row},
      {.role = "col", .squares = true, .each = Each::Column}};
  const UpdateRule& adamw = optimizers().front()->rules.front();
  const UpdateRule rules[2] = {{slots, adamw.update, nullptr, is_matrix, true}, adamw};
  Optimizer optimizer = *optimizers().front();
  OptimizerConfig config;

  Factored() {
    optimizer.rules = rules;
    config.optimizer = &optimizer;
    config.part_elements = 1000;
  }
};

TEST(WholeRules, HaveAPartForEachTensorOfAWeight) {
  const Factored f;
  const Weight wkv{.object = "wkv.L0", .role = "wkv", .layer = 0, .sources = {{"k", 30, 50}, {"v", 20, 50}}};
  Program program;
  ParamObjects objects;
  add_state(wkv, f.config, {.state = DType::BF16}, program, objects);
  ASSERT_EQ(objects.parts.size(), 2u);
  EXPECT_EQ(objects.rule, &f.rules[0]);
  EXPECT_EQ(objects.parts[1].first, 1500);
  EXPECT_EQ(objects.parts[1].rows, 20);
  EXPECT_EQ(objects.parts[1].cols, 50);
  const int64_t bytes[2][2] = {{30 * 4, 50 * 2}, {20 * 4, 50 * 2}};
  for (size_t part = 0; part < 2; ++part) {
    for (size_t slot = 0; slot < 2; ++slot)
      EXPECT_EQ(program.object(objects.parts[part].state[slot]).bytes, bytes[part][slot]);
  }
}

// A convolution's tensor has a size of 1 between the others: it is as many matrices of one row.
TEST(WholeRules, SeeOneRowInWhatIsNoMatrix) {
  Factored f;
  const UpdateRule every{f.slots, f.adamw.update, nullptr, nullptr, true};
  f.optimizer.rules = {&every, 1};
  Weight conv{.object = "wconv", .role = "wconv", .sources = {{"c", 30, 3}}};
  conv.sources.front().of_conv = true;
  const Weight norm{.object = "norm", .role = "norm", .sources = {{"n", 90, 1}}, .matrix = false};
  for (const Weight& weight : {conv, norm}) {
    const auto extents = extents_of(weight, f.config, {});
    ASSERT_EQ(extents.size(), 1u);
    EXPECT_EQ(extents[0].rows, 1) << weight.object;
    EXPECT_EQ(extents[0].cols, 90) << weight.object;
  }
}

TEST(WholeRules, OthersAreBesideThem) {
  const Factored f;
  const Weight norm{.object = "n", .role = "n", .sources = {{"n", 1500, 1}}, .matrix = false};
  Program program;
  ParamObjects objects;
  add_state(norm, f.config, {}, program, objects);
  ASSERT_EQ(objects.parts.size(), 2u);
  EXPECT_EQ(objects.rule, &f.rules[1]);
  EXPECT_EQ(program.object(objects.parts[1].state[0]).name, "m_n.p1");
}

}  // namespace
}  // namespace sluice::core
