// SPDX-License-Identifier: Apache-2.0
#include "chat/value.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "chat/chat_template.h"
#include "io/file.h"

namespace sluice::core {
namespace {

std::string again(std::string_view json, int indent = -1) {
  const auto value = parse_value(json);
  return value.ok() ? to_json(*value, indent) : value.message();
}

TEST(Values, AreWrittenAsPythonDoes) {
  EXPECT_EQ(
      again(R"({"b":1,"a":[1.0,2,1e5,1e-5,1e16,1e22,123456789012345678901234567890,-0,0.1]})"),
      R"({"b": 1, "a": [1.0, 2, 100000.0, 1e-05, 1e+16, 1e+22, 123456789012345678901234567890, 0, 0.1]})");
  EXPECT_EQ(again(R"({"b":2,"a":{"c":null}})"), R"({"b": 2, "a": {"c": null}})");
  EXPECT_EQ(again(R"({"a":1,"b":2,"a":{"c":null}})"),
            "key 'a' is there twice, and which one counts is not said");
  EXPECT_EQ(again(R"(["\u00e9\n\u0001\u007f\"\\/", true, false, "\ud83e\udd80"])"),
            "[\"é\\n\\u0001\x7f\\\"\\\\/\", true, false, \"🦀\"]");
  EXPECT_EQ(again(R"({"a":[],"b":{},"c":[1,{"d":2}]})", 4),
            "{\n    \"a\": [],\n    \"b\": {},\n    \"c\": [\n        1,\n        {\n            \"d\": 2\n  "
            "      }\n    ]\n}");
}

// Memory and time are bounded by the length of a line, whatever is in it.
TEST(Values, ThereAreNotTooMany) {
  const auto list = [](size_t count) {
    std::string text = "[0";
    for (size_t i = 1; i < count; ++i) text += ",0";
    return text + "]";
  };
  EXPECT_TRUE(parse_value(list(99999)).ok());
  EXPECT_EQ(parse_value(list(100000)).message(), "more than 100000 values");
  std::string keys = "{\"0\": 0";
  for (int i = 1; i < 10001; ++i) keys += fmt::format(", \"{}\": 0", i);
  EXPECT_EQ(parse_value(keys + "}").message(), "an object with more than 10000 keys");
  // What nobody reads is passed over, and is JSON nevertheless.
  const auto keeps = [](std::string_view key) { return key == "a"; };
  const auto read = [&](const std::string& text) {
    const auto value = parse_value(text, keeps);
    return value.ok() ? to_json(*value) : value.message();
  };
  EXPECT_EQ(read("{\"a\": [1, {\"b\": 2}], \"c\": " + list(200000) + ", \"d\": {\"a\": {\"a\": 1}}}"),
            R"({"a": [1, {"b": 2}], "c": null, "d": null})");
  EXPECT_EQ(read(R"({"c": "x", "a": {"c": 1}, "e": [], "f": {}, "g": [[], [1]]})"),
            R"({"c": null, "a": {"c": 1}, "e": null, "f": null, "g": null})");
  EXPECT_NE(read(R"({"c": [1, 2, "a": 1})").find("column"), std::string::npos);
  EXPECT_EQ(read("{\"c\": " + std::string(200, '[') + std::string(200, ']') + "}"),
            "nested more than 100 deep");
}

TEST(Values, MalformedJsonIsRefusedWithThePlace) {
  EXPECT_NE(again("{\"a\": 1,}").find("column 9"), std::string::npos) << again("{\"a\": 1,}");
  EXPECT_NE(again(std::string(200, '[')).find("nested more than 100 deep"), std::string::npos);
  EXPECT_EQ(again("{\"a\": 1e999}").find("json.exception"), std::string::npos) << again("{\"a\": 1e999}");
  EXPECT_FALSE(parse_value("").ok());
  EXPECT_FALSE(parse_value("{} {}").ok());
  EXPECT_FALSE(parse_value("\"\xff\"").ok());
  EXPECT_FALSE(parse_value("\"\\ud800\"").ok());
  EXPECT_FALSE(parse_value("NaN").ok());
  EXPECT_TRUE(parse_value(std::string(100, '[') + std::string(100, ']')).ok());
}

class ChatFolder : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) /
              testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void write(std::string_view name, std::string_view text) {
    ASSERT_TRUE(write_file(folder_ / name, text).ok());
  }
  std::string opened(std::string_view name = "") {
    const auto found = ChatTemplate::open(folder_, name, {});
    return found.ok() ? std::string(found->name()) : found.message();
  }

  static constexpr const char* kChatml =
      "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\\\n' + message['content'] + "
      "'<|im_end|>' + '\\\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\\\n' "
      "}}{% endif %}";
  std::filesystem::path folder_;
};

TEST_F(ChatFolder, TemplateIsAStringOneOfSeveralOrAFileOfItsOwn) {
  EXPECT_NE(opened().find("neither chat_template.jinja nor"), std::string::npos) << opened();
  write("tokenizer_config.json", fmt::format("{{\"chat_template\": \"{}\"}}", kChatml));
  EXPECT_EQ(opened(), "chatml");
  write(
      "tokenizer_config.json",
      fmt::format(
          R"({{"chat_template": [{{"name": "default", "template": "x"}}, {{"name": "plain", "template": "{}"}}]}})",
          kChatml));
  EXPECT_EQ(opened("plain"), "chatml");
  EXPECT_EQ(opened(), "unnamed (" + opened().substr(9, 16) + ")");
  EXPECT_NE(opened("other").find("there are: default, plain"), std::string::npos) << opened("other");
  write("chat_template.jinja",
        "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
        "'<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% "
        "endif %}");
  EXPECT_EQ(opened(), "chatml");
  write("chat_template.jinja", "\xEF\xBB\xBF{{ messages[0].content }}");
  EXPECT_NE(opened().find("chat_template.jinja: the template begins with a byte order mark"),
            std::string::npos)
      << opened();
  write("tokenizer_config.json", "{");
  EXPECT_NE(opened().find("tokenizer_config.json: "), std::string::npos) << opened();
}

TEST_F(ChatFolder, TokensThatAModelAddsAreNotCounted) {
  std::string added;
  for (int i = 0; i < 20000; ++i)
    added += fmt::format(
        "{}\"{}\": {{\"content\": \"<unused{}>\", \"lstrip\": false, \"rstrip\": false, \"special\": true}}",
        i == 0 ? "" : ", ", i, i);
  write("tokenizer_config.json", "{\"added_tokens_decoder\": {" + added + "}, \"eos_token\": \"</s>\"}");
  const auto tokens = special_tokens_of(folder_);
  ASSERT_TRUE(tokens.ok()) << tokens.message();
  EXPECT_EQ(tokens->eos, "</s>");
}

TEST(ChatDates, AreChecked) {
  const auto date = ChatDate::parse("2024-02-29");
  ASSERT_TRUE(date.ok());
  EXPECT_EQ(date->day, 29);
  for (const char* text :
       {"", "2024-13-01", "2024-1-01", "2024-01-32", "2024-01-00", "2024-01-0a", "-024-01-01", "2024/01/01"})
    EXPECT_FALSE(ChatDate::parse(text).ok()) << text;
}

}  // namespace
}  // namespace sluice::core
