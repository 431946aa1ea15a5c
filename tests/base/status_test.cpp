// SPDX-License-Identifier: Apache-2.0
#include "base/status.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>

namespace sluice::core {
namespace {

Status fail_if(bool fail) {
  if (fail) return error("needed {}, had {}", 2, 1);
  return {};
}

Result<std::unique_ptr<int>> make(bool fail) {
  SLUICE_TRY(fail_if(fail));
  return std::make_unique<int>(7);
}

Result<int> doubled(bool fail) {
  SLUICE_ASSIGN(const auto value, make(fail));
  SLUICE_ASSIGN(const auto second, make(false));
  return *value + *second;
}

TEST(Status, IsSuccessByDefault) {
  EXPECT_TRUE(Status().ok());
}

TEST(Status, CarriesTheFormattedMessage) {
  EXPECT_EQ(fail_if(true).message(), "needed 2, had 1");
}

TEST(Error, IsInvalidUnlessItSaysOtherwise) {
  EXPECT_EQ(error("no").kind, ErrorKind::Invalid);
  EXPECT_EQ(error(ErrorKind::Io, "cannot read {}", "x").kind, ErrorKind::Io);
}

TEST(Error, KeepsItsKindAndDetailsWhenItsPlaceIsNamed) {
  Error e = error(ErrorKind::DoesNotFit, "too small");
  e.details = {{"tensor", "wq"}};
  e.shortage = {.tier = "host", .given_bytes = 10, .need_bytes = 12};
  const Error placed = error_at("plan", e);
  EXPECT_EQ(placed.message, "plan: too small");
  EXPECT_EQ(placed.kind, ErrorKind::DoesNotFit);
  EXPECT_EQ(placed.detail("tensor"), "wq");
  EXPECT_EQ(placed.detail("given"), "");
  EXPECT_EQ(placed.shortage, e.shortage);
}

TEST(Error, EveryKindHasAName) {
  EXPECT_EQ(name_of(ErrorKind::Invalid), "invalid");
  EXPECT_EQ(name_of(ErrorKind::Internal), "internal");
}

TEST(Result, AssignMovesTheValueOut) {
  EXPECT_EQ(*doubled(false), 14);
}

TEST(Result, ErrorsPassThroughTryAndAssign) {
  const auto result = doubled(true);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.message(), "needed 2, had 1");
}

TEST(Result, AnOptionalOfNothingIsAValue) {
  const Result<std::optional<int>> result(std::nullopt);
  ASSERT_TRUE(result.ok());
  EXPECT_FALSE(result->has_value());
}

TEST(Result, AnErrorStaysWhereItWasRead) {
  const auto result = doubled(true);
  const Status copied = result.error();
  EXPECT_EQ(result.message(), "needed 2, had 1");
  EXPECT_EQ(copied.message(), "needed 2, had 1");
}

TEST(ResultDeathTest, ReadingAnErrorAsValueNamesIt) {
  EXPECT_DEATH((void)*make(true), "needed 2, had 1");
}

TEST(CheckDeathTest, PrintsConditionAndValues) {
  EXPECT_DEATH(
      [] {
        const int rows = 3;
        SLUICE_CHECK(rows == 4, "{} rows", rows);
      }(),
      "rows == 4: 3 rows");
}

}  // namespace
}  // namespace sluice::core
