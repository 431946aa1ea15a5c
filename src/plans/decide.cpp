// SPDX-License-Identifier: Apache-2.0
#include "plans/decide.h"

#include <algorithm>
#include <bit>
#include <string>
#include <utility>

#include "base/stopwatch.h"
#include "model/weights.h"
#include "plans/learning_rate.h"
#include "plans/resolve.h"

namespace sluice::core {
namespace {

// The device cap is that of each.
void share_caps(Prepared& p) {
  for (size_t d = 1; d < p.machine.devices(); ++d) p.config.caps[Tier::device(d)] = p.config.caps[kDevice];
}

// The number formats, where `compact` with masters of 24 bits, whatever the configuration leaves open.
Result<Numerics> formats_of(const Prepared& p, bool compact) {
  if (!compact) return resolve_numerics(p.config, p.machine);
  RunConfig config = p.config;
  config.train.master = MasterWeights::I8;
  return resolve_numerics(config, p.machine);
}

// Everything up to the shape of the step, which is none of `without`; the rest is the search for plans.
Result<StageRequest> decide_shape(Prepared& p, const PlanNeeds& needs, bool compact, bool least_shape,
                                  std::vector<StepShape> without, Surroundings& here,
                                  const std::stop_token& stop = {}) {
  p.model = needs.model;
  SLUICE_TRY(check_length(p.model, p.config.train.seq_len, "train.seq_len"));
  SLUICE_TRY(resolve_training(p.config, p.model));
  SLUICE_TRY(choose_rate(p.config, p.model));
  SLUICE_ASSIGN(p.numerics, formats_of(p, compact));
  p.optimizer = resolve_optimizer(p.config, p.machine);
  SLUICE_TRY(check_whole(*p.optimizer.optimizer, weights_of(p.model)));

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

  SLUICE_ASSIGN(const Replicas replicas, replicas_of(p.config, p.machine.processes));
  ShapeRequest shape_request;
  shape_request.seq_len = p.config.train.seq_len;
  shape_request.tokens_per_step = p.config.train.tokens_per_step / replicas.all();
  shape_request.packed = needs.packed;
  shape_request.chunk_tokens = p.config.shape.chunk_tokens;
  // Before memory is asked for them: the check below is of what is chosen.
  if (shape_request.chunk_tokens > 0)
    SLUICE_TRY(check_pieces(p.model, shape_request.seq_len, shape_request.chunk_tokens));
  shape_request.rounds = p.config.shape.rounds;
  shape_request.first_round_chunks = p.config.shape.first_round_chunks;
  shape_request.head_tokens = p.config.shape.head_tokens;
  shape_request.least = least_shape;
  shape_request.without = std::move(without);
  SLUICE_ASSIGN(shape_request.threads, here.threads(p, shape_request.chunk_tokens));
  shape_request.caps = request.caps;
  shape_request.stop = stop;
  const Profile& profile = p.machine.profile;
  ShapeSubject subject = subject_of(p.model, p.numerics, p.optimizer, needs.loss);
  subject.room_between_steps = room_between_steps(request, profile);
  SLUICE_ASSIGN(const ShapeChoice choice, here.shape(subject, shape_request, profile, request.held_bytes));
  p.shape = choice.shape;
  p.shape.replicas = replicas.here;
  p.shape.processes = replicas.processes;
  request.shape = p.shape;
  SLUICE_TRY(check_pieces(p.model, p.shape.seq_len, p.shape.chunk_tokens));
  p.optimizer.late_moments = request.optimizer.late_moments = choice.late_moments;
  request.settings = choice.settings;
  p.why_shape = choice.why;
  p.least_bound = choice.least_bound;
  SLUICE_ASSIGN(request.threads, here.threads(p, p.shape.chunk_tokens));
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
  // No more than it takes: what is left is for a start that holds some pages more.
  const int64_t works = (planned - (std::stoll(need) - std::stoll(given))) / kGrain * kGrain;
  planned = std::max(held, std::min(works, planned - kGrain));
  return true;
}

// Masters of 24 bits with state of 8 take 5.25 bytes a parameter where bf16 state takes 6, and train as well
// as f32 masters (docs/compact-state.md): where nothing was said of either, a cap that is too small for bf16
// state is planned for with them.
bool compact_may_fit(const Prepared& p, const Status& refusal) {
  const auto& train = p.config.train;
  return !refusal.ok() && refusal.error().kind == ErrorKind::DoesNotFit && !train.state && !train.master &&
         !train.stochastic && p.numerics.state == DType::BF16;
}

// What is refused with them would be refused with bf16 state. Where they change nothing of what is missing,
// there is nothing to say of them.
Error refused(const Error& bf16, Error compact) {
  if (compact.kind == ErrorKind::Cancelled) return compact;
  if (compact.kind != ErrorKind::DoesNotFit) return bf16;
  if (compact.detail("tier") == bf16.detail("tier") && compact.detail("need") == bf16.detail("need"))
    return bf16;
  compact.message += " That is with train.master = i8, which auto takes where bf16 state does not fit.";
  return compact;
}

Status search(Prepared& p, const PlanNeeds& needs, bool compact, Surroundings& here, PassRunner* passes,
              const std::stop_token& stop) {
  Stopwatch watch;
  constexpr size_t kMostFailed = 4;
  std::vector<StepShape> failed;
  Status failure;
  for (;;) {
    auto request = decide_shape(p, needs, compact, false, failed, here, stop);
    if (stop.stop_requested()) return stopped_planning();
    if (!request.ok()) {
      if (failed.empty() && drop_rounding(p, request.error())) continue;
      return failed.empty() ? request.error() : failure.error();
    }
    p.start_up.plan_s += watch.seconds();
    SLUICE_TRY(here.measure(p, *request));
    request->passes = passes;
    watch = Stopwatch();
    here.planning();
    auto stages = here.stages(*request, p.machine.profile);
    p.start_up.plan_s += watch.seconds();
    watch = Stopwatch();
    if (stages.ok()) {
      p.stages = std::move(*stages);
      return {};
    }
    failure = stages.error();
    if (drop_rounding(p, failure.error())) continue;
    if (stages.error().kind != ErrorKind::DoesNotFit || failed.size() == kMostFailed) return stages.error();
    // What is chosen is the shape of one replica.
    failed.push_back(request->shape);
    failed.back().replicas = failed.back().processes = 1;
  }
}

// Whether a shape works: that is to choose the one that takes least.
Status search_least(Prepared& p, const PlanNeeds& needs, bool compact, Surroundings& here) {
  for (;;) {
    const auto request = decide_shape(p, needs, compact, true, {}, here);
    if (request.ok()) return {};
    if (!drop_rounding(p, request.error())) return request.error();
  }
}

}  // namespace

Result<Replicas> replicas_of(const RunConfig& config, int processes) {
  const int64_t all = config.run.replicas == 0 ? processes : config.run.replicas;
  const std::string kept =
      config.checkpoint().empty()
          ? ""
          : fmt::format(
                "; {} was made with them: it goes on with a number of processes that divides them, or a run "
                "begins anew with --new",
                config.checkpoint());
  if (all % processes != 0)
    return error("run.replicas = {}: {} processes cannot share them evenly{}", all, processes, kept);
  const Replicas out{all / processes, processes};
  // A process's replicas are a node of the tree over all.
  if (processes > 1 && !std::has_single_bit(uint64_t(out.here)))
    return error(
        "run.replicas = {}: {} processes have {} of them each; each may have 1, 2, 4, 8 and so on, or one "
        "process all",
        all, processes, out.here);
  const int64_t tokens = config.train.tokens_per_step, seq_len = config.train.seq_len;
  if (tokens % (all * seq_len) != 0)
    return error("train.tokens_per_step = {}: it is no multiple of a sequence of {} for each of {} {}",
                 tokens, seq_len, all, config.run.replicas == 0 ? "processes" : "replicas (run.replicas)");
  return out;
}

int64_t sample_window_of(const RunConfig& c) {
  constexpr int64_t kMost = 256;
  return std::min(c.train.seq_len, kMost);
}

PlanNeeds needs_without_data(const RunConfig& config, ModelSpec model) {
  PlanNeeds needs{.model = std::move(model)};
  if (needs.model.vocab == kByteVocab && config.sample.tokens > 0)
    needs.sample_window = sample_window_of(config);
  return needs;
}

Prepared undecided(RunConfig config, Machine machine, const PlanNeeds& needs) {
  Prepared p;
  p.config = std::move(config);
  const std::vector<std::string>& of_model = needs.model.notices;
  p.config.notices.insert(p.config.notices.end(), of_model.begin(), of_model.end());
  const int64_t sequence = p.config.train.seq_len;
  const int64_t longest =
      needs.packed && needs.longest_document > 0 ? std::min(sequence, needs.longest_document) : sequence;
  std::string beyond = beyond_reach(needs.model, longest, "train.seq_len");
  if (!beyond.empty()) p.config.notices.push_back(std::move(beyond));
  p.resolved = machine;
  p.machine = std::move(machine);
  return p;
}

Status decide(Prepared& p, const PlanNeeds& needs, Surroundings& here, PassRunner* passes,
              const std::stop_token& stop) {
  share_caps(p);
  const BytesByTier overhead = p.machine.profile.overhead_bytes;
  const Status found = search(p, needs, false, here, passes, stop);
  if (!compact_may_fit(p, found)) return found;
  p.machine.profile.overhead_bytes = overhead;  // of which a refusal may have taken the rounding
  const Status compact = search(p, needs, true, here, passes, stop);
  if (!compact.ok()) return refused(found.error(), compact.error());
  p.config.notices.push_back(
      "train.master = auto: i8, masters of 24 bits and state of 8, as bf16 state does not fit these caps");
  return {};
}

Status check_shape(Prepared p, const PlanNeeds& needs, Surroundings& here) {
  share_caps(p);
  const BytesByTier overhead = p.machine.profile.overhead_bytes;
  const Status found = search_least(p, needs, false, here);
  if (!compact_may_fit(p, found)) return found;
  p.machine.profile.overhead_bytes = overhead;
  const Status compact = search_least(p, needs, true, here);
  return compact.ok() ? compact : refused(found.error(), compact.error());
}

}  // namespace sluice::core
