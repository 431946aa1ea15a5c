// SPDX-License-Identifier: Apache-2.0
#include "run/session/session.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "dataset/byte_tokenizer.h"
#include "generate/sampling.h"
#include "io/directory.h"
#include "run/inputs/resolve.h"
#include "run/prepare/manifest.h"
#include "run/session/sampled_text.h"
#include "run/session/step_queue.h"
#include "run/training/training.h"
#include "sluice/session.h"
#include "tokenizer/tokenizer.h"

namespace sluice {
namespace {

using core::error;

constexpr std::string_view kClipNorm = "clip_norm";

// The planned values, but for those that a step names.
Result<core::UpdateValues> values_with(const core::OptimizerConfig& planned,
                                       const std::map<std::string, double>& wanted) {
  const auto& own = planned.optimizer->hyperparameters;
  core::UpdateValues out = core::values_of(planned);
  for (const auto& [name, value] : wanted) {
    const auto it = std::ranges::find(own, name, &core::Hyperparameter::name);
    const bool clips = name == kClipNorm;
    if (it == own.end() && !clips) {
      std::vector<std::string_view> names;
      for (const core::Hyperparameter& h : own) names.push_back(h.name);
      return error("hyperparameters[{}]: {} has {}, {}", name, planned.optimizer->name,
                   fmt::join(names, ", "), kClipNorm);
    }
    if (clips && !(value >= 0 && value <= core::kMostClipNorm))
      return error("hyperparameters[{}] = {}: allowed are numbers from 0 to {}", name, value,
                   core::kMostClipNorm);
    if (!clips && !it->takes(value))
      return error("hyperparameters[{}] = {}: allowed are {}", name, value, it->allowed());
    if (clips) {
      out.clip_norm = float(value);
    } else {
      out.hyperparameters[size_t(it - own.begin())] = value;
    }
  }
  if (planned.optimizer->check != nullptr) SLUICE_TRY(planned.optimizer->check(out.hyperparameters));
  return out;
}

// The content of batches that a caller brings is the caller's.
constexpr const char* kCallersData = "batches of the caller";

// As train.learning_rate. Beyond it one step leaves no weight that is finite.
Status check_rate(std::string_view name, double rate) {
  if (rate >= 0 && rate <= core::kMostLearningRate) return {};
  return error("{} = {}: allowed are numbers from 0 to {}", name, rate, core::kMostLearningRate);
}

Sample in_public(core::SampledText drawn) {
  const bool cut = drawn.end == core::TextEnd::Length;
  return {std::move(drawn.tokens), std::move(drawn.log_probs), std::move(drawn.log_drawn_probs),
          cut ? "length" : "stop", std::move(drawn.text)};
}

}  // namespace

struct Queued::Impl {
  std::shared_ptr<core::QueuedRows> rows;
};

int64_t Queued::tokens() const {
  return impl_->rows->count;
}

Result<std::vector<float>> Queued::log_probabilities() const {
  const core::QueuedRows& rows = *impl_->rows;
  switch (rows.state) {
    case core::QueuedRows::State::Waits:
      return error("log_probabilities(): the rows wait for optim_step()");
    case core::QueuedRows::State::Gone:
      return error("log_probabilities(): {}", rows.gone);
    case core::QueuedRows::State::Ran:
      break;
  }
  if (rows.log_probs.empty()) return error("log_probabilities(): plan with the option log_probabilities");
  return rows.log_probs;
}

struct Session::Impl {
  std::shared_ptr<const core::Prepared> prepared;  // outlives the engine, which borrows it
  Observer* observer;
  std::shared_ptr<core::Engine> engine;
  std::string content = kCallersData;
  std::optional<core::StepQueue> queue;
  core::Rows batch;  // of evaluations
  std::unique_ptr<core::Replanner> replanner;
  int64_t steps_left = 0;  // that replan() knows of

  core::Replanner& planner() {
    if (!replanner) {
      replanner =
          std::make_unique<core::Replanner>(*engine, *observer, prepared->config.run.replan == "auto");
    }
    return *replanner;
  }

  int64_t seq_len() const { return prepared->shape.seq_len; }
  Status set(core::TensorKind kind, std::string_view name, std::span<const float> values) {
    SLUICE_TRY(engine->check_write(kind, name, values));
    if (kind.of == core::TensorKind::Gradient) SLUICE_TRY(queue->make_gradients("set_gradient()"));
    return engine->set_tensor(kind, name, values);
  }

  Status check_sampling(const SampleOptions& o) const {
    if (prepared->stages.find(core::kSampling) == nullptr)
      return error("sample(): plan with the option sample_window");
    constexpr int64_t kMostTokens = int64_t{1} << 24;
    if (o.tokens < 0 || o.tokens > kMostTokens)
      return error("sample(): tokens = {}; allowed are numbers from 0 to {}", o.tokens, kMostTokens);
    if (!(o.temperature >= 0 && o.temperature <= core::kMostTemperature))
      return error("sample(): temperature = {}; allowed are numbers from 0 to {}", o.temperature,
                   core::kMostTemperature);
    return {};
  }
  Status check_prompt(std::span<const int32_t> prompt, std::string_view name) const {
    if (prompt.empty()) return error("{}: it is empty; it takes at least one token", name);
    for (size_t i = 0; i < prompt.size(); ++i) {
      if (prompt[i] < 0 || prompt[i] >= prepared->model.vocab)
        return error("{}: token {} is {}; allowed are 0 to {}", name, i, prompt[i],
                     prepared->model.vocab - 1);
    }
    return {};
  }

  // Calls f(first token, losses of so many) with every pass over a batch.
  template <class F>
  Status pass(const Batch& b, std::string_view call, F&& f) {
    const core::Stage* const stage = prepared->stages.find(core::kEvaluation);
    if (stage == nullptr) return error("{}: plan with the option evaluate", call);
    SLUICE_TRY(core::check_sequences(b, *prepared));
    const core::BatchLayout& layout = stage->model.layout;
    const auto n = int64_t(b.tokens.size());
    if (batch.tokens() != n) batch = core::Rows(layout, n);
    SLUICE_TRY(core::take(b, *prepared, batch.part(0, n)));
    core::Rows rows;
    for (int64_t at = 0; at < n; at += rows.tokens()) {
      const int64_t all = engine->evaluation_of((n - at) / seq_len()).model.shape.tokens();
      if (rows.tokens() != all) rows = core::Rows(layout, all);
      const int64_t here = std::min(n - at, rows.tokens());
      rows.copy(batch, at, here);
      core::fill_missing(rows, here, seq_len());
      SLUICE_ASSIGN(const core::TokenLosses* const losses, engine->evaluate(rows));
      f(at, here, *losses);
    }
    return {};
  }
};

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;
Session::~Session() = default;

Result<Session> Session::open(const Plan& plan, Observer& observer) {
  auto impl = std::make_unique<Impl>();
  impl->prepared = plan.prepared();
  impl->observer = &observer;
  if (!impl->prepared->machine.traits().runs_models) {
    return error("the plan is for {}, which is only simulated; plan for the machine at hand",
                 impl->prepared->machine.description);
  }
  SLUICE_ASSIGN(impl->engine, core::Engine::open(*impl->prepared, observer));
  impl->queue.emplace(impl->engine);
  return Session(std::move(impl));
}

Result<std::vector<float>> Session::forward(const Batch& batch) {
  std::vector<float> out(batch.tokens.size());
  const auto keep = [&](int64_t first, int64_t count, const core::TokenLosses& losses) {
    for (int64_t t = 0; t < count; ++t) {
      const auto i = size_t(first + t);
      // As a step says it: where none counts it is 0, and not -0.
      if (batch.targets[i] >= 0) out[i] = float(0 - losses.loss[size_t(t)]);
    }
  };
  SLUICE_TRY(impl_->pass(batch, "forward()", keep));
  return out;
}

Result<double> Session::evaluate(const Batch& batch) {
  core::RowLoss sum;
  const auto add = [&](int64_t first, int64_t count, const core::TokenLosses& losses) {
    for (int64_t t = 0; t < count; ++t) {
      const auto i = size_t(first + t), at = size_t(t);
      const double weight = batch.weights.empty() ? 1 : double{batch.weights[i]};
      if (batch.targets[i] >= 0) sum.add({weight * losses.loss[at], 1, losses.is_top[at] > 0 ? 1 : 0});
    }
  };
  SLUICE_TRY(impl_->pass(batch, "evaluate()", add));
  if (sum.targets == 0) return error("batch: it has no targets");
  impl_->observer->evaluated({.step = steps_done(),
                              .loss = sum.mean(),
                              .rows = int64_t(batch.tokens.size()) / impl_->seq_len(),
                              .targets = sum.targets,
                              .accuracy = double(sum.hits) / double(sum.targets),
                              .lowest_step = steps_done(),
                              .lowest_loss = sum.mean()});
  return sum.mean();
}

Result<Queued> Session::forward_backward(const Batch& batch, RoundLoss loss) {
  if (!loss) return error("loss: it is empty");
  if (impl_->prepared->stages.main.model.asked.empty())
    return error("forward_backward(): it has a loss; plan with the option round_losses");
  if (const char* const name = !batch.weights.empty() ? "weights" : !batch.seeds.empty() ? "seeds" : nullptr)
    return error("batch: it has {} and a loss; one is allowed", name);
  SLUICE_ASSIGN(auto queued, impl_->queue->add(batch, std::move(loss)));
  return Queued(std::make_shared<Queued::Impl>(Queued::Impl{std::move(queued)}));
}

Result<Queued> Session::forward_backward(const Batch& batch) {
  SLUICE_ASSIGN(auto queued, impl_->queue->add(batch));
  return Queued(std::make_shared<Queued::Impl>(Queued::Impl{std::move(queued)}));
}

Result<StepEvent> Session::optim_step(double learning_rate,
                                      const std::map<std::string, double>& hyperparameters) {
  const core::Prepared& p = *impl_->prepared;
  SLUICE_TRY(check_rate("learning_rate", learning_rate));
  SLUICE_ASSIGN(const core::UpdateValues values, values_with(p.optimizer, hyperparameters));
  SLUICE_TRY(impl_->engine->check_values(values));
  const int64_t tokens = impl_->queue->tokens();
  if (tokens == 0) return error("optim_step(): no rows wait; forward_backward() brings them");
  const double predicted_s = impl_->engine->predicted_s();
  const auto stepped = impl_->queue->step(learning_rate, values);
  if (!stepped.ok()) return stepped.error();
  const core::StepResult& r = *stepped;
  const StepEvent event{.step = steps_done(),
                        .loss = r.loss,
                        .gradient_norm = r.gradient_norm,
                        .learning_rate = r.learning_rate,
                        .seconds = r.ns / 1e9,
                        .predicted_seconds = predicted_s,
                        .tokens = tokens,
                        .memory = memory(),
                        .skipped = r.skipped,
                        .learnt_tokens = r.targets,
                        .accuracy = double(r.hits) / double(r.targets),
                        .router = r.router,
                        .planned_seconds = impl_->engine->stages().main.plan.makespan_ns / 1e9,
                        .differs = impl_->engine->differs()};
  impl_->observer->stepped(event);
  if (impl_->steps_left > 0) SLUICE_TRY(impl_->planner().after_step(--impl_->steps_left));
  return event;
}

Result<StepEvent> Session::step(const Batch& batch, double learning_rate) {
  // Before anything waits.
  SLUICE_TRY(check_rate("learning_rate", learning_rate));
  const auto queued = forward_backward(batch);
  if (!queued.ok()) return queued.error();
  return optim_step(learning_rate);
}

int64_t Session::queued_tokens() const {
  return impl_->queue->tokens();
}

void Session::discard() {
  impl_->queue->drop("discard() dropped the rows");
}

Status Session::train(const Dataset& data, const Schedule& schedule, const std::filesystem::path& directory,
                      std::stop_token stop) {
  if (impl_->queue->tokens() > 0)
    return error("train(): {} tokens wait for optim_step(); call that, or discard()", impl_->queue->tokens());
  for (const core::BatchSource* source : {data.data()->train.get(), data.data()->heldout.get()}) {
    if (source != nullptr && source->packed() && !impl_->prepared->shape.packed)
      return error("data: documents begin inside a sequence; plan with the option packed");
  }
  SLUICE_TRY(check_rate("schedule: learning_rate", schedule.learning_rate));
  if (schedule.min_learning_rate > schedule.learning_rate) {
    return error(
        "schedule: min_learning_rate = {}: must be at most learning_rate = {}; left out it is a tenth of it",
        *schedule.min_learning_rate, schedule.learning_rate);
  }
  impl_->content = data.data()->content;
  core::Session run(impl_->engine, data.data(), schedule);
  core::TrainingOptions options;
  std::optional<core::Saver> saver;
  if (!directory.empty()) {
    SLUICE_ASSIGN(core::CheckpointStore store, core::CheckpointStore::open(directory));
    SLUICE_ASSIGN(saver, core::Saver::open(*impl_->prepared, std::move(store), {schedule.checkpoint_every},
                                           schedule.steps, *impl_->observer));
    options.saver = &*saver;
  }
  options.stop = [&] { return stop.stop_requested(); };
  options.replanner = &impl_->planner();
  const auto end = core::train(run, *impl_->observer, options);
  if (!end.ok()) return end.error();
  return saver ? saver->wait() : Status();
}

Result<Sample> Session::sample(std::span<const int32_t> prompt, const SampleOptions& o,
                               std::stop_token stop) {
  SLUICE_TRY(impl_->check_sampling(o));
  SLUICE_TRY(impl_->check_prompt(prompt, "prompt"));
  SLUICE_ASSIGN(core::SampledText drawn, core::sample_text(*impl_->engine, {prompt.begin(), prompt.end()},
                                                           {o.tokens, o.temperature, o.seed},
                                                           [&](int64_t) { return !stop.stop_requested(); }));
  if (stop.stop_requested() && int64_t(drawn.tokens.size()) < o.tokens)
    return error(ErrorKind::Cancelled, "sample(): stopped after {} of {} tokens", drawn.tokens.size(),
                 o.tokens);
  return in_public(std::move(drawn));
}

Result<std::vector<std::vector<Sample>>> Session::sample_many(std::span<const std::vector<int32_t>> prompts,
                                                              int64_t samples, const SampleOptions& o,
                                                              std::stop_token stop) {
  SLUICE_TRY(impl_->check_sampling(o));
  constexpr int64_t kMostSamples = 1 << 20;
  if (samples < 1 || samples > kMostSamples)
    return error("sample_many(): samples = {}; allowed are numbers from 1 to {}", samples, kMostSamples);
  if (o.tokens < 1) return error("sample_many(): tokens = {}; allowed are numbers from 1", o.tokens);
  const core::Prepared& p = *impl_->prepared;
  const int64_t window = p.stages.at(core::kSampling).model.capacity;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const std::string name = fmt::format("prompts[{}]", i);
    SLUICE_TRY(impl_->check_prompt(prompts[i], name));
    const int64_t needed = int64_t(prompts[i].size()) + o.tokens - 1;
    if (needed > window)
      return error("{}: its {} tokens and tokens = {} take a window of {}, and sample_window is {}", name,
                   prompts[i].size(), o.tokens, needed, window);
  }
  for (const int32_t token : o.stop_tokens) {
    if (token < 0 || token >= p.model.vocab)
      return error("stop_tokens: {}; allowed are 0 to {}", token, p.model.vocab - 1);
  }
  std::optional<core::Tokenizer> tokenizer;
  const bool reads_text = o.text || !o.stop.empty();
  if (reads_text && p.model.vocab != core::ByteTokenizer::kVocab) {
    const auto path = core::tokenizer_of(p.config);
    if (!path) return error("sample_many(): the model has no tokenizer, which text and stop need");
    SLUICE_TRY(core::check_tokenizer_room(p.config.caps[core::kHost],
                                          impl_->engine->memory().bytes[core::kHost], *path));
    SLUICE_ASSIGN(tokenizer, core::Tokenizer::open(*path));
  }
  const core::Decode decode = [&tokenizer](std::span<const int32_t> tokens) -> Result<std::string> {
    if (tokenizer) return tokenizer->decode(tokens, /*skip_special=*/true);
    return core::ByteTokenizer::decode(tokens);
  };
  core::SamplesRequest request;
  request.tokens = o.tokens, request.temperature = o.temperature, request.seed = o.seed;
  request.ends = o.stop_tokens, request.samples = samples, request.stops = o.stop;
  if (reads_text) request.decode = decode;
  SLUICE_ASSIGN(std::vector<core::SampledText> drawn,
                core::sample_texts(*impl_->engine, {prompts.begin(), prompts.end()}, request,
                                   [&](int64_t) { return !stop.stop_requested(); }));
  if (stop.stop_requested()) return error(ErrorKind::Cancelled, "sample_many(): stopped");
  std::vector<std::vector<Sample>> out(prompts.size());
  for (size_t i = 0; i < drawn.size(); ++i)
    out[i / size_t(samples)].push_back(in_public(std::move(drawn[i])));
  return out;
}

Status Session::save_state(const std::filesystem::path& directory) {
  return impl_->engine->save(core::manifest_of(*impl_->prepared, impl_->content), directory);
}

Status Session::load_state(const std::filesystem::path& directory) {
  SLUICE_ASSIGN(const core::CheckpointInfo info, core::read_checkpoint_info(directory));
  // Every call of train() brings its schedule.
  const std::vector<std::string> allow{"steps", "learning_rate"};
  const core::Manifest now = core::manifest_of(*impl_->prepared, impl_->content);
  impl_->queue->drop("load_state() dropped the rows");
  return impl_->engine->load(core::tolerating(info.manifest, now, allow), directory);
}

Status Session::save_weights(const std::filesystem::path& directory) {
  SLUICE_ASSIGN(core::AtomicDirectory fresh, core::AtomicDirectory::create(directory));
  SLUICE_TRY(
      impl_->engine->save_weights(core::manifest_of(*impl_->prepared, impl_->content), fresh.temporary()));
  return fresh.commit();
}

std::vector<WeightInfo> Session::weights() const {
  std::vector<WeightInfo> out;
  for (core::StoredTensor& t : core::layout_of(impl_->prepared->stages.main.model, false).weights)
    out.push_back({std::move(t.info.name), std::move(t.info.shape)});
  return out;
}

Result<std::vector<float>> Session::weight(std::string_view name) {
  return impl_->engine->tensor({}, name);
}

Status Session::set_weight(std::string_view name, std::span<const float> values) {
  return impl_->set({}, name, values);
}

Result<std::vector<float>> Session::gradient(std::string_view name) {
  SLUICE_TRY(impl_->engine->check_tensor({core::TensorKind::Gradient}, name));
  SLUICE_TRY(impl_->queue->make_gradients("gradient()"));
  return impl_->engine->tensor({core::TensorKind::Gradient}, name);
}

Status Session::set_gradient(std::string_view name, std::span<const float> values) {
  return impl_->set({core::TensorKind::Gradient}, name, values);
}

std::vector<std::string> Session::state_slots() const {
  const core::Prepared& p = *impl_->prepared;
  const auto slots = core::state_slots(p.stages.main.model);
  return {slots.begin(), slots.end()};
}

Result<std::vector<std::string>> Session::state_slots(std::string_view name) const {
  SLUICE_ASSIGN(const auto slots, core::state_slots_of(impl_->prepared->stages.main.model, name));
  return std::vector<std::string>(slots.begin(), slots.end());
}

Result<std::vector<float>> Session::state(std::string_view slot, std::string_view name) {
  return impl_->engine->tensor({core::TensorKind::State, slot}, name);
}

Status Session::set_state(std::string_view slot, std::string_view name, std::span<const float> values) {
  return impl_->set({core::TensorKind::State, slot}, name, values);
}

Result<AdoptionEvent> Session::adopt(const Plan& plan) {
  const std::shared_ptr<const core::Prepared> other = plan.prepared();
  const core::Prepared& own = *impl_->prepared;
  if (!other->machine.traits().runs_models)
    return error("adopt(): the plan is for {}, which is only simulated; plan for the machine at hand",
                 other->machine.description);
  if (other->config.train.seed != own.config.train.seed)
    return error("adopt(): the plan has the seed {}, the session {}", other->config.train.seed,
                 own.config.train.seed);
  // As plans hold what they were made from, this one lives as long as it is run.
  const auto adopted = impl_->engine->adopt({other, &other->stages}, other->machine.profile, "asked for");
  if (!adopted.ok()) return core::error_at("adopt()", adopted.error());
  return *adopted;
}

Status Session::replan(int64_t steps) {
  if (steps < 1) return error("replan(): steps = {}: allowed are numbers from 1 on", steps);
  impl_->steps_left = steps;
  impl_->planner().ask();
  return {};
}

int64_t Session::steps_done() const {
  return impl_->engine->steps_done();
}

MemoryUse Session::memory() const {
  return core::in_public(impl_->engine->memory());
}

}  // namespace sluice
