// SPDX-License-Identifier: Apache-2.0
#include "generate/generator.h"

#include <algorithm>

#include "base/stopwatch.h"

namespace sluice::core {
namespace {

// A row and the text in it.
struct Row {
  bool taken = false;
  size_t text = 0;
  std::vector<int32_t> tokens;  // prompt and what followed
  int64_t held = 0;             // of them, in the cache
  int64_t made = 0;             // of them, generated

  int64_t waiting() const { return taken ? int64_t(tokens.size()) - held : 0; }
  bool in_prompt() const { return taken && made == 0; }
};

class Run {
 public:
  Run(CachedTextModel& model, std::span<const GenerationTask> tasks, const GenerateOptions& options,
      TextSink& sink)
      : model_(model),
        tasks_(tasks),
        options_(options),
        sink_(sink),
        sampler_(options.rule),
        rows_(size_t(model.rows())) {}

  Result<GenerationCounts> all() {
    while (!sink_.stop()) {
      take_rows();
      if (std::ranges::none_of(rows_, &Row::taken)) break;
      SLUICE_TRY(pass(std::ranges::any_of(rows_, &Row::in_prompt)));
    }
    return counts_;
  }

 private:
  void take_rows() {
    for (Row& row : rows_) {
      if (row.taken || next_ == tasks_.size()) continue;
      row = Row{true, next_, tasks_[next_].prompt, 0, 0};
      ++next_;
    }
  }

  Status pass(bool prompts) {
    const Stopwatch watch;
    const int64_t most = prompts ? model_.prompt_tokens() : 1;
    inputs_.clear();
    for (const Row& row : rows_) {
      const bool rests = prompts != row.in_prompt() || !row.taken;
      const auto count = size_t(rests ? 0 : std::min(most, row.waiting()));
      inputs_.push_back({row.held, std::span(row.tokens).subspan(size_t(row.held), count)});
    }
    SLUICE_ASSIGN(const std::span<const float> logits, model_.pass(prompts, inputs_));
    const size_t vocab = logits.size() / rows_.size();
    for (size_t r = 0; r < rows_.size(); ++r) {
      Row& row = rows_[r];
      const auto count = int64_t(inputs_[r].tokens.size());
      row.held += count;
      (prompts ? counts_.prompt_tokens : counts_.in_token_passes) += count;
      if (count > 0 && row.waiting() == 0) SLUICE_TRY(go_on(row, logits.subspan(r * vocab, vocab)));
    }
    ++(prompts ? counts_.prompt_passes : counts_.token_passes);
    (prompts ? counts_.prompt_s : counts_.token_s) += watch.seconds();
    return {};
  }

  Status go_on(Row& row, std::span<const float> logits) {
    const auto index = uint64_t(tasks_[row.text].made + row.made);
    const auto chosen = sampler_.choose(logits, row.tokens, row.text, index);
    if (!chosen.ok())
      return error_at(fmt::format("text {}, after {} tokens", row.text + 1, row.tokens.size()),
                      chosen.error());
    const int32_t token = *chosen;
    row.tokens.push_back(token);
    ++row.made;
    ++counts_.new_tokens;
    if (std::ranges::find(options_.stop_tokens, token) != options_.stop_tokens.end())
      return end(row, TextEnd::StopToken);
    SLUICE_ASSIGN(const bool goes_on, sink_.token(row.text, token));
    if (!goes_on) return end(row, TextEnd::StopString);
    if (row.made >= tasks_[row.text].most_tokens) return end(row, TextEnd::Length);
    return {};
  }

  Status end(Row& row, TextEnd why) {
    row.taken = false;
    return sink_.ended(row.text, why);
  }

  CachedTextModel& model_;
  const std::span<const GenerationTask> tasks_;
  const GenerateOptions& options_;
  TextSink& sink_;
  Sampler sampler_;
  std::vector<Row> rows_;
  std::vector<RowInput> inputs_;
  size_t next_ = 0;
  GenerationCounts counts_;
};

}  // namespace

std::string_view name_of(TextEnd end) {
  switch (end) {
    case TextEnd::Length:
      return "length";
    case TextEnd::StopToken:
      return "stop token";
    case TextEnd::StopString:
      return "stop string";
  }
  return "";
}

Result<GenerationCounts> generate(CachedTextModel& model, std::span<const GenerationTask> tasks,
                                  const GenerateOptions& options, TextSink& sink) {
  return Run(model, tasks, options, sink).all();
}

}  // namespace sluice::core
