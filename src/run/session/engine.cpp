// SPDX-License-Identifier: Apache-2.0
#include "run/session/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <new>
#include <numeric>
#include <unordered_map>

#include "base/bytes.h"
#include "base/parallel.h"
#include "base/stopwatch.h"
#include "checkpoint/base_files.h"
#include "checkpoint/embedding_rows.h"
#include "checkpoint/weights.h"
#include "host/host_memory.h"
#include "io/directory.h"
#include "io/hub_cache.h"
#include "model/families/adapter_config.h"
#include "model/families/families.h"
#include "run/inputs/resolve.h"
#include "run/session/expert_load.h"
#include "run/session/slow_links.h"

namespace sluice::core {
namespace {

double now_ns() {
  using namespace std::chrono;
  return double(duration_cast<nanoseconds>(steady_clock::now().time_since_epoch()).count());
}

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

template <class T>
Result<T> read_value(const Executor& executor, ObjectId id) {
  T value;
  SLUICE_TRY(executor.read(id, std::as_writable_bytes(std::span(&value, 1))));
  return value;
}

// REQUIRES: clip.scale is 0.
std::string why_skipped(const BuiltProgram& model, double loss, const Clip& clip) {
  if (!std::isfinite(loss)) return "the loss is not finite";
  std::string tensors;
  const NormSlot slot = norm_slots(model.weights)[size_t(blamed_slot(clip))];
  for (const WeightSource& s : model.weights[slot.weight].sources)
    tensors += (tensors.empty() ? "" : " and ") + s.tensor;
  return fmt::format("the gradient of {} is not finite", tensors);
}

}  // namespace

MemoryUse in_public(const MemoryReport& m) {
  return {fullest_device(m.bytes), m.bytes[kHost], fullest_device(m.peak_bytes), m.peak_bytes[kHost]};
}

Result<std::unique_ptr<Engine>> Engine::open(const Prepared& prepared, Observer& observer) {
  std::unique_ptr<Engine> engine(new Engine(prepared, observer));
  SLUICE_TRY(engine->start());
  return engine;
}

Status Engine::start() {
  start_up_ = p_.start_up;
  Stopwatch watch;
  SLUICE_ASSIGN(ModelFiles files, model_files_of(p_.config));
  files_ = std::make_shared<ModelFiles>(std::move(files));
  SLUICE_ASSIGN(auto backend, p_.machine.make());
  if (const std::string note = backend->take_note(); !note.empty()) observer_.warned(note);
  if (p_.model.reads_files) {
    const Stage& main = p_.stages.main;
    SLUICE_ASSIGN(auto base, open_base(main.model, main.plan, p_.config.model.weights));
    backend->set_disk(std::move(base));
  }
  SLUICE_ASSIGN(loaded_, Loaded::reserve(std::move(backend), p_.stages, p_.config.caps, observer_));
  start_up_.reserve_s = watch.lap();
  SLUICE_TRY(loaded_->prepare());
  start_up_.prepare_s = watch.lap();
  loaded_->annotate();
  if (p_.optimizer.sharded.is()) shared_ = std::make_unique<SharedState>(p_, loaded_->main());
  SLUICE_TRY(fill_state());
  start_up_.initialize_s = watch.lap();
  SLUICE_TRY(loaded_->settle());
  start_up_.pin_s = watch.lap();
  return check_caps();
}

Status Engine::fill_state() {
  const BuiltProgram& model = p_.stages.main.model;
  SLUICE_TRY(
      initialize(model, uint64_t(p_.config.train.seed), loaded_->main(), [&](int64_t done, int64_t total) {
        observer_.progress({"making the state", done, total, sluice::Progress::Unit::Bytes});
      }));
  // A run that goes on has its own weights, but for a base.
  WeightsFrom from = weights_from(p_.config);
  if (!p_.config.checkpoint().empty()) {
    from.adapter.clear();
    if (!p_.model.adapters.any()) from.folder.clear();
  }
  SLUICE_ASSIGN(base_values_, load_model(model, from, loaded_->main()));
  release_freed_memory();  // of the threads that made or read the values
  return {};
}

Status Engine::load_beginning() {
  const auto loaded = load_model(p_.stages.main.model, weights_from(p_.config), loaded_->main());
  return loaded.ok() ? Status() : Status(error_at("the weights that the run began with", loaded.error()));
}

StepArgs Engine::args_for_update(int64_t step, int64_t updates, double learning_rate) const {
  StepArgs args{};
  args.step = step;
  args.updates = updates;
  args.seed = uint64_t(p_.config.train.seed);
  args.learning_rate = float(learning_rate);
  return args;
}

void Engine::set_values(Executor& executor, const BuiltProgram& model, const UpdateValues& values,
                        float clip_norm) const {
  UpdateValues wanted{values.hyperparameters, clip_norm};
  if (wanted == values_of(p_.optimizer)) return executor.set_ops({});
  auto ops = ops_with_values(model.program, model.weights, with_values(p_.optimizer, wanted), p_.numerics);
  SLUICE_CHECK(ops, "check_values() was not called");
  executor.set_ops(std::move(*ops));
}

Status Engine::check_values(const UpdateValues& values) const {
  const BuiltProgram& model = p_.stages.main.model;
  const auto possible = [&](const UpdateValues& v) {
    return ops_with_values(model.program, model.weights, with_values(p_.optimizer, v), p_.numerics)
        .has_value();
  };
  const UpdateValues planned = values_of(p_.optimizer);
  if (values == planned || possible(values)) return {};
  const auto& own = p_.optimizer.optimizer->hyperparameters;
  for (size_t i = 0; i < own.size(); ++i) {
    UpdateValues one = planned;
    one.hyperparameters[i] = values.hyperparameters[i];
    if (possible(one)) continue;
    return error(
        "hyperparameters[{}] = {}: planned with {}, for which the optimizer's state follows after the "
        "weights, as it cannot with this value; plan with StepOptions::hyperparameters",
        own[i].name, values.hyperparameters[i], planned.hyperparameters[i]);
  }
  return error("hyperparameters: the plan cannot have them; plan with StepOptions::hyperparameters");
}

Result<StepResult> Engine::step(const Rows& rows, double learning_rate, std::vector<Interval>* timeline,
                                const StepLoss& loss, const UpdateValues* values) {
  const UpdateValues now = values != nullptr ? *values : values_of(p_.optimizer);
  SLUICE_TRY(pass(rows, learning_rate, now, loss, timeline));
  StepResult result = settle(learning_rate, now);
  SLUICE_TRY(check_caps());  // of a step that was made
  return result;
}

Status Engine::make_passes(const Rows& rows, const StepLoss& loss, std::vector<Interval>* timeline) {
  SLUICE_CHECK(p_.optimizer.deferred, "the update is part of the passes");
  SLUICE_TRY(pass(rows, 0, values_of(p_.optimizer), loss, timeline));
  return check_caps();
}

Result<StepResult> Engine::decide_update(double learning_rate, const UpdateValues& values) {
  SLUICE_CHECK(passed_, "no passes were made");
  if (passed_->changed || values.clip_norm != p_.optimizer.clip_norm)
    SLUICE_TRY(clip_again(values.clip_norm));
  return settle(learning_rate, values);
}

Status Engine::pass(const Rows& rows, double learning_rate, const UpdateValues& values, const StepLoss& loss,
                    std::vector<Interval>* timeline) {
  passed_.reset();
  SLUICE_TRY(state_);
  const double begin_ns = now_ns();
  const BuiltProgram& model = p_.stages.main.model;
  SLUICE_TRY(feed_rows(rows, model, loaded_->main(), staging_));
  const int64_t own =
      std::ranges::count_if(rows.column(BatchColumn::Targets), [](int32_t t) { return t >= 0; });
  SLUICE_ASSIGN(const auto counts, of_all(std::span(&own, 1)));
  const int64_t targets = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  // A deferred update belongs to the step before this one.
  const bool deferred = p_.optimizer.deferred;
  StepArgs args = deferred ? args_for_update(std::max<int64_t>(1, steps_done_),
                                             std::max<int64_t>(1, updates_), learning_rate_)
                           : args_for_update(steps_done_ + 1, updates_ + 1, learning_rate);
  set_values(loaded_->main(), model, deferred ? values_ : values, values.clip_norm);
  const bool learns = targets > 0;
  args.update = (deferred ? pending_ : learns) ? 1 : 0;
  args.loss_scale = !learns ? 0.0f : loss.scale == LossScale::One ? 1.0f : 1.0f / float(targets);
  const DropoutArgs all{args, steps_done_ + 1, rank() * model.shape.sequences()};
  const int64_t read = model.program.object(model.args).bytes;
  SLUICE_TRY(loaded_->main().write(model.args, bytes_of(all).first(size_t(read))));
  Status refused;
  const bool traced = timeline != nullptr;
  std::vector<Interval> own_timeline;
  if (!traced && costs_ && costs_->wants_timeline()) timeline = &own_timeline;
  SLUICE_TRY(lost("a step", loaded_->main().step(timeline, asking(loss.ask, refused))));
  pending_ = false;
  SLUICE_TRY(refused);
  std::vector<LossSums> parts;
  for (const ObjectId part : model.loss) {
    SLUICE_ASSIGN(parts.emplace_back(), read_value<LossSums>(loaded_->main(), part));
  }
  SLUICE_ASSIGN(parts, of_all(std::span<const LossSums>(parts)));
  LossSums sums = parts.front();
  for (const LossSums& part : std::span(parts).subspan(1)) sums.loss += part.loss, sums.hits += part.hits;
  SLUICE_ASSIGN(const Clip clip, read_value<Clip>(loaded_->main(), model.clip));
  SLUICE_TRY(read_log_probs());
  passed_ = Passed{.result = {.loss = learns ? sums.loss * double(args.loss_scale) : std::nan(""),
                              .gradient_norm = clip.norm,
                              .tokens = p_.shape.tokens_of_all(),
                              .targets = targets,
                              .hits = int64_t(sums.hits)},
                   .clip = clip};
  SLUICE_ASSIGN(passed_->result.router, read_expert_load());
  passed_->result.ns = now_ns() - begin_ns;
  // Noting kernels takes time of its own.
  if (costs_ && !(traced && p_.config.run.trace_kernels))
    costs_->add(passed_->result.ns / 1e9, timeline != nullptr ? *timeline : std::span<const Interval>());
  return {};
}

StepCosts& Engine::learn_costs() {
  if (!costs_) {
    costs_.emplace(p_.machine.traits().shares_cores);
    costs_->follow(stages().main, p_.machine.profile);
  }
  return *costs_;
}

Result<std::optional<sluice::ExpertLoad>> Engine::read_expert_load() const {
  const BuiltProgram& model = p_.stages.main.model;
  std::vector<LayerLoad> layers;
  std::vector<double> own;  // of all layers, one behind the other
  for (size_t l = 0; l < model.router_load.size(); ++l) {
    const ObjectId object = model.router_load[l];
    if (!object.valid()) continue;
    std::vector<double> sums(size_t(loaded_->main().program().object(object).elements()));
    SLUICE_TRY(loaded_->main().read(object, std::as_writable_bytes(std::span(sums))));
    own.insert(own.end(), sums.begin(), sums.end());
    layers.push_back({int(l), std::vector<double>(sums.size())});
  }
  std::optional<sluice::ExpertLoad> none;
  if (layers.empty()) return none;
  SLUICE_ASSIGN(const std::vector<double> all, of_all(std::span<const double>(own)));
  for (size_t i = 0; i < all.size();) {
    for (LayerLoad& layer : layers) {
      for (double& sum : layer.sums) sum += all[i++];
    }
  }
  return expert_load_of(layers, p_.shape.tokens_of_all());
}

template <class T>
Result<std::vector<T>> Engine::of_all(std::span<const T> own) const {
  Network* const network = p_.machine.options.network;
  if (network == nullptr) return std::vector<T>(own.begin(), own.end());
  std::vector<T> all(own.size() * size_t(network->size()));
  SLUICE_TRY(network->all_gather(std::as_bytes(own), std::as_writable_bytes(std::span(all))));
  return all;
}

std::vector<Amendment> Engine::asking(const AskWeights& ask, Status& refused) const {
  std::vector<Amendment> out;
  if (!ask) return out;
  const BuiltProgram& model = p_.stages.main.model;
  SLUICE_CHECK(!model.asked.empty(), "the plan asks nobody for weights");
  const bool others = model.layout.has(BatchColumn::TopTokens);
  const int64_t top = others ? model.layout.width(BatchColumn::TopTokens) : 0;
  int64_t first = 0;
  for (const ObjectId all : model.asked) {
    const int64_t numbers = model.program.object(all).elements() / 2;
    out.push_back({all, [&ask, &refused, first, numbers](std::span<std::byte> bytes) {
                     const std::span values(reinterpret_cast<float*>(bytes.data()), size_t(2 * numbers));
                     const std::span<float> weights = values.first(size_t(numbers));
                     if (refused.ok()) refused = ask(first, values.subspan(size_t(numbers)), weights);
                     if (!refused.ok()) std::ranges::fill(weights, std::nanf(""));
                     return Status();
                   }});
    first += numbers / (1 + top);
  }
  return out;
}

// As ClipScale, from sums of squares that the host made: the last bit may be another one.
Status Engine::clip_again(float max_norm) {
  const BuiltProgram& model = p_.stages.main.model;
  Clip& clip = passed_->clip;
  if (passed_->changed) {
    SLUICE_ASSIGN(const std::vector<double> sums, gradient_squares(model, loaded_->main()));
    clip = {float(std::sqrt(std::accumulate(sums.begin(), sums.end(), 0.0))), 1};
    if (!std::isfinite(clip.norm))
      clip = {norm_that_blames(slot_to_blame(sums.data(), int64_t(sums.size()))), 0};
    passed_->result.gradient_norm = clip.norm;
  }
  if (clip.scale != 0) {
    clip.scale = max_norm > 0 ? float(std::min(1.0, double{max_norm} / (double{clip.norm} + 1e-6))) : 1.0f;
  }
  return loaded_->main().write(model.clip, bytes_of(clip));
}

StepResult Engine::settle(double learning_rate, const UpdateValues& values) {
  auto [result, clip, changed] = *passed_;
  passed_.reset();
  const bool learns = result.targets > 0 || changed;
  ++steps_done_;
  pending_ = p_.optimizer.deferred && learns;
  learning_rate_ = learning_rate;
  values_ = values;
  if (learns && clip.scale != 0) ++updates_;
  result.learning_rate = learning_rate;
  if (clip.scale == 0) result.skipped = why_skipped(p_.stages.main.model, result.loss, clip);
  if (!learns) result.skipped = "none of its tokens is learnt";
  return result;
}

Status Engine::read_log_probs() {
  if (p_.stages.main.model.log_probs.empty()) return {};
  log_probs_.resize(size_t(p_.shape.tokens()));
  std::span<float> rest(log_probs_);
  for (const auto& round : p_.stages.main.model.log_probs) {
    for (const ObjectId chunk : round) {
      const size_t count = size_t(loaded_->main().program().object(chunk).elements());
      SLUICE_TRY(loaded_->main().read(chunk, std::as_writable_bytes(rest.first(count))));
      rest = rest.subspan(count);
    }
  }
  SLUICE_CHECK(rest.empty(), "{} tokens have no log-probabilities", rest.size());
  return {};
}

void Engine::note_activities() {
  if (!p_.config.run.trace_kernels) return;
  if (const Status noted = loaded_->backend().note_activities(); !noted.ok()) {
    observer_.warned(fmt::format("the trace will not name kernels: {}", noted.message()));
  }
}

std::vector<DeviceActivity> Engine::activities() {
  auto noted = loaded_->backend().activities();
  if (noted.ok()) return std::move(*noted);
  observer_.warned(fmt::format("the trace does not name kernels: {}", noted.message()));
  return {};
}

std::string Engine::slow_links(std::span<const Interval> timeline) const {
  if (p_.machine.traits().shares_cores) return {};
  return sluice::core::slow_links(stages().main.plan, timeline, p_.machine.profile.transfer_latency_ns,
                                  loaded_->backend());
}

Engine::Beside Engine::beside(std::string_view name) const {
  const Stage& stage = stages().at(name);
  return {stage.model, loaded_->at(name)};
}

StepArgs Engine::args_for_pending() const {
  StepArgs args = args_for_update(steps_done_, std::max<int64_t>(1, updates_), learning_rate_);
  args.update = 1;
  return args;
}

Status Engine::lost(std::string_view by, Status status) {
  if (!status.ok())
    state_ = error("the session has no state: {} failed ({}); load one", by, status.message());
  return status;
}

Status Engine::apply_pending() {
  SLUICE_TRY(state_);
  if (!pending_) return {};
  if (shared_) SLUICE_TRY(shared_->ask_for_update());
  const auto [model, executor] = beside(kFlush);
  set_values(executor, model, values_, values_.clip_norm);
  SLUICE_TRY(executor.write(model.args, bytes_of(args_for_pending())));
  SLUICE_TRY(lost("an update", executor.step()));
  pending_ = false;
  return {};
}

Status Engine::meet() {
  return shared_ ? shared_->meet([this] { return apply_pending(); }) : Status();
}

const Stage& Engine::evaluation_of(int64_t sequences) const {
  const Stage& stage = sluice::core::evaluation_of(stages(), sequences);
  return loaded_->runs(stage.name) ? stage : stages().at(kEvaluation);
}

Result<const TokenLosses*> Engine::evaluate(const Rows& rows) {
  SLUICE_TRY(state_);
  const Stage* stage = &evaluation_of(rows.tokens() / p_.shape.seq_len);
  const Stage* const updating =
      pending_ && loaded_->runs(kUpdatingEvaluation) ? stages().find(kUpdatingEvaluation) : nullptr;
  StepArgs args{};
  if (updating != nullptr && stage->name == kLongEvaluation) {
    stage = updating;
    args = args_for_pending();
  } else {
    SLUICE_TRY(apply_pending());
  }
  args.loss_scale = 1;
  const auto [model, executor] = beside(stage->name);
  if (stage == updating) set_values(executor, model, values_, values_.clip_norm);
  SLUICE_TRY(feed_rows(rows, model, executor, staging_));
  SLUICE_TRY(executor.write(model.args, bytes_of(args)));
  const Status evaluated = executor.step();
  SLUICE_TRY(args.update != 0 ? lost("an update", evaluated) : evaluated);
  pending_ = false;
  SLUICE_TRY(read_token_losses(model, executor, token_losses_));
  SLUICE_TRY(check_caps());
  return &token_losses_;
}

Status Engine::read_embedding(std::span<const int32_t> tokens, std::vector<std::byte>& rows) const {
  // A copy from a device takes some microseconds to begin and to end, whatever it copies. Several threads
  // wait for theirs side by side, and a token that comes again, as padding does, is copied once.
  constexpr int64_t kRowsPerThread = 16;
  const BuiltProgram& model = p_.stages.main.model;
  std::unordered_map<int32_t, size_t> place;  // of a token's row, its first place
  std::vector<size_t> firsts;
  for (size_t t = 0; t < tokens.size(); ++t) {
    if (place.emplace(tokens[t], t).second) firsts.push_back(t);
  }
  const auto count = int64_t(firsts.size());
  const auto threads = int(std::clamp<int64_t>(count / kRowsPerThread, 1, search_threads()));
  rows.clear();
  for (size_t w = 0; w < model.weights.size(); ++w) {
    const Weight& weight = model.weights[w];
    if (!is_looked_up(weight)) continue;
    const int64_t row_bytes = weight.sources.front().cols * size_of(p_.numerics.compute);
    const size_t before = rows.size();
    rows.resize(before + tokens.size() * size_t(row_bytes));
    const auto row = [&](size_t t) {
      return std::span(rows).subspan(before + t * size_t(row_bytes), size_t(row_bytes));
    };
    std::vector<Status> done(static_cast<size_t>(threads));
    for_each_parallel(threads, threads, [&](int64_t part) {
      Status& status = done[size_t(part)];
      for (int64_t i = part * count / threads; status.ok() && i < (part + 1) * count / threads; ++i) {
        const size_t t = firsts[size_t(i)];
        status = loaded_->main().read(model.params[w].param, row(t), int64_t{tokens[t]} * row_bytes);
      }
    });
    for (Status& status : done) SLUICE_TRY(std::move(status));
    for (size_t t = 0; t < tokens.size(); ++t) {
      if (const size_t first = place.at(tokens[t]); first != t) std::ranges::copy(row(first), row(t).begin());
    }
    scale_embedding(p_.numerics.compute, row_scale(p_.model, weight), std::span(rows).subspan(before));
  }
  return {};
}

Result<CachedTextModel*> Engine::begin_texts() {
  SLUICE_TRY(apply_pending());
  if (!texts_) {
    const auto pass_of = [this](std::string_view name) {
      const auto [model, executor] = beside(name);
      return TextPass(model, executor);
    };
    std::optional<TextPass> prompts;
    if (stages().find(kSamplingPrompts) != nullptr) prompts.emplace(pass_of(kSamplingPrompts));
    texts_.emplace(pass_of(kSampling), std::move(prompts),
                   [this](std::span<const int32_t> tokens, std::vector<std::byte>& rows) {
                     return read_embedding(tokens, rows);
                   });
  }
  SLUICE_TRY(texts_->forget());
  return &*texts_;
}

Status Engine::save(const Manifest& manifest, const std::filesystem::path& dir) {
  SLUICE_TRY(apply_pending());
  const Stopwatch watch;
  const CheckpointContent what = content(manifest);
  SLUICE_ASSIGN(AtomicDirectory fresh, AtomicDirectory::create(dir));
  SLUICE_TRY(write_checkpoint(what, fresh.temporary(), reader(), state_writer()));
  SLUICE_TRY(fresh.commit());
  const double seconds = watch.seconds();
  observer_.saved({steps_done_, dir, seconds, what.layout.file_bytes, seconds});
  return {};
}

Status Engine::save(const Manifest& manifest, CheckpointStore& store) {
  SLUICE_TRY(apply_pending());
  return store.save(steps_done_, [&](const std::filesystem::path& to) {
    return write_checkpoint(content(manifest), to, reader(), state_writer());
  });
}

Status Engine::save_weights(const Manifest& manifest, const std::filesystem::path& dir) {
  SLUICE_TRY(apply_pending());
  return write_checkpoint(weights_only(content(manifest)), dir, reader());
}

Result<std::optional<CheckpointCopy>> Engine::copy(const Manifest& manifest, int64_t room_bytes) {
  return copy(content(manifest), room_bytes);
}

Result<std::optional<CheckpointCopy>> Engine::copy_weights(const Manifest& manifest, int64_t room_bytes) {
  return copy(weights_only(content(manifest)), room_bytes);
}

Result<std::optional<CheckpointCopy>> Engine::copy(CheckpointContent what, int64_t room_bytes) {
  if (shared_ || what.layout.part_bytes > room_bytes) return std::optional<CheckpointCopy>();
  SLUICE_TRY(apply_pending());
  SLUICE_ASSIGN(StateCopy state, StateCopy::take(what.layout, loaded_->main()));
  return std::optional<CheckpointCopy>({std::move(what), std::move(state)});
}

StateWriter Engine::state_writer() const {
  if (!shared_ || !p_.config.all_see_dir) return {};
  return [this](const std::filesystem::path& dir) { return shared_->write(dir, steps_done_); };
}

CheckpointContent Engine::content(const Manifest& manifest) const {
  const bool f32 = saves_f32(p_.config);
  const BuiltProgram& model = shared_ ? shared_->whole() : p_.stages.main.model;
  CheckpointLayout layout = layout_of(model, f32, saved_of(model.weights));
  const std::string_view type = type_in_config(layout.weights.front().info.type);
  CheckpointContent out{std::move(layout), {steps_done_, updates_, manifest, f32, {}, heldout_}, {}, files_};
  if (out.layout.held == Held::Adapter) {
    out.config = adapter_config(p_.model, base_name(p_.config.model.weights));
    if (base_values_) out.metadata[kBaseValues] = base_values_->products.to_text();
    if (base_values_ && base_values_->tables) out.metadata[kBaseTables] = base_values_->tables->to_text();
  } else {
    out.config = config_beside_weights(p_.model, type, p_.shape.seq_len);
  }
  return out;
}

Status Engine::load(const Manifest& manifest, const std::filesystem::path& dir, const OtherState& other) {
  if (p_.model.adapters.any()) SLUICE_TRY(check_base(dir, p_.config.model.weights, base_values_));
  const auto loaded = load_checkpoint(p_.stages.main.model, manifest, dir, loaded_->main(), other);
  if (!loaded.ok() && !loaded.error().detail("state").empty()) {
    pending_ = false;
    return lost("loading a checkpoint", loaded.error());
  }
  SLUICE_ASSIGN(const CheckpointInfo info, loaded);
  state_ = {};
  steps_done_ = info.step;
  updates_ = info.updates;
  heldout_ = info.heldout;
  pending_ = false;
  passed_.reset();
  log_probs_.clear();
  return {};
}

Result<std::vector<float>> Engine::tensor(TensorKind kind, std::string_view name) {
  SLUICE_CHECK(kind.of != TensorKind::Gradient || passed_, "no passes were made");
  SLUICE_TRY(apply_pending());
  return read_tensor(p_.stages.main.model, kind, name, loaded_->main());
}

Status Engine::set_tensor(TensorKind kind, std::string_view name, std::span<const float> values) {
  SLUICE_CHECK(kind.of != TensorKind::Gradient || passed_, "no passes were made");
  SLUICE_TRY(apply_pending());
  SLUICE_TRY(write_tensor(p_.stages.main.model, kind, name, values, loaded_->main()));
  if (kind.of == TensorKind::Gradient) passed_->changed = true;
  return {};
}

Result<sluice::AdoptionEvent> Engine::adopt(std::shared_ptr<const Stages> next, const Profile& profile,
                                            std::string why, std::optional<double> before_s) {
  SLUICE_TRY(state_);
  sluice::AdoptionEvent event{.step = steps_done_,
                              .before_seconds = before_s.value_or(stages().main.plan.makespan_ns / 1e9),
                              .after_seconds = next->main.plan.makespan_ns / 1e9,
                              .why = std::move(why)};
  // These refer to executors.
  texts_.reset();
  shared_.reset();
  const auto adopted = loaded_->adopt(std::move(next), costs_ ? costs_->now() : profile);
  if (p_.optimizer.sharded.is()) shared_ = std::make_unique<SharedState>(p_, loaded_->main());
  if (!adopted.ok() && !adopted.error().detail("state").empty())
    return lost("a change of plans", adopted.error()).error();
  SLUICE_TRY(adopted);
  if (costs_) costs_->follow(stages().main, profile);
  event.moved_bytes = adopted->bytes;
  event.predicted_seconds = adopted->predicted_s;
  event.seconds = adopted->seconds;
  SLUICE_TRY(check_caps());
  observer_.adopted(event);
  return event;
}

int64_t room_for_copy(const Prepared& p, int64_t held, int64_t available) {
  const int64_t cap = p.config.caps[kHost], planned = p.stages.process_bytes(p.machine.profile)[kHost];
  const int64_t under_cap = cap == kUnlimited ? kUnlimited : cap - std::max(held, planned);
  // Files that are being written take memory, too, until the disk has them.
  return std::min(under_cap, available / 4 * 3);
}

Status Engine::check_caps() {
  if (const std::string note = loaded_->backend().take_note(); !note.empty()) observer_.warned(note);
  return loaded_->check_caps();
}

Result<Checksum> Engine::checksum_of_weights() const {
  constexpr int64_t kPiece = 16 * kMiB;
  std::vector<std::byte> piece;
  Checksummer sum;
  for (const ParamObjects& p : p_.stages.main.model.params) {
    const int64_t bytes = loaded_->main().program().object(p.param).bytes;
    for (int64_t at = 0; at < bytes; at += kPiece) {
      piece.resize(size_t(std::min(kPiece, bytes - at)));
      SLUICE_TRY(loaded_->main().read(p.param, piece, at));
      sum.add(piece);
    }
  }
  return sum.value();
}

namespace {

// Calls `f(object, offset, bytes)` with the trained weights' pieces, one after another.
template <class F>
Status each_piece_of_trained(const BuiltProgram& model, F&& f) {
  constexpr int64_t kPiece = 16 * kMiB;
  std::vector<std::byte> piece;
  for (size_t w = 0; w < model.weights.size(); ++w) {
    if (!model.weights[w].trainable) continue;
    const ObjectId param = model.params[w].param;
    const int64_t bytes = model.program.object(param).bytes;
    for (int64_t at = 0; at < bytes; at += kPiece) {
      piece.resize(size_t(std::min(kPiece, bytes - at)));
      SLUICE_TRY(f(param, at, std::span(piece)));
    }
  }
  return {};
}

}  // namespace

Result<KeptWeights> Engine::keep_trained(const std::filesystem::path& file) {
  SLUICE_TRY(state_);
  SLUICE_TRY(apply_pending());
  const BuiltProgram& model = p_.stages.main.model;
  int64_t bytes = 0;
  for (size_t w = 0; w < model.weights.size(); ++w)
    bytes += model.weights[w].trainable ? model.program.object(model.params[w].param).bytes : 0;
  KeptWeights kept;
  if (room_for_copy(p_, loaded_->memory().bytes[kHost], available_bytes()) >= bytes)
    kept.bytes.reset(new (std::nothrow) std::byte[size_t(bytes)]);
  std::ofstream out;
  if (kept.bytes == nullptr) out.open(kept.file = file, std::ios::binary | std::ios::trunc);
  std::byte* to = kept.bytes.get();
  const auto keep = [&](ObjectId param, int64_t at, std::span<std::byte> piece) -> Status {
    if (to != nullptr) {
      SLUICE_TRY(loaded_->main().read(param, {to, piece.size()}, at));
      to += piece.size();
      return {};
    }
    SLUICE_TRY(loaded_->main().read(param, piece, at));
    out.write(reinterpret_cast<const char*>(piece.data()), std::ssize(piece));
    return out ? Status() : error("{}: it cannot be written", file.string());
  };
  SLUICE_TRY(each_piece_of_trained(model, keep));
  if (to == nullptr) {
    out.close();
    if (!out) return error("{}: it cannot be written", file.string());
  }
  return kept;
}

Status Engine::take_trained(const KeptWeights& kept) {
  std::ifstream in;
  if (kept.bytes == nullptr) in.open(kept.file, std::ios::binary);
  std::byte* from = kept.bytes.get();
  const auto take = [&](ObjectId param, int64_t at, std::span<std::byte> piece) -> Status {
    if (from != nullptr) {
      SLUICE_TRY(loaded_->main().write(param, {from, piece.size()}, at));
      from += piece.size();
      return {};
    }
    in.read(reinterpret_cast<char*>(piece.data()), std::ssize(piece));
    return in ? loaded_->main().write(param, piece, at) : error("{}: it cannot be read", kept.file.string());
  };
  return lost("a change of weights", each_piece_of_trained(p_.stages.main.model, take));
}

Status Engine::check_tensor(TensorKind kind, std::string_view name) const {
  return sluice::core::check_tensor(p_.stages.main.model, kind, name);
}

Status Engine::check_write(TensorKind kind, std::string_view name, std::span<const float> values) const {
  return sluice::core::check_write(p_.stages.main.model, kind, name, values);
}

}  // namespace sluice::core
