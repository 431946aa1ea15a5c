// SPDX-License-Identifier: Apache-2.0
#include "commands/generated_text.h"

#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "commands/say.h"

namespace sluice::core {

GeneratedText::GeneratedText(GeneratedTextOptions options, std::vector<std::string> prompts,
                             std::span<const GenerationTask> tasks, const std::atomic<bool>& asked)
    : options_(std::move(options)), prompts_(std::move(prompts)), asked_(asked) {
  for (const GenerationTask& task : tasks) {
    for (int64_t i = 0; i < task.samples; ++i)
      texts_.push_back({TextStream(options_.decode, task.prompt, options_.stop_strings), {}, {}, ""});
  }
}

Result<bool> GeneratedText::token(size_t text, const ChosenToken& chosen) {
  Text& t = texts_[text];
  t.tokens.push_back(chosen.token);
  t.log_probs.push_back(float(chosen.log_prob));
  SLUICE_ASSIGN(const std::string piece, t.stream.add(chosen.token));
  if (text == shown_ && !options_.json) show_whole();
  return !t.stream.stopped();
}

Status GeneratedText::ended(size_t text, TextEnd end) {
  Text& t = texts_[text];
  SLUICE_ASSIGN(const std::string rest, t.stream.finish());
  t.end = t.stream.stopped() ? name_of(TextEnd::StopString) : name_of(end);
  while (shown_ < texts_.size() && !texts_[shown_].end.empty()) {
    if (options_.json) {
      show_json();
    } else {
      show_whole();
      say("\n");
    }
    ++shown_;
    shown_bytes_ = 0;
    begun_ = false;
  }
  if (shown_ < texts_.size() && !texts_[shown_].tokens.empty() && !options_.json) show_whole();
  std::fflush(stdout);
  return {};
}

void GeneratedText::leave() {
  if (begun_) say("\n");
  std::fflush(stdout);
}

// Each of several texts has a line that says which it is.
void GeneratedText::show_head() {
  if (std::exchange(begun_, true) || texts_.size() == 1) return;
  say("{}[{}] {}\n", shown_ == 0 ? "" : "\n", shown_ + 1, prompt().substr(0, prompt().find('\n')));
}

void GeneratedText::show_whole() {
  show_head();
  const std::string& text = texts_[shown_].stream.text();
  if (shown_bytes_ == text.size()) return;
  say_result(std::string_view(text).substr(shown_bytes_), options_.raw);
  shown_bytes_ = text.size();
  std::fflush(stdout);
}

void GeneratedText::show_json() const {
  const Text& t = texts_[shown_];
  nlohmann::ordered_json line = {
      {"prompt", prompt()}, {"text", t.stream.text()}, {"tokens", t.tokens}, {"end", t.end}};
  if (options_.samples > 1) line["sample"] = shown_ % size_t(options_.samples);
  if (options_.log_probs) line["log_probs"] = t.log_probs;
  say_result(line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n",
             options_.raw);
}

}  // namespace sluice::core
