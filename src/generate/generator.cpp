// SPDX-License-Identifier: Apache-2.0
#include "generate/generator.h"

#include <algorithm>
#include <cmath>

#include "base/stopwatch.h"

namespace sluice::core {
namespace {

// A row and the text in it.
struct Row {
  bool taken = false;
  size_t text = 0;
  size_t task = 0;
  int64_t sample = 0;
  int64_t reader = -1;          // the row that reads the prompt for this one; -1: itself
  std::vector<int32_t> tokens;  // prompt and what followed
  int64_t held = 0;             // of them, in the cache
  int64_t made = 0;             // of them, generated

  int64_t waiting() const { return taken ? int64_t(tokens.size()) - held : 0; }
  bool in_prompt() const { return taken && made == 0; }
  bool goes_on() const { return taken && made > 0; }
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
  // Where many rows go on, a pass over prompts waits until a few are free. For samples that share a prompt it
  // waits for as many, up to a fourth of all rows.
  void take_rows() {
    const auto all = int64_t(rows_.size());
    const int64_t least = std::any_of(rows_.begin(), rows_.end(), [](const Row& r) { return r.goes_on(); })
                              ? std::clamp<int64_t>(all / 16, 1, model_.prompt_rows())
                              : 1;
    auto free = int64_t(std::ranges::count(rows_, false, &Row::taken));
    if (free < least) return;
    while (next_ < tasks_.size() && free > 0) {
      const GenerationTask& task = tasks_[next_];
      const int64_t left = task.samples - sample_;
      const int64_t shared = model_.copies_rows() ? std::min(left, free) : 1;
      if (shared < std::min(left, model_.copies_rows() ? std::max<int64_t>(1, all / 4) : 1)) return;
      int64_t reader = -1;
      for (int64_t i = 0; i < shared; ++i, --free) {
        const auto at = std::ranges::find(rows_, false, &Row::taken);
        *at = Row{true, text_++, next_, sample_++, reader, task.prompt, 0, 0};
        if (reader < 0) reader = at - rows_.begin();
      }
      if (sample_ == task.samples) ++next_, sample_ = 0;
    }
  }

  // The rows that the next pass is over, and what each reads.
  void choose_inputs(bool prompts) {
    const int64_t most = prompts ? model_.prompt_tokens() : 1;
    inputs_.clear();
    copies_.clear();
    draws_.clear();
    drawing_.clear();
    for (size_t r = 0; r < rows_.size(); ++r) {
      const Row& row = rows_[r];
      const bool reads = prompts ? row.in_prompt() && row.reader < 0 : row.goes_on();
      if (!reads || (prompts && int64_t(inputs_.size()) == model_.prompt_rows())) continue;
      const auto count = size_t(std::min(most, row.waiting()));
      inputs_.push_back({int64_t(r), row.held, std::span(row.tokens).subspan(size_t(row.held), count)});
      if (int64_t(count) < row.waiting()) continue;
      draw(r);
      for (size_t other = 0; prompts && other < rows_.size(); ++other) {
        if (!rows_[other].in_prompt() || rows_[other].reader != int64_t(r)) continue;
        copies_.push_back({int64_t(r), int64_t(other)});
        draw(other);
      }
    }
  }

  // Row `r` gets a token after the newest input.
  void draw(size_t r) {
    const Row& row = rows_[r];
    const double t = options_.rule.temperature;
    drawing_.push_back(r);
    draws_.push_back(
        {double(inputs_.size() - 1), t > 0 ? sampler_.uniform(place_of(row)) : 0, t > 0 ? 1 / t : 0});
  }
  DrawPlace place_of(const Row& row) const {
    return {row.task, uint64_t(row.sample), uint64_t(tasks_[row.task].made + row.made)};
  }

  Status pass(bool prompts) {
    const Stopwatch watch;
    choose_inputs(prompts);
    std::span<const DrawnToken> drawn;
    if (model_.draws()) {
      SLUICE_ASSIGN(drawn, model_.pass(prompts, inputs_, copies_, draws_));
    } else {
      SLUICE_TRY(model_.pass(prompts, inputs_, copies_));
    }
    for (const RowInput& input : inputs_) {
      const auto count = int64_t(input.tokens.size());
      rows_[size_t(input.row)].held += count;
      (prompts ? counts_.prompt_tokens : counts_.in_token_passes) += count;
    }
    for (const RowCopy& copy : copies_) rows_[size_t(copy.to)].held = rows_[size_t(copy.from)].held;
    for (size_t d = 0; d < drawing_.size(); ++d) {
      Row& row = rows_[drawing_[d]];
      const auto chosen =
          model_.draws() ? taken(drawn[d]) : choose(row, model_.logits(size_t(draws_[d].text)));
      if (!chosen.ok())
        return error_at(fmt::format("text {}, after {} tokens", row.text + 1, row.tokens.size()),
                        chosen.error());
      SLUICE_TRY(go_on(row, *chosen));
    }
    ++(prompts ? counts_.prompt_passes : counts_.token_passes);
    (prompts ? counts_.prompt_s : counts_.token_s) += watch.seconds();
    return {};
  }

  static Result<ChosenToken> taken(const DrawnToken& drawn) {
    if (drawn.token < 0) return not_finite();
    return ChosenToken{int32_t(drawn.token), drawn.log_prob, drawn.log_drawn_prob};
  }
  Result<ChosenToken> choose(const Row& row, std::span<const float> logits) {
    SLUICE_ASSIGN(const TokenProbability chosen, sampler_.choose(logits, row.tokens, place_of(row)));
    ChosenToken out{chosen.token, 0, std::log(chosen.probability)};
    if (options_.log_probs) out.log_prob = log_prob(logits, chosen.token);
    return out;
  }

  Status go_on(Row& row, const ChosenToken& chosen) {
    row.tokens.push_back(chosen.token);
    ++row.made;
    ++counts_.new_tokens;
    if (std::ranges::find(options_.stop_tokens, chosen.token) != options_.stop_tokens.end())
      return end(row, TextEnd::StopToken);
    SLUICE_ASSIGN(const bool goes_on, sink_.token(row.text, chosen));
    if (!goes_on) return end(row, TextEnd::StopString);
    if (row.made >= tasks_[row.task].most_tokens) return end(row, TextEnd::Length);
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
  std::vector<RowCopy> copies_;
  std::vector<TokenDraw> draws_;  // whose texts are inputs
  std::vector<size_t> drawing_;   // the row of each
  size_t next_ = 0, text_ = 0;    // the task and the text that take a row next
  int64_t sample_ = 0;            // of the task
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
