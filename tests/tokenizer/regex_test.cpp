// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/regex.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "tokenizer/code_set.h"

namespace sluice::core {
namespace {

// The matches of a pattern, with a bar around each: "a|b|c".
std::string marked(const std::string& pattern, const std::string& text) {
  const auto regex = Regex::compile(pattern);
  if (!regex.ok()) return regex.message();
  RegexScratch scratch;
  std::string out;
  LookAhead ahead(text.size());
  size_t begin = 0, end = 0, done = 0;
  for (size_t at = 0;
       at <= text.size() && regex->find(text, at, scratch, ahead, begin, end) == Regex::Found::Yes;) {
    out += text.substr(done, begin - done) + "|" + text.substr(begin, end - begin) + "|";
    done = end;
    at = end > at ? end : at + 1;
  }
  return out + text.substr(done);
}

TEST(Regex, MatchesAsTheLibraryDoes) {
  // An interval before '+' is repeated, not possessive; before '?' a fixed one is optional, not lazy.
  EXPECT_EQ(marked("a{1,3}+", "aaaaaaab"), "|aaaaaaa|b");
  EXPECT_EQ(marked("a{1,2}+a", "aaaab"), "|aaaa|b");
  EXPECT_EQ(marked("a{2}?b", "aaab"), "a|aab|");
  EXPECT_EQ(marked("a{,3}", "aaaaab"), "|aaa||aa|||b||");
  EXPECT_EQ(marked("x{}", "x{}x"), "|x{}|x");
  EXPECT_EQ(marked("a{1", "a{1"), "|a{1|");
  EXPECT_EQ(marked("a++b|a", "aaab"), "|aaab|");
  EXPECT_EQ(marked("a+?", "aa"), "|a||a|");
  // Case.
  EXPECT_EQ(marked("(?i:'s)", "x'ſ'S"), "x|'ſ||'S|");
  EXPECT_EQ(marked("(?i:k)", "kK\u212a"), "|k||K||\u212a|");
  EXPECT_EQ(marked("a(?i)b|c", "aBC"), "|aB|C");
  EXPECT_EQ(marked("(?i:a(?-i:b))", "AbAB"), "|Ab|AB");
  // Classes.
  EXPECT_EQ(marked("[\\s&&[^\\n]]", " \n\t"), "| |\n|\t|");
  EXPECT_EQ(marked("[a-c[x-z]]+", "aybq"), "|ayb|q");
  EXPECT_EQ(marked("[]a]+", "]a"), "|]a|");
  EXPECT_EQ(marked("[a-]+", "-a"), "|-a|");
  EXPECT_EQ(marked("\\h+", "agf"), "|a|g|f|");
  EXPECT_EQ(marked("\\p{uppercase letter}\\p{^Lu}", "aBc"), "a|Bc|");
  EXPECT_EQ(marked("[一-龥]+", "a一龥"), "a|一龥|");
  EXPECT_EQ(marked(".", "a\nb"), "|a|\n|b|");
  // White space: U+180E is none, U+0085 is.
  EXPECT_EQ(marked("\\s", "\u180e\u0085"), "\u180e|\u0085|");
  // Letters of Unicode 16.
  EXPECT_EQ(marked("\\p{L}+", "\u1c89!"), "|\u1c89|!");
  EXPECT_EQ(marked("(?<=a)b|(?<!a)c", "abac c"), "a|b|ac |c|");
}

// Begin and length of every match.
using Places = std::vector<std::pair<size_t, size_t>>;
Places places(const std::string& pattern, const std::string& text) {
  const auto regex = Regex::compile(pattern);
  EXPECT_TRUE(regex.ok()) << regex.message();
  RegexScratch scratch;
  LookAhead ahead(text.size());
  Places out;
  size_t begin = 0, end = 0;
  for (size_t at = 0;
       at <= text.size() && regex->find(text, at, scratch, ahead, begin, end) == Regex::Found::Yes;) {
    out.emplace_back(begin, end - begin);
    at = end > at ? end : at + 1;
  }
  return out;
}

// A search sees what is near first: that is not seen in what it finds.
TEST(Regex, FindsTheSameHoweverFarItLooks) {
  const std::string many(5000, 'a'), blanks(9000, ' '), b(9000, 'b');
  EXPECT_EQ(places("a*[bc]|a", many + "b"), (Places{{0, 5001}}));
  EXPECT_EQ(places("a*[bc]", many + "d" + many + "c"), (Places{{5001, 5001}}));
  EXPECT_EQ(places("\\s+(?!\\S)|\\s+", blanks + "x"), (Places{{0, 8999}, {8999, 1}}));
  EXPECT_EQ(places("x", blanks + "x"), (Places{{9000, 1}}));
  // At 4096 bytes and about it, also within a character and with nothing matched.
  for (size_t before = 4090; before < 4100; ++before) {
    const std::string y(before, 'y');
    EXPECT_EQ(places("x+", y + "xxx"), (Places{{before, 3}})) << before;
    EXPECT_EQ(places("(?=z)|x+", y + "xxxz"), (Places{{before, 3}, {before + 3, 0}})) << before;
    EXPECT_EQ(places("(?<=y)é+", y + "éé"), (Places{{before, 4}})) << before;
    EXPECT_EQ(places("x*", y + "xxx").at(before), (std::pair<size_t, size_t>{before, 3})) << before;
  }
  // What is looked at behind a match counts as before.
  const Places each = places("(?<=a)b+c|b", "a" + b + "d");
  ASSERT_EQ(each.size(), 9000u);
  EXPECT_EQ(each.front(), (std::pair<size_t, size_t>{1, 1}));
  EXPECT_EQ(places("(?<=a)b+c|b", "a" + b + "c"), (Places{{1, 9001}}));
}

// The time for it grows with the square of the text.
TEST(Regex, ATextIsNotReadAgainAndAgain) {
  const std::string text(200'000, 'a');
  for (const char* pattern : {"a*[bc]|a", "a*[bc]", "(?:a|a)*+[bc]|a"}) {
    const auto regex = Regex::compile(pattern);
    ASSERT_TRUE(regex.ok()) << regex.message();
    RegexScratch scratch;
    LookAhead ahead(text.size());
    size_t begin = 0, end = 0, at = 0;
    Regex::Found found = Regex::Found::Yes;
    for (; found == Regex::Found::Yes; at = end > at ? end : at + 1)
      found = regex->find(text, at, scratch, ahead, begin, end);
    EXPECT_EQ(found, Regex::Found::GaveUp) << pattern << " at " << at;
  }
}

TEST(Regex, RefusesByNameWhatTheEnginesTakeDifferently) {
  const std::pair<const char*, const char*> kCases[] = {
      {"(a)\\1", "'\\1'"},
      {"\\bfoo", "'\\b'"},
      {"\\X", "'\\X'"},
      {"^a", "'^'"},
      {"a$", "'$'"},
      {"(?i:ss)", "ligature"},
      {"(?i:é)", "beyond ASCII in any case"},
      {"(?i:\\p{Lu})", "class of characters in any case"},
      {"\\p{Nonsense}", "\\p{Nonsense}"},
      {"[[:alpha:]]", "POSIX"},
      {"a{3,1}", "an interval that falls"},
      {"a{5000}", "a repetition beyond 1000"},
      {"*a", "a repetition of nothing"},
      {"(?=a)*", "a repetition of a place"},
      {"[\\d-z]", "'-' after a class"},
      {"[z-a]", "this range"},
      {"[", "a class without an end"},
      {"(", "a group without an end"},
      {")", "an unmatched ')'"},
      {"\\", "a backslash at the end"},
      {"(?x: a)", "'(?x'"},
      {"\\x{110000}", "this number of a character"},
      {"(*ACCEPT)", "'(*'"},
  };
  for (const auto& [pattern, what] : kCases) {
    const auto regex = Regex::compile(pattern);
    ASSERT_FALSE(regex.ok()) << pattern;
    EXPECT_NE(regex.message().find(what), std::string::npos) << regex.message();
    EXPECT_NE(regex.message().find(pattern), std::string::npos) << regex.message();
  }
}

TEST(Regex, BoundsNestingAndSize) {
  EXPECT_FALSE(Regex::compile(std::string(10000, '(')).ok());
  EXPECT_FALSE(Regex::compile(std::string(10000, '[')).ok());
  std::string large;
  for (int i = 0; i < 3000; ++i) large += "\\p{L}";
  EXPECT_FALSE(Regex::compile(large).ok());
}

TEST(Regex, SaysWhatMoreTextMightChange) {
  const auto regex = Regex::compile("\\s+(?!\\S)|\\s+|a+");
  ASSERT_TRUE(regex.ok());
  RegexScratch scratch;
  LookAhead ahead(3);
  size_t begin = 0, end = 0;
  EXPECT_EQ(regex->find("a b", 0, scratch, ahead, begin, end, true), Regex::Found::Yes);
  EXPECT_EQ(end, 1u);
  EXPECT_EQ(regex->find("baa", 0, scratch, ahead, begin, end, true), Regex::Found::Open);
  EXPECT_EQ(regex->find("baa", 0, scratch, ahead, begin, end), Regex::Found::Yes);
}

TEST(CodeSet, KeepsRangesApart) {
  constexpr CodeRange kRanges[] = {{10, 20}, {5, 11}, {21, 30}, {0xd000, 0xe100}};
  const CodeSet set(kRanges);
  const std::vector<CodeRange> expected = {{5, 30}, {0xd000, 0xd7ff}, {0xe000, 0xe100}};
  EXPECT_EQ(std::vector<CodeRange>(set.ranges().begin(), set.ranges().end()), expected);
  EXPECT_TRUE(set.contains(30) && !set.contains(31) && !set.contains(0xd800));
  EXPECT_TRUE(set.intersection(set.complement()).empty());
}

TEST(Utf8, FindsWhatIsNone) {
  EXPECT_EQ(find_invalid_utf8("aé一😀"), std::string_view::npos);
  const std::pair<const char*, size_t> kCases[] = {{"ab\xff", 2},           {"\xc0\x80", 0},
                                                   {"x\xed\xa0\x80", 1},    {"\xf4\x90\x80\x80", 0},
                                                   {"abcdefgh\xe4\xb8", 8}, {"\x80", 0}};
  for (const auto& [text, at] : kCases) EXPECT_EQ(find_invalid_utf8(text), at);
  EXPECT_EQ(to_valid_utf8("a\xe4\xb8z\xff\xf0\x9f\x98"), "a\ufffdz\ufffd\ufffd");
  EXPECT_EQ(to_valid_utf8("\xed\xa0\x80"), "\ufffd\ufffd\ufffd");
}

}  // namespace
}  // namespace sluice::core
