// SPDX-License-Identifier: Apache-2.0
// Lines of JSON that are evaluated one by one: their tokens, windows and refusals; and what packing leaves of
// a text's score.
#include "commands/evaluate_each.h"

#include <gtest/gtest.h>

#include <random>

#include "commands/text_runs.h"
#include "equivalence/rig/rig.h"

namespace sluice::core {
namespace {

using rig::must;

// Bytes are tokens here, and there is a last token, <|im_end|>, but no first one.
class EachLine : public testing::Test {
 protected:
  Result<EachTexts> read(const std::string& lines, int64_t seq_len = 8, bool cut = false) {
    dir_.add("each.jsonl", lines);
    return read_each({.path = (dir_ / "each.jsonl").string(),
                      .tokenizer = SLUICE_FIXTURES "/chat_tiny/tokenizer.json",
                      .seq_len = seq_len,
                      .vocab = 259,
                      .cut_prompts = cut});
  }
  void refuses(const std::string& lines, const std::string& why) {
    const auto each = read(lines);
    ASSERT_FALSE(each.ok()) << lines;
    EXPECT_NE(each.message().find(why), std::string::npos) << each.message();
  }
  const TempDir dir_;
};

TEST_F(EachLine, SpacesBehindAPromptBelongToItsCompletion) {
  const EachTexts each = must(read(R"({"prompt": "ab ", "completion": "cd"})"));
  ASSERT_EQ(each.texts.size(), 1u);
  EXPECT_EQ(each.texts[0].ids.size(), 5u);
  EXPECT_EQ(each.texts[0].first, 2u);
}

TEST_F(EachLine, ATokenStandsInFrontOfWhatHasNoPrompt) {
  const EachTexts each = must(read("{\"prompt\": \"\", \"completion\": \"cd\"}\n\n{\"text\": \"cd\"}"));
  ASSERT_EQ(each.lines, 2u);
  EXPECT_EQ(each.texts[0].ids, each.texts[1].ids);
  EXPECT_EQ(each.texts[0].ids.size(), 3u);
  EXPECT_EQ(each.texts[1].first, 1u);
}

// 20 tokens behind the one in front, in rows of 8: 8, 8 and 4, and the last window is as long as a row.
TEST_F(EachLine, ALongTextIsCountedInWindows) {
  const EachTexts each = must(read(R"({"text": "abcdefghijklmnopqrst"})"));
  ASSERT_EQ(each.texts.size(), 3u);
  const size_t counted[] = {8, 8, 4}, first[] = {1, 1, 5};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(each.texts[i].ids.size(), 9u);
    EXPECT_EQ(each.texts[i].first, first[i]);
    EXPECT_EQ(each.texts[i].ids.size() - each.texts[i].first, counted[i]);
    EXPECT_EQ(each.line_of[i], 0u);
  }
}

TEST_F(EachLine, ALongPromptIsCutWhereThatIsAllowed) {
  const std::string line = R"({"prompt": "abcdefgh", "completion": "ij"})";
  refuses(line, "line 1: it has 10 tokens, 2 of its completion, and a row has 8");
  const EachTexts each = must(read(line, 8, true));
  EXPECT_EQ(each.cut, 1);
  EXPECT_EQ(each.texts[0].ids.size(), 9u);
  EXPECT_EQ(each.texts[0].first, 7u);
  refuses(R"({"prompt": "a", "completion": "abcdefghijk"})", "--seq-len says more");
}

TEST_F(EachLine, WhatIsNoLineIsRefusedByNumber) {
  refuses("{\"text\": \"a\"}\n[1]", "line 2: a JSON object is needed");
  refuses(R"({"prompt": "a"})", "line 1: allowed are the strings");
  refuses(R"({"text": "a", "label": 1})", "line 1: allowed are the strings");
  refuses(R"({"prompt": "a", "completion": ""})", "its completion adds no token");
  refuses("\n", "there is no line in it");
}

// Losses that tell the token and what it reads: a text's score is its own, wherever it lies.
TEST(CountedTextsInRows, HaveTheScoresOfEachAlone) {
  std::mt19937 random(7);
  std::vector<CountedText> texts;
  for (int i = 0; i < 40; ++i) {
    CountedText text;
    for (size_t n = 2 + random() % 16; text.ids.size() < n;) text.ids.push_back(int32_t(random() % 100));
    text.first = 1 + random() % (text.ids.size() - 1);
    texts.push_back(text);
  }
  const int64_t sequence = 17;
  const CountedTexts packed(texts, sequence);
  EXPECT_LT(packed.epoch_rows(), 30);
  std::vector<TextScore> scores(texts.size());
  Rows rows(kPlainBatch, sequence);
  for (int64_t row = 0; row < packed.epoch_rows(); ++row) {
    packed.fill(0, row, rows.part(0, sequence));
    const auto tokens = rows.column(BatchColumn::Tokens), targets = rows.column(BatchColumn::Targets),
               positions = rows.column(BatchColumn::Positions);
    TokenLosses losses;
    for (size_t t = 0; t < size_t(sequence); ++t) {
      losses.loss.push_back(targets[t] < 0 ? 1e9 : tokens[t] + 100 * targets[t] + 1e4 * positions[t]);
      losses.is_top.push_back(targets[t] % 2);
    }
    for (const auto& [text, score] : packed.scores(row, 0, losses)) scores[text] = score;
  }
  for (size_t i = 0; i < texts.size(); ++i) {
    TextScore alone;
    for (size_t t = texts[i].first; t < texts[i].ids.size(); ++t) {
      const int32_t target = texts[i].ids[t];
      alone.log_prob -= texts[i].ids[t - 1] + 100 * target + 1e4 * double(t - 1);
      alone.tokens += 1, alone.likeliest += target % 2;
    }
    EXPECT_EQ(scores[i].log_prob, alone.log_prob) << i;
    EXPECT_EQ(scores[i].tokens, alone.tokens) << i;
    EXPECT_EQ(scores[i].likeliest, alone.likeliest) << i;
  }
}

}  // namespace
}  // namespace sluice::core
