// SPDX-License-Identifier: Apache-2.0
#include "search/builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "base/counts.h"
#include "base/hash.h"
#include "base/order.h"
#include "base/parallel.h"
#include "exec/executor.h"
#include "search/lower_bound.h"
#include "search/refusal.h"

namespace sluice::core {
namespace {

// Room for an arena at `base`, beside the memory of the process.
int64_t budget(const Profile& profile, Tier tier, int64_t cap, int64_t actions, int64_t base) {
  if (cap == kUnlimited) return kUnlimited / 4;
  return std::max<int64_t>(0, profile.arena_within(tier, cap, actions) - base);
}

// A layer's number with its bits in reverse order: any first few are spread over all layers.
uint32_t spread_over_layers(int32_t layer) {
  uint32_t reversed = 0;
  for (uint32_t bit = 0; layer >= 0 && bit < 16; ++bit)
    reversed |= ((uint32_t(layer) >> bit) & 1) << (15 - bit);
  return reversed;
}

// Files' objects that the host has no place for: such a part of their bytes, from all over the model.
std::shared_ptr<const std::vector<bool>> on_disk(const Program& program, double share) {
  if (share <= 0) return nullptr;
  std::vector<uint32_t> order;
  int64_t all = 0, taken = 0;
  for (uint32_t o = 0; o < program.objects().size(); ++o) {
    if (!program.objects()[o].in_files) continue;
    order.push_back(o);
    all += program.objects()[o].bytes;
  }
  std::ranges::stable_sort(order, {},
                           [&](uint32_t o) { return spread_over_layers(program.objects()[o].layer); });
  auto out = std::make_shared<std::vector<bool>>(program.objects().size(), false);
  for (const uint32_t o : order) {
    if (double(taken) >= share * double(all)) break;
    (*out)[o] = true;
    taken += program.objects()[o].bytes;
  }
  return out;
}

std::string describe_choices(const Policy& p) {
  if (p.rule == SaveRule::LeastDevice) return "the plan keeps as little on the device as possible";
  if (p.rule == SaveRule::LeastHost) return "the plan keeps as little on the host as possible";
  if (p.rule == SaveRule::NoRecompute) return "the plan computes nothing again";
  const std::string kept_free =
      fmt::format("{:.0f} % of the device budget is kept free for transfers", 100 * p.reserve);
  if (p.rule == SaveRule::Prices)
    return "memory and links have prices, by which each is decided; " + kept_free;
  return fmt::format("{}time to compute again counts {} as time to copy",
                     p.reserve > 0 ? kept_free + "; " : "",
                     p.again_weight == 1 ? "as much" : fmt::format("{:g} times as much", p.again_weight));
}

// All that a plan is made of but its program.
std::string key_of(bool overlap, const Limits& within, int64_t fill_bytes, const Saves& saves,
                   const CutsByDevice& cuts) {
  std::string key = fmt::format("{} {} {} {} {} {} {} {} {} ", overlap, within.device_bytes(),
                                within.bytes[kHost], within.store_around, within.early_bytes,
                                within.host_is_short, within.host_closely, within.search_places, fill_bytes);
  const auto add = [&](bool is) { key += is ? '1' : '0'; };
  for (size_t o = 0; within.pinned != nullptr && o < within.pinned->size(); ++o) add((*within.pinned)[o]);
  for (const Save save : saves) key += char('0' + int(save));
  for (const Cuts& one : cuts) {
    key += ' ';
    for (const Gap& gap : one.gaps) add(gap.cut);
  }
  return key;
}

std::string describe_policy(const Policy& p) {
  const std::string words = describe_choices(p);
  if (p.pinned_bytes == 0) return words;
  return fmt::format("{}; {} of weights, gradients and optimizer state stay on the device all the time",
                     words, format_bytes(p.pinned_bytes));
}

}  // namespace

bool take_faster(Candidate&& one, std::optional<Candidate>& best) {
  if (best && one.step_ns >= best->step_ns) return false;
  best = std::move(one);
  return true;
}

PlanBuilder::PlanBuilder(const Program& program, const Profile& profile, const PlanRequest& request,
                         const LeftOut& left_out)
    : program_(program),
      profile_(profile),
      passes_(request.passes != nullptr ? *request.passes : own_passes_),
      costs_(cost_of(program, profile)),
      placement_(request.placement ? *request.placement : Placement()),
      units_(found_units()),
      quick_(request.quick),
      stop_(request.stop),
      left_out_(left_out),
      kept_(program.objects().size(), Save::Keep) {
  limits.alignment = profile.alignment;
  limits.base = request.base;
  const auto tasks = int64_t(program.tasks().size());
  if (request.fixed_homes.empty()) {
    least_actions_ = tasks + left_out.tasks;
    limits.actions_counted = tasks;
    limits.host_bytes_per_action =
        double(profile.host_growth.per_action) * double(least_actions_) / double(std::max<int64_t>(1, tasks));
  }
  for (const Tier tier : tiers_of(placement_.devices)) {
    limits.bytes[tier] = budget(profile, tier, request.caps[tier], least_actions_, request.base[tier]);
    limits.boundary_bytes[tier] = align_up(request.boundary_bytes[tier], profile.alignment);
  }
  limits.fixed_homes = request.fixed_homes;
  limits.on_disk = on_disk(program, request.read_share.value_or(0));
  limits.chosen_experts = request.experts == ExpertLoads::Chosen;
  limits.host_is_short = true;
  limits.host_closely = request.least;
  units_of_.resize(placement_.devices);
  std::vector<Tier> device_of(program.objects().size(), kDevice);
  for (uint32_t t = 0; t < program.tasks().size(); ++t) {
    for (const Use& u : program.tasks()[t].uses) device_of[u.object.value] = placement_.of(TaskId(t));
  }
  for (const RecomputeUnit& unit : units_) {
    if (!unit.of_step) units_of_[device_of[unit.objects.front().value].index()].push_back(unit);
  }
  for_each_parallel(2, request.threads, [&](int64_t overlap) {
    order_[overlap] = order(overlap != 0);
    plain_[overlap] = unrolled(overlap != 0, kept_);
  });
  make_for_step();
  pinnable_ = found_pinnable();
  for (const auto& of_device : pinnable_) {
    int64_t all = 0, of_host = 0;
    for (const Pinnable& p : of_device) {
      all += p.bytes;
      if (!limits.is_on_disk(p.object)) of_host += p.bytes;
    }
    pinnable_bytes_ += of_host;
    of_host_on_one_ = std::max(of_host_on_one_, of_host);
    pinnable_on_one_ = std::max(pinnable_on_one_, all);
  }
  std::vector<bool> counted(program.objects().size(), false);
  for (const DeviceSchedule& s : plain_[false].devices) {
    for (const Value& v : s.values) {
      if (!v.host_home || v.fixed || v.on_disk || counted[v.object.value]) continue;
      counted[v.object.value] = true;
      always_on_host_ += v.bytes;
    }
  }
  for (const RecomputeUnit& unit : units_) again_bytes_ += unit.bytes;
  for (const DeviceSchedule& s : plain_[false].devices) {
    std::vector<int64_t> bytes = s.workspace_bytes;
    for (const Value& v : s.values) {
      for (const ValueUse& u : v.uses) bytes[u.position] += v.fixed ? 0 : v.bytes;
    }
    working_bytes_ = std::max(working_bytes_, *std::ranges::max_element(bytes));
  }
}

// A copy that is made for the whole step of what the step itself updates goes by way of the host, where the
// device has no room for everything. The link that stores updates has no time for it.
void PlanBuilder::make_for_step() {
  const bool some = std::ranges::any_of(units_, &RecomputeUnit::of_step);
  if (!some || resident_bytes() <= limits.device_bytes()) return;
  std::vector<bool> made(program_.objects().size(), false), written = made;
  for (const RecomputeUnit& unit : units_) {
    for (const ObjectId o : unit.objects) made[o.value] = unit.of_step;
  }
  for (const Task& task : program_.tasks()) {
    const bool of_new = std::ranges::any_of(
        task.uses, [&](const Use& u) { return u.access == Access::Read && written[u.object.value]; });
    for (const Use& u : task.uses) {
      if (u.access == Access::Read) continue;
      written[u.object.value] = true;
      if (of_new && made[u.object.value]) kept_[u.object.value] = Save::Host;
    }
  }
  for (const bool overlap : {false, true}) {
    bare_[overlap] = std::move(plain_[overlap]);
    plain_[overlap] = unrolled(overlap, kept_);
  }
}

// Most is saved by what is loaded and stored most often: weights, then gradients, then what only the update
// uses. Alike ones are taken from all over the model, so that links have as much to do everywhere.
std::vector<std::vector<PlanBuilder::Pinnable>> PlanBuilder::found_pinnable() const {
  constexpr double kStore = 0.5;  // of a load, as nothing waits for a store
  std::vector<std::vector<Pinnable>> out(placement_.devices);
  for (size_t d = 0; d < placement_.devices && limits.fixed_homes.empty(); ++d) {
    const DeviceSchedule& s = plain_[true].devices[d];
    std::vector<double> moves(s.values.size(), 0);
    for (const Gap& g : sluice::core::gaps_of(s, profile_, limits)) {
      if (g.dead) continue;
      const Value& v = s.values[g.value];
      // The slower its link, the more is saved.
      const double load = v.on_disk ? v.load_ns(profile_) / profile_.load_ns(v.bytes) : 1;
      moves[g.value] += load + (g.written ? kStore : 0);
    }
    std::vector<uint32_t> order;
    for (uint32_t v = 0; v < s.values.size(); ++v) {
      if (s.values[v].circular && !s.values[v].host_home && !s.values[v].fixed) order.push_back(v);
    }
    const auto rank = [&](uint32_t v) {
      return std::pair(-moves[v], spread_over_layers(program_.object(s.values[v].object).layer));
    };
    sort_numbers(order, [&](uint32_t a, uint32_t b) { return rank(a) < rank(b); });
    for (const uint32_t v : order) {
      const int64_t bytes = s.values[v].bytes;
      out[d].push_back({s.values[v].object, bytes, moves[v] * profile_.load_ns(bytes)});
    }
  }
  return out;
}

double PlanBuilder::moving_share() const {
  double most = 0;
  for (size_t d = 0; d < placement_.devices; ++d) {
    double ns = 0;
    for (const Pinnable& p : pinnable_[d]) ns += p.moving_ns;
    most = std::max(most, ns / plain_[true].devices[d].whole_ns());
  }
  return most;
}

std::shared_ptr<const std::vector<bool>> PlanBuilder::pins(const Policy& policy) const {
  if (policy.pinned_bytes == 0) return nullptr;
  const bool spares_host = policy.rule == SaveRule::LeastHost;
  const int64_t missing = std::max<int64_t>(0, -room_of_host() / int64_t(placement_.devices));
  auto out = std::make_shared<std::vector<bool>>(program_.objects().size(), false);
  for (const std::vector<Pinnable>& of_device : pinnable_) {
    int64_t left = policy.pinned_bytes;
    const auto pin = [&](const Pinnable& p) {
      if (p.bytes > left || (*out)[p.object.value]) return;
      left -= p.bytes;
      (*out)[p.object.value] = true;
    };
    for (const Pinnable& p : of_device) {
      if (!spares_host && policy.pinned_bytes - left >= missing) break;
      if (!limits.is_on_disk(p.object)) pin(p);
    }
    for (const Pinnable& p : of_device) {
      if (!spares_host) pin(p);
    }
  }
  return out;
}

std::vector<RecomputeUnit> PlanBuilder::found_units() const {
  const auto check = [&](const std::vector<RecomputeUnit>& found) -> Status {
    std::vector<bool> seen(program_.objects().size(), false);
    for (const RecomputeUnit& unit : found) {
      for (const ObjectId o : unit.objects) {
        if (seen[o.value]) return error("{} is in two units", program_.object(o).name);
        seen[o.value] = true;
      }
    }
    return {};
  };
  return passes_.run<std::vector<RecomputeUnit>>(
      Pass::Units, {}, [&] { return recompute_units(program_, costs_, placement_); }, check);
}

std::vector<TaskId> PlanBuilder::order(bool overlap) const {
  const bool one = placement_.devices == 1;
  const auto as_written = [&] { return task_order(program_, costs_, false); };
  if (one && !overlap) return as_written();
  const auto check = [&](std::vector<TaskId> tasks) -> Status {
    std::sort(tasks.begin(), tasks.end(), [](TaskId a, TaskId b) { return a.value < b.value; });
    for (uint32_t t = 0; t < program_.tasks().size(); ++t) {
      if (tasks.size() != program_.tasks().size() || tasks[t].value != t)
        return error("task {} is not there once", t);
    }
    return {};
  };
  return passes_.run<std::vector<TaskId>>(
      Pass::Order, as_written(),
      [&] {
        return one ? task_order(program_, costs_, true)
                   : ring_order(program_, placement_, costs_, profile_, overlap);
      },
      check);
}

SaveChoices PlanBuilder::chosen(const Policy& policy, const SavePolicy& saving, const Limits& within) const {
  SaveChoices out{none_again(), {}};
  const Limits seen = seen_by_one(within);
  const std::vector<Prices>* prices = policy.rule == SaveRule::Prices ? prices_for(policy) : nullptr;
  for (size_t d = 0; d < placement_.devices; ++d) {
    const SaveChoice none{none_again(), {}};
    const Prices no_prices;
    const auto check = [&](const SaveChoice& choice) -> Status {
      const Saves& saves = choice.saves;
      for (size_t o = 0; o < saves.size(); ++o) {
        if (saves[o] == Save::Keep || program_.objects()[o].kind == ObjectKind::Activation) continue;
        return error("{} is no activation", program_.objects()[o].name);
      }
      return {};
    };
    SaveChoice one = passes_.run<SaveChoice>(
        Pass::Saves, none,
        [&] {
          return choose_saves(program_, plain_[policy.overlap].devices[d], units_of_[d], profile_, seen,
                              saving, prices != nullptr ? (*prices)[d] : no_prices);
        },
        check);
    for (const RecomputeUnit& unit : units_of_[d]) {
      for (const ObjectId o : unit.objects) out.saves[o.value] = one.saves[o.value];
    }
    out.costs.push_back(std::move(one.costs));
  }
  return out;
}

StepSchedule PlanBuilder::unrolled(bool overlap, const Saves& saves) const {
  const auto check = [&](const StepSchedule& s) -> Status {
    std::vector<int> times(program_.tasks().size(), 0);
    for (const Run& run : s.devices.front().runs) {
      if (run.kind == RunKind::Task) times[run.task.value] += !run.recompute;
    }
    for (size_t t = 0; t < times.size(); ++t) {
      if (times[t] != 1) return error("{} runs {} times", program_.tasks()[t].name, times[t]);
    }
    return {};
  };
  return passes_.run<StepSchedule>(
      Pass::Unroll, {},
      [&] {
        StepSchedule s = unroll(program_, placement_, order_[overlap], costs_, profile_, saves, limits);
        for (DeviceSchedule& one : s.devices) one.left_out_ns = left_out_.ns;
        return s;
      },
      check);
}

std::optional<CutsByDevice> PlanBuilder::gaps_cut(const StepSchedule& step, const Limits& within,
                                                  const Saves& saves, int64_t target_bytes,
                                                  const std::vector<GapCosts>& costs) const {
  if (stop_.stop_requested()) return std::nullopt;
  CutsByDevice out;
  const GapCosts none;
  for (size_t d = 0; d < step.devices.size(); ++d) {
    const DeviceSchedule& s = step.devices[d];
    const auto work = [&] {
      return cut_gaps(s, s.start_ns, profile_, within, target_bytes, saves, costs.empty() ? none : costs[d]);
    };
    auto cuts = passes_.run<std::optional<Cuts>>(
        Pass::Gaps, std::nullopt, work, [&](const std::optional<Cuts>& made) -> Status {
          for (size_t p = 0; made && p < made->pressure.size(); ++p) {
            if (made->pressure[p] <= within.bytes[s.device]) continue;
            return error("{} bytes at position {} of {} allowed", made->pressure[p], p,
                         within.bytes[s.device]);
          }
          return {};
        });
    if (!cuts) return std::nullopt;
    out.push_back(std::move(*cuts));
  }
  return out;
}

std::vector<Residency> PlanBuilder::resident(const StepSchedule& s, const Limits& within,
                                             const CutsByDevice& cuts, int64_t fill_bytes) const {
  std::vector<Residency> out;
  for (size_t d = 0; d < s.devices.size(); ++d)
    out.push_back(decide_residency(s.devices[d], profile_, within, cuts[d], fill_bytes, passes_));
  return out;
}

std::optional<Plan> PlanBuilder::emitted(const StepSchedule& s, std::vector<Residency> residency,
                                         const Limits& within, MissingRoom& missing_room) const {
  return passes_.run<std::optional<Plan>>(
      Pass::Emit, std::nullopt,
      [&] { return emit(program_, s, std::move(residency), profile_, within, missing_room); },
      [&](const std::optional<Plan>& plan) {
        return plan ? verify(program_, *plan, costs_.workspace_bytes) : Status();
      });
}

void PlanBuilder::predict_times(Plan& plan) const {
  const auto work = [&] {
    return predict(program_, plan, {profile_.copy_slowdown, profile_.network.core_share()}), true;
  };
  passes_.run<bool>(Pass::Predict, false, work, [&](bool) -> Status {
    for (const Action& a : plan.actions) {
      for (const uint32_t wait : plan.waits_of(a)) {
        if (plan.actions[wait].end_ns > a.start_ns)
          return error("{} starts too early", sluice::core::describe(program_, a));
      }
    }
    return {};
  });
}

void PlanBuilder::submit(Plan& plan) const {
  const auto work = [&] { return submit_by_start(plan), true; };
  passes_.run<bool>(Pass::Submission, false, work,
                    [&](bool) { return verify(program_, plan, costs_.workspace_bytes); });
}

double PlanBuilder::lower_bound_ns() const {
  if (placement_.devices > 1) return ring_bound_ns(program_, costs_, placement_.devices);
  // Rounds that overlap hold no less at any round's turn, but another order of updates may.
  const auto of = [&](bool overlap) {
    const StepSchedule& bare = bare_[overlap].devices.empty() ? plain_[overlap] : bare_[overlap];
    return sluice::core::lower_bound_ns(program_, bare.devices.front(), costs_, profile_, limits, left_out_);
  };
  return std::min(of(false), of(true));
}

Saves PlanBuilder::all_again() const {
  Saves saves = none_again();
  for (const RecomputeUnit& unit : units_) {
    for (const ObjectId o : unit.objects) saves[o.value] = Save::Again;
  }
  return saves;
}

std::string PlanBuilder::describe(const Candidate& c) const {
  double kept = 0, host = 0;
  for (const RecomputeUnit& unit : units_) {
    const Save save = c.saves[unit.objects.front().value];
    if (save == Save::Keep) kept += double(unit.bytes);
    if (save == Save::Host) host += double(unit.bytes);
  }
  const double all = std::max(double(again_bytes_), 1.0);
  const std::string ring = placement_.how.empty() ? "" : placement_.how + "; ";
  return ring +
         fmt::format(
             "of activations that can be computed again {:.0f} % stay on the device while it has room, "
             "{:.0f} % go to the host, {:.0f} % are computed again; {}{}",
             100 * kept / all, 100 * host / all, 100 * (1 - (kept + host) / all), c.how,
             limits.chosen_experts ? "; experts are loaded when their router has run, those chosen alone"
                                   : "");
}

const std::vector<Prices>* PlanBuilder::prices_for(const Policy& policy) const {
  for (const PricesFor& p : prices_) {
    if (p.overlap == policy.overlap && p.pinned_bytes == policy.pinned_bytes) return &p.prices;
  }
  return nullptr;
}

bool PlanBuilder::find_prices(bool overlap, std::vector<int64_t> pinned_bytes, int threads) {
  std::ranges::sort(pinned_bytes);
  const auto known = [&](int64_t pinned) {
    return prices_for({.overlap = overlap, .pinned_bytes = pinned}) != nullptr;
  };
  pinned_bytes.erase(std::unique(pinned_bytes.begin(), pinned_bytes.end()), pinned_bytes.end());
  std::erase_if(pinned_bytes, known);
  // Packing leaves some of the room unused.
  constexpr double kUsed = 0.85;
  const auto check = [&](const Prices& p) -> Status {
    for (const auto* prices : {&p.device, &p.host, &p.load, &p.store, &p.again}) {
      const bool wrong = std::any_of(prices->begin(), prices->end(), [](double x) { return !(x >= 0); });
      if (prices->size() != plain_[overlap].size() + 1u || wrong)
        return error("a price below nothing, or none");
    }
    return {};
  };
  std::vector<PricesFor> found;
  for (const int64_t pinned : pinned_bytes) found.push_back({overlap, pinned, {}});
  for_each_parallel(int64_t(found.size()), threads, [&](int64_t i) {
    Limits seen = seen_by_one(limits);
    const int64_t pinned = std::min(found[size_t(i)].pinned_bytes, limits.device_bytes());
    seen.pinned = pins({.rule = SaveRule::Prices, .pinned_bytes = pinned});
    const int64_t target = pinned + static_cast<int64_t>(kUsed * double(limits.device_bytes() - pinned));
    for (size_t d = 0; d < placement_.devices; ++d) {
      const DeviceSchedule& plain = plain_[overlap].devices[d];
      found[size_t(i)].prices.push_back(passes_.run<Prices>(
          Pass::Prices, {},
          [&] { return sluice::core::find_prices(plain, units_of_[d], profile_, seen, target); }, check));
    }
  });
  for (PricesFor& one : found) {
    if (std::ranges::any_of(one.prices, &Prices::empty)) return false;
    prices_.push_back(std::move(one));
  }
  return true;
}

uint64_t PlanBuilder::subject() const {
  Hash hash;
  const auto add = [&](double value) { hash.add(std::bit_cast<uint64_t>(value)); };
  hash.add(program_.hash()).add(profile_.alignment).add(left_out_.rounds).add(limits.chosen_experts);
  for (size_t o = 0; limits.on_disk != nullptr && o < limits.on_disk->size(); ++o)
    hash.add(bool((*limits.on_disk)[o]));
  add(left_out_.ns), add(profile_.transfer_latency_ns), add(profile_.copy_slowdown);
  add(profile_.network.core_share());
  add(limits.host_bytes_per_action);
  for (const double ns : costs_.ns) add(ns);
  for (const int64_t bytes : costs_.workspace_bytes) hash.add(bytes);
  for (const Link& link : profile_.links) add(link.bytes_per_s);
  for (const Tier tier : tiers_of(placement_.devices))
    hash.add(limits.bytes[tier]).add(limits.boundary_bytes[tier]);
  for (const Pass pass : {Pass::Prices, Pass::Relief, Pass::Drain, Pass::Early, Pass::Order, Pass::Saves})
    hash.add(passes_.record_of(pass).skipped);
  return hash.value();
}

std::optional<PlanBuilder::Fitting> PlanBuilder::fitted(bool overlap, const Limits& within,
                                                        const SavePolicy& saving,
                                                        const std::vector<GapCosts>& costs, bool lean,
                                                        Saves& saves, MissingRoom& missing_room) const {
  const int64_t host_bytes = saving.host_bytes * int64_t(placement_.devices);
  constexpr int kRounds = 4;  // as what is computed again takes room on the device, where more is then cut
  for (int round = 0;; ++round) {
    Fitting out{unrolled(overlap, saves), {}};
    missing_room = {kDevice};
    auto cuts = gaps_cut(out.schedule, within, saves, saving.target_bytes, costs);
    if (!cuts) return std::nullopt;
    out.cuts = std::move(*cuts);
    std::vector<Residency> split;
    SlotsByDevice slots;
    for (size_t d = 0; d < out.cuts.size(); ++d) {
      split.push_back(split_at(out.schedule.devices[d], within, out.cuts[d].gaps));
      slots.push_back(split.back().slots);
    }
    const int64_t of_actions = within.host_bytes_of(actions_of(out.schedule, split, profile_));
    const auto relieve = [&] {
      return relieve_host(out.schedule, slots, units_, within, host_bytes - of_actions, saves);
    };
    const auto unchecked = [](bool) { return Status(); };
    if (!lean && round < kRounds && passes_.run<bool>(Pass::Relief, false, relieve, unchecked)) continue;
    const std::vector<int64_t> bytes = bytes_on_host(out.schedule, slots, within);
    missing_room = {kHost, *std::ranges::max_element(bytes) + of_actions - within.bytes[kHost]};
    if (missing_room.bytes > 0) return std::nullopt;
    return out;
  }
}

MadePlans::Made PlanBuilder::made(const Fitting& fitting, const Limits& within, int64_t fill_bytes) const {
  MadePlans::Made out;
  out.plan = emitted(fitting.schedule, resident(fitting.schedule, within, fitting.cuts, fill_bytes), within,
                     out.missing_room);
  if (out.plan) predict_times(*out.plan);
  return out;
}

std::optional<Candidate> PlanBuilder::build(const Policy& policy, int64_t device_budget,
                                            MadePlans* known) const {
  Limits within = limits;
  within.set_device_bytes(device_budget);
  within.store_around = policy.rule == SaveRule::Prices;
  within.pinned = pins(policy);
  within.host_closely = policy.floor || limits.host_closely;
  within.host_is_short = within.host_closely || pin_range(device_budget).tight;
  if (policy.floor) within.bytes[kHost] = kUnlimited / 4;
  double device_share = policy.device_share, reserve = policy.reserve;
  // This share packs, mostly.
  double host_share = std::min(policy.host_share, program_.tasks().size() > kFewItems ? 0.9975 : 1);
  const auto pinned = double(policy.pinned_bytes);
  std::optional<Candidate> best;
  MissingRoom missing_room;
  const bool fixed_saves = !is_searched(policy.rule), tight = policy.rule == SaveRule::LeastDevice;
  const int attempts = quick_ ? 4 : 8;  // over the same range
  // The floor's plans take the largest of these shares that packs. Of a large program the least comes second:
  // where it does not pack, none does.
  constexpr int kFloorShares = 8;
  const bool least_second = policy.floor && is_large();
  const auto floor_share = [&](int attempt) {
    const int less = !least_second ? attempt : attempt == 1 ? kFloorShares - 1 : attempt - 1;
    return policy.device_share - 0.03 * less;
  };
  for (int attempt = 0; attempt < (policy.floor ? kFloorShares : attempts); ++attempt) {
    if (stop_.stop_requested()) return std::nullopt;
    const double fill = tight ? 0 : double(device_budget) * device_share;
    SavePolicy saving;
    // Pinned bytes cannot make room.
    const double open = std::max(0.0, fill - pinned);
    saving.target_bytes = static_cast<int64_t>(fill - open * reserve);
    saving.host_bytes = static_cast<int64_t>(double(seen_by_one(within).bytes[kHost]) * host_share);
    // A link that is behind keeps what it will move on the device.
    saving.lag_ns = 1e9 * (policy.rule == SaveRule::Prices ? policy.lag : reserve) * open /
                    std::max(profile_.bytes_per_s(kHost, kDevice), profile_.bytes_per_s(kDevice, kHost));
    saving.most_under_way = static_cast<int64_t>(policy.under_way * open * (1 - reserve));
    if (policy.steady) within.early_bytes = saving.most_under_way;
    saving.again_weight = policy.again_weight;
    saving.away_weight = policy.overlap ? 1 : 0;
    saving.priced = policy.rule != SaveRule::Bytes;
    auto [saves, costs] = is_searched(policy.rule)               ? chosen(policy, saving, within)
                          : policy.rule == SaveRule::NoRecompute ? SaveChoices{none_again(), {}}
                                                                 : SaveChoices{all_again(), {}};
    const auto fitting = fitted(policy.overlap, within, saving, costs, fixed_saves, saves, missing_room);
    if (!fitting && missing_room.is_host() && reserve > 0) {
      // A byte that the device keeps takes one from the host at most, so less of what is held back may do, or
      // all of it does not.
      const double least = double(missing_room.bytes) / open;
      if (least > reserve) return best;
      reserve = std::min(reserve / 2, reserve - least);
      if (reserve < 0.01) reserve = 0;
      continue;
    }
    if (!fitting) return best;
    const auto fill_bytes = static_cast<int64_t>(fill);
    for (const bool search_places : {false, true}) {
      within.search_places = search_places;
      const auto make = [&] { return made(*fitting, within, fill_bytes); };
      auto [plan, missing] =
          known != nullptr ? known->of(key_of(policy.overlap, within, fill_bytes, saves, fitting->cuts), make)
                           : make();
      missing_room = missing;
      if (plan) {
        const double ns = step_ns(*plan);
        if (least_second) best.reset();
        take_faster(Candidate{std::move(*plan), policy.overlap, saves, gaps_of(fitting->cuts),
                              describe_policy(policy), device_share, host_share, ns},
                    best);
        if (!search_places && !(least_second && attempt == 1)) return best;
      }
      // Beside one whose places were searched, only what packs without is still of interest.
      if (best || missing_room.is_host() || program_.tasks().size() > kFewItems) break;
    }
    if (tight || (fixed_saves && missing_room.is_host())) return best;
    if (missing_room.is_host()) {
      const double missing =
          std::max(0.08 / attempts, double(missing_room.bytes) / double(within.bytes[kHost]));
      host_share = std::max(0.0, host_share - missing);
    } else {
      if (least_second && attempt == 1 && !best) return best;
      device_share = policy.floor ? floor_share(attempt + 1) : device_share - 0.32 / attempts;
    }
  }
  return best;
}

std::vector<std::optional<Candidate>> PlanBuilder::build_all(const std::vector<Policy>& policies,
                                                             int64_t device_budget, int threads) const {
  std::vector<std::optional<Candidate>> out(policies.size());
  MadePlans known;
  // Plans of more tasks take too much memory to be kept for that.
  MadePlans* const kept = is_small() ? &known : nullptr;
  for_each_parallel(int64_t(out.size()), threads,
                    [&](int64_t i) { out[size_t(i)] = build(policies[size_t(i)], device_budget, kept); });
  return out;
}

std::optional<Plan> PlanBuilder::build_with(const StepSchedule& s, const GapsByDevice& gaps,
                                            Limits within) const {
  CutsByDevice cuts;
  for (size_t d = 0; d < s.devices.size(); ++d) {
    auto one = cuts_of(s.devices[d], gaps[d], within);
    if (!one) return std::nullopt;
    cuts.push_back(std::move(*one));
  }
  const std::vector<Residency> residency = resident(s, within, cuts, within.device_bytes());
  std::optional<Plan> best;
  MissingRoom missing_room;
  for (const bool search_places : {false, true}) {
    within.search_places = search_places;
    auto plan = emitted(s, residency, within, missing_room);
    if (!plan && missing_room.is_host()) break;
    if (!plan) continue;
    predict_times(*plan);
    if (!best || plan->makespan_ns < best->makespan_ns) best = std::move(plan);
  }
  return best;
}

void PlanBuilder::climb(Candidate& c, int64_t device_budget, int evaluations) const {
  Limits within = limits;
  within.set_device_bytes(device_budget);
  const Rebuild rebuild{
      [&](const Saves& saves) { return unrolled(c.overlap, saves); },
      [&](const StepSchedule& s, const Saves& saves) { return gaps_cut(s, within, saves, device_budget); },
      [&](const StepSchedule& s, const GapsByDevice& gaps) { return build_with(s, gaps, within); }};
  const auto work = [&] { return refine(c, units_, rebuild, evaluations); };
  const int changes = passes_.run<int>(Pass::Refine, 0, work, [](int) { return Status(); });
  if (changes > 0)
    c.how += fmt::format("; then {} changed one by one", counted(changes, "decision", "was", "were"));
}

int64_t PlanBuilder::resident_bytes() const {
  Limits unlimited = limits;
  unlimited.set_device_bytes(kUnlimited / 4);
  const auto all = gaps_cut(plain_[0], unlimited, {}, kUnlimited / 4);
  if (!all) return kUnlimited / 4;
  int64_t most = 0;
  for (const Cuts& cuts : *all)
    most = std::max(most, *std::max_element(cuts.pressure.begin(), cuts.pressure.end()));
  return most;
}

PinRange PlanBuilder::pin_range(int64_t device_budget) const {
  const auto devices = int64_t(placement_.devices);
  const int64_t room = room_of_host();
  PinRange out;
  out.tight = pinnable_bytes_ > 0 && host_is_short(room, devices, device_budget);
  out.least = std::max<int64_t>(0, -room / devices);
  out.most = std::max(out.least, beside_working_set(device_budget, pinnable_on_one_));
  return out;
}

int64_t PlanBuilder::host_bytes(const Plan& plan) const {
  return plan.arenas[kHost].bytes - limits.base[kHost] + limits.host_bytes_of(int64_t(plan.actions.size()));
}

int64_t PlanBuilder::cap_for(Tier tier, int64_t budget_bytes) const {
  const int64_t arena_bytes = budget_bytes + limits.base[tier];
  return arena_bytes + profile_.held_beside(tier, arena_bytes, least_actions_);
}

int64_t PlanBuilder::least_on_device() const {
  return tightest_on_device(program_, unrolled(false, all_again())).bytes;
}

int64_t PlanBuilder::least_in_all_tiers() const {
  const StepSchedule step = unrolled(false, all_again());
  std::vector<int64_t> change(step.size() + 2, 0);
  for (const DeviceSchedule& s : step.devices) {
    for (const Value& v : s.values) {
      // A value of several devices has one place when it is not in use.
      if (v.fixed || (step.devices.size() > 1 && v.host_home)) continue;
      if (v.on_disk) {
        for (const ValueUse& u : v.uses) change[u.position] += v.bytes, change[u.position + 1] -= v.bytes;
        continue;
      }
      const bool always = v.circular || v.host_home;
      change[always ? 0 : v.uses.front().position] += v.bytes;
      change[always ? s.size() + 1 : v.uses.back().position + 1] -= v.bytes;
      // A value about to be overwritten is of no use, as a gradient between its update and the next step's.
      for (size_t k = 1; k < v.uses.size() && !v.host_home; ++k) {
        if (!v.uses[k].overwrites) continue;
        change[v.uses[k - 1].position + 1] -= v.bytes;
        change[v.uses[k].position] += v.bytes;
      }
    }
  }
  int64_t bytes = 0, most = 0;
  for (const int64_t c : change) most = std::max(most, bytes += c);
  return most;
}

}  // namespace sluice::core
