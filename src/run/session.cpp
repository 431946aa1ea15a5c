// SPDX-License-Identifier: Apache-2.0
#include "run/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>

#include "base/philox.h"
#include "base/stopwatch.h"
#include "planner/refusal.h"
#include "run/manifest.h"
#include "run/resolve.h"
#include "state/checkpoint.h"
#include "state/weights.h"

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

}  // namespace

Result<std::unique_ptr<Session>> Session::open(const Prepared& prepared) {
  SLUICE_ASSIGN(RunData data, open_data(prepared.config, prepared.model.vocab));
  return open(prepared, std::move(data));
}

Result<std::unique_ptr<Session>> Session::open(const Prepared& prepared, RunData data) {
  for (const BatchSource* source : {data.train.get(), data.heldout.get()}) {
    if (source != nullptr && source->packed() && !prepared.shape.packed)
      return error(
          "data.paths: there are several documents now; when the run was planned, there was one file");
  }
  std::unique_ptr<Session> session(new Session(prepared, std::move(data)));
  SLUICE_TRY(session->start());
  return session;
}

Status Session::start() {
  const Stages& s = p_.stages;
  start_up_ = p_.start_up;
  Stopwatch watch;
  SLUICE_ASSIGN(backend_, p_.machine.make());
  // Large arenas take long enough to want a word.
  const BytesByTier bytes = s.arena_bytes();
  if (bytes[kHost] + bytes[kDevice] > 16 * kGiB) {
    fmt::print(stderr, "taking {} of device and {} of host memory\n", format_bytes(bytes[kDevice]),
               format_bytes(bytes[kHost]));
  }
  SLUICE_ASSIGN(const Arenas arenas, backend_->reserve(bytes));
  start_up_.reserve_s = watch.lap();
  SLUICE_TRY(backend_->prepare(all_ops(s)));
  start_up_.prepare_s = watch.lap();
  const auto executor = [&](const Stage& stage) {
    auto made = std::make_unique<Executor>(stage.model.program, stage.plan, *backend_, arenas);
    made->annotate();
    return made;
  };
  training_ = executor(s.training);
  if (s.evaluation) evaluation_ = executor(*s.evaluation);
  if (s.sampling) sampling_ = executor(*s.sampling);
  if (s.flush) flush_ = executor(*s.flush);
  SLUICE_TRY(fill_state());
  start_up_.initialize_s = watch.lap();
  // An empty step waits for what reserve() left to do, and has its errors now rather than in the first step.
  SLUICE_TRY(backend_->begin(0, false));
  if (const auto fault = backend_->finish(nullptr)) return fault->error;
  start_up_.pin_s = watch.lap();
  return check_caps();
}

Status Session::fill_state() {
  const Model& model = p_.stages.training.model;
  double shown_ns = now_ns();
  SLUICE_TRY(initialize(model, uint64_t(p_.config.train.seed), *training_, [&](int64_t done, int64_t total) {
    if (now_ns() - shown_ns < 2e9) return;
    shown_ns = now_ns();
    fmt::print(stderr, "  state: {} of {}\n", format_bytes(done), format_bytes(total));
  }));
  if (!p_.config.model.weights.empty()) {
    SLUICE_TRY(load_weights(model, p_.config.model.weights, *training_));
  }
  if (!p_.config.run.resume.empty()) {
    SLUICE_ASSIGN(const CheckpointInfo info,
                  load_checkpoint(model, manifest_of(p_, data_), p_.config.run.resume, *training_));
    steps_done_ = info.step;
  }
  return {};
}

StepArgs Session::args_for_update(int64_t step) const {
  StepArgs args{};
  args.step = step;
  args.seed = uint64_t(p_.config.train.seed);
  args.learning_rate = float(learning_rate(p_.config, step));
  return args;
}

Result<int64_t> Session::feed(const BatchSource& source, int64_t step, int64_t first_row, const Model& model,
                              const StepShape& shape, Executor& executor) {
  const auto total = size_t(shape.tokens()), seq = size_t(shape.seq_len), chunk = size_t(shape.chunk_tokens);
  tokens_.resize(total);
  targets_.resize(total);
  positions_.resize(total);
  for (size_t row = 0; row < total / seq; ++row) {
    source.fill(step, first_row + int64_t(row), std::span(tokens_).subspan(row * seq, seq),
                std::span(targets_).subspan(row * seq, seq), std::span(positions_).subspan(row * seq, seq));
  }
  size_t at = 0;
  for (const auto& round : model.batch) {
    for (const ObjectId id : round) {
      staging_.clear();
      for (const auto* part : {&tokens_, &targets_, &positions_}) {
        staging_.insert(staging_.end(), part->begin() + long(at), part->begin() + long(at + chunk));
      }
      SLUICE_TRY(executor.write(id, std::as_bytes(std::span<const int32_t>(staging_))));
      at += chunk;
    }
  }
  return int64_t(std::count_if(targets_.begin(), targets_.end(), [](int32_t t) { return t >= 0; }));
}

Result<StepResult> Session::step(std::vector<Interval>* timeline) {
  const double begin_ns = now_ns();
  const Model& model = p_.stages.training.model;
  SLUICE_ASSIGN(const int64_t targets, feed(*data_.train, steps_done_, 0, model, p_.shape, *training_));
  // A deferred update belongs to the step before this one.
  const bool deferred = p_.optimizer.deferred;
  StepArgs args = args_for_update(deferred ? std::max<int64_t>(1, steps_done_) : steps_done_ + 1);
  args.update = deferred ? pending_ : 1;
  args.inv_targets = targets > 0 ? 1.0f / float(targets) : 0.0f;
  SLUICE_TRY(training_->write(model.args, bytes_of(args)));
  SLUICE_TRY(training_->step(timeline));
  ++steps_done_;
  pending_ = deferred;
  struct Clip {
    float norm, scale;
  };
  SLUICE_ASSIGN(const double loss, read_value<double>(*training_, model.loss));
  SLUICE_ASSIGN(const Clip clip, read_value<Clip>(*training_, model.clip));
  SLUICE_TRY(check_caps());
  if (!std::isfinite(loss)) {
    return error("step {}: the loss is {}; lower train.learning_rate or raise train.warmup_steps",
                 steps_done_, loss);
  }
  return StepResult{loss * double(args.inv_targets), clip.norm, learning_rate(p_.config, steps_done_),
                    now_ns() - begin_ns, p_.shape.tokens()};
}

void Session::note_activities() {
  if (!p_.config.run.trace_kernels) return;
  if (const Status noted = backend_->note_activities(); !noted.ok()) {
    fmt::print(stderr, "warning: the trace will not name kernels: {}\n", noted.message());
  }
}

std::vector<DeviceActivity> Session::activities() {
  auto noted = backend_->activities();
  if (noted.ok()) return std::move(*noted);
  fmt::print(stderr, "warning: the trace does not name kernels: {}\n", noted.message());
  return {};
}

Status Session::apply_pending() {
  if (!pending_) return {};
  StepArgs args = args_for_update(steps_done_);
  args.update = 1;
  SLUICE_TRY(flush_->write(p_.stages.flush->model.args, bytes_of(args)));
  SLUICE_TRY(flush_->step());
  pending_ = false;
  return {};
}

Result<double> Session::evaluate() {
  SLUICE_TRY(apply_pending());
  const Model& model = p_.stages.evaluation->model;
  const StepShape shape = evaluation_shape(p_.shape);
  double loss = 0;
  int64_t targets = 0;
  for (int64_t row = 0; row < p_.config.eval.rows; row += shape.sequences()) {
    SLUICE_ASSIGN(const int64_t counted, feed(*data_.heldout, 0, row, model, shape, *evaluation_));
    StepArgs args{};
    args.inv_targets = 1;
    SLUICE_TRY(evaluation_->write(model.args, bytes_of(args)));
    SLUICE_TRY(evaluation_->step());
    SLUICE_ASSIGN(const double sum, read_value<double>(*evaluation_, model.loss));
    loss += sum;
    targets += counted;
  }
  if (targets == 0) return error("evaluation: the held-out rows have no targets");
  return loss / double(targets);
}

Result<std::string> Session::sample(const std::string& prompt, int64_t tokens, double temperature) {
  SLUICE_TRY(apply_pending());
  const Model& model = p_.stages.sampling->model;
  const Program& program = model.program;
  const ObjectId batch = model.batch[0][0];
  const auto window = size_t(program.object(batch).bytes / 12);
  std::vector<int32_t> text;
  for (const char c : prompt) text.push_back(static_cast<unsigned char>(c));
  if (text.empty()) text.push_back('\n');
  std::vector<float> logits(size_t(p_.model.vocab));
  std::string out;
  for (int64_t i = 0; i < tokens; ++i) {
    // The last tokens that fit the window, then padding that no earlier token sees.
    const size_t n = std::min(window, text.size());
    staging_.assign(3 * window, 0);
    std::copy(text.end() - long(n), text.end(), staging_.begin());
    for (size_t t = 0; t < window; ++t) staging_[2 * window + t] = int32_t(t);
    StepArgs args{};
    args.row = int32_t(n - 1);
    SLUICE_TRY(sampling_->write(batch, std::as_bytes(std::span<const int32_t>(staging_))));
    SLUICE_TRY(sampling_->write(model.args, bytes_of(args)));
    SLUICE_TRY(sampling_->step());
    SLUICE_TRY(sampling_->read(model.logits, std::as_writable_bytes(std::span(logits))));
    size_t chosen = size_t(std::max_element(logits.begin(), logits.end()) - logits.begin());
    if (temperature > 0) {
      const float top = logits[chosen];
      std::vector<double> cumulative;
      double sum = 0;
      for (const float l : logits) cumulative.push_back(sum += std::exp(double(l - top) / temperature));
      const double u = uniform_open(philox(uint64_t(p_.config.train.seed), uint64_t(i), 0x5a).v[0]) * sum;
      chosen = size_t(std::lower_bound(cumulative.begin(), cumulative.end(), u) - cumulative.begin());
      chosen = std::min(chosen, logits.size() - 1);
    }
    text.push_back(int32_t(chosen));
    out += static_cast<char>(chosen < 256 ? chosen : '?');
  }
  return out;
}

Status Session::save(const std::filesystem::path& dir) {
  SLUICE_TRY(apply_pending());
  return save_checkpoint(p_.model, p_.stages.training.model, {steps_done_, manifest_of(p_, data_)}, dir,
                         *training_);
}

MemoryReport Session::memory() {
  memory_.bytes = backend_->memory();
  for (const Tier tier : kTiers)
    memory_.peak_bytes[tier] = std::max(memory_.peak_bytes[tier], memory_.bytes[tier]);
  return memory_;
}

Status Session::check_caps() {
  const BytesByTier use = memory().bytes, &caps = p_.config.caps;
  for (const Tier tier : kTiers) {
    if (use[tier] <= caps[tier]) continue;
    const std::string held = format_bytes(use[tier]);
    const std::string what = tier.is_device() ? fmt::format("the process holds {} on the device", held)
                                              : fmt::format("{} of the process are resident", held);
    return does_not_fit(
        name_of(tier), caps[tier], use[tier],
        fmt::format("memory.{}: {}, the cap is {}", name_of(tier), what, format_bytes(caps[tier])));
  }
  return {};
}

}  // namespace sluice::core
