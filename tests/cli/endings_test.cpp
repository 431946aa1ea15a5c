// SPDX-License-Identifier: Apache-2.0
// How a command ends, as docs/exit-codes.md says it.
#include "commands/outcome.h"

#include <gtest/gtest.h>

#include "options.h"

namespace sluice::core {
namespace {

TEST(ExitCode, TellsTheEndingsApart) {
  EXPECT_EQ(report({Ending::Done, ""}), 0);
  EXPECT_EQ(report({Ending::Failed, "it failed"}), 1);
  EXPECT_EQ(report({Ending::NothingLeft, ""}), 3);
  EXPECT_EQ(report({Ending::Unsaved, "it was refused"}), 4);
  EXPECT_EQ(report({Ending::Interrupted, ""}), 75);
}

// Errors of saves name the tensor that was refused.
TEST(ExitCode, OfASaveThatWasRefusedIsItsOwn) {
  Error refused = error("a value that no run goes on from");
  EXPECT_EQ(report(outcome(Status(refused))), 1);
  refused.details.emplace_back("unsaved", "weight");
  EXPECT_EQ(report(outcome(Result<Ending>(refused))), 4);
}

}  // namespace
}  // namespace sluice::core
