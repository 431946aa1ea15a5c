// SPDX-License-Identifier: Apache-2.0
#include "text/toml.h"

#include <gtest/gtest.h>

#include "io/toml_file.h"
#include "support/temp_dir.h"

namespace sluice::core {
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
      "cap = \"48MiB\"\n",
      "f.toml");
  ASSERT_TRUE(settings.ok()) << settings.message();
  EXPECT_EQ(settings->size(), 4u);
  EXPECT_EQ(values(*settings, "name"), std::vector<std::string>{"a b"});
  EXPECT_EQ(values(*settings, "train.steps"), std::vector<std::string>{"300"});
  EXPECT_EQ(values(*settings, "train.rate"), std::vector<std::string>{"0.001"});
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

TEST(Toml, TablesGiveTheirKeysAPrefix) {
  const auto settings = parse_toml("train = {steps = 3, note.text = \"x\"}\nrun.trace = true\n", "f");
  ASSERT_TRUE(settings.ok()) << settings.message();
  EXPECT_EQ(values(*settings, "train.steps"), std::vector<std::string>{"3"});
  EXPECT_EQ(values(*settings, "train.note.text"), std::vector<std::string>{"x"});
  EXPECT_EQ(values(*settings, "run.trace"), std::vector<std::string>{"true"});
}

TEST(Toml, WordsWithoutQuotesAreShownWithThem) {
  const std::pair<const char*, const char*> cases[] = {
      {"[memory]\ndevice = 48MiB  # a cap\n", "f.toml:2: text and sizes need quotes: device = \"48MiB\""},
      {"device = none\n", "f.toml:1: text and sizes need quotes: device = \"none\""},
      {"config = ../m/config.json\n", "f.toml:1: text and sizes need quotes: config = \"../m/config.json\""},
      {"prompt = Once upon\n", "f.toml:1: text and sizes need quotes: prompt = \"Once upon\""},
      {"paths = [src, docs]\n", "f.toml:1: text and sizes need quotes: paths = [\"src\", \"docs\"]"},
      {"length = 8k\n", "f.toml:1: text and sizes need quotes: length = \"8k\""},
      {"trace = True\n", "f.toml:1: text and sizes need quotes: trace = true"},
  };
  for (const auto& [text, expected] : cases) EXPECT_EQ(message(text), expected);
}

TEST(Toml, WhatSettingsCannotBeNamesFileLineAndKey) {
  EXPECT_EQ(message("a = 1\n\nb = 2026-01-31\n"),
            "f.toml:3: b: allowed are text, numbers, true and false, and lists of them");
  EXPECT_EQ(message("[[a]]\nb = 1\n"),
            "f.toml:1: a: allowed are text, numbers, true and false, and lists of them");
  EXPECT_EQ(message("a = [\n1, [2]]\n"),
            "f.toml:2: a: allowed are text, numbers, true and false, and lists of them");
  const std::string twice = message("a.b = 1\n\"a.b\" = 2\n");
  EXPECT_NE(twice.find("'a.b' is set again"), std::string::npos) << twice;
}

// The rest of each is toml++'s to word.
TEST(Toml, MalformedLinesNameFileAndLine) {
  const std::pair<const char*, const char*> cases[] = {
      {"steps 300\n", "f.toml:1: "},
      {"\n\nsteps\n", "f.toml:3: "},
      {"a =\n", "f.toml:1: "},
      {"a = 1 2\n", "f.toml:1: "},
      {"a = b = c\n", "f.toml:1: "},
      {"[a\nb = 1\n", "f.toml:1: "},
      {"[a..b]\n", "f.toml:1: "},
      {"a = \"x\nb = 1\n", "f.toml:1: "},
      {"a = \"\\q\"\n", "f.toml:1: "},
      {"a = [1,\n\n 2", "f.toml:3: "},
      {"a = [1 2]\n", "f.toml:1: "},
      {"= 3\n", "f.toml:1: "},
      {"x = 1\n[a]\nx = 1\nx = 2\n", "f.toml:4: "},
      {"[a]\nx = 1\n[a]\n", "f.toml:3: "},
      {"a = \"\xff\"\n", "f.toml:1: "},
  };
  for (const auto& [text, expected] : cases)
    EXPECT_TRUE(message(text).starts_with(expected)) << text << message(text);
}

TEST(Toml, BrokenHeadersOfTablesNameTheLine) {
  using std::string_literals::operator""s;
  for (const std::string& text :
       {"a = 1\n[\nb = 2\n"s, "a = 1\n[\0b]\n"s, "a = 1\n["s, "a = 1\n\uFEFEb = 2"s}) {
    const auto read = parse_toml(text, "x.toml");
    ASSERT_FALSE(read.ok()) << text;
    EXPECT_EQ(read.message().find("x.toml:2: parsing "), 0u) << read.message();
  }
}

TEST(Toml, AnyTextComesBack) {
  for (const char* text : {"", "a b", "q\"\\", "two\nlines\tand a tab", "bell \x07, delete \x7f", "größer"}) {
    const auto settings = parse_toml(std::string("a = ") + toml_text(text), "f");
    ASSERT_TRUE(settings.ok()) << settings.message();
    EXPECT_EQ(values(*settings, "a"), std::vector<std::string>{text});
  }
}

TEST(Toml, FileErrorsNameThePath) {
  TempDir dir;
  const auto path = dir.add("c.toml", "x\n");
  EXPECT_NE(read_toml(path).message().find(path.string() + ":1: "), std::string::npos);
  EXPECT_NE(read_toml(dir / "none.toml").message().find("none.toml"), std::string::npos);
}

}  // namespace
}  // namespace sluice::core
