// SPDX-License-Identifier: Apache-2.0
#include "text/json.h"

#include <gtest/gtest.h>

namespace sluice::core {
namespace {

TEST(Json, IsWhatTheLibraryReads) {
  for (const char* text :
       {"{}", "[]", "3", "null", R"({"a": [1, {"b": [[], {}]}, -2, 1.5, true, null, "x"], "c": {"d": {}}})",
        "\xEF\xBB\xBF{\"a\": 1}", "", "{", "[1, 2", "{\"a\": 1} x", "{\"a\" 1}"}) {
    const auto json = parse_json(text);
    ASSERT_TRUE(json.ok()) << text << json.message();
    const auto expected = nlohmann::json::parse(text, nullptr, false);
    EXPECT_EQ(json->is_discarded(), expected.is_discarded()) << text;
    EXPECT_TRUE(json->is_discarded() || *json == expected) << text;
  }
}

TEST(Json, AKeyTwiceSaysTheSameTwice) {
  for (const char* text : {R"({"a": 1, "a": 1})", R"({"a": {"b": [1]}, "c": 2, "a": {"b": [1]}})",
                           R"([{"a": 1}, {"a": 2}])", R"({"a": {"b": 1}, "b": 2})"}) {
    EXPECT_TRUE(parse_json(text).ok()) << text;
  }
  const std::pair<const char*, const char*> refused[] = {
      {R"({"a": 1, "b": 2, "a": 3})", "key 'a' is there twice, with 1 and with 3: keep one"},
      {R"({"x": [{"a": {"b": 1}, "a": {"b": 2}}]})",
       "key 'a' is there twice, with an object and with an object"},
      {R"({"a": null, "a": 0})", "with null and with 0"},
      {R"({"a": 1, "a": 2, "a": 1})", "key 'a' is there twice"},
  };
  for (const auto& [text, message] : refused)
    EXPECT_NE(parse_json(text).message().find(message), std::string::npos) << parse_json(text).message();
}

}  // namespace
}  // namespace sluice::core
