// SPDX-License-Identifier: Apache-2.0
// Prompts whose answers have rewards (Compares::Rewards), which a run samples or finds recorded, or tokens of
// a teacher (Compares::Teacher), which were recorded.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "run/data/data.h"
#include "run/data/folder.h"

namespace sluice::core {

struct GradedAnswer {
  std::vector<int32_t> ids;      // one or more
  std::vector<float> log_probs;  // of each when it was sampled; empty: not known
  double reward = std::numeric_limits<double>::quiet_NaN();
  bool finished = true;  // it was not cut at the length
  // A teacher's likeliest tokens in the place of each, objective.loss_top_k of them, and their
  // log-probabilities; -1 and -inf: there are fewer.
  std::vector<int32_t> top_ids = {};
  std::vector<float> top_log_probs = {};
};

struct PromptGroup {
  std::vector<int32_t> prompt;
  std::vector<GradedAnswer> answers;  // none: they are sampled
};

class Prompts {
 public:
  // Reads data.paths; each record is looked at. Errors name file, line and reason.
  static Result<std::unique_ptr<Prompts>> open(const RunConfig& config, int64_t vocab);

  int64_t count() const { return std::ssize(records_); }
  const std::string& record(int64_t number) const { return records_[size_t(number)]; }
  PromptGroup group(int64_t number) const;
  // The number of prompt `index` of all that a run meets, in a shuffled order, another one in each epoch.
  int64_t number_of(int64_t index) const;
  // Prompts of a step, of which each has room for all of its answers.
  int64_t of_step() const { return of_step_; }
  // Documents are prompts with all of their answers; sampled ones count as if each were as long as may be.
  const Inventory& inventory() const { return inventory_; }
  int64_t files() const { return files_; }
  const std::vector<std::string>& notices() const { return notices_; }
  // Equal for equal records and tokens.
  const std::string& content() const { return content_; }
  const Folder& folder() const { return *folder_; }

  // Tokens that end an answer.
  std::span<const int32_t> ends() const { return ends_; }
  // Text of an answer, without special tokens.
  Result<std::string> text_of(std::span<const int32_t> ids) const;
  // The arguments of a reward function for groups whose answers have none yet, as TRL passes them: prompts,
  // completions, completion_ids, and every other key of the records.
  Result<std::string> arguments(std::span<const int64_t> numbers, std::span<const PromptGroup> groups) const;

  // Groups as a file of recorded answers, and back.
  Status write(std::span<const PromptGroup> groups, int64_t step, const std::filesystem::path& path) const;
  Result<std::vector<PromptGroup>> read(const std::filesystem::path& path, int64_t step) const;

 private:
  Prompts(const RunConfig& config, int64_t vocab) : config_(config), vocab_(vocab) {}
  Status read_all();
  Status count_step();
  Result<PromptGroup> parse(std::string_view json, bool recorded) const;
  Result<std::vector<int32_t>> encode(std::string_view text) const;
  // The tokens of a prompt and those that end an answer to it.
  struct Asked {
    std::vector<int32_t> ids, end;
  };
  Result<Asked> ask(const nlohmann::json& record) const;
  Status check_ids(std::span<const int32_t> ids) const;

  const RunConfig config_;
  const int64_t vocab_;
  std::unique_ptr<Folder> folder_;
  std::vector<std::string> records_;
  std::vector<int32_t> ends_;
  std::vector<std::string> notices_;  // on records that are left out
  std::string content_;
  Inventory inventory_;
  int64_t files_ = 0, longest_ = 0, most_answers_ = 0, of_step_ = 0;  // longest_: tokens, prompt and answer
};

// open_data() of an objective that reads_prompts(). Rows of training are the prompts, to be looked at.
Result<RunData> open_prompts(const RunConfig& config, int64_t vocab);

}  // namespace sluice::core
