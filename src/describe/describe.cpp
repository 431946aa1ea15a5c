// SPDX-License-Identifier: Apache-2.0
#include "describe/describe.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/counts.h"
#include "ops/cast.h"
#include "setup/learning_rate.h"
#include "setup/narrow.h"
#include "setup/speed.h"
#include "trace/trace.h"
#include "version/version.h"

namespace sluice::core {
namespace {

std::string count(double n) {
  if (n >= 1e9) return fmt::format("{:.2f} B", n / 1e9);
  if (n >= 1e6) return fmt::format("{:.2f} M", n / 1e6);
  return fmt::format("{:.0f}", n);
}

// Describes the trained part of a partly frozen model.
std::string describe_trained(const ModelSpec& model) {
  int64_t trained = 0;
  // By name: several weights may be rows of one tensor.
  std::set<std::string> tensors, untrained;
  for (const Weight& w : weights_of(model)) {
    for (const Weight::Stretch& learnt : w.learnt_elements()) trained += w.trainable ? learnt.count : 0;
    for (const WeightSource& part : w.sources) {
      tensors.insert(part.tensor);
      if (frozen(model.freeze, part.tensor)) untrained.insert(part.tensor);
    }
  }
  if (model.adapters.any())
    return fmt::format("{} of {} parameters; all else is the base, which stays (adapter.rank)",
                       count(double(trained)), count(double(model.params())));
  if (untrained.empty()) return {};
  return fmt::format("{} of {} parameters; {} of {} tensors are frozen (train.freeze)",
                     count(double(trained)), count(double(model.params())), untrained.size(), tensors.size());
}

// A run's objective, and what it costs beside a step's own work; empty: it is supervised.
std::string describe_objective(const Prepared& p) {
  const Objective& o = p.config.chosen_objective();
  if (o.compares == Compares::Nothing) return {};
  const LossType& loss = loss_type_of(o, p.config.objective);
  std::string out = fmt::format(
      "{} ({}), beta {:g}; each round multiplies by the head once more, to know its log-probabilities",
      o.name, loss.name, p.config.objective.beta.value_or(o.beta));
  if (reads_reference(o, p.config.objective))
    out +=
        p.config.samples_answers()
            ? "; the reference's are made in each step, by a forward pass with the weights of the beginning"
            : "; the reference's are made once, by a forward pass over the data";
  if (loss.kl) out += "; each step begins with a forward pass over other answers to its prompts";
  return out;
}

// Describes the weights that have a format of their own, and how many of them all; or what becomes of codes.
std::string base_text(const ModelSpec& model) {
  double packed = 0, all = 0;
  for (const Weight& w : weights_of(model)) {
    if (w.trainable) continue;
    all += double(w.elements());
    if (model.base && w.matrix && w.format) packed += double(w.elements());
  }
  if (packed == 0)
    return model.folder_format ? fmt::format("of codes, {}, become numbers", to_text(*model.folder_format))
                               : "";
  return fmt::format("{} in {}, of {} parameters that stay; products take them in what is computed in",
                     count(packed), to_text(*model.base), count(all));
}

// Why these number formats, where people used to others would ask.
std::string why_numbers(const Numerics& n) {
  if (!n.stochastic || n.master != MasterWeights::Off) return {};
  return "half as many bytes to keep and move as f32. Stochastic rounding keeps small updates that rounding "
         "to "
         "nearest would lose. For f32 master weights: --set train.master=on";
}

// Says what of a step's products reads 8 bits.
std::string narrow_text(const Prepared& p) {
  if (!p.model.products.w) return {};
  double narrow = 0, all = 0;
  bool any_wide = false;  // weights' gradients of chunks that have no whole rows
  for (const Task& task : p.stages.main.model.program.tasks()) {
    const Work w = work(task.op);
    if (w.unit == Unit::NarrowProduct) narrow += w.flops;
    if (w.unit == Unit::Product || w.unit == Unit::GroupedProduct || w.unit == Unit::NarrowProduct)
      all += w.flops;
    if (task.chunk >= 0 && !is_narrow(p.shape.tokens_in(task.round, task.chunk))) any_wide = true;
  }
  ModelSpec whole = p.model;
  whole.wide.clear();
  std::string gains;
  for (const NarrowGain& gain : narrow_gains(whole, p.machine.profile, p.config.train.tokens_per_step)) {
    const char* before = gains.empty() ? ". Gains, copies counted, by this machine's rates: " : ", ";
    gains += fmt::format("{}{} {:+.0f} %", before, gain.role, 100 * gain.gain);
  }
  if (p.machine.traits().shares_cores) gains.clear();
  if (!p.model.wide.empty())
    gains += fmt::format(". In bf16, as {}: {}",
                         p.config.train.fp8_except == TrainKeys().fp8_except
                             ? fmt::format("they would gain less than {:.0f} %", 100 * kLeastNarrowGain)
                             : "train.fp8_except says",
                         fmt::join(p.model.wide, " "));
  return fmt::format(
      "products of dense layers{}, {:.0f} % of all products' FLOPs, read f8e4m3{} by row with scales of "
      "powers of two. A weight's gradient has a scale for each column over all tokens of a chunk, so packed "
      "documents share it{}{}",
      p.model.narrow_head ? " and of the head, whose gradients are f8e5m2," : "", 100 * narrow / all,
      p.model.products.dy == kWideFloat8 ? ", and gradients in f8e5m2," : "",
      any_wide ? "; of chunks whose tokens are no multiple of 16 it reads bf16" : "", gains);
}

// "6.92 B parameters", and how many of them a token meets where it chooses experts.
std::string params_text(const ModelSpec& model) {
  std::string out = fmt::format("{} parameters", count(double(model.params())));
  if (model.has_experts()) out += fmt::format(", {} of them active", count(double(model.active_params())));
  return out;
}

// Describes the traffic of experts that do not stay on the device, and the tokens of a round that take as
// long.
std::string experts_text(const Prepared& p) {
  double bytes = 0;
  const std::vector<Weight> weights = weights_of(p.model);
  for (const Weight& w : weights) {
    if (w.part == ModelPart::Experts) bytes += double(NumberFormat(p.numerics.compute).bytes(w.elements()));
  }
  double link = 0;
  for (const Link& l : p.machine.profile.links) {
    if (l.to.is_device() && !l.from.is_device()) link = std::max(link, l.bytes_per_s);
  }
  if (bytes == 0) return {};
  std::string balanced, z;
  if (p.model.router_z != 0)
    z = fmt::format("{:g} times the z-loss of routers is trained, too (train.router_z_loss)",
                    p.model.router_z);
  if (p.model.router_balance != 0) {
    int64_t most = 0;
    for (int64_t r = 0; r < p.shape.all_rounds(); ++r) {
      int64_t tokens = 0;
      for (int64_t c = 0; c < p.shape.chunks_in(r); ++c) tokens += p.shape.tokens_in(r, c);
      most = std::max(most, tokens);
    }
    balanced =
        fmt::format("loads are balanced over the {} of a round, all layers together", counted(most, "token"));
  }
  if (!z.empty()) balanced += (balanced.empty() ? "" : "; ") + z;
  if (link == 0) return balanced;
  double forward_ns = 0;  // of a step's tokens
  for (const Task& task : p.stages.main.model.program.tasks()) {
    if (task.phase == Phase::Forward) forward_ns += p.machine.profile.cost(task.op).ns;
  }
  const double tokens = bytes / link * 1e9 / forward_ns * double(p.shape.tokens());
  return fmt::format(
      "{} of all experts cross the link in each pass where they do not stay on the device; a "
      "forward pass over {} or more takes as long{}{}",
      format_bytes(int64_t(bytes)), counted(int64_t(std::ceil(tokens)), "token"),
      balanced.empty() ? "" : "; ", balanced);
}

// Describes the caches of several texts that are sampled at once; empty: there are none.
std::string samples_text(const Prepared& p) {
  const Stage* const sampling = p.stages.find(kSampling);
  const int64_t rows = sampling == nullptr ? 1 : p.wants(kSampling)->rows;
  if (rows == 1) return {};
  const BuiltProgram& model = sampling->model;
  int64_t bytes = 0;
  for (const Object& o : model.program.objects()) bytes += o.kind == ObjectKind::Cache ? o.bytes : 0;
  const int64_t each = bytes / rows;
  std::string out = fmt::format("{} at once of up to {}, with {} of cache each: {:.0f} tokens/s predicted",
                                counted(rows, "text"), counted(model.capacity, "token"), format_bytes(each),
                                1e9 * double(rows) / std::max(sampling->plan.makespan_ns, 1.0));
  // Caches lie in any tier.
  const BytesByTier held = p.stages.process_bytes(p.machine.profile);
  int64_t room = 0;
  for (const Tier tier : p.stages.main.plan.lanes.tiers()) {
    if (p.config.caps[tier] == kUnlimited) return out;
    room += std::max<int64_t>(0, p.config.caps[tier] - held[tier]);
  }
  return out + fmt::format("; the caps have room for some {} more", room / each);
}

}  // namespace

std::string describe_model(const Prepared& p) {
  return fmt::format("{}, {}", p.model.family, params_text(p.model));
}

// The type of the optimizer's state, where one of its slots has none of its own.
std::string state_text(const Prepared& p) {
  std::string own;
  for (const UpdateRule& rule : p.optimizer.optimizer->rules) {
    for (const StateSlot& slot : rule.state) {
      if (!slot.format) return std::string(name_of(p.numerics.state));
      own = to_text(*slot.format);
    }
  }
  return own.empty() ? std::string(name_of(p.numerics.state)) : own;
}

std::string title_of(const Prepared& p) {
  return fmt::format("{}, on {}; device {}, host {}", describe_model(p), p.machine.description,
                     format_bytes(p.config.caps[kDevice]), format_bytes(p.config.caps[kHost]));
}

std::vector<std::pair<std::string, std::string>> facts_of(const Prepared& p) {
  const ModelSpec& m = p.model;
  const StepShape& s = p.shape;
  return {
      {"machine", p.machine.description},
      {"model", fmt::format("{}, {}: layers x width {}{}", m.family, params_text(m), to_text(m),
                            m.tied_embeddings ? ", tied" : "")},
      {"trained", describe_trained(m)},
      {"learns", describe_objective(p)},
      {"base", base_text(m)},
      {"numbers",
       fmt::format(
           "{} compute, {} gradients, {} state{}{}", name_of(p.numerics.compute), name_of(p.numerics.grad),
           state_text(p),
           p.numerics.master == MasterWeights::Off   ? ""
           : p.numerics.master == MasterWeights::F32 ? ", f32 master weights"
                                                     : ", master weights of 24 bits",
           p.numerics.stochastic && p.numerics.master == MasterWeights::Off ? ", stochastic rounding" : "")},
      {"fp8", narrow_text(p)},
      {"why bf16", why_numbers(p.numerics)},
      {"shape",
       fmt::format("tokens of a chunk x chunks {}: {} = {} per step; sequences of {}; logits of {} at once",
                   s.first_chunks == 0 && s.short_rounds == 0 ? "x rounds" : "of each round", to_text(s),
                   counted(s.tokens_of_all(), "token"), fmt::group_digits(s.seq_len),
                   counted(s.head_tokens, "row"))},
      {"", p.why_shape},
      {"rate", p.config.train.learning_rate ? schedule_words(p.config) : std::string()},
      {"experts", experts_text(p)},
      {"samples", samples_text(p)},
      {"caps", fmt::format("device {}, host {}", format_bytes(p.config.caps[kDevice]),
                           format_bytes(p.config.caps[kHost]))},
      {"note", fmt::format("{}", fmt::join(p.notices, "; "))},
  };
}

std::string describe_run(const Prepared& p) {
  std::string out;
  for (const auto& [name, words] : facts_of(p)) {
    if (!words.empty() && name != "note") out += fmt::format("{:<9}{}\n", name, words);
  }
  for (const std::string& notice : p.notices) out += fmt::format("{:<9}{}\n", "note", notice);
  return out;
}

std::string describe(const Prepared& p) {
  return describe_run(p) + describe(p.stages.main.model.program, p.stages.main.plan);
}

PlanReport report_of(const Prepared& p, std::vector<WhatIf> what_ifs) {
  const Program& program = p.stages.main.model.program;
  const Plan& plan = p.stages.main.plan;
  ReportContext c;
  for (auto& [name, words] : facts_of(p)) {
    if (!words.empty()) c.facts.emplace_back(name.empty() ? "why" : name, std::move(words));
  }
  c.facts.emplace_back("sluice", fmt::format("{}, commit {}", version(), commit()));
  c.model = describe_model(p);
  c.caps = p.config.caps;
  // Shapes are chosen before costs are measured, and a part of one bound is none of another.
  if (!p.machine.traits().runs_models) c.least_bound = p.least_bound;
  const BytesByTier arenas = p.stages.arena_bytes(), held = p.stages.process_bytes(p.machine.profile);
  for (const Tier tier : held.tiers()) c.overhead_bytes[tier] = held[tier] - arenas[tier];
  const Speed speed = speed_of(program, plan, plan.makespan_ns, peak_flops(p));
  c.tokens_per_s = speed.tokens_per_s;
  c.model_tflops = speed.model_tflops;
  c.mfu = speed.mfu;
  c.hfu = speed.hfu;
  if (std::string words = peak_text(p, speed); !words.empty())
    c.facts.emplace_back(kPeakFact, std::move(words));
  c.what_ifs = std::move(what_ifs);
  return make_report(program, plan, predicted_timeline(plan), c);
}

std::string peak_text(const Prepared& p, const Speed& speed) {
  const Profile& rates = p.machine.profile;
  if (!p.model.products.w || rates.narrow_peak_flops == 0) return {};
  if (rates.peak_flops == 0) return "MFU and HFU are of the rate in 8 bits";
  const double times = rates.narrow_peak_flops / rates.peak_flops;
  return fmt::format("MFU and HFU are of the rate in 8 bits; of bf16's they are {:.1f} and {:.1f} %",
                     100 * times * speed.mfu, 100 * times * speed.hfu);
}

std::string describe(const StartUp& s) {
  return fmt::format(
      "start-up {:.1f} s: measuring costs {:.1f} s, planning {:.1f} s, taking memory {:.1f} s, preparing "
      "kernels "
      "{:.1f} s, making the state {:.1f} s, pinning memory {:.1f} s\n",
      s.total_s(), s.measure_s, s.plan_s, s.reserve_s, s.prepare_s, s.initialize_s, s.pin_s);
}

namespace {

// Where nothing was under way, and what came before and after it.
std::string describe_quiet(const Program& program, const Plan& plan, std::span<const Stall> stalls,
                           std::span<const Interval> timeline) {
  constexpr size_t kShown = 8;
  constexpr double kBriefNs = 10'000;
  int64_t count = 0, brief = 0;
  double ns = 0, brief_ns = 0, end_ns = 1;
  for (const Interval& t : timeline) end_ns = std::max(end_ns, t.end_ns);
  for (const Stall& s : stalls) {
    const double quiet_ns = s.ns[size_t(StallCause::Nothing)];
    if (quiet_ns <= 0) continue;
    ++count, ns += quiet_ns;
    if (quiet_ns < kBriefNs) ++brief, brief_ns += quiet_ns;
  }
  const double none_ns = nothing_at_work_ns(timeline);
  std::string out = fmt::format(
      "no lane at work: {:.1f} ms ({:.2f} %). Nothing under way for compute: {:.1f} ms in {} gaps, {:.1f} ms "
      "of it in {} of less than {:.0f} us\n",
      none_ns / 1e6, 100 * none_ns / end_ns, ns / 1e6, count, brief_ns / 1e6, brief, kBriefNs / 1e3);
  const std::vector<QuietGaps> gaps = quiet_gaps(plan, stalls, [&](const Action& a) {
    return a.kind == ActionKind::Run ? std::string(name_of(program.task(a.task).op))
                                     : name_of(plan.lanes[a.lane]);
  });
  for (const QuietGaps& g : std::span(gaps).first(std::min(kShown, gaps.size()))) {
    out += fmt::format("  after {:<20} before {:<20} {:>7} gaps {:>9.2f} ms, the longest {:.3f} ms\n",
                       g.before, g.after, g.count, g.ns / 1e6, g.longest_ns / 1e6);
  }
  return out;
}

}  // namespace

std::string compare_to_plan(const Program& program, const Plan& plan, std::span<const Interval> timeline) {
  struct Row {
    int64_t count = 0;
    double predicted_ns = 0, measured_ns = 0;
  };
  std::map<std::string, Row> rows;
  // By device; what a lane of several does is told together.
  ByTier<double> compute_end, predicted_end;
  double idle = 0, predicted_idle = 0;
  for (size_t id = 0; id < plan.actions.size(); ++id) {
    const Action& a = plan.actions[id];
    const Interval& t = timeline[id];
    std::string name = name_of(plan.lanes[a.lane]);
    if (a.kind == ActionKind::Run) {
      name = std::string(name_of(program.task(a.task).op)) + (a.recompute ? " (again)" : "");
      double &end = compute_end[plan.device_of(a)], &predicted = predicted_end[plan.device_of(a)];
      idle += std::max(0.0, t.start_ns - std::exchange(end, t.end_ns));
      predicted_idle += std::max(0.0, a.start_ns - std::exchange(predicted, a.end_ns));
    }
    Row& row = rows[name];
    ++row.count;
    row.predicted_ns += a.end_ns - a.start_ns;
    row.measured_ns += t.end_ns - t.start_ns;
  }
  rows["compute idle"] = {1, predicted_idle, idle};
  std::string out = fmt::format("{:<24} {:>7} {:>14} {:>14}\n", "", "count", "predicted ms", "measured ms");
  for (const auto& [name, row] : rows) {
    out += fmt::format("{:<24} {:>7} {:>14.2f} {:>14.2f}\n", name, row.count, row.predicted_ns / 1e6,
                       row.measured_ns / 1e6);
  }
  const auto of_devices = [&](const std::vector<Stall>& stalls, const ByTier<double>& ends_ns) {
    double sum_ns = 0;
    for (const Tier tier : tiers_of(plan.devices())) sum_ns += ends_ns[tier];
    return describe_stalls(sum_by_cause(stalls), sum_ns);
  };
  const std::vector<Stall> stalls = stalls_of(plan, timeline);
  out += fmt::format("stalls predicted: {}\n",
                     of_devices(stalls_of(plan, predicted_timeline(plan)), predicted_end));
  out += fmt::format("stalls measured:  {}\n", of_devices(stalls, compute_end));
  return out + describe_quiet(program, plan, stalls, timeline);
}

std::string explain_speed() {
  return "tokens/s       tokens per step / seconds per step\n"
         "model FLOPs    per token: L (6 D (2 Q + 2 K + 3 F) + 6 S Q) + 6 D V, multiply-add = 2, causal "
         "attention counted\n"
         "               half; L layers, D model dim, Q = heads x head dim, K = kv heads x head dim, F ffn "
         "dim, S sequence\n"
         "               length, V vocabulary; 2 F where an MLP has no gates\n"
         "model TFLOP/s  model FLOPs per token x tokens/s / 1e12\n"
         "MFU            model FLOP/s / peak\n"
         "HFU            (FLOPs of every product and attention block that ran, recomputation included, plus "
         "the scores that\n"
         "               attention's backward computes again) / seconds / peak\n"
         "peak           the data sheet's dense rate in the compute type, or in 8 bits with train.compute = "
         "fp8, on a\n"
         "               GPU that is known; elsewhere the fastest matrix product measured on this machine\n";
}

}  // namespace sluice::core
