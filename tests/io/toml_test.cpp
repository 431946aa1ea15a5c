#include "io/toml.h"

#include <gtest/gtest.h>

#include "support/temp_dir.h"

namespace sluice {
namespace {

std::vector<std::string> values(const Settings& settings, std::string_view key) {
  const auto found = settings.find(key);
  return found == settings.end() ? std::vector<std::string>{"(missing)"} : found->second.values;
}

std::string message(std::string_view text) {
  const auto parsed = parse_toml(text, "f.toml");
  return parsed.ok() ? "(no error)" : parsed.message();
}

TEST(Toml, ReadsSectionsKeysAndValues) {
  const auto settings = parse_toml(
      "name = \"a b\"  # with a comment\n"
      "\n"
      "[train]\r\n"
      "  steps = 300\n"
      "rate=1e-3\n"
      "[memory.device]\n"
      "cap = 48MiB\n",
      "f.toml");
  ASSERT_TRUE(settings.ok()) << settings.message();
  EXPECT_EQ(settings->size(), 4u);
  EXPECT_EQ(values(*settings, "name"), std::vector<std::string>{"a b"});
  EXPECT_EQ(values(*settings, "train.steps"), std::vector<std::string>{"300"});
  EXPECT_EQ(values(*settings, "train.rate"), std::vector<std::string>{"1e-3"});
  EXPECT_EQ(values(*settings, "memory.device.cap"), std::vector<std::string>{"48MiB"});
  EXPECT_EQ(settings->at("train.rate").line, 5);
}

TEST(Toml, ReadsArraysOverLines) {
  const auto settings =
      parse_toml("a = [ \"x # no comment\", 'y,z', # a comment\n  3,\n]\nb = []\nc = 1\n", "f");
  ASSERT_TRUE(settings.ok()) << settings.message();
  EXPECT_EQ(values(*settings, "a"), (std::vector<std::string>{"x # no comment", "y,z", "3"}));
  EXPECT_TRUE(settings->at("a").is_array);
  EXPECT_TRUE(values(*settings, "b").empty());
  EXPECT_FALSE(settings->at("c").is_array);
  EXPECT_EQ(settings->at("c").line, 5);
}

TEST(Toml, EscapesOnlyInDoubleQuotes) {
  const auto settings = parse_toml(R"(a = "q\"\\\n\t"
b = 'C:\new')",
                                   "f");
  ASSERT_TRUE(settings.ok()) << settings.message();
  EXPECT_EQ(values(*settings, "a"), std::vector<std::string>{"q\"\\\n\t"});
  EXPECT_EQ(values(*settings, "b"), std::vector<std::string>{"C:\\new"});
}

TEST(Toml, DottedKeysWorkForOneLineOverrides) {
  EXPECT_EQ(values(*parse_toml("train.steps=3", "--set"), "train.steps"), std::vector<std::string>{"3"});
}

TEST(Toml, ASecondAssignmentNamesBothLines) {
  EXPECT_EQ(message("[a]\nx = 1\ny = 2\n[b]\n[a]\nx = 3\n"),
            "f.toml:6: 'a.x' is set again; line 2 sets it first");
}

TEST(Toml, MalformedLinesNameFileAndLine) {
  const std::pair<const char*, const char*> cases[] = {
      {"steps 300\n", "f.toml:1: expected '=' after 'steps', found '3'"},
      {"\n\nsteps\n", "f.toml:3: expected '=' after 'steps', found the end of the line"},
      {"a =\n", "f.toml:1: expected a value, found the end of the line"},
      {"a = 1 2\n", "f.toml:1: unexpected '2'"},
      {"a = b = c\n", "f.toml:1: unexpected '='"},
      {"[a\nb = 1\n", "f.toml:1: expected ']' after [a, found the end of the line"},
      {"[[a]]\n", "f.toml:1: expected a name, found '['"},
      {"[a..b]\n", "f.toml:1: 'a..b' has an empty part"},
      {"a = \"x\nb = 1\n", "f.toml:1: the text has no closing \""},
      {"a = \"\\q\"\n", "f.toml:1: unknown escape after '\\': 'q'"},
      {"a = {b = 1}\n", "f.toml:1: expected a value, found '{'"},
      {"a = [1,\n\n 2",
       "f.toml:3: expected ',' or ']' in the array that begins on line 1, found the end of the file"},
      {"a = [1 2]\n", "f.toml:1: expected ',' or ']' in the array that begins on line 1, found '2'"},
      {"= 3\n", "f.toml:1: expected a name, found '='"},
  };
  for (const auto& [text, expected] : cases)
    EXPECT_EQ(message(text).substr(0, std::string(expected).size()), expected);
}

TEST(Toml, FileErrorsNameThePath) {
  TempDir dir;
  const auto path = dir.add("c.toml", "x\n");
  EXPECT_NE(read_toml(path).message().find(path.string() + ":1: "), std::string::npos);
  EXPECT_NE(read_toml(dir / "none.toml").message().find("none.toml"), std::string::npos);
}

}  // namespace
}  // namespace sluice
