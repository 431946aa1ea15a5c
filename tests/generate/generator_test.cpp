// SPDX-License-Identifier: Apache-2.0
// Who is in which row, on a model whose next token is a sum over the text so far.
#include <gtest/gtest.h>

#include <map>

#include "equivalence/rig/rig.h"
#include "generate/generator.h"

namespace sluice::core {
namespace {

using rig::must;

constexpr int64_t kVocab = 50;

// Keeps what every row was given, as a cache would.
class SumModel : public CachedTextModel {
 public:
  SumModel(int64_t rows, int64_t prompt_tokens) : held_(size_t(rows)), prompt_tokens_(prompt_tokens) {}

  int64_t rows() const override { return int64_t(held_.size()); }
  int64_t capacity() const override { return 64; }
  int64_t prompt_tokens() const override { return prompt_tokens_; }
  Result<std::span<const float>> pass(bool prompts, std::span<const RowInput> inputs) override {
    ++passes;
    logits_.assign(held_.size() * kVocab, 0.0f);
    for (size_t r = 0; r < inputs.size(); ++r) {
      EXPECT_LE(int64_t(inputs[r].tokens.size()), prompts ? prompt_tokens_ : 1);
      held_[r].resize(size_t(inputs[r].held));
      held_[r].insert(held_[r].end(), inputs[r].tokens.begin(), inputs[r].tokens.end());
      EXPECT_LE(int64_t(held_[r].size()), capacity());
      logits_[r * kVocab + size_t(next(held_[r]))] = 1;
    }
    return std::span<const float>(logits_);
  }

  static int32_t next(const std::vector<int32_t>& text) {
    int64_t sum = 3;
    for (size_t i = 0; i < text.size(); ++i) sum = (sum * 7 + text[i] + int64_t(i)) % kVocab;
    return int32_t(sum);
  }

  int passes = 0;

 private:
  std::vector<std::vector<int32_t>> held_;
  const int64_t prompt_tokens_;
  std::vector<float> logits_;
};

struct Collected : TextSink {
  Result<bool> token(size_t text, int32_t token) override {
    texts[text].push_back(token);
    return token != refused;
  }
  Status ended(size_t text, TextEnd end) override {
    EXPECT_FALSE(ends.contains(text));
    ends[text] = end;
    return {};
  }
  bool stop() override { return left-- == 0; }

  std::map<size_t, std::vector<int32_t>> texts;
  std::map<size_t, TextEnd> ends;
  int32_t refused = -1;
  int left = 1000000;
};

std::vector<GenerationTask> tasks() {
  std::vector<GenerationTask> out;
  for (int32_t i = 0; i < 7; ++i) {
    GenerationTask task;
    for (int32_t k = 0; k <= 5 * i % 13; ++k) task.prompt.push_back((i * 11 + k * 3) % kVocab);
    task.most_tokens = 1 + 4 * i % 10;
    out.push_back(std::move(task));
  }
  return out;
}

std::vector<int32_t> alone(const GenerationTask& task) {
  std::vector<int32_t> text = task.prompt;
  for (int64_t i = 0; i < task.most_tokens; ++i) text.push_back(SumModel::next(text));
  return {text.begin() + long(task.prompt.size()), text.end()};
}

TEST(Generator, ATextDoesNotDependOnRowsNorOnThePieces) {
  const std::vector<GenerationTask> all = tasks();
  for (const int64_t rows : {1, 2, 3, 7, 12}) {
    for (const int64_t prompt_tokens : {1, 2, 5, 64}) {
      SumModel model(rows, prompt_tokens);
      Collected got;
      const GenerationCounts counts = must(generate(model, all, {}, got));
      ASSERT_EQ(got.texts.size(), all.size());
      int64_t prompts = 0, made = 0;
      for (size_t i = 0; i < all.size(); ++i) {
        EXPECT_EQ(got.texts[i], alone(all[i])) << rows << " rows, pieces of " << prompt_tokens << ", text " << i;
        EXPECT_EQ(got.ends[i], TextEnd::Length);
        prompts += int64_t(all[i].prompt.size());
        made += all[i].most_tokens;
      }
      EXPECT_EQ(counts.prompt_tokens, prompts);
      EXPECT_EQ(counts.new_tokens, made);
      EXPECT_EQ(counts.prompt_passes + counts.token_passes, model.passes);
    }
  }
}

TEST(Generator, AStopTokenEndsATextAndIsNoPartOfIt) {
  const std::vector<GenerationTask> all{tasks()[6]};
  const std::vector<int32_t> whole = alone(all[0]);
  ASSERT_GE(whole.size(), 3u);
  SumModel model(2, 4);
  Collected got;
  (void)must(generate(model, all, {{}, {whole[2]}}, got));
  EXPECT_EQ(got.ends[0], TextEnd::StopToken);
  EXPECT_EQ(got.texts[0], std::vector<int32_t>(whole.begin(), whole.begin() + 2));
}

TEST(Generator, ATextEndsWhereItsReaderSays) {
  const std::vector<GenerationTask> all{tasks()[6]};
  const std::vector<int32_t> whole = alone(all[0]);
  SumModel model(1, 4);
  Collected got;
  got.refused = whole[1];
  (void)must(generate(model, all, {}, got));
  EXPECT_EQ(got.ends[0], TextEnd::StopString);
  EXPECT_EQ(got.texts[0].size(), 2u);
}

TEST(Generator, StopsBetweenPasses) {
  const std::vector<GenerationTask> all = tasks();
  SumModel model(2, 4);
  Collected got;
  got.left = 3;
  (void)must(generate(model, all, {}, got));
  EXPECT_EQ(model.passes, 3);
}

TEST(Generator, LogitsThatAreNotFiniteAreRefused) {
  class Broken : public SumModel {
   public:
    using SumModel::SumModel;
    Result<std::span<const float>> pass(bool, std::span<const RowInput>) override {
      return std::span<const float>(logits_);
    }

   private:
    std::vector<float> logits_ = std::vector<float>(size_t(kVocab), NAN);
  };
  Broken model(1, 4);
  Collected got;
  const std::vector<GenerationTask> all{{{1, 2, 3}, 4}};
  const auto result = generate(model, all, {}, got);
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.message().find("text 1, after 3 tokens: logits are not finite"), std::string::npos);
}

}  // namespace
}  // namespace sluice::core
