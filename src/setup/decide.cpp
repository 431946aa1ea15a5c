// SPDX-License-Identifier: Apache-2.0
#include "setup/decide.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <string>
#include <utility>

#include "backend/disk_source.h"
#include "base/bytes.h"
#include "base/parallel.h"
#include "base/stopwatch.h"
#include "model/weights.h"
#include "ops/cast.h"
#include "search/refusal.h"
#include "setup/narrow.h"
#include "setup/resolve.h"

namespace sluice::core {
namespace {

// Gives by a rule what is left open of a shape.
void cut_by_rule(Cut& c) {
  const int64_t chunk = std::min(c.seq_len, c.tokens_per_step), chunks = c.tokens_per_step / chunk,
                of_round = std::min<int64_t>(4, chunks);
  const auto rule = [](int64_t& field, int64_t value) { field = field == 0 ? value : field; };
  rule(c.chunk_tokens, chunk);
  rule(c.rounds, (chunks + of_round - 1) / of_round);
  rule(c.first_round_chunks, of_round);
  rule(c.head_tokens, std::min<int64_t>(chunk, 1024));
}

// The head's products in 8 bits turn chunks, and parts of them. In other shapes they would be bf16 in
// training, and 8 bits where losses are only found.
Status check_narrow_head(const ModelSpec& model, const StepShape& shape) {
  if (!model.narrow_head || (is_narrow(shape.chunk_tokens) && is_narrow(shape.head_tokens))) return {};
  return error(
      "train.fp8_head = true: chunks of {} tokens, of which the head reads {} at once, have to be multiples "
      "of 16, both; shape.chunk_tokens, shape.head_tokens and train.seq_len say how many",
      shape.chunk_tokens, shape.head_tokens);
}

// Everything up to the plans of a step, whose shape is none of `without`.
Result<Question> decide_shape(Prepared& p, std::optional<MasterWeights> auto_master,
                              std::vector<StepShape> without, const Effort& effort, PlanHost& here) {
  SLUICE_ASSIGN(Question question, question_of(p, auto_master));
  static_cast<Effort&>(question) = effort;
  // All of a shape that is cut by a rule is given, so that it is only asked whether the caps work.
  if (effort.quick) cut_by_rule(question.cut);
  question.least = effort.least || effort.quick;
  question.cut.without = std::move(without);
  SLUICE_ASSIGN(question.threads, here.threads(p, question.cut.chunk_tokens, effort.threads));
  SLUICE_ASSIGN(const ShapeChoice choice,
                here.shape(subject_of(question, p.machine.profile), question, p.machine.profile));
  question.least = false;
  p.shape = choice.shape;
  p.shape.replicas = question.replicas.here;
  p.shape.processes = question.replicas.processes;
  question.shape = p.shape;
  SLUICE_TRY(check_pieces(p.model, p.shape.seq_len, p.shape.chunk_tokens));
  SLUICE_TRY(check_narrow_head(p.model, p.shape));
  p.optimizer.late_moments = question.optimizer.late_moments = choice.late_moments;
  question.known = choice.settings;
  p.why_shape = choice.why;
  p.least_bound = choice.least_bound;
  SLUICE_ASSIGN(question.threads, here.threads(p, p.shape.chunk_tokens, effort.threads));
  return question;
}

// The overhead that is planned with is what the process holds, rounded up, and what measuring left in it. A
// host cap that is too small by no more than that is planned for with what the process held. So a cap which
// one start names works for the next one, whose pages differ. False: this changes nothing, or has been done.
bool drop_rounding(Prepared& p, const Error& refusal) {
  const auto& shortage = refusal.shortage;
  if (!shortage || shortage->tier != name_of(kHost) || !shortage->need_bytes) return false;
  constexpr int64_t kGrain = 64 * kKiB;
  const int64_t held = align_up(p.machine.held_bytes[kHost], kGrain);
  int64_t& planned = p.machine.profile.overhead_bytes[kHost];
  const int64_t missing = *shortage->need_bytes - shortage->given_bytes;
  if (held == 0 || planned <= held || missing > planned - held) return false;
  // No more than it takes: what is left is for a start that holds some pages more.
  const int64_t works = (planned - missing) / kGrain * kGrain;
  planned = std::max(held, std::min(works, planned - kGrain));
  return true;
}

// Masters of 24 bits with state of 8 take 5.25 bytes a parameter where bf16 state takes 6, and train as well
// as f32 masters (docs/compact-state.md). Where nothing was said of either, a cap that is too small for bf16
// state is planned for with them.
bool compact_may_fit(const Prepared& p, const Status& refusal) {
  const auto& train = p.config.train;
  return !refusal.ok() && refusal.error().kind == ErrorKind::DoesNotFit && !train.state && !train.master &&
         !train.stochastic && p.numerics.state == DType::BF16;
}

bool of_as_much(const std::optional<Shortage>& a, const std::optional<Shortage>& b) {
  return a && b && a->tier == b->tier && a->need_bytes == b->need_bytes;
}

// A refusal with them would be one with bf16 state. If the shortage stays the same, they are not mentioned.
Error refused(const Error& bf16, Error compact) {
  if (compact.kind == ErrorKind::Cancelled) return compact;
  if (!compact.shortage || of_as_much(compact.shortage, bf16.shortage)) return bf16;
  compact.message += " That is with train.master = i8, which auto takes where bf16 state does not fit.";
  return compact;
}

Status search(Prepared& p, std::optional<MasterWeights> auto_master, const Effort& effort, PlanHost& here) {
  Stopwatch watch;
  constexpr size_t kMostFailed = 4;
  std::vector<StepShape> failed;
  Status failure;
  for (;;) {
    const auto question = decide_shape(p, auto_master, failed, effort, here);
    if (effort.stop.stop_requested()) return stopped_planning();
    if (!question.ok()) {
      if (failed.empty() && drop_rounding(p, question.error())) continue;
      return failed.empty() ? question.error() : failure.error();
    }
    p.start_up.plan_s += watch.seconds();
    SLUICE_TRY(here.measure(p, *question));
    watch = Stopwatch();
    here.planning();
    auto stages = here.stages(*question, p.machine.profile);
    p.start_up.plan_s += watch.seconds();
    watch = Stopwatch();
    if (stages.ok()) {
      p.stages = std::move(*stages);
      return {};
    }
    failure = stages.error();
    if (drop_rounding(p, failure.error())) continue;
    if (stages.error().kind != ErrorKind::DoesNotFit || failed.size() == kMostFailed) return stages.error();
    // The chosen shape is that of one replica.
    failed.push_back(question->shape);
    failed.back().replicas = failed.back().processes = 1;
  }
}

// Whether the base may be read from its folder in every pass: where the step is only planned for another
// machine, a preset's as if there were one.
bool may_be_read(const Prepared& p, const Status& refusal) {
  if (refusal.ok()) return false;
  const auto& shortage = refusal.error().shortage;
  return shortage && shortage->more_host_helps && p.model.files_have && p.model.adapters.any() &&
         p.config.caps[kHost] != kUnlimited &&
         (!p.config.model.weights.empty() || !p.machine.traits().runs_models);
}

// Gives the machine a lane from the disk, and the step a base that is read by it.
Status have_base_read(Prepared& p, PlanHost& here) {
  p.model.reads_files = true;
  if (p.machine.options.reads_disk) return {};
  SLUICE_ASSIGN(const double rate, here.disk_rate(p));
  const int64_t ring = (p.machine.traits().shares_cores ? kDiskReaders * kDiskPieceBytes : kDiskRingBytes) *
                       int64_t(p.machine.devices());
  p.machine.options.reads_disk = true;
  p.machine.profile.add_disk(rate);
  p.machine.profile.overhead_bytes[kHost] += ring;
  p.machine.held_bytes[kHost] += ring;
  return {};
}

// If no less of either memory does, reading is not mentioned.
Error refused_even_so(const Error& in_memory, Error refusal) {
  if (refusal.kind == ErrorKind::Cancelled) return refusal;
  const auto &missing = refusal.shortage, &before = in_memory.shortage;
  if (!missing || !before) return in_memory;
  const auto least = [](const Shortage& s) { return s.need_bytes.value_or(kUnlimited); };
  const bool less =
      missing->tier == before->tier ? least(*missing) < least(*before) : missing->tier == name_of(kHost);
  if (!less) return in_memory;
  refusal.message += " That is with the base read from its files, as far as it does not stay on the device.";
  return refusal;
}

std::string how_base_is_read(const Prepared& p) {
  int64_t base = 0, read = 0;
  const Stage& main = p.stages.main;
  for (size_t o = 0; o < main.plan.homes.size(); ++o) {
    const Object& object = main.model.program.objects()[o];
    base += object.in_files ? object.bytes : 0;
    read += main.plan.homes[o].on(kDisk) ? object.bytes : 0;
  }
  const double rate = p.machine.profile.bytes_per_s(kDisk, kDevice) * double(p.machine.devices());
  const int64_t ring = p.machine.traits().shares_cores ? kDiskReaders * kDiskPieceBytes : kDiskRingBytes;
  return fmt::format(
      "memory.host is too small for the base: {} of its {} are read from {} in every pass, at {:.2g} GB/s{}, "
      "through {} of memory for each device",
      format_bytes(read), format_bytes(base),
      p.config.model.weights.empty() ? std::string("its files") : p.config.model.weights, rate / 1e9,
      p.machine.traits().runs_models ? ", as measured" : "", format_bytes(ring));
}

// Whether a shape works: that is to choose the one that takes least.
Status search_least(Prepared& p, std::optional<MasterWeights> auto_master, PlanHost& here) {
  for (;;) {
    const auto question =
        decide_shape(p, auto_master, {}, {.threads = search_threads(), .least = true}, here);
    if (question.ok()) return {};
    if (!drop_rounding(p, question.error())) return question.error();
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

Result<Question> question_of(Prepared& p, std::optional<MasterWeights> auto_master) {
  SLUICE_TRY(check_length(p.model, p.config.train.seq_len, "train.seq_len"));
  SLUICE_TRY(resolve_training(p.config, p.model));
  SLUICE_TRY(choose_narrow(p.config, p.machine, p.model));
  SLUICE_ASSIGN(p.numerics, resolve_numerics(p.config, p.machine, auto_master));
  SLUICE_TRY(check_exact(p.config, p.machine, p.model, p.numerics));
  p.optimizer = resolve_optimizer(p.config, p.machine);
  SLUICE_ASSIGN(const Replicas replicas, replicas_of(p.config, p.machine.processes));
  p.cut.seq_len = p.config.train.seq_len;
  p.cut.tokens_per_step = p.config.train.tokens_per_step / replicas.all();
  p.cut.whole = p.config.run.exact;
  p.cut.chunk_tokens = p.config.shape.chunk_tokens;
  // Before memory is asked for them: what is chosen is checked again.
  if (p.cut.chunk_tokens > 0) SLUICE_TRY(check_pieces(p.model, p.cut.seq_len, p.cut.chunk_tokens));
  p.cut.rounds = p.config.shape.rounds;
  p.cut.first_round_chunks = p.config.shape.first_round_chunks;
  p.cut.head_tokens = p.config.shape.head_tokens;
  Question question{p};
  question.caps = p.machine.caps_here(p.config.caps);
  question.held_bytes = p.machine.held_bytes;
  question.replicas = replicas;
  return question;
}

int64_t sample_window_of(const RunConfig& c) {
  constexpr int64_t kMost = 256;
  return std::min(c.train.seq_len, kMost);
}

StepSpec step_without_data(const RunConfig& config, ModelSpec model) {
  StepSpec step{.model = std::move(model)};
  if (step.model.vocab == kByteVocab && config.sample.tokens > 0)
    step.between.push_back({kSampling, sample_window_of(config)});
  return step;
}

Result<Prepared> undecided(RunConfig config, Machine machine, StepSpec wanted, RunFacts facts,
                           int64_t longest_document) {
  Prepared p;
  static_cast<StepSpec&>(p) = std::move(wanted);
  SLUICE_ASSIGN(p.config, settled(std::move(config), machine, p.model, std::move(facts)));
  p.notices = p.config.notices;
  p.notices.insert(p.notices.end(), p.model.notices.begin(), p.model.notices.end());
  const TextRows rows{p.config.train.seq_len, p.cut.packed, longest_document};
  std::ranges::move(notices_of_length(p.model, rows, "train.seq_len"), std::back_inserter(p.notices));
  p.unmeasured_machine = machine;
  p.machine = std::move(machine);
  return p;
}

namespace {

Status decide_as_it_is(Prepared& p, const Effort& effort, PlanHost& here) {
  const BytesByTier overhead = p.machine.profile.overhead_bytes;
  const Status found = search(p, {}, effort, here);
  if (!compact_may_fit(p, found)) return found;
  p.machine.profile.overhead_bytes = overhead;  // of which a refusal may have taken the rounding
  const Status compact = search(p, MasterWeights::I8, effort, here);
  if (!compact.ok()) return refused(found.error(), compact.error());
  p.notices.push_back(
      "train.master = auto: i8, masters of 24 bits and state of 8, as bf16 state does not fit these caps");
  return {};
}

}  // namespace

Status decide(Prepared& p, const Effort& effort, PlanHost& here) {
  const BytesByTier overhead = p.machine.profile.overhead_bytes;
  const Status found = decide_as_it_is(p, effort, here);
  if (!may_be_read(p, found)) return found;
  p.machine.profile.overhead_bytes = overhead;  // of which a refusal may have taken the rounding
  SLUICE_TRY(have_base_read(p, here));
  const Status read = decide_as_it_is(p, effort, here);
  if (!read.ok()) return refused_even_so(found.error(), read.error());
  p.notices.push_back(how_base_is_read(p));
  return {};
}

namespace {

Status check_as_it_is(Prepared& p, PlanHost& here) {
  const BytesByTier overhead = p.machine.profile.overhead_bytes;
  const Status found = search_least(p, {}, here);
  if (!compact_may_fit(p, found)) return found;
  p.machine.profile.overhead_bytes = overhead;
  const Status compact = search_least(p, MasterWeights::I8, here);
  return compact.ok() ? compact : refused(found.error(), compact.error());
}

}  // namespace

Status check_shape(Prepared p, PlanHost& here) {
  const BytesByTier overhead = p.machine.profile.overhead_bytes;
  const Status found = check_as_it_is(p, here);
  if (!may_be_read(p, found)) return found;
  p.machine.profile.overhead_bytes = overhead;
  SLUICE_TRY(have_base_read(p, here));
  return check_as_it_is(p, here);
}

}  // namespace sluice::core
