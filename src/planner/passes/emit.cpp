// SPDX-License-Identifier: Apache-2.0
// From residency to a Plan: addresses, the order of submission, and the waits that make it safe at any
// timing.
#include <algorithm>
#include <map>

#include "plan/clock.h"
#include "planner/passes/passes.h"

namespace sluice::core {
namespace {

constexpr int64_t kNone = -1;

// Last accesses of the byte ranges of one arena.
class Tracker {
 public:
  explicit Tracker(const LaneTable& lanes) : lanes_(lanes) {}

  // Joins everything that touched [offset, end) so far into `after` and starts a fresh range written by `id`.
  // What is left of ranges on either side keeps its history.
  void write(int64_t offset, int64_t end, uint32_t id, Lane lane, Clock& after) {
    auto it = ranges_.lower_bound(offset);
    if (it != ranges_.begin() && std::prev(it)->second.end > offset) --it;
    while (it != ranges_.end() && it->first < end) {
      after.join(it->second.touched);
      const auto [begin, old] = *it;
      it = ranges_.erase(it);
      if (begin < offset) ranges_.insert_or_assign(begin, Range{offset, old.writer, old.touched});
      if (old.end > end) it = ranges_.insert_or_assign(end, old).first;
    }
    Range fresh{end, id, Clock(lanes_)};
    fresh.touched.add(lane, id);
    ranges_.insert_or_assign(offset, std::move(fresh));
  }

  // `id` reads (or changes in place) the whole range at `offset`.
  void use(int64_t offset, int64_t end, uint32_t id, Lane lane, bool changes, Clock& after,
           const std::vector<Action>& actions) {
    auto it = ranges_.find(offset);
    if (it == ranges_.end()) it = ranges_.emplace(offset, Range{end, kNone, Clock(lanes_)}).first;
    Range& range = it->second;
    if (range.writer != kNone) after.add(actions[size_t(range.writer)].lane, uint32_t(range.writer));
    if (changes) {
      after.join(range.touched);
      range.writer = id;
    }
    range.touched.add(lane, id);
  }

 private:
  struct Range {
    int64_t end;
    int64_t writer;  // kNone: nothing in this step
    Clock touched;
  };
  const LaneTable& lanes_;
  std::map<int64_t, Range> ranges_;
};

class Emitter {
 public:
  Emitter(const Program& program, const Schedule& schedule, Residency residency, const Profile& profile,
          const Limits& limits)
      : program_(program),
        s_(schedule),
        r_(std::move(residency)),
        profile_(profile),
        limits_(limits),
        n_(schedule.size()),
        lanes_(profile.lanes()),
        compute_(lanes_.compute(kDevice)),
        load_(lanes_.copy(kHost, kDevice)),
        store_(lanes_.copy(kDevice, kHost)),
        device_(lanes_),
        host_(lanes_),
        lane_last_(lanes_, kNone) {
    for (const Lane lane : lanes_) by_age_.push_back(lane);
  }

  std::optional<Plan> run(Tier& misfit) {
    misfit = kDevice;
    if (!pack_device()) return std::nullopt;
    misfit = kHost;
    if (!pack_host()) return std::nullopt;
    set_homes();
    order_events();
    for (uint32_t p = 0; p <= n_; ++p) {
      for (const uint32_t i : loads_[p]) transfer(i, true);
      if (p == n_) break;
      launch(p);
      for (const uint32_t i : stores_[p]) transfer(i, false);
    }
    plan_.lanes = lanes_;
    return std::move(plan_);
  }

 private:
  bool pack_device();
  bool pack_host();
  void set_homes();
  void order_events();
  // The next span of the same value; after the last comes the first.
  uint32_t next_span(uint32_t span) const {
    const uint32_t value = r_.spans[span].value;
    if (span + 1 < r_.spans.size() && r_.spans[span + 1].value == value) return span + 1;
    while (span > 0 && r_.spans[span - 1].value == value) --span;
    return span;
  }
  void launch(uint32_t position);
  // Brings the span's value to the device, or stores it.
  void transfer(uint32_t span, bool load);
  // Appends the action, waiting for what `after` says beyond what its lane already knows.
  void append(Action action, const Clock& after);

  const Program& program_;
  const Schedule& s_;
  Residency r_;
  const Profile& profile_;
  const Limits& limits_;
  const uint32_t n_;
  const LaneTable lanes_;
  const Lane compute_, load_, store_;

  Plan plan_;
  std::vector<int64_t> workspace_address_;
  std::vector<std::vector<uint32_t>> loads_, stores_;  // spans by position
  std::vector<uint32_t> current_;                      // by value: the span it is in
  std::vector<int64_t> host_address_;                  // by value
  Tracker device_, host_;
  std::vector<Clock> clocks_;  // what has happened before an action
  ByLane<int64_t> lane_last_;
  std::vector<Lane> by_age_;  // see append()
};

bool Emitter::pack_device() {
  std::vector<PackItem> items;
  std::vector<size_t> packed;  // spans whose address is not given
  for (size_t i = 0; i < r_.spans.size(); ++i) {
    const Span& s = r_.spans[i];
    if (s.address != kNowhere) continue;
    packed.push_back(i);
    const int64_t bytes = s_.values[s.value].bytes;
    PackItem item = s.always ? PackItem(bytes, 0, n_) : PackItem(bytes, s.begin, s.end);
    if (!s.always && !s.wraps()) {
      item.latest_begin = s.first_use;
      item.earliest_end = s.last_use;
    }
    if (limits_.store_around && s.wraps() && s.last_use < s.begin) item.earliest_end = s.last_use;
    // Around the boundary a load can come as late as its use, and one for the next step as the boundary.
    if (s.wraps() && s.load) item.latest_begin = s.first_use < s.begin ? n_ : s.first_use;
    items.push_back(item);
  }
  std::vector<uint32_t> owners;
  for (uint32_t p = 0; p <= n_; ++p) {
    if (s_.workspace_bytes[p] == 0) continue;
    items.emplace_back(s_.workspace_bytes[p], p, p);
    owners.push_back(p);
  }
  const int64_t space = align_down(limits_.bytes[kDevice], limits_.alignment);
  if ((limits_.search_places ? pack_few(items, n_, space) : pack(items, n_, space)) == kNowhere) return false;
  // What the arena ends with needs no alignment behind it.
  plan_.arenas[kDevice].bytes = limits_.base[kDevice];
  for (size_t i = 0; i < packed.size(); ++i) {
    Span& span = r_.spans[packed[i]];
    span.address = limits_.base[kDevice] + items[i].offset;
    plan_.arenas[kDevice].bytes = std::max(
        plan_.arenas[kDevice].bytes, span.address + program_.object(s_.values[span.value].object).bytes);
    if (span.always) continue;
    span.begin = items[i].begin;
    span.end = items[i].end;
  }
  workspace_address_.assign(n_ + 1, kNowhere);
  for (size_t i = 0; i < owners.size(); ++i) {
    const PackItem& item = items[packed.size() + i];
    workspace_address_[owners[i]] = limits_.base[kDevice] + item.offset;
    plan_.arenas[kDevice].bytes =
        std::max(plan_.arenas[kDevice].bytes, workspace_address_[owners[i]] + item.bytes);
  }
  plan_.arenas[kDevice].boundary_offset = workspace_address_[n_];
  return true;
}

bool Emitter::pack_host() {
  std::vector<PackItem> items;
  std::vector<uint32_t> owners;
  host_address_.assign(s_.values.size(), kNowhere);
  for (const HostSlot& slot : r_.slots) {
    const Value& v = s_.values[slot.value];
    const bool given = !limits_.fixed_homes.empty() && limits_.fixed_homes[v.object.value].on(kHost);
    if (given) {
      host_address_[slot.value] = limits_.fixed_homes[v.object.value].offset[kHost];
      continue;
    }
    items.emplace_back(v.bytes, slot.always ? 0 : slot.begin, slot.always ? n_ : slot.end);
    owners.push_back(slot.value);
  }
  if (limits_.boundary_bytes[kHost] > 0) items.emplace_back(limits_.boundary_bytes[kHost], 0, n_);
  const int64_t space = align_down(limits_.bytes[kHost], limits_.alignment);
  const std::vector<PackItem> asked = items;
  // Nothing on the host can give way, so the ways that place fast serve as well. Where everything fits
  // side by side they would use more of it than needed.
  constexpr size_t kMany = 1500;
  int64_t beside = 0;
  for (const PackItem& item : items) beside += item.bytes;
  if (pack(items, n_, space, beside > space ? kMany : kManyItems) == kNowhere &&
      pack_few(items = asked, n_, space) == kNowhere)
    return false;
  plan_.arenas[kHost].bytes = limits_.base[kHost];
  for (size_t i = 0; i < owners.size(); ++i) {
    host_address_[owners[i]] = limits_.base[kHost] + items[i].offset;
    plan_.arenas[kHost].bytes =
        std::max(plan_.arenas[kHost].bytes,
                 host_address_[owners[i]] + program_.object(s_.values[owners[i]].object).bytes);
  }
  if (limits_.boundary_bytes[kHost] > 0) {
    plan_.arenas[kHost].boundary_offset = limits_.base[kHost] + items.back().offset;
    plan_.arenas[kHost].bytes = std::max(plan_.arenas[kHost].bytes,
                                         plan_.arenas[kHost].boundary_offset + limits_.boundary_bytes[kHost]);
  }
  return true;
}

void Emitter::set_homes() {
  plan_.homes.assign(program_.objects().size(), {});
  current_.assign(s_.values.size(), UINT32_MAX);
  for (uint32_t i = 0; i < r_.spans.size(); ++i) {
    const Span& span = r_.spans[i];
    // A value that no load brings is written into its first span.
    if (current_[span.value] == UINT32_MAX && !span.load) current_[span.value] = i;
    if (!span.always && !span.wraps()) continue;
    current_[span.value] = i;
    plan_.homes[s_.values[span.value].object.value].offset[kDevice] = span.address;
  }
  for (const HostSlot& slot : r_.slots) {
    const Value& v = s_.values[slot.value];
    if (slot.home) plan_.homes[v.object.value].offset[kHost] = host_address_[slot.value];
  }
  for (size_t o = 0; o < limits_.fixed_homes.size(); ++o) {
    const Home& fixed = limits_.fixed_homes[o];
    if (!fixed.anywhere()) continue;
    plan_.homes[o] = fixed;
    for (const Tier tier : kTiers) {
      if (!fixed.on(tier)) continue;
      int64_t& bytes = plan_.arenas[tier].bytes;
      bytes = std::max(bytes, fixed.offset[tier] + program_.objects()[o].bytes);
    }
  }
}

void Emitter::order_events() {
  loads_.resize(n_ + 1);
  stores_.resize(n_ + 1);
  for (uint32_t i = 0; i < r_.spans.size(); ++i) {
    const Span& span = r_.spans[i];
    if (span.load) loads_[span.begin].push_back(i);
    if (span.store) stores_[span.store_at].push_back(i);
  }
  // What is used first is loaded first; loads for the next step come last.
  for (auto& loads : loads_) {
    std::stable_sort(loads.begin(), loads.end(), [&](uint32_t a, uint32_t b) {
      const Span &x = r_.spans[a], &y = r_.spans[b];
      return std::pair(x.wraps() && x.first_use < x.begin, x.first_use) <
             std::pair(y.wraps() && y.first_use < y.begin, y.first_use);
    });
  }
}

void Emitter::append(Action action, const Clock& after) {
  const auto id = static_cast<uint32_t>(plan_.actions.size());
  const int64_t before = lane_last_[action.lane];
  Clock clock = before == kNone ? Clock(lanes_) : clocks_[size_t(before)];
  if (before != kNone) clock.add(action.lane, uint32_t(before));
  action.first_wait = static_cast<uint32_t>(plan_.waits.size());
  // The newest dependency first: it may imply the others.
  std::sort(by_age_.begin(), by_age_.end(),
            [&](Lane a, Lane b) { return after.newest(a) > after.newest(b); });
  for (const Lane lane : by_age_) {
    const auto newest = after.newest(lane);
    if (!newest) break;
    if (lane == action.lane || clock.has(lane, *newest)) continue;
    plan_.waits.push_back(*newest);
    clock.join(clocks_[*newest]);
    clock.add(lane, *newest);
  }
  action.wait_count = static_cast<uint32_t>(plan_.waits.size()) - action.first_wait;
  clocks_.push_back(std::move(clock));
  lane_last_[action.lane] = id;
  plan_.actions.push_back(action);
}

void Emitter::launch(uint32_t p) {
  const Run& run = s_.runs[p];
  const Task& task = program_.task(run.task);
  const auto id = static_cast<uint32_t>(plan_.actions.size());
  Action action{ActionKind::Run, compute_};
  action.recompute = run.recompute;
  action.task = run.task;
  action.first_address = static_cast<uint32_t>(plan_.addresses.size());
  action.address_count = static_cast<uint32_t>(task.uses.size());
  action.cost_ns = s_.start_ns[p + 1] - s_.start_ns[p];
  Clock after(lanes_);
  for (size_t i = 0; i < task.uses.size(); ++i) {
    const uint32_t value = s_.use_values[run.first_value + i];
    const Value& v = s_.values[value];
    int64_t address = kNowhere;
    if (v.fixed) {
      address = limits_.fixed_homes[v.object.value].offset[kDevice];
    } else {
      // What is overwritten after a time away comes back without a load.
      while (!r_.spans[current_[value]].covers(p)) current_[value] = next_span(current_[value]);
      address = r_.spans[current_[value]].address;
    }
    plan_.addresses.push_back(address);
  }
  // In the order of data flow: what is read before what is overwritten.
  for (const bool writes : {false, true}) {
    for (size_t i = 0; i < task.uses.size(); ++i) {
      const Use& use = task.uses[i];
      if ((use.access == Access::Write) != writes) continue;
      const int64_t address = plan_.addresses[action.first_address + i];
      const int64_t end = address + program_.object(use.object).bytes;
      if (writes) {
        device_.write(address, end, id, compute_, after);
      } else {
        device_.use(address, end, id, compute_, use.access == Access::Accumulate, after, plan_.actions);
      }
    }
  }
  if (s_.workspace_bytes[p] > 0) {
    action.workspace_offset = workspace_address_[p];
    action.bytes = s_.workspace_bytes[p];
    device_.write(action.workspace_offset, action.workspace_offset + action.bytes, id, compute_, after);
  }
  append(action, after);
}

void Emitter::transfer(uint32_t index, bool load) {
  const Span& span = r_.spans[index];
  const Value& v = s_.values[span.value];
  const auto id = static_cast<uint32_t>(plan_.actions.size());
  const Location on_device{kDevice, span.address}, on_host{kHost, host_address_[span.value]};
  Action action{ActionKind::Copy, load ? load_ : store_};
  action.object = v.object;
  action.bytes = program_.object(v.object).bytes;
  action.from = load ? on_host : on_device;
  action.to = load ? on_device : on_host;
  action.cost_ns = profile_.transfer_ns(action.bytes, action.from.tier, action.to.tier);
  if (load) current_[span.value] = index;
  Clock after(lanes_);
  (load ? host_ : device_)
      .use(action.from.offset, action.from.offset + action.bytes, id, action.lane, false, after,
           plan_.actions);
  (load ? device_ : host_).write(action.to.offset, action.to.offset + action.bytes, id, action.lane, after);
  append(action, after);
}

}  // namespace

std::optional<Plan> emit(const Program& program, const Schedule& schedule, Residency residency,
                         const Profile& profile, const Limits& limits, Tier& misfit) {
  auto plan = Emitter(program, schedule, std::move(residency), profile, limits).run(misfit);
  if (!plan) return std::nullopt;
  plan->program_hash = program.hash();
  plan->machine = profile.name;
  plan->alignment = limits.alignment;
  return plan;
}

}  // namespace sluice::core
