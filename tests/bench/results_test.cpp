// SPDX-License-Identifier: Apache-2.0
#include "bench/results.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "equivalence/rig/rig.h"
#include "support/temp_dir.h"

namespace sluice::core {
namespace {

using rig::must;

Page small() {
  Page page{.title = "Speeds"};
  Section s{.key = "part", .title = "Part"};
  Table t{.key = "rows", .title = "Rows", .row_title = "what"};
  t.columns = {{"ms", "ms", Form::Number}, {"bytes", "memory", Form::Memory}};
  t.rows = {{"a | b", {1.5, std::nullopt}, "slow"}};
  t.note_key = "why", t.note_title = "why";
  s.tables.push_back(t);
  s.plots.push_back({"Picture", "", "x", "y", {{"line", {{0, 1}, {1, 2}}}}});
  s.bars.push_back({"Bars", "", {{"a", 3, "3"}}});
  page.sections.push_back(s);
  return page;
}

std::string content(const std::filesystem::path& path) {
  std::ostringstream out;
  out << std::ifstream(path).rdbuf();
  return out.str();
}

TEST(Results, EveryNumberIsInTheLines) {
  std::istringstream lines(to_jsonl(small(), {"a machine", "0.1 abc"}));
  std::vector<nlohmann::json> all;
  for (std::string line; std::getline(lines, line);) all.push_back(nlohmann::json::parse(line));
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0]["ms"], 1.5);
  EXPECT_TRUE(all[0]["bytes"].is_null());
  EXPECT_EQ(all[0]["why"], "slow");
  EXPECT_EQ(all[1]["points"], nlohmann::json::parse("[[0, 1], [1, 2]]"));
  EXPECT_EQ(all[2]["value"], 3);
  for (const auto& line : all) {
    EXPECT_EQ(line["machine"], "a machine");
    EXPECT_EQ(line["sluice"], "0.1 abc");
  }
}

TEST(Results, EveryFileSaysWhereItWasMade) {
  const TempDir dir;
  const auto paths = must(write_page(small(), {"a machine", "0.1 abc"}, dir.path() / "new", "speeds"));
  ASSERT_EQ(paths.size(), 4u);
  for (const auto& path : paths) {
    const std::string text = content(path);
    EXPECT_NE(text.find("a machine"), std::string::npos) << path;
    EXPECT_NE(text.find("0.1 abc"), std::string::npos) << path;
  }
  EXPECT_EQ(paths[3].filename(), "speeds-2.svg");
  EXPECT_NE(content(paths[0]).find("| a \\| b | 1.5 | - | slow |"), std::string::npos) << content(paths[0]);
}

}  // namespace
}  // namespace sluice::core
