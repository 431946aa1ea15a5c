// SPDX-License-Identifier: Apache-2.0
#include "run/session/distillation.h"

#include <algorithm>

#include "run/loaded/counted_texts.h"

namespace sluice::core {
namespace {

// Sums over an answer's tokens; those of a step are added in the order of answers.
struct Sums {
  double divergence = 0, log_prob = 0, teacher_mass = 0, model_mass = 0;

  void add(const Sums& o) {
    divergence += o.divergence, log_prob += o.log_prob;
    teacher_mass += o.teacher_mass, model_mass += o.model_mass;
  }
};

}  // namespace

Distillation::Distillation(Engine& engine, const RunData& data)
    : engine_(engine),
      prompts_(*data.prompts),
      keys_(with_defaults(engine.prepared().config.chosen_objective(), engine.prepared().config.objective)) {}

Result<std::unique_ptr<Distillation>> Distillation::open(Engine& engine, const RunData& data) {
  if (engine.prepared().machine.options.network != nullptr)
    return error(
        "train.objective = distillation: it runs in one process; run.devices says how many GPUs share a "
        "step");
  return std::unique_ptr<Distillation>(new Distillation(engine, data));
}

Result<StepResult> Distillation::step(double learning_rate, std::vector<Interval>* timeline) {
  const Prepared& p = engine_.prepared();
  const int64_t top = keys_.loss_top_k, first = engine_.steps_done() * prompts_.of_step();
  std::vector<GradedAnswer> answers;
  std::vector<CountedText> all;
  double tokens = 0;
  for (int64_t i = first; i < first + prompts_.of_step(); ++i) {
    PromptGroup group = prompts_.group(prompts_.number_of(i));
    for (GradedAnswer& answer : group.answers) {
      CountedText& text = all.emplace_back(group.prompt, group.prompt.size());
      text.ids.insert(text.ids.end(), answer.ids.begin(), answer.ids.end());
      tokens += double(answer.ids.size());
      answers.push_back(std::move(answer));
    }
  }
  const CountedTexts texts(std::move(all), p.config.train.seq_len);
  const int64_t sequence = texts.sequence();
  Rows rows(p.stages.main.model.layout, p.shape.tokens());
  texts.fill_all(rows.part(0, rows.tokens()));
  for (int64_t row = 0; row < texts.epoch_rows(); ++row) {
    const RowsView to = rows.part(row * sequence, sequence);
    for (const CountedTexts::Place& place : texts.places(row)) {
      const GradedAnswer& answer = answers[place.text];
      std::ranges::copy(answer.top_ids,
                        texts.counted_part(to.column(BatchColumn::TopTokens), place, top).begin());
      std::ranges::copy(answer.top_log_probs,
                        texts.counted_part(to.column<float>(BatchColumn::TopWeights), place, top).begin());
    }
  }
  std::vector<Sums> sums(answers.size());
  const auto judge = [&](size_t text, std::span<const float> log_probs, std::span<const float> top_log_probs,
                         std::span<float> weights) {
    std::vector<float> slopes(static_cast<size_t>(top));
    for (size_t t = 0; t < log_probs.size(); ++t) {
      const size_t at = t * size_t(top);
      const std::span<const float> teacher = std::span(answers[text].top_log_probs).subspan(at, size_t(top));
      const Divergence d = divergence_of(keys_, {teacher, top_log_probs.subspan(at, size_t(top))}, slopes);
      sums[text].add({d.value, double{log_probs[t]}, d.teacher_mass, d.model_mass});
      for (size_t i = 0; i < slopes.size(); ++i) weights[at + i] = float(-double{slopes[i]} / tokens);
    }
  };
  StepLoss loss{LossScale::One};
  loss.ask = [&](int64_t begin, std::span<const float> log_probs, std::span<float> weights) -> Status {
    const size_t targets = log_probs.size() / size_t(1 + top), of_row = size_t(sequence);
    std::ranges::fill(weights, 0.0F);
    for (size_t at = 0; at < targets; at += of_row) {
      const int64_t row = (begin + int64_t(at)) / sequence;
      if (row >= texts.epoch_rows()) continue;
      const size_t others = targets + at * size_t(top), of_others = of_row * size_t(top);
      for (const CountedTexts::Place& place : texts.places(row))
        judge(place.text, texts.counted_part(log_probs.subspan(at, of_row), place),
              texts.counted_part(log_probs.subspan(others, of_others), place, top),
              texts.counted_part(weights.subspan(others, of_others), place, top));
    }
    return {};
  };
  SLUICE_ASSIGN(StepResult result, engine_.step(rows, learning_rate, timeline, loss));
  Sums total;
  for (const Sums& one : sums) total.add(one);
  result.loss = total.divergence / tokens;
  result.values = {{"nll_loss", -total.log_prob / tokens},
                   {"top_k_mass/teacher", total.teacher_mass / tokens},
                   {"top_k_mass/model", total.model_mass / tokens}};
  return result;
}

}  // namespace sluice::core
