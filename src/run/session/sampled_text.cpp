// SPDX-License-Identifier: Apache-2.0
#include "run/session/sampled_text.h"

#include <algorithm>
#include <cmath>

namespace sluice::core {
namespace {

float log_prob(std::span<const float> logits, int32_t token) {
  const float top = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float l : logits) sum += std::exp(double{l} - double{top});
  return float(double{logits[size_t(token)]} - double{top} - std::log(sum));
}

// The engine's model with the cache of one text.
class OneText final : public CachedTextModel {
 public:
  explicit OneText(Engine& engine) : engine_(engine) {}

  int64_t rows() const override { return 1; }
  int64_t capacity() const override { return engine_.sample_window(); }
  int64_t prompt_tokens() const override { return engine_.sample_tokens(); }
  Result<std::span<const float>> pass(bool, std::span<const RowInput> inputs) override {
    SLUICE_ASSIGN(logits_, engine_.read_text(inputs.front()));
    return logits_;
  }
  std::span<const float> logits() const { return logits_; }

 private:
  Engine& engine_;
  std::span<const float> logits_;
};

class Taken final : public TextSink {
 public:
  Taken(const OneText& model, const std::vector<int32_t>& ends, const std::function<bool(int64_t)>& more)
      : model_(model), ends_(ends), more_(more) {}

  Result<bool> token(size_t, int32_t token) override {
    out.tokens.push_back(token);
    out.log_probs.push_back(log_prob(model_.logits(), token));
    ended_ = std::ranges::find(ends_, token) != ends_.end();
    return !ended_;
  }
  Status ended(size_t, TextEnd) override { return {}; }
  bool stop() override {
    stopped_ = stopped_ || (more_ && !more_(int64_t(out.tokens.size())));
    return stopped_;
  }
  bool done() const { return ended_ || stopped_; }

  SampledText out;

 private:
  const OneText& model_;
  const std::vector<int32_t>& ends_;
  const std::function<bool(int64_t)>& more_;
  bool ended_ = false, stopped_ = false;
};

}  // namespace

Result<SampledText> sample_text(Engine& engine, std::vector<int32_t> text, const SampleRequest& request,
                                const std::function<bool(int64_t)>& more) {
  OneText model(engine);
  Taken taken(model, request.ends, more);
  const GenerateOptions options{{.temperature = request.temperature, .seed = request.seed}, {}};
  for (int64_t kept = model.capacity();; kept = std::max<int64_t>(1, model.capacity() / 2)) {
    const auto made = int64_t(taken.out.tokens.size());
    if (taken.done() || made >= request.tokens) return std::move(taken.out);
    kept = std::min(kept, int64_t(text.size()));
    // The last token that follows is not read.
    const GenerationTask task{.prompt = {text.end() - kept, text.end()},
                              .most_tokens = std::min(request.tokens - made, model.capacity() - kept + 1),
                              .made = made};
    SLUICE_TRY(generate(model, std::span(&task, 1), options, taken));
    text.insert(text.end(), taken.out.tokens.begin() + made, taken.out.tokens.end());
  }
}

}  // namespace sluice::core
