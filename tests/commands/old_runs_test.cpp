// SPDX-License-Identifier: Apache-2.0
// Runs that an earlier program left behind (tests/fixtures/runs) go on as they would have, or are refused
// with what changed and the flag that accepts it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "commands/text_runs.h"

namespace sluice::core {
namespace {

namespace fs = std::filesystem;

struct OldRun {
  const char* commit;  // of the program that left it
  const char* name;
  // What its steps round to, and how often between weights and logits.
  double rounding;
  // Tokens of records are made anew, as records may be learnt otherwise now: here they are not.
  bool tokens_anew = false;
  // Where this program does not go on with it: what the refusal names, and the word that allows it.
  std::string refused = {}, allow = {};
  // A run that begins now holds out other documents; this one keeps those that it held out.
  bool splits_otherwise = false;
};

// Names of tests do not depend on where the texts lie.
void PrintTo(const OldRun& run, std::ostream* out) {
  *out << run.commit << " " << run.name;
}

// An f32 product of these models has up to 259 terms, each of which may be rounded; a bf16 result is rounded
// once, as its terms are summed in f32. Some twenty results lie between a token and its loss, and none is
// much above 1.
constexpr double kResults = 20, kTerms = 259;
constexpr double kF32 = kResults * kTerms / (1 << 24), kBf16 = kResults / (1 << 8);

const std::vector<OldRun>& old_runs() {
  static const std::vector<OldRun> runs{
      {"dc5f8cf", "documents", kF32, false, {}, {}, /*splits_otherwise=*/true},
      {"dc5f8cf", "chats", kBf16, /*tokens_anew=*/true},
      {"dc5f8cf", "rounded", kBf16},
      {"dc5f8cf", "silences", kBf16, /*tokens_anew=*/true,
       "Sluice 0.1.0 learnt 3 of their documents otherwise", "data"},
      {"41493256", "chats", kBf16},
      {"41493256", "experts", kBf16},
      {"41493256", "frozen", kF32},
      {"41493256", "halves", kBf16},
      {"41493256", "replicas", kF32}};
  return runs;
}

class OldRuns : public testing::TestWithParam<OldRun> {
 protected:
  OldRuns() {
    const fs::path fixtures = SLUICE_FIXTURES;
    fs::copy(fixtures / "runs" / GetParam().commit, dir_.path(),
             fs::copy_options::recursive | fs::copy_options::copy_symlinks);
    for (const char* file : {"tokenizer.json", "tokenizer_config.json"})
      fs::copy_file(fixtures / "chat_tiny" / file, dir_ / "chat" / file);
  }

  RunRequest request(const std::string& run, std::vector<std::string> more = {}) const {
    RunRequest r;
    r.config_path = (dir_ / (std::string(GetParam().name) + ".toml")).string();
    r.settings = {"run.backend=cpu",
                  "run.threads=1",
                  "run.trace=false",
                  "sample.tokens=0",
                  "data.cache=" + (dir_ / "cache").string(),
                  "run.dir=" + (dir_ / run).string()};
    r.settings.insert(r.settings.end(), more.begin(), more.end());
    return r;
  }

  // The files of the cache that tokens are in, and what they hold.
  std::vector<std::pair<fs::path, std::string>> token_bytes() const {
    std::vector<std::pair<fs::path, std::string>> files;
    for (const auto& [path, time] : tokens()) files.emplace_back(path, file_bytes(path));
    return files;
  }
  // And when they were written.
  std::vector<std::pair<fs::path, fs::file_time_type>> tokens() const {
    std::vector<std::pair<fs::path, fs::file_time_type>> files;
    for (const auto& entry : fs::recursive_directory_iterator(dir_ / "cache")) {
      if (entry.path().extension() == ".tokens") files.emplace_back(entry.path(), entry.last_write_time());
    }
    std::sort(files.begin(), files.end());
    return files;
  }

  static std::vector<nlohmann::json> lines(const fs::path& file) {
    std::vector<nlohmann::json> out;
    std::istringstream in(file_bytes(file));
    for (std::string line; std::getline(in, line);) out.push_back(nlohmann::json::parse(line));
    return out;
  }

  const TempDir dir_;
};

TEST_P(OldRuns, GoOn) {
  const OldRun& old = GetParam();
  const std::string name = old.name;
  // The shape of a step is the checkpoint's, and so is the learning rate, of which the files say nothing.
  RunRequest again = request(name, {"shape.chunk_tokens=0", "shape.rounds=0", "shape.first_round_chunks=0",
                                    "shape.head_tokens=0", "run.keep_last=1"});
  if (!old.refused.empty()) {
    const Outcome refused = TextRuns::start(again);
    EXPECT_NE(refused.message.find(old.refused), std::string::npos) << refused.message;
    EXPECT_NE(refused.message.find("(--allow " + old.allow + ")"), std::string::npos) << refused.message;
    again.allow = old.allow;
    EXPECT_EQ(TextRuns::start(again).message, "");
    return;
  }
  for (const auto& [path, time] : tokens()) fs::last_write_time(path, time - std::chrono::hours(1));
  const auto tokens_then = tokens();
  const auto bytes_then = token_bytes();
  // The same steps from the beginning, here.
  const Outcome fresh = TextRuns::start(request("fresh", {"train.learning_rate=1e-3", "run.keep_last=100"}));
  ASSERT_EQ(fresh.message, "");
  const Outcome done = TextRuns::start(again);
  ASSERT_EQ(done.message, "");
  const auto then = lines(dir_ / (name + ".steps.jsonl")), now = lines(dir_ / (name + "/metrics.jsonl")),
             here = lines(dir_ / "fresh/metrics.jsonl");
  ASSERT_EQ(now.size(), then.size());
  ASSERT_EQ(here.size(), then.size());
  // Sums are in other orders on other processors. Where this one has made the same weights of the same text,
  // the rest of the run is the same, too, to the last bit.
  const auto saved = [&](const std::string& run, const char* file) {
    return file_bytes(dir_ / (run + "/checkpoints/" + file));
  };
  const bool same_bits =
      saved("fresh", "step-4/model.safetensors") == saved(name, "step-4/model.safetensors");
  for (size_t i = 0; i < then.size(); ++i) {
    SCOPED_TRACE(fmt::format("step {}", i + 1));
    EXPECT_DOUBLE_EQ(now[i]["learning_rate"].get<double>(), then[i]["learning_rate"].get<double>());
    if (same_bits) {
      EXPECT_EQ(now[i]["loss"], then[i]["loss"]);
    }
    for (const char* key : {"loss", "heldout_loss"}) {
      ASSERT_EQ(now[i].contains(key), then[i].contains(key)) << key;
      if (!then[i].contains(key)) continue;
      EXPECT_NEAR(now[i][key].get<double>(), then[i][key].get<double>(), old.rounding) << key;
      if (old.splits_otherwise) continue;
      EXPECT_NEAR(here[i][key].get<double>(), then[i][key].get<double>(), old.rounding) << key;
    }
  }
  if (same_bits) {
    for (const char* file : {"latest/model.safetensors", "latest/optimizer.safetensors"})
      EXPECT_TRUE(saved(name, file) == saved("fresh", file)) << file;
  }
  // Tokens that the earlier program made of the same files are those of both runs.
  const auto bytes_now = token_bytes();
  EXPECT_TRUE(std::includes(bytes_now.begin(), bytes_now.end(), bytes_then.begin(), bytes_then.end()));
  EXPECT_EQ(bytes_now.size() > bytes_then.size(), old.splits_otherwise);
  if (!old.splits_otherwise) {
    EXPECT_EQ(tokens() == tokens_then, !old.tokens_anew);
  }
  // Of its checkpoints and those of now the newest stay.
  EXPECT_FALSE(fs::exists(dir_ / (name + "/checkpoints/step-4")));
  EXPECT_TRUE(fs::exists(dir_ / (name + "/checkpoints/step-6")));
}

INSTANTIATE_TEST_SUITE_P(OfCommits, OldRuns, testing::ValuesIn(old_runs()), [](const auto& row) {
  return fmt::format("{}_{}", row.param.commit, row.param.name);
});

// The plan that a run kept is read, and told apart from another.
TEST(OldPlans, AreCompared) {
  const fs::path runs = fs::path(SLUICE_FIXTURES) / "runs/41493256";
  const auto plan = [&](const char* run) { return (runs / run / "plan.json").string(); };
  testing::internal::CaptureStdout();
  EXPECT_EQ(diff_plans(plan("frozen"), plan("experts")).message, "");
  EXPECT_NE(testing::internal::GetCapturedStdout().find("step"), std::string::npos);
}

}  // namespace
}  // namespace sluice::core
