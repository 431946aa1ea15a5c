// SPDX-License-Identifier: Apache-2.0
#include "program/narrow.h"

#include <gtest/gtest.h>

#include "ops/op.h"

namespace sluice::core {
namespace {

constexpr int64_t kTokens = 32, kDim = 64;

// A norm, a copy of what it writes, and a product that reads it.
struct Passes {
  Program program;
  ObjectId x, w, y, by_row, turned;

  explicit Passes(const Quantize& copy = {kTokens, kDim, DType::BF16, kFloat8, true, true}) {
    const auto add = [&](const char* name, ObjectKind kind, const NumberFormat& format, int64_t elements) {
      return program.add(Object{name, name, kind, format, format.bytes(elements)});
    };
    x = add("x", ObjectKind::Input, DType::BF16, kTokens * kDim);
    w = add("w", ObjectKind::Constant, DType::BF16, kDim);
    y = add("y", ObjectKind::Activation, DType::BF16, kTokens * kDim);
    by_row = add("y_fp8", ObjectKind::Activation, kFloat8.over(kDim), kTokens * kDim);
    turned = add("y_fp8_turned", ObjectKind::Activation, kFloat8.over(kTokens), kTokens * kDim);
    task("norm", RmsNorm{kTokens, kDim, 1e-5f, DType::BF16}, {x, w, y});
    std::vector<Bound> copies{y};
    if (copy.by_row) copies.emplace_back(by_row);
    if (copy.by_column) copies.emplace_back(turned);
    task("copy", copy, copies);
  }
  void task(const char* name, SharedOp op, const std::vector<Bound>& uses) {
    program.add(name, std::move(op), std::span(uses), Phase::Forward, -1, -1, -1);
  }
};

TEST(JoinedCopies, AreWrittenByTheOpThatMakesTheirValues) {
  Passes passes;
  passes.program.facts.tokens = kTokens;
  const Program joined = join_copies(passes.program);
  ASSERT_EQ(joined.tasks().size(), 1u);
  EXPECT_TRUE(std::get<RmsNorm>(*joined.tasks()[0].op).narrow);
  EXPECT_EQ(joined.tasks()[0].name, "norm");
  EXPECT_EQ(joined.facts.tokens, kTokens);
  std::vector<std::string> written;
  for (const Use& use : joined.tasks()[0].uses) {
    if (use.access != Access::Read) written.push_back(joined.object(use.object).name);
  }
  EXPECT_EQ(written, (std::vector<std::string>{"y_fp8", "y_fp8_turned"}));
  EXPECT_EQ(joined.objects().size(), 4u);
  EXPECT_TRUE(verify(joined).ok()) << verify(joined).message();
}

TEST(JoinedCopies, StayApartWhereTheValuesAreReadOrOneIsNotMade) {
  Passes read;
  const ObjectId sum =
      read.program.add(Object{"sum", "sum", ObjectKind::Activation, DType::BF16, 2 * kTokens * kDim});
  read.task("sum", AddGradients{kTokens * kDim, DType::BF16, DType::BF16, DType::BF16},
            {read.y, read.x, sum});
  EXPECT_EQ(join_copies(read.program).hash(), read.program.hash());
  const Passes one({kTokens, kDim, DType::BF16, kFloat8, true, false});
  EXPECT_EQ(join_copies(one.program).hash(), one.program.hash());
}

}  // namespace
}  // namespace sluice::core
