// SPDX-License-Identifier: Apache-2.0
// The loss of a model's folder, compared with what transformers says of it.
#include "run/inference/evaluator.h"

#include <nlohmann/json.hpp>

#include "config/files/load_config.h"
#include "run/inputs/resolve.h"
#include "run/small_session.h"
#include "tokenizer/tokenizer.h"

namespace sluice::core {
namespace {

namespace fs = std::filesystem;

class Evaluators : public testing::Test {
 protected:
  Evaluators() : fixture_(nlohmann::json::parse(file_bytes(fs::path(SLUICE_FIXTURES) / "heldout.json"))) {
    model_ = model_with_tokenizer(dir_);
    fs::copy_file(fs::path(SLUICE_FIXTURES) / "llama_tiny/model.safetensors",
                  dir_ / "model/model.safetensors");
    dir_.add("text.txt", fixture_["text"].get<std::string>());
  }
  // In rows of so many tokens, processed together in chunks of so many.
  Evaluation evaluate(int64_t seq_len, int64_t chunk_tokens, const std::string& device = "none") {
    const RunConfig config = must(load_config(
        "",
        {model_, "model.weights=" + (dir_ / "model").string(), "data.heldout=0", "data.mode=contiguous",
         "data.paths=[\"" + (dir_ / "text.txt").string() + "\"]", "data.cache=" + (dir_ / "cache").string(),
         fmt::format("train.seq_len={}", seq_len), fmt::format("train.tokens_per_step={}", seq_len),
         "train.compute=f32", "run.backend=cpu", "run.threads=1", "memory.device=" + device}));
    const ModelSpec model = must(resolve_model(config));
    const Machine machine = must(resolve_machine(config, ""));
    const RunData data = must(open_data(config, model.vocab, silent_observer(), DataUse::Evaluate));
    EvaluatorSetup setup;
    setup.model = model;
    setup.numerics = must(resolve_numerics(config, machine));
    setup.seq_len = seq_len;
    setup.packed = data.train->packed();
    setup.rows = data.train->epoch_rows();
    setup.chunk_tokens = chunk_tokens;
    setup.caps = machine.caps_here(config.caps);
    const EvaluatorPlan plan = must(plan_evaluator(setup, machine.profile));
    const auto evaluator = must(Evaluator::open(plan, machine, config.model.weights, silent_observer()));
    return must(evaluate_rows(
        *data.train, setup.rows, [&](int64_t) { return plan.shape.sequences(); },
        [&](const Rows& rows) { return evaluator->evaluate(rows); }));
  }
  const TempDir dir_;
  const nlohmann::json fixture_;
  std::string model_;
};

// The bytes of the first token, which nothing predicts, are not divided by.
TEST_F(Evaluators, BytesAreThoseOfPredictedTokens) {
  const fs::path folder = fs::path(SLUICE_FIXTURES) / "chat_tiny";
  const Tokenizer tokenizer = must(Tokenizer::open(folder / "tokenizer.json"));
  for (const std::string& text : {fixture_["text"].get<std::string>(), std::string("\U0001F600 is a face."),
                                  std::string("\u00e4 has two bytes."), std::string(" A space first.")}) {
    dir_.add("one.txt", text);
    std::vector<size_t> ends;
    must(tokenizer.encode_places(text, {}, [&](auto, std::span<const Tokenizer::Stretch> places) -> Status {
      for (const Tokenizer::Stretch& place : places) ends.push_back(place.end);
      return {};
    }));
    ASSERT_TRUE(tokenizer.tokens_before().empty());
    const RunConfig config =
        must(load_config("", {"model.config=" + folder.string(), "data.heldout=0",
                              "data.paths=[\"" + (dir_ / "one.txt").string() + "\"]", "train.seq_len=4",
                              "train.tokens_per_step=4", "data.cache=" + (dir_ / "cache").string()}));
    const RunData data =
        must(open_data(config, must(resolve_model(config)).vocab, silent_observer(), DataUse::Evaluate));
    EXPECT_EQ(data.train_bytes_per_token,
              double(text.size() - ends[0]) / double(data.train_documents.learnt - 1))
        << text;
  }
}

// A piece hands on what convolutions look back at: it has to have that many tokens.
TEST(EvaluatorPlans, PiecesAreNoShorterThanWhatConvolutionsLookBack) {
  const RunConfig config =
      must(load_config("", {"model.config=" + (fs::path(SLUICE_FIXTURES) / "lfm2_tiny").string(),
                            "train.compute=f32", "run.backend=cpu"}));
  EvaluatorSetup setup;
  setup.model = must(resolve_model(config));
  const Machine machine = must(resolve_machine(config, ""));
  setup.numerics = must(resolve_numerics(config, machine));
  setup.seq_len = 16;
  setup.rows = 4;
  setup.chunk_tokens = 1;
  const auto refused = plan_evaluator(setup, machine.profile);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("shape.chunk_tokens = 1: pieces of sequences need at least 2"),
            std::string::npos)
      << refused.error().message;
  setup.chunk_tokens = 2;
  EXPECT_TRUE(plan_evaluator(setup, machine.profile).ok());
}

TEST_F(Evaluators, FindWhatTransformersFinds) {
  for (const auto& [length, rows] : fixture_["rows"].items()) {
    RowLoss expected;
    std::vector<double> losses;
    for (const auto& row : rows) {
      losses.push_back(row[0].get<double>());
      expected.add({row[0].get<double>(), row[1].get<int64_t>(), row[2].get<int64_t>()});
    }
    const Evaluation found = evaluate(std::stoll(length), 0);
    ASSERT_EQ(found.rows.size(), losses.size()) << length;
    EXPECT_EQ(found.total().targets, expected.targets);
    EXPECT_EQ(found.total().hits, expected.hits);
    EXPECT_NEAR(found.loss(), expected.mean(), 2e-6 * expected.mean()) << length;
    // Rows come in an order of their own.
    std::vector<double> own;
    for (const RowLoss& row : found.rows) own.push_back(row.loss);
    std::sort(own.begin(), own.end());
    std::sort(losses.begin(), losses.end());
    for (size_t i = 0; i < own.size(); ++i) EXPECT_NEAR(own[i], losses[i], 2e-6 * losses[i]);
  }
}

TEST_F(Evaluators, FindTheSameUnderEveryCapAndInChunksOfAnySize) {
  const Evaluation whole = evaluate(48, 96), capped = evaluate(48, 96, "150KiB");
  EXPECT_EQ(capped.rows, whole.rows) << "to the bit";
  for (const int64_t chunk : {12, 24, 48, 192}) {
    const Evaluation other = evaluate(48, chunk);
    EXPECT_EQ(other.total().targets, whole.total().targets);
    EXPECT_NEAR(other.loss(), whole.loss(), 1e-6 * whole.loss()) << chunk;
  }
}

}  // namespace
}  // namespace sluice::core
