// SPDX-License-Identifier: Apache-2.0
#include "run/prepare/prepare.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>

#include "base/parallel.h"
#include "base/stopwatch.h"
#include "checkpoint/base_files.h"
#include "dataset/byte_tokenizer.h"
#include "host/host_memory.h"
#include "io/file.h"
#include "measure/calibrate.h"
#include "model/weights.h"
#include "run/data/data.h"
#include "run/inputs/resolve.h"
#include "run/prepare/checks.h"
#include "run/prepare/manifest.h"
#include "run/prepare/plan_cache.h"
#include "run/prepare/step_mix.h"
#include "search/refusal.h"
#include "search/shape.h"
#include "setup/decide.h"

namespace sluice::core {
namespace {

static_assert(kByteVocab == ByteTokenizer::kVocab);

Status copy_costs(const std::filesystem::path& from, const std::filesystem::path& to) {
  SLUICE_ASSIGN(const std::string costs, read_file(from));
  SLUICE_TRY(make_directories(to.parent_path()));
  return write_file(to, costs);
}

// Measured costs win over estimates; measuring happens once per machine and kind of step.
Status measure_costs(Prepared& p, const Question& question, const RowSample& rows, bool compared,
                     Observer& observer) {
  const Stopwatch watch;
  const std::filesystem::path cache = cost_cache(p.config, p.machine), shared = shared_costs(cache);
  const bool begins = !shared.empty() && !std::filesystem::exists(cache);
  if (begins && std::filesystem::exists(shared)) SLUICE_TRY(copy_costs(shared, cache));
  CalibrateOptions options = calibration_of(p);
  options.as_known = compared;
  options.warn = [&](const std::string& what) { observer.warned(what); };
  const Program program =
      build_training(question.model, question.shape, question.numerics, question.optimizer, question.loss)
          .program;
  if (recall(counted_ops(program), cache, options, p.machine.profile)) return {};
  StepMix step = estimate_mix(program, question, p.machine.profile);
  step.rows = rows;
  SLUICE_ASSIGN(const std::unique_ptr<Backend> backend, p.machine.make());
  const auto progress = [&](int64_t done, int64_t total) {
    observer.progress({"measuring op costs", done, total});
  };
  SLUICE_TRY(calibrate(*backend, step, cache, options, p.machine.profile, progress));
  if (begins) SLUICE_TRY(copy_costs(cache, shared));
  p.start_up.measure_s += watch.seconds();
  return {};
}

// Steps whose ops run in about the same mix, so that what one of them taught holds for the others.
std::string step_kind(const Prepared& p) {
  const Numerics& n = p.numerics;
  const std::string frozen =
      p.model.freeze.empty() ? "" : fmt::format(", {} frozen", fmt::join(p.model.freeze, " "));
  // Without data rows that may hold several documents are measured as one each.
  const int64_t document =
      p.document_tokens > 0 || !p.cut.packed ? p.document_tokens : p.config.train.seq_len;
  return fmt::format("{}{}, {}{} {} {}{}, sequences of {}{}", to_text(p.model), frozen, name_of(n.compute),
                     p.model.narrow_head  ? " and fp8 with the head"
                     : p.model.products.w ? " and fp8"
                                          : "",
                     name_of(n.grad), name_of(n.state),
                     n.master == MasterWeights::Off   ? ""
                     : n.master == MasterWeights::F32 ? " master"
                                                      : " master i8",
                     p.config.train.seq_len, document > 0 ? fmt::format(", documents of {}", document) : "");
}

// The search takes memory by the number of tasks, and by threads. Where the model runs, the host cap holds
// then, too: with how many threads there is room for it.
Result<int> threads_of_search(const Prepared& p, int64_t chunk_tokens) {
  if (!p.machine.traits().runs_models || chunk_tokens <= 0) return search_threads();
  constexpr double kBytesPerTask = 5 * 1024, kOfEachThread = 1536;
  const auto& train = p.config.train;
  const TaskCount count(subject_of(p.model, p.numerics, p.optimizer), train.seq_len, false);
  const auto tasks = double(count.of(train.tokens_per_step, chunk_tokens));
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

// Plans of a run on this host: found again where they are kept, measured where the model runs, with as many
// threads as there is memory for.
class OnThisHost final : public PlanHost {
 public:
  OnThisHost(const PlanCache* cache, Observer& observer, const RowSample& rows, bool compared = false,
             std::stop_token hurry = {})
      : cache_(cache), observer_(observer), rows_(rows), compared_(compared), hurry_(std::move(hurry)) {}

  Result<int> threads(const Prepared& p, int64_t chunk_tokens, int) override {
    return threads_of_search(p, chunk_tokens);
  }
  Result<ShapeChoice> shape(const ShapeSubject& subject, const Question& question,
                            const Profile& profile) override {
    const PlanCache* const cache = question.cut.without.empty() ? cache_ : nullptr;
    if (cache != nullptr) {
      if (auto kept = cache->find(subject, question, profile, observer_)) return std::move(*kept);
    }
    Effort watched = question;
    watched.watch = watch(question.cut.tokens_per_step, question.stop);
    SLUICE_ASSIGN(ShapeChoice choice,
                  choose_shape(subject, question.cut, question.caps, watched, profile, hurry_));
    release_freed_memory();
    if (cache != nullptr && !hurry_.stop_requested()) cache->keep(subject, question, profile, choice);
    return choice;
  }
  Result<double> disk_rate(const Prepared& p) override {
    if (!p.machine.traits().runs_models) return PlanHost::disk_rate(p);
    constexpr int64_t kMostBytes = 512 * kMiB;
    constexpr double kMostSeconds = 0.3;
    return measure_reads(p.config.model.weights, kMostBytes, kMostSeconds);
  }
  Status measure(Prepared& p, const Question& question) override {
    return p.machine.traits().runs_models ? measure_costs(p, question, rows_, compared_, observer_)
                                          : Status();
  }
  Result<Stages> stages(const Question& question, const Profile& profile) override {
    Question watched = question;
    watched.watch = watch(question.shape.tokens(), question.stop);
    if (hurry_.stop_possible()) watched.stop = hurry_;
    auto stages = make_stages(watched, profile, cache_, observer_);
    if (!hurry_.stop_requested() || stages.ok() || question.stop.stop_requested()) return stages;
    hurried_ = watched.quick = true;
    watched.stop = question.stop;
    return make_stages(watched, profile, nullptr, observer_);
  }
  void planning() override { observer_.progress({"planning"}); }
  // Whether plans are the first found, as somebody was in a hurry.
  bool hurried() const { return hurried_; }

 private:
  // Whoever asked it to stop is told no more.
  SearchWatch watch(int64_t tokens, const std::stop_token& stop) const {
    return [this, tokens, stop](const SearchProgress& p) {
      if (stop.stop_requested()) return;
      observer_.progress({.what = p.what,
                          .done = p.tried,
                          .total = p.at_most,
                          .unit = Progress::Unit::Candidates,
                          .best_tokens_per_s = p.best_ns > 0 ? double(tokens) / p.best_ns * 1e9 : 0});
    };
  }

  const PlanCache* const cache_;
  Observer& observer_;
  const RowSample& rows_;
  const bool compared_;
  const std::stop_token hurry_;
  bool hurried_ = false;
};

}  // namespace

CalibrateOptions calibration_of(const Prepared& p) {
  CalibrateOptions options;
  options.shared_cores = p.machine.traits().shares_cores;
  options.kind = step_kind(p);
  options.device_held_bytes = p.machine.held_bytes[kDevice];
  options.host_held_bytes = p.machine.held_bytes[kHost];
  options.most_bytes[kDevice] = std::min(p.config.caps[kDevice], p.machine.device_total_bytes) -
                                p.machine.profile.held_beside(kDevice, 0, 0);
  // Beside timelines, library code and the like.
  constexpr int64_t kWorkingBytes = 28 * kMiB;
  options.most_bytes[kHost] = std::max<int64_t>(
      0, std::min(p.config.caps[kHost], available_bytes()) - resident_bytes() - kWorkingBytes);
  options.rehearsal = Rehearsal::Length::of(p.machine.traits().settle_ns);
  return options;
}

PlanCache plan_cache_of(const RunConfig& config) {
  const std::filesystem::path cache = config.data.cache;
  const char* shared = std::getenv("SLUICE_PLANS");
  return PlanCache(cache.empty() ? cache : cache / "plans", 64, shared != nullptr ? shared : "");
}

namespace {

// Answers that are sampled at once: those of a step, but no more than have caches half as large as the
// weights. A pass reads the weights once for all of them. Caps do not count, since they decide no bits.
int64_t answers_at_once(const RunConfig& config, const ModelSpec& model) {
  const RolloutKeys& keys = config.rollout;
  if (keys.at_once > 0) return keys.at_once;
  constexpr int64_t kFewElements = 128 << 20;  // of caches that are not worth a second pass
  int64_t weights = 0, cached = 0;
  const BuiltProgram one =
      build_generation(model, {.rows = 1, .capacity = config.train.seq_len, .draws = true}, {});
  for (const Object& o : one.program.objects()) {
    if (o.kind == ObjectKind::Param) weights += o.elements();
    if (o.kind == ObjectKind::Cache) cached += o.elements();
  }
  const int64_t room = std::max(weights / 2, kFewElements) / std::max<int64_t>(cached, 1);
  int64_t prompts =
      keys.prompts > 0 ? keys.prompts : config.train.tokens_per_step / config.train.seq_len / keys.samples;
  while (prompts > 1 && prompts * keys.samples > room) prompts = (prompts + 1) / 2;
  return std::max<int64_t>(1, prompts) * keys.samples;
}

}  // namespace

Result<StepSpec> step_of(const RunConfig& config, bool between_steps) {
  StepSpec step;
  SLUICE_ASSIGN(step.model, resolve_model(config));
  step.cut.packed = packs_documents(config);
  step.loss.asked = config.chosen_objective().compares != Compares::Nothing;
  if (config.chosen_objective().compares == Compares::Teacher) step.loss.top = config.objective.loss_top_k;
  if (between_steps) {
    const Objective& objective = config.chosen_objective();
    if ((holds_out(config) && config.eval.rows > 0) || reads_reference(objective, config.objective))
      step.between.push_back({kEvaluation});
    const bool has_words = step.model.vocab == kByteVocab || tokenizer_of(config);
    if (config.samples_answers()) {  // an answer is read whole
      step.between.push_back({kSampling, config.train.seq_len, answers_at_once(config, step.model)});
    } else if (has_words && config.sample.tokens > 0) {
      step.between.push_back({kSampling, sample_window_of(config)});
    }
  }
  return step;
}

Result<Prepared> prepare(RunConfig config, const std::string& preset, bool between_steps, PassRunner* passes,
                         Observer& observer, std::stop_token hurry) {
  SLUICE_ASSIGN(Machine machine, resolve_machine(config, preset));
  const PlanCache cache = plan_cache_of(config);
  // Who wants to see the passes, or leave some out, wants them to run.
  return prepare_on(std::move(config), std::move(machine), between_steps,
                    {passes, passes == nullptr ? &cache : nullptr, &observer, {}, std::move(hurry)});
}

namespace {

// Answers that a run samples at once; 0: it samples none.
int64_t answers_of(const RunConfig& config, const StepSpec& step) {
  const Wanted* const texts = config.samples_answers() ? step.wants(kSampling) : nullptr;
  return texts != nullptr ? texts->rows : 0;
}

// Where caches of answers may be what does not fit, a refusal says how many there are.
Status with_answers(int64_t answers, Status found) {
  if (found.ok() || found.error().kind != ErrorKind::DoesNotFit || answers <= 1) return found;
  Error refusal = found.error();
  refusal.message += fmt::format(
      " {} answers are sampled at once, each with a cache; rollout.at_once says another number.", answers);
  return refusal;
}

// The most bytes of a host arena: of this machine no more than it has; what another one has is not known.
int64_t most_host_bytes(const RunConfig& config, const Machine& machine) {
  const int64_t cap = config.caps[kHost];
  return machine.traits().runs_models ? std::min(cap, host_limit().bytes) : cap;
}

}  // namespace

Result<Prepared> prepare_on(RunConfig config, Machine machine, bool between_steps, PrepareOptions options) {
  SLUICE_ASSIGN(StepSpec step, step_of(config, between_steps));
  SLUICE_ASSIGN(options.notices, check_early(config, machine, step.model));
  return prepare_on(std::move(config), std::move(machine), std::move(step), std::move(options));
}

Result<Prepared> prepare_on(RunConfig config, Machine machine, StepSpec step, PrepareOptions options) {
  SLUICE_ASSIGN(Notices notices, check_settings(config, machine));
  add_notices(std::move(notices), options.notices);
  SLUICE_ASSIGN(RunFacts facts, facts_of(config));
  facts.notices = std::move(options.notices);
  if (options.shape) facts.shape = options.shape;
  SLUICE_ASSIGN(Prepared p, undecided(std::move(config), std::move(machine), std::move(step),
                                      std::move(facts), options.longest_document));
  p.machine.profile.most_host_bytes = most_host_bytes(p.config, p.machine);
  p.document_tokens = document_tokens(options.rows);
  options.observer->progress({"planning"});
  // Ops with a state take longer in one long row than in several.
  RowSample rows = options.rows;
  if (rows.sequence == 0) rows.sequence = p.config.train.seq_len;
  OnThisHost here(options.cache, *options.observer, rows, options.compared, options.hurry);
  const Effort effort{.threads = search_threads(), .passes = options.passes, .stop = options.stop};
  SLUICE_TRY(with_answers(answers_of(p.config, p), decide(p, effort, here)));
  if (here.hurried())
    p.notices.push_back(
        "the search was stopped: this is the first plan of the fastest shape so far, "
        "and is not kept; a run searches on");
  release_freed_memory();  // of the search, which takes more than running the plan
  return p;
}

Result<Prepared> prepare_under(Prepared p, const BytesByTier& caps, std::stop_token stop) {
  p.config = under(std::move(p.config), caps);
  SLUICE_TRY(check_settings(p.config, p.machine));
  p.machine.profile.most_host_bytes = most_host_bytes(p.config, p.machine);
  SLUICE_ASSIGN(p.stages, plan_again(std::move(p.stages), p.machine.caps_here(caps), p.machine.profile,
                                     search_threads(), stop));
  if (stop.stop_requested()) return stopped_planning();
  return p;
}

Status check_fit(RunConfig config, Machine machine) {
  SLUICE_ASSIGN(StepSpec step, step_of(config, true));
  return check_fit(std::move(config), std::move(machine), std::move(step));
}

Status check_fit(RunConfig config, Machine machine, StepSpec step) {
  SLUICE_ASSIGN(RunFacts facts, facts_of(config));
  machine.profile.most_host_bytes = most_host_bytes(config, machine);
  const RowSample unknown;
  OnThisHost here(nullptr, silent_observer(), unknown);
  SLUICE_ASSIGN(Prepared p,
                undecided(std::move(config), std::move(machine), std::move(step), std::move(facts)));
  const int64_t answers = answers_of(p.config, p);
  return with_answers(answers, check_shape(std::move(p), here));
}

}  // namespace sluice::core
