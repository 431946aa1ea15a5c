// SPDX-License-Identifier: Apache-2.0
#include "run/session/sampled_text.h"

#include <algorithm>

namespace sluice::core {
namespace {

class Taken final : public TextSink {
 public:
  Taken(size_t texts, const std::vector<int32_t>& ends, const std::function<bool(int64_t)>& more)
      : out(texts), ends_(ends), more_(more) {}

  // The next text is read by it, which finds stop strings.
  void watch(TextStream stream) { streams_.push_back(std::move(stream)); }

  Result<bool> token(size_t text, const ChosenToken& chosen) override {
    SampledText& own = out[text];
    own.tokens.push_back(chosen.token);
    own.log_probs.push_back(float(chosen.log_prob));
    own.log_drawn_probs.push_back(float(chosen.log_drawn_prob));
    ++made_;
    ended_ = std::ranges::find(ends_, chosen.token) != ends_.end();
    own.end = ended_ ? TextEnd::StopToken : TextEnd::StopString;
    if (ended_ || streams_.empty()) return !ended_;
    SLUICE_TRY(streams_[text].add(chosen.token));
    return !streams_[text].stopped();
  }
  Status ended(size_t text, TextEnd end) override {
    if (end == TextEnd::Length) out[text].end = end;
    if (streams_.empty()) return {};
    SLUICE_TRY(streams_[text].finish());
    out[text].text = streams_[text].text();
    return {};
  }
  bool stop() override {
    stopped_ = stopped_ || (more_ && !more_(made_));
    return stopped_;
  }
  bool done() const { return ended_ || stopped_; }

  std::vector<SampledText> out;

 private:
  const std::vector<int32_t>& ends_;
  const std::function<bool(int64_t)>& more_;
  std::vector<TextStream> streams_;
  int64_t made_ = 0;
  bool ended_ = false, stopped_ = false;
};

SamplingRule rule_of(const SampleRequest& request) {
  return {.temperature = request.temperature, .seed = request.seed};
}

}  // namespace

Result<SampledText> sample_text(Engine& engine, std::vector<int32_t> text, const SampleRequest& request,
                                const std::function<bool(int64_t)>& more) {
  SLUICE_ASSIGN(CachedTextModel* const model, engine.begin_texts());
  Taken taken(1, request.ends, more);
  SampledText& out = taken.out.front();
  const GenerateOptions options{rule_of(request), {}, /*log_probs=*/true};
  for (int64_t kept = model->capacity();; kept = std::max<int64_t>(1, model->capacity() / 2)) {
    const auto made = int64_t(out.tokens.size());
    if (taken.done() || made >= request.tokens) return std::move(out);
    kept = std::min(kept, int64_t(text.size()));
    // The last token that follows is not read.
    const GenerationTask task{.prompt = {text.end() - kept, text.end()},
                              .most_tokens = std::min(request.tokens - made, model->capacity() - kept + 1),
                              .made = made};
    SLUICE_TRY(generate(*model, std::span(&task, 1), options, taken));
    text.insert(text.end(), out.tokens.begin() + made, out.tokens.end());
  }
}

Result<std::vector<SampledText>> sample_texts(Engine& engine, std::vector<std::vector<int32_t>> prompts,
                                              const SamplesRequest& request,
                                              const std::function<bool(int64_t)>& more) {
  SLUICE_ASSIGN(CachedTextModel* const model, engine.begin_texts());
  Taken taken(prompts.size() * size_t(request.samples), request.ends, more);
  std::vector<GenerationTask> tasks;
  for (std::vector<int32_t>& prompt : prompts) {
    for (int64_t i = 0; i < request.samples && request.decode; ++i)
      taken.watch(TextStream(request.decode, prompt, request.stops));
    tasks.push_back({.prompt = std::move(prompt), .most_tokens = request.tokens, .samples = request.samples});
  }
  const GenerateOptions options{rule_of(request), {}, /*log_probs=*/true};
  SLUICE_TRY(generate(*model, tasks, options, taken));
  return std::move(taken.out);
}

}  // namespace sluice::core
