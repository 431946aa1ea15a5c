// SPDX-License-Identifier: Apache-2.0
#include "run/session/session.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "generate/sampling.h"
#include "io/directory.h"
#include "run/prepare/manifest.h"
#include "run/session/sampled_text.h"
#include "run/training/training.h"
#include "sluice/session.h"

namespace sluice {
namespace {

using core::error;

// What a batch says of its targets' part in the loss; empty: nothing. Seeds are weights with the sign turned.
std::span<const float> loss_column(const Batch& b) {
  return b.seeds.empty() ? b.weights : b.seeds;
}

// A caller's batch of whole sequences, checked, into rows of a layout, which need not have every column.
Status take(const Batch& b, const core::Prepared& p, core::RowsView rows) {
  const size_t n = b.tokens.size(), seq = size_t(p.shape.seq_len);
  if (b.targets.size() != n || (!b.positions.empty() && b.positions.size() != n)) {
    return error("batch: {} tokens, {} targets, {} positions; they must be as many", n, b.targets.size(),
                 b.positions.size());
  }
  if (!b.weights.empty() && !b.seeds.empty()) return error("batch: it has weights and seeds; one is allowed");
  const char* const name = b.seeds.empty() ? "weights" : "seeds";
  const std::span<const float> factors = loss_column(b);
  if (!factors.empty() && factors.size() != n)
    return error("batch: {} tokens, {} {}; they must be as many", n, factors.size(), name);
  if (!factors.empty() && !p.stages.main.model.layout.has(core::BatchColumn::Weights))
    return error("batch: it has {}; plan with the option weighted", name);
  const int64_t vocab = p.model.vocab;
  for (size_t i = 0; i < n; ++i) {
    if (b.tokens[i] < 0 || b.tokens[i] >= vocab)
      return error("batch: tokens[{}] is {}; allowed are 0 to {}", i, b.tokens[i], vocab - 1);
    if (b.targets[i] < -1 || b.targets[i] >= vocab)
      return error("batch: targets[{}] is {}; allowed are -1 to {}", i, b.targets[i], vocab - 1);
    if (!factors.empty() && !std::isfinite(factors[i]))
      return error("batch: {}[{}] is {}; allowed are finite numbers", name, i, factors[i]);
  }
  if (rows.layout().has(core::BatchColumn::Weights)) {
    const std::span<float> weights = rows.column<float>(core::BatchColumn::Weights);
    if (factors.empty()) {
      rows.fill_padding(core::BatchColumn::Weights);
    } else if (b.seeds.empty()) {
      std::ranges::copy(factors, weights.begin());
    } else {
      std::ranges::transform(factors, weights.begin(), [](float seed) { return -seed; });
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
      return error("batch: a document begins at {}, inside a sequence; plan with the option packed", i);
  }
  return {};
}

Status check_sequences(const Batch& b, int64_t seq) {
  const int64_t n = int64_t(b.tokens.size());
  if (n > 0 && n % seq == 0) return {};
  return error("batch: {} tokens; allowed are whole sequences of {}", n, seq);
}

// From token `begin` on, sequences without targets.
void fill_missing(core::Rows& rows, int64_t begin, int64_t seq) {
  for (int64_t row = begin; row < rows.tokens(); row += seq) rows.part(row, seq).fill_padding();
}

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

}  // namespace

struct Queued::Impl {
  enum class State : uint8_t { Waits, Ran, Gone };
  int64_t first, count;  // tokens, in the step's rows
  State state = State::Waits;
  std::string gone = {};  // why
  std::vector<float> log_probs = {};
};

int64_t Queued::tokens() const {
  return impl_->count;
}

Result<std::vector<float>> Queued::log_probabilities() const {
  switch (impl_->state) {
    case Impl::State::Waits:
      return error("log_probabilities(): the rows wait for optim_step()");
    case Impl::State::Gone:
      return error("log_probabilities(): {}", impl_->gone);
    case Impl::State::Ran:
      break;
  }
  if (impl_->log_probs.empty()) return error("log_probabilities(): plan with the option log_probabilities");
  return impl_->log_probs;
}

struct Session::Impl {
  std::shared_ptr<const core::Prepared> prepared;  // outlives the engine, which borrows it
  Observer* observer;
  std::shared_ptr<core::Engine> engine;
  std::string content = kCallersData;
  core::Rows batch, step;  // of evaluations, and what waits for an optimizer step
  int64_t queued = 0;      // tokens of that
  bool seeded = false;
  std::vector<std::weak_ptr<Queued::Impl>> waiting = {};
  // Of what waits, rows whose seeds a loss says while the step runs.
  struct Asked {
    int64_t first, count;  // tokens, in the step's rows
    RoundLoss loss;
  };
  std::vector<Asked> asked = {};

  ~Impl() { drop("the session ended before they were learnt"); }

  int64_t seq_len() const { return prepared->shape.seq_len; }
  // Ends the queue; what waited is gone for that reason.
  void drop(const std::string& why) {
    for (const auto& weak : waiting) {
      if (const auto one = weak.lock()) one->state = Queued::Impl::State::Gone, one->gone = why;
    }
    waiting.clear();
    asked.clear();
    queued = 0;
    if (engine) engine->call_off_update();
  }
  // Of what waits, whose passes ran.
  void resolve() {
    const std::span<const float> all = engine->log_probs();
    for (const auto& weak : waiting) {
      const auto one = weak.lock();
      if (!one) continue;
      one->state = Queued::Impl::State::Ran;
      if (all.empty()) continue;
      const auto own = all.subspan(size_t(one->first), size_t(one->count));
      one->log_probs.assign(own.begin(), own.end());
    }
    waiting.clear();
    asked.clear();
  }
  core::StepLoss loss() const {
    core::StepLoss out{seeded ? core::LossScale::One : core::LossScale::PerTarget};
    if (asked.empty()) return out;
    out.ask = [this](int64_t first, std::span<const float> log_probs, std::span<float> weights) -> Status {
      for (const Asked& one : asked) SLUICE_TRY(ask(one, first, log_probs, weights));
      return {};
    };
    return out;
  }
  // Asks one loss for the weights of its rows among those of a round.
  Status ask(const Asked& one, int64_t first, std::span<const float> log_probs,
             std::span<float> weights) const {
    const int64_t begin = std::max(first, one.first);
    const int64_t end = std::min(first + int64_t(weights.size()), one.first + one.count);
    if (begin >= end) return {};
    const auto at = size_t(begin - first), count = size_t(end - begin);
    const auto targets = step.column(core::BatchColumn::Targets).subspan(size_t(begin), count);
    if (std::ranges::none_of(targets, [](int32_t t) { return t >= 0; })) return {};
    std::vector<float> seeds(count);
    SLUICE_TRY(one.loss({begin - one.first, targets, log_probs.subspan(at, count)}, seeds));
    for (size_t i = 0; i < count; ++i) {
      if (!std::isfinite(seeds[i]) && targets[i] >= 0) {
        return error(
            "loss: the derivative with respect to log-probability {} is {}; allowed are finite numbers",
            begin - one.first + int64_t(i), seeds[i]);
      }
      weights[at + i] = targets[i] >= 0 ? -seeds[i] : 0;
    }
    return {};
  }
  // Checks a batch and puts it behind what waits.
  Result<std::shared_ptr<Queued::Impl>> queue(const Batch& given, bool has_seeds) {
    const core::Prepared& p = *prepared;
    SLUICE_TRY(check_sequences(given, seq_len()));
    const auto n = int64_t(given.tokens.size());
    if (engine->has_passed()) {
      return error(
          "forward_backward(): the gradients of {} tokens were made; optim_step() or discard() comes first",
          queued);
    }
    if (queued + n > p.shape.tokens()) {
      const std::string rest = queued > 0 ? fmt::format(", with {} that wait for optim_step()", queued) : "";
      return error("batch: {} tokens{}; the plan's step has {}", n, rest, p.shape.tokens());
    }
    if (queued > 0 && has_seeds != seeded) {
      return error("batch: it has {}seeds, and what waits for optim_step() has {}; all of a step, or none",
                   has_seeds ? "" : "no ", has_seeds ? "none" : "some");
    }
    if (step.tokens() == 0) step = core::Rows(p.stages.main.model.layout, p.shape.tokens());
    SLUICE_TRY(take(given, p, step.part(queued, n)));
    auto one = std::make_shared<Queued::Impl>(Queued::Impl{queued, n});
    queued += n;
    seeded = has_seeds;
    waiting.push_back(one);
    return one;
  }
  // What waits, made into a step's rows.
  const core::Rows& rows() {
    fill_missing(step, queued, seq_len());
    return step;
  }
  // Makes the gradients of what waits, if they are not there.
  Status make_gradients(std::string_view call) {
    if (queued == 0) return error("{}: no rows wait; forward_backward() brings them", call);
    if (engine->has_passed()) return {};
    if (!prepared->optimizer.deferred) {
      return error(
          "{}: the plan updates weights while it makes their gradients; plan with "
          "the option deferred_updates = true",
          call);
    }
    if (const Status made = engine->make_passes(rows(), loss()); !made.ok()) {
      drop("their passes failed: " + made.message());
      return made;
    }
    resolve();
    return {};
  }
  Status set(core::TensorKind kind, std::string_view name, std::span<const float> values) {
    SLUICE_TRY(engine->check_write(kind, name, values));
    if (kind.of == core::TensorKind::Gradient) SLUICE_TRY(make_gradients("set_gradient()"));
    return engine->set_tensor(kind, name, values);
  }

  // Calls f(first token, losses of so many) with every pass over a batch.
  template <class F>
  Status pass(const Batch& b, std::string_view call, F&& f) {
    const core::Stage* const stage = prepared->stages.find(core::kEvaluation);
    if (stage == nullptr) return error("{}: plan with the option evaluate", call);
    SLUICE_TRY(check_sequences(b, seq_len()));
    const core::BatchLayout& layout = stage->model.layout;
    const auto n = int64_t(b.tokens.size());
    if (batch.tokens() != n) batch = core::Rows(layout, n);
    SLUICE_TRY(take(b, *prepared, batch.part(0, n)));
    core::Rows rows;
    for (int64_t at = 0; at < n; at += rows.tokens()) {
      const int64_t all = engine->evaluation_of((n - at) / seq_len()).model.shape.tokens();
      if (rows.tokens() != all) rows = core::Rows(layout, all);
      const int64_t here = std::min(n - at, rows.tokens());
      rows.copy(batch, at, here);
      fill_missing(rows, here, seq_len());
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
  SLUICE_ASSIGN(std::shared_ptr<Queued::Impl> queued, impl_->queue(batch, /*has_seeds=*/true));
  impl_->asked.push_back({queued->first, queued->count, std::move(loss)});
  return Queued(std::move(queued));
}

Result<Queued> Session::forward_backward(const Batch& batch) {
  SLUICE_ASSIGN(std::shared_ptr<Queued::Impl> queued, impl_->queue(batch, !batch.seeds.empty()));
  return Queued(std::move(queued));
}

Result<StepEvent> Session::optim_step(double learning_rate,
                                      const std::map<std::string, double>& hyperparameters) {
  const core::Prepared& p = *impl_->prepared;
  SLUICE_TRY(check_rate("learning_rate", learning_rate));
  SLUICE_ASSIGN(const core::UpdateValues values, values_with(p.optimizer, hyperparameters));
  SLUICE_TRY(impl_->engine->check_values(values));
  if (impl_->queued == 0) return error("optim_step(): no rows wait; forward_backward() brings them");
  const auto stepped = impl_->engine->has_passed() ? impl_->engine->decide_update(learning_rate, values)
                                                   : impl_->engine->step(impl_->rows(), learning_rate,
                                                                         nullptr, impl_->loss(), &values);
  if (!stepped.ok()) {
    impl_->drop("its step failed: " + stepped.message());
    return stepped.error();
  }
  const core::StepResult& r = *stepped;
  const StepEvent event{.step = steps_done(),
                        .loss = r.loss,
                        .gradient_norm = r.gradient_norm,
                        .learning_rate = r.learning_rate,
                        .seconds = r.ns / 1e9,
                        .predicted_seconds = impl_->engine->stages().main.plan.makespan_ns / 1e9,
                        .tokens = impl_->queued,
                        .memory = memory(),
                        .skipped = r.skipped,
                        .learnt_tokens = r.targets,
                        .accuracy = double(r.hits) / double(r.targets),
                        .router = r.router};
  impl_->resolve();
  impl_->queued = 0;
  impl_->observer->stepped(event);
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
  return impl_->queued;
}

void Session::discard() {
  impl_->drop("discard() dropped the rows");
}

Status Session::train(const Dataset& data, const Schedule& schedule, const std::filesystem::path& directory,
                      std::stop_token stop) {
  if (impl_->queued > 0)
    return error("train(): {} tokens wait for optim_step(); call that, or discard()", impl_->queued);
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
  const auto end = core::train(run, *impl_->observer, options);
  if (!end.ok()) return end.error();
  return saver ? saver->wait() : Status();
}

Result<Sample> Session::sample(std::span<const int32_t> prompt, const SampleOptions& o,
                               std::stop_token stop) {
  const core::Prepared& p = *impl_->prepared;
  if (p.stages.find(core::kSampling) == nullptr) return error("sample(): plan with the option sample_window");
  if (prompt.empty()) return error("prompt: it is empty; it takes at least one token");
  for (size_t i = 0; i < prompt.size(); ++i) {
    if (prompt[i] < 0 || prompt[i] >= p.model.vocab)
      return error("prompt: token {} is {}; allowed are 0 to {}", i, prompt[i], p.model.vocab - 1);
  }
  constexpr int64_t kMostTokens = int64_t{1} << 24;
  if (o.tokens < 0 || o.tokens > kMostTokens)
    return error("sample(): tokens = {}; allowed are numbers from 0 to {}", o.tokens, kMostTokens);
  if (!(o.temperature >= 0 && o.temperature <= core::kMostTemperature))
    return error("sample(): temperature = {}; allowed are numbers from 0 to {}", o.temperature,
                 core::kMostTemperature);
  SLUICE_ASSIGN(core::SampledText drawn, core::sample_text(*impl_->engine, {prompt.begin(), prompt.end()},
                                                           {o.tokens, o.temperature, o.seed},
                                                           [&](int64_t) { return !stop.stop_requested(); }));
  if (stop.stop_requested() && int64_t(drawn.tokens.size()) < o.tokens)
    return error(ErrorKind::Cancelled, "sample(): stopped after {} of {} tokens", drawn.tokens.size(),
                 o.tokens);
  return Sample{std::move(drawn.tokens), std::move(drawn.log_probs)};
}

Status Session::save_state(const std::filesystem::path& directory) {
  return impl_->engine->save(core::manifest_of(*impl_->prepared, impl_->content), directory);
}

Status Session::load_state(const std::filesystem::path& directory) {
  SLUICE_ASSIGN(const core::CheckpointInfo info, core::read_checkpoint_info(directory));
  // Every call of train() brings its schedule.
  const std::vector<std::string> allow{"steps", "learning_rate"};
  const core::Manifest now = core::manifest_of(*impl_->prepared, impl_->content);
  impl_->drop("load_state() dropped the rows");
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
  SLUICE_TRY(impl_->make_gradients("gradient()"));
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

int64_t Session::steps_done() const {
  return impl_->engine->steps_done();
}

MemoryUse Session::memory() const {
  return core::in_public(impl_->engine->memory());
}

}  // namespace sluice
