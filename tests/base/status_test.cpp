#include "base/status.h"

#include <gtest/gtest.h>

#include <memory>

namespace sluice {
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

TEST(Result, AssignMovesTheValueOut) {
  EXPECT_EQ(*doubled(false), 14);
}

TEST(Result, ErrorsPassThroughTryAndAssign) {
  const auto result = doubled(true);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.message(), "needed 2, had 1");
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
}  // namespace sluice
