// SPDX-License-Identifier: Apache-2.0
// Derived backward passes and placed updates against programs written by hand, over shapes, number formats,
// and ways to update.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "lowering/build.h"
#include "oracle.h"

namespace sluice::core {
namespace {

struct Shape {
  const char* name;
  StepShape shape;
};
const Shape kShapes[] = {
    {"whole_sequences", {16, 32, 1, 1, 16}},
    {"chunks_of_a_sequence", {16, 4, 8, 2, 4}},
    {"packed", {16, 8, 4, 1, 8, true}},
    {"unequal_rounds", {16, 16, 3, 3, 8, false, 4, 1}},
    {"a_short_last_chunk", {16, 48, 2, 2, 32, false, 0, 1, 16}},
};

struct Formats {
  const char* name;
  Numerics numerics;
};
const Formats kFormats[] = {
    {"f32", {}},
    {"bf16", {DType::BF16, DType::BF16, DType::BF16, MasterWeights::Off, true}},
    {"bf16_f32_gradients", {DType::BF16, DType::F32, DType::BF16, MasterWeights::Off, true}},
    {"bf16_f32_state", {DType::BF16, DType::BF16, DType::F32, MasterWeights::Off, true}},
    {"master", {DType::BF16, DType::F32, DType::F32, MasterWeights::F32, false}},
};

struct Updates {
  const char* name;
  bool deferred, late;
};
const Updates kUpdates[] = {
    {"at_the_end", false, false}, {"deferred", true, false}, {"late_moments", true, true}};

using Case = std::tuple<Shape, Formats, Updates, bool>;

class DerivedPrograms : public testing::TestWithParam<Case> {};

std::vector<std::string> lines_of(const Program& program) {
  std::vector<std::string> out;
  for (const Object& o : program.objects()) {
    out.push_back(fmt::format("object {} ({}) {} {} {} bytes at {} {} {}{}", o.name, o.role, name_of(o.kind),
                              to_text(o.format), o.bytes, o.layer, o.round, o.chunk,
                              o.persistent ? " persistent" : ""));
  }
  for (const Task& t : program.tasks()) {
    std::string line = fmt::format("task {} [{}] {} at {} {} {}:", t.name, to_text(t.op), name_of(t.phase),
                                   t.layer, t.round, t.chunk);
    for (const Use& use : t.uses) line += fmt::format(" {}+{}", program.object(use.object).name, use.offset);
    out.push_back(std::move(line));
  }
  return out;
}

// The first object or task in which two programs differ, which says more than a hash.
std::string difference(const Program& derived, const Program& by_hand) {
  const std::vector<std::string> a = lines_of(derived), b = lines_of(by_hand);
  for (size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
    const std::string left = i < a.size() ? a[i] : "nothing", right = i < b.size() ? b[i] : "nothing";
    if (left != right) return fmt::format("derived: {}\nby hand: {}", left, right);
  }
  return "none";
}

TEST_P(DerivedPrograms, EqualThoseWrittenByHand) {
  const auto& [shape, formats, updates, tied] = GetParam();
  ModelSpec spec =
      model_of({.dim = 32, .layers = 3, .heads = 4, .kv_heads = 2, .head_dim = 8, .ffn = 48, .vocab = 61});
  spec.tied_embeddings = tied;
  OptimizerConfig optimizer;
  optimizer.part_elements = 1000;
  optimizer.deferred = updates.deferred;
  optimizer.late_moments = updates.late;
  oracle::OptimizerConfig same;
  same.part_elements = 1000;
  same.deferred = updates.deferred;
  same.late_moments = updates.late;
  const oracle::Programs expected =
      oracle::build({32, 3, 4, 2, 8, 48, 61, 1e-5, tied}, shape.shape, formats.numerics, same);
  StepShape one = shape.shape;
  spread(one, shape.shape.chunks_per_sequence(), 1);
  const Program training = build_training(spec, shape.shape, formats.numerics, optimizer).program;
  EXPECT_EQ(training.hash(), expected.training.hash()) << difference(training, expected.training);
  EXPECT_EQ(difference(training, expected.training), "none");
  const Program flush = build_flush(spec, formats.numerics, optimizer).program;
  EXPECT_EQ(flush.hash(), expected.flush.hash()) << difference(flush, expected.flush);
  const Program evaluation = build_evaluation(spec, one, formats.numerics).program;
  EXPECT_EQ(evaluation.hash(), expected.evaluation.hash()) << difference(evaluation, expected.evaluation);
}

std::string name_of_case(const testing::TestParamInfo<Case>& info) {
  const auto& [shape, formats, updates, tied] = info.param;
  return fmt::format("{}_{}_{}_{}", shape.name, formats.name, updates.name, tied ? "tied" : "untied");
}

INSTANTIATE_TEST_SUITE_P(Step, DerivedPrograms,
                         testing::Combine(testing::ValuesIn(kShapes), testing::ValuesIn(kFormats),
                                          testing::ValuesIn(kUpdates), testing::Bool()),
                         name_of_case);

}  // namespace
}  // namespace sluice::core
