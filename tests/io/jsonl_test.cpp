// SPDX-License-Identifier: Apache-2.0
#include "io/jsonl.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "io/file.h"
#include "support/temp_dir.h"

namespace sluice::core {
namespace {

TEST(JsonLines, AppendsAcrossOpens) {
  TempDir dir;
  ASSERT_TRUE(JsonLines::open(dir / "m.jsonl")->append({{"step", 1}, {"loss", 2.5}}).ok());
  ASSERT_TRUE(JsonLines::open(dir / "m.jsonl")->append({{"step", 2}}).ok());
  EXPECT_EQ(*read_file(dir / "m.jsonl"), "{\"step\":1,\"loss\":2.5}\n{\"step\":2}\n");
}

TEST(JsonLines, IsInTheFileWhenAppendReturns) {
  TempDir dir;
  auto lines = JsonLines::open(dir / "m.jsonl");
  ASSERT_TRUE(lines->append({{"step", 1}}).ok());
  EXPECT_EQ(*read_file(dir / "m.jsonl"), "{\"step\":1}\n");
}

TEST(JsonLines, EndsALineThatWasCutOff) {
  TempDir dir;
  dir.add("m.jsonl", "{\"step\":1}\n{\"st");
  ASSERT_TRUE(JsonLines::open(dir / "m.jsonl")->append({{"step", 2}}).ok());
  EXPECT_EQ(*read_file(dir / "m.jsonl"), "{\"step\":1}\n{\"st\n{\"step\":2}\n");
}

TEST(JsonLines, NotANumberBecomesNull) {
  TempDir dir;
  ASSERT_TRUE(
      JsonLines::open(dir / "m.jsonl")->append({{"loss", std::numeric_limits<double>::quiet_NaN()}}).ok());
  EXPECT_EQ(*read_file(dir / "m.jsonl"), "{\"loss\":null}\n");
}

TEST(JsonLines, OpenErrorNamesThePath) {
  EXPECT_NE(JsonLines::open("/no/such/dir/m.jsonl").message().find("/no/such/dir/m.jsonl"),
            std::string::npos);
}

}  // namespace
}  // namespace sluice::core
