// SPDX-License-Identifier: Apache-2.0
// Who is in which row, on a model whose next token is a sum over the text so far.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "equivalence/rig/rig.h"
#include "generate/generator.h"

namespace sluice::core {
namespace {

using rig::must;

constexpr int64_t kVocab = 50;

// Keeps what every row was given, as a cache would. Reads up to `prompt_rows` prompts at once.
class SumModel : public CachedTextModel {
 public:
  SumModel(int64_t rows, int64_t prompt_tokens, int64_t prompt_rows = 64, bool draws = false)
      : held_(size_t(rows)),
        prompt_tokens_(prompt_tokens),
        prompt_rows_(std::min(rows, prompt_rows)),
        draws_(draws) {}

  int64_t rows() const override { return int64_t(held_.size()); }
  int64_t capacity() const override { return 64; }
  int64_t prompt_rows() const override { return prompt_rows_; }
  int64_t prompt_tokens() const override { return prompt_tokens_; }
  bool copies_rows() const override { return true; }
  bool draws() const override { return draws_; }
  Status pass(bool prompts, std::span<const RowInput> inputs, std::span<const RowCopy> copies) override {
    ++passes;
    EXPECT_LE(int64_t(inputs.size()), prompts ? prompt_rows_ : rows());
    logits_.assign(inputs.size() * kVocab, 0.0f);
    for (size_t i = 0; i < inputs.size(); ++i) {
      const RowInput& input = inputs[i];
      EXPECT_GE(input.tokens.size(), 1u);
      EXPECT_LE(int64_t(input.tokens.size()), prompts ? prompt_tokens_ : 1);
      std::vector<int32_t>& held = held_[size_t(input.row)];
      EXPECT_LE(input.held, int64_t(held.size()));
      held.resize(size_t(input.held));
      held.insert(held.end(), input.tokens.begin(), input.tokens.end());
      EXPECT_LE(int64_t(held.size()), capacity());
      logits_[i * kVocab + size_t(next(held))] = 4;
    }
    prompt_tokens_read += prompts ? int64_t(inputs.size()) : 0;
    for (const RowCopy& copy : copies) held_[size_t(copy.to)] = held_[size_t(copy.from)];
    return {};
  }
  std::span<const float> logits(size_t input) const override {
    return std::span(logits_).subspan(input * kVocab, kVocab);
  }
  // By the sampler's own sums.
  Result<std::span<const DrawnToken>> pass(bool prompts, std::span<const RowInput> inputs,
                                           std::span<const RowCopy> copies,
                                           std::span<const TokenDraw> draws) override {
    EXPECT_LE(int64_t(draws.size()), rows());
    SLUICE_TRY(pass(prompts, inputs, copies));
    drawn_.clear();
    for (const TokenDraw& draw : draws) {
      const auto x = logits(size_t(draw.text));
      double total = 0, sum = 0;
      for (const float l : x) total += std::exp(double(l) * draw.per_temperature);
      int32_t token = int32_t(std::max_element(x.begin(), x.end()) - x.begin());
      for (size_t v = 0; v < x.size() && draw.per_temperature > 0; ++v) {
        sum += std::exp(double(x[v]) * draw.per_temperature);
        if (sum <= draw.u * total) continue;
        token = int32_t(v);
        break;
      }
      drawn_.push_back({double(token), log_prob(x, token), 0});
    }
    return std::span<const DrawnToken>(drawn_);
  }

  static int32_t next(const std::vector<int32_t>& text) {
    int64_t sum = 3;
    for (size_t i = 0; i < text.size(); ++i) sum = (sum * 7 + text[i] + int64_t(i)) % kVocab;
    return int32_t(sum);
  }

  int passes = 0;
  int64_t prompt_tokens_read = 0;

 private:
  std::vector<std::vector<int32_t>> held_;
  const int64_t prompt_tokens_, prompt_rows_;
  const bool draws_;
  std::vector<float> logits_;
  std::vector<DrawnToken> drawn_;
};

struct Collected : TextSink {
  Result<bool> token(size_t text, const ChosenToken& chosen) override {
    texts[text].push_back(chosen.token);
    log_probs[text].push_back(chosen.log_prob);
    return chosen.token != refused;
  }
  Status ended(size_t text, TextEnd end) override {
    EXPECT_FALSE(ends.contains(text));
    ends[text] = end;
    return {};
  }
  bool stop() override { return left-- == 0; }

  std::map<size_t, std::vector<int32_t>> texts;
  std::map<size_t, std::vector<double>> log_probs;
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
        EXPECT_EQ(got.texts[i], alone(all[i]))
            << rows << " rows, pieces of " << prompt_tokens << ", text " << i;
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
    std::span<const float> logits(size_t) const override { return logits_; }

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

// Draws of three samples of every prompt, by temperature 1, are the same whatever rows there are, how many
// prompts a pass reads, and who draws; and samples differ.
TEST(Generator, SamplesDoNotDependOnRows) {
  std::vector<GenerationTask> all = tasks();
  for (size_t i = 0; i < all.size(); ++i) all[i].samples = int64_t(i % 4 + 1);
  const GenerateOptions options{{.temperature = 1, .seed = 3}, {}, /*log_probs=*/true};
  SumModel one(1, 64);
  Collected expected;
  (void)must(generate(one, all, options, expected));
  ASSERT_EQ(expected.texts.size(), 16u);
  EXPECT_NE(expected.texts[1], expected.texts[2]);
  for (const int64_t rows : {2, 3, 8, 40}) {
    for (const int64_t prompt_rows : {1, 2, 64}) {
      for (const bool draws : {false, true}) {
        SumModel model(rows, 3, prompt_rows, draws);
        Collected got;
        (void)must(generate(model, all, options, got));
        EXPECT_EQ(got.texts, expected.texts) << rows << " rows, " << prompt_rows << " prompts at once";
        for (const auto& [text, log_probs] : got.log_probs) {
          for (size_t i = 0; i < log_probs.size(); ++i)
            EXPECT_NEAR(log_probs[i], expected.log_probs[text][i], 1e-12);
        }
      }
    }
  }
}

// A prompt's first sample is what it is without others.
TEST(Generator, TheFirstSampleIsThatOfATaskWithOne) {
  std::vector<GenerationTask> all = tasks();
  const GenerateOptions options{{.temperature = 1, .seed = 8}, {}};
  SumModel alone(3, 4), shared(9, 4);
  Collected first, more;
  (void)must(generate(alone, all, options, first));
  for (GenerationTask& task : all) task.samples = 3;
  (void)must(generate(shared, all, options, more));
  for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(more.texts[3 * i], first.texts[i]);
}

// A prompt whose samples all find a row is read once.
TEST(Generator, SamplesShareTheirPrompt) {
  std::vector<GenerationTask> all{tasks()[6]};
  all[0].samples = 8;
  SumModel model(8, 64);
  Collected got;
  const GenerationCounts counts = must(generate(model, all, {}, got));
  EXPECT_EQ(model.prompt_tokens_read, 1);
  EXPECT_EQ(counts.prompt_tokens, int64_t(all[0].prompt.size()));
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(got.texts[i], alone(all[0]));
}

}  // namespace
}  // namespace sluice::core
