// SPDX-License-Identifier: Apache-2.0
#include "run/prepare.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "host/host_memory.h"
#include "base/parallel.h"
#include "base/stopwatch.h"
#include "measure/calibrate.h"
#include "model/blocks.h"
#include "model/weights.h"
#include "planner/refusal.h"
#include "planner/shape.h"
#include "run/checks.h"
#include "run/data.h"
#include "run/learning_rate.h"
#include "run/manifest.h"
#include "run/plan_cache.h"
#include "run/resolve.h"
#include "tokens/byte_tokenizer.h"

namespace sluice::core {
namespace {

// Measured costs win over estimates; measuring happens once per machine and kind of step.
Status measure_costs(Prepared& p, const StageRequest& request, const RowSample& rows, Observer& observer) {
  const Stopwatch watch;
  const std::filesystem::path cache = cost_cache(p.config, p.machine);
  CalibrateOptions options = calibration_of(p);
  options.warn = [&](const std::string& what) { observer.warned(what); };
  const Program program =
      build_training(request.model, request.shape, request.numerics, request.optimizer, request.loss).program;
  if (recall(counted_ops(program), cache, options, p.machine.profile)) return {};
  StepMix step = estimate_mix(program, request, p.machine.profile);
  step.rows = rows;
  SLUICE_ASSIGN(const std::unique_ptr<Backend> backend, p.machine.make());
  const auto progress = [&](int64_t done, int64_t total) {
    observer.progress({"measuring op costs", done, total});
  };
  SLUICE_TRY(calibrate(*backend, step, cache, options, p.machine.profile, progress));
  p.start_up.measure_s += watch.seconds();
  return {};
}

// Steps whose ops run in about the same mix, so that what one of them taught holds for the others.
std::string step_kind(const Prepared& p) {
  const Numerics& n = p.numerics;
  const std::string frozen =
      p.model.freeze.empty() ? "" : fmt::format(", {} frozen", fmt::join(p.model.freeze, " "));
  return fmt::format("{}{}, {} {} {}{}, sequences of {}{}", text(p.model), frozen, name_of(n.compute),
                     name_of(n.grad), name_of(n.state), n.master ? " master" : "", p.config.train.seq_len,
                     p.document_tokens > 0 ? fmt::format(", documents of {}", p.document_tokens) : "");
}

// The search takes memory by the number of tasks, and by threads. Where the model runs, the host cap holds
// then, too: with how many threads there is room for it. Chunks of `chunk_tokens` tokens say how many tasks
// there are, about: of a layer 27 for each, and an attention forward and back for each earlier chunk of its
// sequence.
Result<int> threads_of_search(const Prepared& p, int64_t chunk_tokens) {
  if (!p.machine.traits().runs_models || chunk_tokens <= 0) return search_threads();
  constexpr double kBytesPerTask = 5 * 1024, kOfEachThread = 1536, kTasks = 27, kOtherTasks = 4;
  const double chunks = double(p.config.train.tokens_per_step) / double(chunk_tokens),
               before = earlier_blocks(p.model, p.config.train.seq_len, chunk_tokens);
  const double tasks = chunks * (double(p.model.layers.size()) * (kTasks + 2 * before) + kOtherTasks);
  const int64_t held = resident_bytes(), cap = p.config.caps[kHost];
  if (cap < held) return 1;  // no plan fits, and the refusal that follows names the smallest cap that works
  const int64_t room = std::min(cap - held, available_bytes());
  const double wanted = tasks * (kBytesPerTask + kOfEachThread);
  if (wanted <= double(room)) {
    const double threads = (double(room) / tasks - kBytesPerTask) / kOfEachThread;
    return int(std::clamp<double>(threads, 1, search_threads()));
  }
  constexpr double kMost = 1e18;
  const auto need = int64_t(std::min(wanted, kMost));
  return does_not_fit(
      name_of(kHost), cap == kUnlimited ? held + room : cap, held + need,
      fmt::format("memory.host = {}: the search for a plan of some {:.0f} tasks takes about {}, "
                  "{} are left. Raise the host cap, use fewer tokens per step, or larger "
                  "chunks (shape.chunk_tokens = {})",
                  exact_bytes(cap), tasks, format_bytes(need), format_bytes(room), chunk_tokens));
}

// The device cap is that of each.
void share_caps(Prepared& p) {
  for (size_t d = 1; d < p.machine.devices(); ++d) p.config.caps[Tier::device(d)] = p.config.caps[kDevice];
}

// Everything up to the shape of the step, which is none of `without`; the rest is the search for plans.
Result<StageRequest> decide_shape(Prepared& p, const RunNeeds& needs, bool least_shape,
                                  std::vector<StepShape> without, const PlanCache* cache, Observer& observer,
                                  const std::stop_token& stop = {}) {
  SLUICE_TRY(keep_shape(p.config));
  p.model = needs.model;
  SLUICE_TRY(freeze(p.model, p.config.train.freeze, "train.freeze"));
  SLUICE_TRY(choose_rate(p.config, p.model));
  SLUICE_ASSIGN(p.numerics, resolve_numerics(p.config, p.machine));
  p.optimizer = resolve_optimizer(p.config, p.machine);

  StageRequest request;
  request.model = p.model;
  request.numerics = p.numerics;
  request.optimizer = p.optimizer;
  request.caps = p.machine.caps_here(p.config.caps);
  request.held_bytes = p.machine.held_bytes;
  request.loss = needs.loss;
  request.evaluate = needs.evaluate;
  request.sample_window = needs.sample_window;
  request.stop = stop;

  ShapeRequest shape_request;
  shape_request.seq_len = p.config.train.seq_len;
  shape_request.tokens_per_step = p.config.train.tokens_per_step;
  shape_request.packed = needs.packed;
  shape_request.chunk_tokens = p.config.shape.chunk_tokens;
  shape_request.rounds = p.config.shape.rounds;
  shape_request.first_round_chunks = p.config.shape.first_round_chunks;
  shape_request.head_tokens = p.config.shape.head_tokens;
  shape_request.least = least_shape;
  if (!without.empty()) cache = nullptr;
  shape_request.without = std::move(without);
  SLUICE_ASSIGN(shape_request.threads, threads_of_search(p, shape_request.chunk_tokens));
  shape_request.caps = request.caps;
  shape_request.stop = stop;
  const Profile& profile = p.machine.profile;
  ShapeSubject subject = subject_of(p.model, p.numerics, p.optimizer, needs.loss);
  subject.room_between_steps = room_between_steps(request, profile);
  auto choice = cache == nullptr ? std::nullopt
                                 : cache->find(subject, shape_request, profile, request.held_bytes, observer);
  if (!choice) {
    SLUICE_ASSIGN(choice, choose_shape(subject, shape_request, profile));
    release_freed_memory();
    if (cache != nullptr) cache->keep(subject, shape_request, profile, *choice);
  }
  p.shape = request.shape = choice->shape;
  p.optimizer.late_moments = request.optimizer.late_moments = choice->late_moments;
  request.settings = choice->settings;
  p.why_shape = choice->why;
  p.least_bound = choice->least_bound;
  SLUICE_ASSIGN(request.threads, threads_of_search(p, p.shape.chunk_tokens));
  return request;
}

// The overhead that is planned with is what the process holds, rounded up. A host cap that is too small by no
// more than was rounded is planned for with what the process holds, so that a cap which one start names works
// for the next one, whose pages differ. False: this changes nothing, or has been done.
bool drop_rounding(Prepared& p, const Error& refusal) {
  if (refusal.kind != ErrorKind::DoesNotFit || refusal.detail("tier") != name_of(kHost)) return false;
  constexpr int64_t kGrain = 64 * kKiB;
  const int64_t held = align_up(p.machine.held_bytes[kHost], kGrain);
  int64_t& planned = p.machine.profile.overhead_bytes[kHost];
  const std::string need(refusal.detail("need")), given(refusal.detail("given"));
  if (held == 0 || planned <= held || need.empty() || given.empty()) return false;
  if (std::stoll(need) - std::stoll(given) > planned - held) return false;
  planned = held;
  return true;
}

}  // namespace

CalibrateOptions calibration_of(const Prepared& p) {
  CalibrateOptions options;
  options.shared_cores = p.machine.traits().shares_cores;
  options.kind = step_kind(p);
  options.most_bytes[kDevice] = std::min(p.config.caps[kDevice], p.machine.device_total_bytes) -
                                p.machine.profile.overhead_bytes[kDevice];
  // Beside timelines, library code and the like.
  constexpr int64_t kWorkingBytes = 28 * kMiB;
  options.most_bytes[kHost] = std::max<int64_t>(
      0, std::min(p.config.caps[kHost], available_bytes()) - resident_bytes() - kWorkingBytes);
  options.rehearsal = Rehearsal::Length::of(p.machine.traits().settle_ns);
  return options;
}

PlanCache plan_cache_of(const RunConfig& config) {
  return PlanCache(std::filesystem::path(config.data.cache) / "plans");
}

Result<RunNeeds> needs_of(const RunConfig& config, bool between_steps) {
  RunNeeds needs;
  SLUICE_ASSIGN(needs.model, resolve_model(config));
  needs.packed = packs_documents(config);
  if (between_steps) {
    needs.evaluate = holds_out(config) && config.eval.rows > 0;
    const bool has_words = needs.model.vocab == ByteTokenizer::kVocab || tokenizer_of(config);
    if (has_words && config.sample.tokens > 0) needs.sample_window = sample_window_of(config);
  }
  return needs;
}

Result<Prepared> prepare(RunConfig config, const std::string& preset, bool between_steps, PassRunner* passes,
                         Observer& observer) {
  SLUICE_ASSIGN(Machine machine, resolve_machine(config, preset));
  const PlanCache cache = plan_cache_of(config);
  // Who wants to see the passes, or leave some out, wants them to run.
  return prepare_on(std::move(config), std::move(machine), between_steps,
                    {passes, passes == nullptr ? &cache : nullptr, &observer});
}

Result<Prepared> prepare_on(RunConfig config, Machine machine, bool between_steps,
                            const PrepareOptions& options) {
  SLUICE_ASSIGN(RunNeeds needs, needs_of(config, between_steps));
  return prepare_on(std::move(config), std::move(machine), std::move(needs), options);
}

Result<Prepared> prepare_on(RunConfig config, Machine machine, RunNeeds needs,
                            const PrepareOptions& options) {
  Prepared p;
  p.config = std::move(config);
  const std::vector<std::string>& of_model = needs.model.notices;
  p.config.notices.insert(p.config.notices.end(), of_model.begin(), of_model.end());
  p.resolved = machine;
  p.machine = std::move(machine);
  SLUICE_TRY(check_early(p.config, p.machine));
  share_caps(p);
  options.observer->progress({"planning"});
  Stopwatch watch;
  p.document_tokens = document_tokens(needs.rows);
  // Estimates chose the shape, on a machine at hand with costs that were not measured yet. One that has no
  // plan in full leads to the next.
  constexpr size_t kMostFailed = 4;
  std::vector<StepShape> failed;
  Status failure;
  for (;;) {
    auto request = decide_shape(p, needs, false, failed, options.cache, *options.observer, options.stop);
    if (options.stop.stop_requested()) return stopped_planning();
    if (!request.ok()) {
      if (failed.empty() && drop_rounding(p, request.error())) continue;
      return failed.empty() ? request.error() : failure.error();
    }
    p.start_up.plan_s += watch.seconds();
    if (options.stop.stop_requested()) return stopped_planning();
    if (p.machine.traits().runs_models) SLUICE_TRY(measure_costs(p, *request, needs.rows, *options.observer));
    request->passes = options.passes;
    watch = Stopwatch();
    options.observer->progress({"planning"});
    auto stages = make_stages(*request, p.machine.profile, options.cache, *options.observer);
    p.start_up.plan_s += watch.seconds();
    watch = Stopwatch();
    if (stages.ok()) {
      p.stages = std::move(*stages);
      break;
    }
    failure = stages.error();
    if (drop_rounding(p, failure.error())) continue;
    if (stages.error().kind != ErrorKind::DoesNotFit || failed.size() == kMostFailed) return stages.error();
    failed.push_back(request->shape);
  }
  release_freed_memory();  // of the search, which takes more than running the plan
  return p;
}

Status check_fit(RunConfig config, Machine machine) {
  SLUICE_ASSIGN(RunNeeds needs, needs_of(config, true));
  return check_fit(std::move(config), std::move(machine), std::move(needs));
}

Status check_fit(RunConfig config, Machine machine, RunNeeds needs) {
  Prepared p;
  p.config = std::move(config);
  p.machine = std::move(machine);
  share_caps(p);
  // To choose the shape that takes least is to find out whether one works.
  for (;;) {
    const auto request = decide_shape(p, needs, true, {}, nullptr, silent_observer());
    if (request.ok()) return {};
    if (!drop_rounding(p, request.error())) return request.error();
  }
}

}  // namespace sluice::core
