// SPDX-License-Identifier: Apache-2.0
#include "run/session/rollout.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/philox.h"
#include "base/stopwatch.h"
#include "run/session/comparison.h"
#include "run/session/sampled_text.h"

namespace sluice::core {
namespace {

// An answer among all of some groups.
struct AnswerPlace {
  size_t group, answer;
};
std::vector<AnswerPlace> places_of(const std::vector<PromptGroup>& groups) {
  std::vector<AnswerPlace> out;
  for (size_t g = 0; g < groups.size(); ++g) {
    for (size_t a = 0; a < groups[g].answers.size(); ++a) out.push_back({g, a});
  }
  return out;
}

CountedText text_of(const std::vector<PromptGroup>& groups, const AnswerPlace& place) {
  const PromptGroup& group = groups[place.group];
  const std::vector<int32_t>& answer = group.answers[place.answer].ids;
  CountedText text{group.prompt, group.prompt.size()};
  text.ids.insert(text.ids.end(), answer.begin(), answer.end());
  return text;
}

}  // namespace

Status sample_answers(Engine& engine, const AnswerRequest& r, std::vector<PromptGroup>& groups) {
  std::vector<std::vector<int32_t>> prompts;
  for (const PromptGroup& group : groups) prompts.push_back(group.prompt);
  const Philox4 bits = philox(r.seed, uint64_t(r.step), 0);
  SamplesRequest request;
  request.tokens = r.max_tokens, request.temperature = r.temperature, request.ends = r.ends;
  request.seed = uint64_t{bits.v[0]} << 32 | bits.v[1];  // another one for every step
  request.samples = r.count;
  SLUICE_ASSIGN(std::vector<SampledText> texts, sample_texts(engine, std::move(prompts), request));
  auto next = texts.begin();
  for (PromptGroup& group : groups) {
    for (int64_t i = 0; i < r.count; ++i, ++next) {
      group.answers.push_back({.ids = std::move(next->tokens),
                               .log_probs = std::move(next->log_probs),
                               .finished = next->end != TextEnd::Length});
    }
  }
  return {};
}

Rollout::Rollout(Engine& engine, const RunData& data)
    : engine_(engine),
      config_(engine.prepared().config),
      prompts_(*data.prompts),
      keys_(with_defaults(config_.chosen_objective(), config_.objective)),
      loss_(loss_type_of(config_.chosen_objective(), config_.objective)) {}

Result<std::unique_ptr<Rollout>> Rollout::open(Engine& engine, const RunData& data, const std::string& saved,
                                               Observer& observer) {
  if (engine.prepared().machine.options.network != nullptr)
    return error(
        "train.objective = grpo: it runs in one process; run.devices says how many GPUs share a step");
  std::unique_ptr<Rollout> out(new Rollout(engine, data));
  std::error_code ignored;
  std::filesystem::create_directories(out->config_.run.dir, ignored);
  if (out->config_.samples_answers()) {
    SLUICE_ASSIGN(out->rewards_,
                  RewardFunction::start(out->config_.rollout.rewards,
                                        std::filesystem::path(out->config_.run.dir) / "rewards.log"));
  }
  SLUICE_TRY(out->make_reference(data.content, saved, observer));
  return out;
}

Rollout::~Rollout() {
  std::error_code ignored;
  std::filesystem::remove(file_of_beginning(), ignored);
}

Status Rollout::score(const std::vector<PromptGroup>& groups,
                      std::vector<std::vector<std::vector<float>>>& out) {
  std::vector<CountedText> all;
  std::vector<std::vector<float>*> values;
  out.clear();
  for (const PromptGroup& group : groups) out.emplace_back(group.answers.size());
  for (const AnswerPlace& place : places_of(groups)) {
    all.push_back(text_of(groups, place));
    values.push_back(&out[place.group][place.answer]);
  }
  const CountedTexts texts(std::move(all), config_.train.seq_len);
  return evaluate_each(texts, 0, texts.epoch_rows(), sequences_of(engine_), pass_of(engine_), {},
                       [&](int64_t row, const Rows&, int64_t at, const TokenLosses& losses) {
                         const auto own =
                             std::span(losses.loss).subspan(size_t(at), size_t(texts.sequence()));
                         for (const CountedTexts::Place& place : texts.places(row)) {
                           for (const double loss : texts.counted_part(own, place))
                             values[place.text]->push_back(float(0 - loss));
                         }
                       });
}

Status Rollout::score_by_beginning(Answers& a) {
  if (!reads_reference(config_.chosen_objective(), keys_)) return {};
  const Stopwatch watch;
  SLUICE_ASSIGN(const KeptWeights trained, engine_.keep_trained(file_of_trained()));
  SLUICE_TRY(engine_.take_trained(beginning_));
  const Status scored = score(a.groups, a.reference);
  SLUICE_TRY(engine_.take_trained(trained));
  std::error_code ignored;
  std::filesystem::remove(file_of_trained(), ignored);
  reference_s_ = watch.seconds();
  return scored;
}

Status Rollout::make_reference(const std::string& content, const std::string& saved, Observer& observer) {
  if (!reads_reference(config_.chosen_objective(), keys_)) return {};
  if (rewards_) {
    SLUICE_ASSIGN(weights_, weights_of_reference(engine_, saved));
    SLUICE_ASSIGN(beginning_, engine_.keep_trained(file_of_beginning()));
    return {};
  }
  std::vector<PromptGroup> groups;
  for (int64_t i = 0; i < prompts_.count(); ++i) groups.push_back(prompts_.group(i));
  size_t count = 0;
  for (const PromptGroup& group : groups) {
    for (const GradedAnswer& answer : group.answers) count += answer.ids.size();
  }
  std::vector<double> values;
  const auto make = [&]() -> Status {
    SLUICE_TRY(score(groups, reference_));
    auto next = values.begin();
    for (const auto& of_prompt : reference_) {
      for (const auto& of_answer : of_prompt) next = std::ranges::copy(of_answer, next).out;
    }
    return {};
  };
  const ReferencePart part{"answers", &values, count, nullptr, make};
  SLUICE_ASSIGN(weights_, have_reference(engine_, content, saved, observer, {&part, 1}));
  auto next = values.begin();
  reference_.clear();
  for (const PromptGroup& group : groups) {
    auto& of_prompt = reference_.emplace_back();
    for (const GradedAnswer& answer : group.answers) {
      of_prompt.emplace_back(next, next + std::ssize(answer.ids));
      next += std::ssize(answer.ids);
    }
  }
  return {};
}

std::filesystem::path Rollout::file() const {
  return std::filesystem::path(config_.run.dir) / "rollout.jsonl";
}

Status Rollout::draw(Answers& a) {
  const RolloutKeys& keys = config_.rollout;
  for (const int64_t number : a.numbers) a.groups.push_back(prompts_.group(number));
  if (!rewards_) return {};
  Stopwatch watch;
  const auto ends = prompts_.ends();
  SLUICE_TRY(sample_answers(engine_,
                            {.count = keys.samples,
                             .max_tokens = keys.max_tokens,
                             .step = a.step,
                             .temperature = keys.temperature,
                             .seed = uint64_t(config_.train.seed),
                             .ends = {ends.begin(), ends.end()}},
                            a.groups));
  sampling_s_ = watch.lap();
  SLUICE_ASSIGN(const std::string arguments, prompts_.arguments(a.numbers, a.groups));
  SLUICE_ASSIGN(const std::vector<double> rewards,
                rewards_->ask(arguments, places_of(a.groups).size(), keys.timeout));
  auto next = rewards.begin();
  for (PromptGroup& group : a.groups) {
    for (GradedAnswer& answer : group.answers) answer.reward = *next++;
  }
  rewards_s_ = watch.lap();
  return {};
}

Status Rollout::have_answers(int64_t step) {
  const int64_t first = step - step % config_.rollout.num_iterations;
  sampling_s_ = rewards_s_ = reference_s_ = 0;
  if (answers_.step == first) return {};
  Answers now{.step = first};
  const int64_t count = prompts_.of_step(), begin = first / config_.rollout.num_iterations * count;
  for (int64_t i = begin; i < begin + count; ++i) now.numbers.push_back(prompts_.number_of(i));
  if (step == first) {
    SLUICE_TRY(draw(now));
  } else {
    SLUICE_ASSIGN(now.groups, prompts_.read(file(), first));
  }
  if (rewards_) {
    SLUICE_TRY(score_by_beginning(now));
  } else if (!reference_.empty()) {
    for (const int64_t number : now.numbers) now.reference.push_back(reference_[size_t(number)]);
  }
  std::vector<double> rewards;
  std::vector<int64_t> groups;
  for (const PromptGroup& group : now.groups) {
    groups.push_back(std::ssize(group.answers));
    for (const GradedAnswer& answer : group.answers) rewards.push_back(answer.reward);
  }
  now.advantages = advantages_of(keys_.scale_rewards, rewards, groups);
  answers_ = std::move(now);
  return {};
}

Result<StepResult> Rollout::step(double learning_rate, std::vector<Interval>* timeline) {
  const int64_t step = engine_.steps_done();
  const Stopwatch watch;
  SLUICE_TRY(have_answers(step));
  const bool fresh = answers_.step == step;
  PolicyCounts counts{.most_tokens = double(config_.rollout.max_tokens)};
  std::vector<AnswerPlace> learnt;
  std::vector<float> advantages;
  std::vector<CountedText> all;
  for (const AnswerPlace& place : places_of(answers_.groups)) {
    const GradedAnswer& answer = answers_.groups[place.group].answers[place.answer];
    const double advantage = answers_.advantages.values[size_t(counts.answers)];
    counts.answers += 1;
    if (config_.rollout.mask_truncated_completions && !answer.finished) continue;
    learnt.push_back(place);
    advantages.push_back(float(advantage));
    all.push_back(text_of(answers_.groups, place));
    counts.tokens += double(answer.ids.size());
  }
  const CountedTexts texts(std::move(all), config_.train.seq_len);
  const int64_t sequence = texts.sequence();
  Rows rows(engine_.prepared().stages.main.model.layout, engine_.prepared().shape.tokens());
  texts.fill_all(rows.part(0, rows.tokens()));
  std::vector<PolicySums> sums(learnt.size());
  std::vector<std::vector<float>> now(learnt.size());
  const auto judge = [&](size_t text, std::span<const float> log_probs, std::span<float> weights) {
    const auto [group, number] = learnt[text];
    const GradedAnswer& answer = answers_.groups[group].answers[number];
    now[text].assign(log_probs.begin(), log_probs.end());
    SampledAnswer of{.log_probs = now[text], .advantages = {&advantages[text], 1}};
    // A ratio to what was sampled just now is 1, whatever the sampler rounds.
    if (!fresh || !rewards_) of.old = answer.log_probs;
    if (!answers_.reference.empty()) of.reference = answers_.reference[group][number];
    sums[text] = judge_answer(loss_, keys_, of, counts, weights);
    for (float& weight : weights) weight = -weight;  // of -log p
  };
  StepLoss loss{LossScale::One};
  loss.ask = [&](int64_t first, std::span<const float> log_probs, std::span<float> weights) -> Status {
    std::ranges::fill(weights, 0.0F);
    for (int64_t at = 0; at < std::ssize(weights); at += sequence) {
      const int64_t row = (first + at) / sequence;
      if (row >= texts.epoch_rows()) continue;
      for (const CountedTexts::Place& place : texts.places(row))
        judge(place.text, texts.counted_part(log_probs.subspan(size_t(at), size_t(sequence)), place),
              texts.counted_part(weights.subspan(size_t(at), size_t(sequence)), place));
    }
    return {};
  };
  const double before_ns = watch.seconds() * 1e9;
  SLUICE_ASSIGN(StepResult result, engine_.step(rows, learning_rate, timeline, loss));
  PolicySums total;
  for (const PolicySums& one : sums) total.add(one);
  result.loss = total.loss;
  result.before_ns = before_ns;
  result.values = values_of(total);
  if (!fresh) return result;
  double difference = 0, most = 0;  // of the sampler's log-probabilities from these
  for (size_t text = 0; text < learnt.size(); ++text) {
    std::vector<float>& old = answers_.groups[learnt[text].group].answers[learnt[text].answer].log_probs;
    if (!rewards_ && !old.empty()) continue;
    for (size_t t = 0; t < old.size(); ++t) {
      const double apart = std::abs(double{old[t]} - double{now[text][t]});
      difference += apart, most = std::max(most, apart);
    }
    old = std::move(now[text]);
  }
  if (rewards_) {
    result.values.push_back(
        {"sampling/sampling_logp_difference/mean", difference / std::max(1.0, counts.tokens)});
    result.values.push_back({"sampling/sampling_logp_difference/max", most});
  }
  if (rewards_ || config_.rollout.num_iterations > 1)
    SLUICE_TRY(prompts_.write(answers_.groups, answers_.step, file()));
  return result;
}

std::vector<sluice::NamedValue> Rollout::values_of(const PolicySums& s) const {
  const Advantages& a = answers_.advantages;
  std::vector<sluice::NamedValue> out{
      {"reward", a.mean}, {"reward_std", a.deviation}, {"frac_reward_zero_std", a.zero_share}};
  double size = 0, tokens = 0, cut = 0;
  for (const double value : a.values) size += std::abs(value);
  for (const PromptGroup& group : answers_.groups) {
    for (const GradedAnswer& answer : group.answers)
      tokens += double(answer.ids.size()), cut += answer.finished ? 0 : 1;
  }
  const auto count = double(a.values.size());
  out.push_back({"advantages/mean_size", size / count});
  out.push_back({"completions/mean_length", tokens / count});
  out.push_back({"completions/clipped_ratio", cut / count});
  for (auto& [name, value] : metrics_of(loss_, keys_, s)) out.push_back({std::move(name), value});
  if (rewards_) {
    out.push_back({"seconds/sampling", sampling_s_});
    out.push_back({"seconds/rewards", rewards_s_});
    if (!answers_.reference.empty()) out.push_back({"seconds/reference", reference_s_});
  }
  return out;
}

}  // namespace sluice::core
