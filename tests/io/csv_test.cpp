// SPDX-License-Identifier: Apache-2.0
#include "io/csv.h"

#include <gtest/gtest.h>

namespace sluice::core {
namespace {

using Fields = std::vector<std::string>;

TEST(Csv, FieldsComeBack) {
  const Fields fields{"plain", "", "a,b", "say \"so\"", "two\nlines"};
  const std::string line = csv_line(fields);
  EXPECT_EQ(line, "plain,,\"a,b\",\"say \"\"so\"\"\",\"two lines\"\n");
  EXPECT_EQ(parse_csv_line(line.substr(0, line.size() - 1)),
            (Fields{"plain", "", "a,b", "say \"so\"", "two lines"}));
}

TEST(Csv, TornQuotesAreNoLine) {
  EXPECT_FALSE(parse_csv_line("a,\"b").has_value());
  EXPECT_FALSE(parse_csv_line("a,\"b\"\"").has_value());
  EXPECT_FALSE(parse_csv_line("\"a\"b").has_value());
  EXPECT_EQ(parse_csv_line("a,"), (Fields{"a", ""}));
}

}  // namespace
}  // namespace sluice::core
