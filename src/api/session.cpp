// SPDX-License-Identifier: Apache-2.0
#include "run/session.h"

#include <algorithm>
#include <cmath>

#include "run/manifest.h"
#include "run/sampler.h"
#include "run/training.h"
#include "sluice/session.h"

namespace sluice {
namespace {

using core::error;

// Rows of a caller's batch, checked, in a layout: a batch need not have every column. Their memory is used
// again.
Status take(const Batch& b, const core::Prepared& p, const core::BatchLayout& layout, core::Rows& rows) {
  const size_t n = b.tokens.size(), seq = size_t(p.shape.seq_len);
  if (b.targets.size() != n || (!b.positions.empty() && b.positions.size() != n)) {
    return error("batch: {} tokens, {} targets, {} positions; they must be as many", n, b.targets.size(),
                 b.positions.size());
  }
  if (!b.weights.empty() && b.weights.size() != n)
    return error("batch: {} tokens, {} weights; they must be as many", n, b.weights.size());
  if (!b.weights.empty() && !p.stages.main.model.layout.has(core::BatchColumn::Weights))
    return error("batch: it has weights; plan with StepOptions::weighted");
  const int64_t vocab = p.model.vocab;
  for (size_t i = 0; i < n; ++i) {
    if (b.tokens[i] < 0 || b.tokens[i] >= vocab)
      return error("batch: tokens[{}] is {}; allowed are 0 to {}", i, b.tokens[i], vocab - 1);
    if (b.targets[i] < -1 || b.targets[i] >= vocab)
      return error("batch: targets[{}] is {}; allowed are -1 to {}", i, b.targets[i], vocab - 1);
    if (!b.weights.empty() && !std::isfinite(b.weights[i]))
      return error("batch: weights[{}] is {}; allowed are finite numbers", i, b.weights[i]);
  }
  if (rows.tokens() != int64_t(n) || rows.layout() != layout) rows = core::Rows(layout, int64_t(n));
  if (layout.has(core::BatchColumn::Weights)) {
    if (b.weights.empty()) {
      rows.part(0, rows.tokens()).fill_padding(core::BatchColumn::Weights);
    } else {
      std::ranges::copy(b.weights, rows.column<float>(core::BatchColumn::Weights).begin());
    }
  }
  std::ranges::copy(b.tokens, rows.column(core::BatchColumn::Tokens).begin());
  std::ranges::copy(b.targets, rows.column(core::BatchColumn::Targets).begin());
  const auto positions = rows.column(core::BatchColumn::Positions);
  for (size_t i = 0; i < n; ++i) {
    const auto plain = int32_t(i % seq);
    positions[i] = b.positions.empty() ? plain : b.positions[i];
    const int32_t before = plain == 0 ? -1 : positions[i - 1];
    if (positions[i] != before + 1 && positions[i] != 0)
      return error("batch: positions[{}] is {}; allowed are {} and, where a document begins, 0", i,
                   positions[i], before + 1);
    if (positions[i] != plain && !p.shape.packed)
      return error("batch: a document begins at {}, inside a sequence; plan with StepOptions::packed", i);
  }
  return {};
}

// The content of batches that a caller brings is the caller's.
constexpr const char* kCallersData = "batches of the caller";

}  // namespace

struct Session::Impl {
  std::shared_ptr<const core::Prepared> prepared;  // outlives the engine, which borrows it
  Observer* observer;
  std::shared_ptr<core::Engine> engine;
  std::string content = kCallersData;
  core::Rows batch;
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
    return error("the plan is for {}, which is only simulated; plan for Machine::here()",
                 impl->prepared->machine.description);
  }
  SLUICE_ASSIGN(impl->engine, core::Engine::open(*impl->prepared, observer));
  return Session(std::move(impl));
}

Result<StepEvent> Session::step(const Batch& batch, double learning_rate) {
  const core::Prepared& p = *impl_->prepared;
  if (int64_t(batch.tokens.size()) != p.shape.tokens())
    return error("batch: {} tokens; the plan's step has {}", batch.tokens.size(), p.shape.tokens());
  if (!(learning_rate >= 0)) return error("learning_rate = {}: allowed are numbers from 0", learning_rate);
  SLUICE_TRY(take(batch, p, p.stages.main.model.layout, impl_->batch));
  SLUICE_ASSIGN(const core::StepResult r, impl_->engine->step(impl_->batch, learning_rate));
  const StepEvent event{.step = steps_done(),
                        .loss = r.loss,
                        .gradient_norm = r.gradient_norm,
                        .learning_rate = r.learning_rate,
                        .seconds = r.ns / 1e9,
                        .predicted_seconds = p.stages.main.plan.makespan_ns / 1e9,
                        .tokens = r.tokens,
                        .memory = memory(),
                        .skipped = r.skipped,
                        .learnt_tokens = r.targets,
                        .accuracy = double(r.hits) / double(r.targets)};
  impl_->observer->stepped(event);
  return event;
}

Result<std::vector<float>> Session::log_probabilities() const {
  if (impl_->prepared->stages.main.model.log_probs.empty())
    return error("log_probabilities(): plan with StepOptions::log_probabilities");
  const std::span<const float> all = impl_->engine->log_probs();
  if (all.empty()) return error("log_probabilities(): there was no step");
  return std::vector<float>(all.begin(), all.end());
}

Result<double> Session::evaluate(const Batch& batch) {
  const core::Prepared& p = *impl_->prepared;
  if (p.stages.find(core::kEvaluation) == nullptr)
    return error("evaluate(): plan with StepOptions::evaluate");
  const int64_t seq = p.shape.seq_len, n = int64_t(batch.tokens.size());
  if (n == 0 || n % seq != 0) return error("batch: {} tokens; allowed are whole sequences of {}", n, seq);
  const core::Model& model = p.stages.at(core::kEvaluation).model;
  SLUICE_TRY(take(batch, p, model.layout, impl_->batch));
  core::Rows pass(model.layout, model.shape.tokens());
  core::RowLoss sum;
  for (int64_t at = 0; at < n; at += pass.tokens()) {
    const int64_t here = std::min(n - at, pass.tokens());
    pass.copy(impl_->batch, at, here);
    // Rows that fill the last pass have no targets.
    for (int64_t row = here; row < pass.tokens(); row += seq) pass.part(row, seq).fill_padding();
    SLUICE_ASSIGN(const core::TokenLosses* const losses, impl_->engine->evaluate(pass));
    for (size_t t = 0; t < size_t(here); ++t) {
      const size_t i = size_t(at) + t;
      const double weight = batch.weights.empty() ? 1 : double{batch.weights[i]};
      if (batch.targets[i] >= 0) sum.add({weight * losses->loss[t], 1, losses->is_top[t] > 0 ? 1 : 0});
    }
  }
  if (sum.targets == 0) return error("batch: it has no targets");
  impl_->observer->evaluated({.step = steps_done(),
                              .loss = sum.mean(),
                              .rows = n / seq,
                              .targets = sum.targets,
                              .accuracy = double(sum.hits) / double(sum.targets),
                              .lowest_step = steps_done(),
                              .lowest_loss = sum.mean()});
  return sum.mean();
}

Status Session::train(const Dataset& data, const Schedule& schedule, const std::filesystem::path& directory,
                      std::stop_token stop) {
  for (const core::BatchSource* source : {data.data()->train.get(), data.data()->heldout.get()}) {
    if (source != nullptr && source->packed() && !impl_->prepared->shape.packed)
      return error("data: documents begin inside a sequence; plan with StepOptions::packed");
  }
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
  const auto end = core::train(run, *impl_->observer, options);
  if (!end.ok()) return end.error();
  return saver ? saver->wait() : Status();
}

Result<std::vector<int32_t>> Session::generate(std::span<const int32_t> prompt, const GenerateOptions& o) {
  const core::Prepared& p = *impl_->prepared;
  if (p.stages.find(core::kSampling) == nullptr)
    return error("generate(): plan with StepOptions::generate_window");
  if (prompt.empty()) return error("prompt: it is empty; it takes at least one token");
  for (size_t i = 0; i < prompt.size(); ++i) {
    if (prompt[i] < 0 || prompt[i] >= p.model.vocab)
      return error("prompt: token {} is {}; allowed are 0 to {}", i, prompt[i], p.model.vocab - 1);
  }
  if (o.tokens < 0 || !(o.temperature >= 0))
    return error("generate(): tokens = {}, temperature = {}; allowed are numbers from 0", o.tokens,
                 o.temperature);
  return core::continue_text(*impl_->engine, {prompt.begin(), prompt.end()},
                             {o.tokens, o.temperature, o.seed});
}

Status Session::save(const std::filesystem::path& directory) {
  return impl_->engine->save(core::manifest_of(*impl_->prepared, impl_->content), directory);
}

Status Session::restore(const std::filesystem::path& directory) {
  SLUICE_ASSIGN(const core::CheckpointInfo info, core::read_checkpoint_info(directory));
  // Every call of train() brings its schedule.
  const std::vector<std::string> allow{"steps", "learning_rate"};
  const core::Manifest now = core::manifest_of(*impl_->prepared, impl_->content);
  return impl_->engine->load(core::tolerating(info.manifest, now, allow), directory);
}

int64_t Session::steps_done() const {
  return impl_->engine->steps_done();
}

MemoryUse Session::memory() const {
  return core::in_public(impl_->engine->memory());
}

}  // namespace sluice
