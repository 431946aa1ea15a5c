// From residency to a Plan: addresses, the order of submission, and the waits that make it safe at any
// timing.
#include <algorithm>
#include <array>
#include <map>

#include "planner/passes/passes.h"

namespace sluice {
namespace {

constexpr int64_t kNone = -1;
using Clock = std::array<int64_t, kLaneCount>;

// Last accesses of the byte ranges of one arena.
class Tracker {
 public:
  struct Range {
    int64_t end;
    int64_t writer = kNone;
    Clock last{kNone, kNone, kNone};
  };

  // Joins everything that touched [offset, end) so far into `after` and starts a fresh range written by `id`.
  // What is left of ranges on either side keeps its history.
  void write(int64_t offset, int64_t end, int64_t id, Lane lane, Clock& after) {
    auto it = ranges_.lower_bound(offset);
    if (it != ranges_.begin() && std::prev(it)->second.end > offset) --it;
    while (it != ranges_.end() && it->first < end) {
      for (size_t l = 0; l < kLaneCount; ++l) after[l] = std::max(after[l], it->second.last[l]);
      const auto [begin, old] = *it;
      it = ranges_.erase(it);
      if (begin < offset) ranges_[begin] = {offset, old.writer, old.last};
      if (old.end > end) it = ranges_.insert_or_assign(end, old).first;
    }
    Range& range = ranges_[offset] = {end, id, {kNone, kNone, kNone}};
    range.last[static_cast<size_t>(lane)] = id;
  }

  // `id` reads (or changes in place) the whole range at `offset`.
  void use(int64_t offset, int64_t end, int64_t id, Lane lane, bool changes, Clock& after,
           const std::vector<Action>& actions) {
    Range& range = ranges_.try_emplace(offset, Range{end}).first->second;
    if (range.writer != kNone) {
      auto& of_writer = after[static_cast<size_t>(actions[size_t(range.writer)].lane)];
      of_writer = std::max(of_writer, range.writer);
    }
    if (changes) {
      for (size_t l = 0; l < kLaneCount; ++l) after[l] = std::max(after[l], range.last[l]);
      range.writer = id;
    }
    range.last[static_cast<size_t>(lane)] = id;
  }

 private:
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
        n_(schedule.size()) {}

  std::optional<Plan> run(Misfit& misfit) {
    misfit = Misfit::Device;
    if (!pack_device()) return std::nullopt;
    misfit = Misfit::Host;
    if (!pack_host()) return std::nullopt;
    set_homes();
    order_events();
    for (uint32_t p = 0; p <= n_; ++p) {
      for (const uint32_t i : loads_[p]) transfer(i, ActionKind::Load);
      if (p == n_) break;
      launch(p);
      for (const uint32_t i : stores_[p]) transfer(i, ActionKind::Store);
    }
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
  void transfer(uint32_t span, ActionKind kind);
  // Appends the action, waiting for what `after` says beyond what its lane already knows.
  void append(Action action, Clock after);

  const Program& program_;
  const Schedule& s_;
  Residency r_;
  const Profile& profile_;
  const Limits& limits_;
  const uint32_t n_;

  Plan plan_;
  std::vector<int64_t> workspace_address_;
  std::vector<std::vector<uint32_t>> loads_, stores_;  // spans by position
  std::vector<uint32_t> current_;                      // by value: the span it is in
  std::vector<int64_t> host_address_;                  // by value
  Tracker device_, host_;
  std::vector<Clock> clocks_;
  Clock lane_last_{kNone, kNone, kNone};
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
  const int64_t space = align_down(limits_.device_bytes, limits_.alignment);
  if ((limits_.search_places ? pack_few(items, n_, space) : pack(items, n_, space)) == kNowhere) return false;
  // What the arena ends with needs no alignment behind it.
  plan_.device_bytes = limits_.device_base;
  for (size_t i = 0; i < packed.size(); ++i) {
    Span& span = r_.spans[packed[i]];
    span.address = limits_.device_base + items[i].offset;
    plan_.device_bytes =
        std::max(plan_.device_bytes, span.address + program_.object(s_.values[span.value].object).bytes);
    if (span.always) continue;
    span.begin = items[i].begin;
    span.end = items[i].end;
  }
  workspace_address_.assign(n_ + 1, kNowhere);
  for (size_t i = 0; i < owners.size(); ++i) {
    const PackItem& item = items[packed.size() + i];
    workspace_address_[owners[i]] = limits_.device_base + item.offset;
    plan_.device_bytes = std::max(plan_.device_bytes, workspace_address_[owners[i]] + item.bytes);
  }
  plan_.boundary_device_offset = workspace_address_[n_];
  return true;
}

bool Emitter::pack_host() {
  std::vector<PackItem> items;
  std::vector<uint32_t> owners;
  host_address_.assign(s_.values.size(), kNowhere);
  for (const HostSlot& slot : r_.slots) {
    const Value& v = s_.values[slot.value];
    const bool given =
        !limits_.fixed_homes.empty() && limits_.fixed_homes[v.object.value].host_offset != kNowhere;
    if (given) {
      host_address_[slot.value] = limits_.fixed_homes[v.object.value].host_offset;
      continue;
    }
    items.emplace_back(v.bytes, slot.always ? 0 : slot.begin, slot.always ? n_ : slot.end);
    owners.push_back(slot.value);
  }
  if (limits_.boundary_host_bytes > 0) items.emplace_back(limits_.boundary_host_bytes, 0, n_);
  const int64_t space = align_down(limits_.host_bytes, limits_.alignment);
  const std::vector<PackItem> asked = items;
  // Nothing on the host can give way, so the ways that place fast serve as well. Where everything fits
  // side by side they would use more of it than needed.
  constexpr size_t kMany = 1500;
  int64_t beside = 0;
  for (const PackItem& item : items) beside += item.bytes;
  if (pack(items, n_, space, beside > space ? kMany : kManyItems) == kNowhere &&
      pack_few(items = asked, n_, space) == kNowhere)
    return false;
  plan_.host_bytes = limits_.host_base;
  for (size_t i = 0; i < owners.size(); ++i) {
    host_address_[owners[i]] = limits_.host_base + items[i].offset;
    plan_.host_bytes = std::max(
        plan_.host_bytes, host_address_[owners[i]] + program_.object(s_.values[owners[i]].object).bytes);
  }
  if (limits_.boundary_host_bytes > 0) {
    plan_.boundary_host_offset = limits_.host_base + items.back().offset;
    plan_.host_bytes = std::max(plan_.host_bytes, plan_.boundary_host_offset + limits_.boundary_host_bytes);
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
    plan_.homes[s_.values[span.value].object.value].device_offset = span.address;
  }
  for (const HostSlot& slot : r_.slots) {
    const Value& v = s_.values[slot.value];
    if (slot.home) plan_.homes[v.object.value].host_offset = host_address_[slot.value];
  }
  for (size_t o = 0; o < limits_.fixed_homes.size(); ++o) {
    const Home& fixed = limits_.fixed_homes[o];
    if (fixed.device_offset == kNowhere && fixed.host_offset == kNowhere) continue;
    plan_.homes[o] = fixed;
    const int64_t bytes = program_.objects()[o].bytes;
    if (fixed.device_offset != kNowhere)
      plan_.device_bytes = std::max(plan_.device_bytes, fixed.device_offset + bytes);
    if (fixed.host_offset != kNowhere)
      plan_.host_bytes = std::max(plan_.host_bytes, fixed.host_offset + bytes);
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

void Emitter::append(Action action, Clock after) {
  const auto lane = static_cast<size_t>(action.lane);
  const auto id = static_cast<uint32_t>(plan_.actions.size());
  Clock clock{kNone, kNone, kNone};
  if (lane_last_[lane] != kNone) clock = clocks_[size_t(lane_last_[lane])];
  clock[lane] = lane_last_[lane];
  action.first_wait = static_cast<uint32_t>(plan_.waits.size());
  // The newest dependency first: it may imply the others.
  std::array<size_t, kLaneCount> order{0, 1, 2};
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return after[a] > after[b]; });
  for (const size_t l : order) {
    if (l == lane || after[l] == kNone || clock[l] >= after[l]) continue;
    plan_.waits.push_back(static_cast<uint32_t>(after[l]));
    const Clock& other = clocks_[size_t(after[l])];
    for (size_t k = 0; k < kLaneCount; ++k) clock[k] = std::max(clock[k], other[k]);
    clock[l] = std::max(clock[l], after[l]);
  }
  action.wait_count = static_cast<uint32_t>(plan_.waits.size()) - action.first_wait;
  clocks_.push_back(clock);
  lane_last_[lane] = id;
  plan_.actions.push_back(action);
}

void Emitter::launch(uint32_t p) {
  const Run& run = s_.runs[p];
  const Task& task = program_.task(run.task);
  const auto id = static_cast<int64_t>(plan_.actions.size());
  Action action{ActionKind::Run, Lane::Compute};
  action.recompute = run.recompute;
  action.task = run.task;
  action.first_address = static_cast<uint32_t>(plan_.addresses.size());
  action.address_count = static_cast<uint32_t>(task.uses.size());
  action.cost_ns = s_.start_ns[p + 1] - s_.start_ns[p];
  Clock after{kNone, kNone, kNone};
  for (size_t i = 0; i < task.uses.size(); ++i) {
    const uint32_t value = s_.use_values[run.first_value + i];
    const Value& v = s_.values[value];
    int64_t address = kNowhere;
    if (v.fixed) {
      address = limits_.fixed_homes[v.object.value].device_offset;
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
        device_.write(address, end, id, Lane::Compute, after);
      } else {
        device_.use(address, end, id, Lane::Compute, use.access == Access::Accumulate, after, plan_.actions);
      }
    }
  }
  if (s_.workspace_bytes[p] > 0) {
    action.device_offset = workspace_address_[p];
    action.bytes = s_.workspace_bytes[p];
    device_.write(action.device_offset, action.device_offset + action.bytes, id, Lane::Compute, after);
  }
  append(action, after);
}

void Emitter::transfer(uint32_t index, ActionKind kind) {
  const Span& span = r_.spans[index];
  const Value& v = s_.values[span.value];
  const bool load = kind == ActionKind::Load;
  const auto id = static_cast<int64_t>(plan_.actions.size());
  Action action{kind, load ? Lane::Load : Lane::Store};
  action.object = v.object;
  action.bytes = program_.object(v.object).bytes;
  action.device_offset = span.address;
  action.host_offset = host_address_[span.value];
  action.cost_ns = profile_.transfer_ns(action.bytes, load);
  if (load) current_[span.value] = index;
  Clock after{kNone, kNone, kNone};
  const int64_t device_end = action.device_offset + action.bytes,
                host_end = action.host_offset + action.bytes;
  if (load) {
    host_.use(action.host_offset, host_end, id, action.lane, false, after, plan_.actions);
    device_.write(action.device_offset, device_end, id, action.lane, after);
  } else {
    device_.use(action.device_offset, device_end, id, action.lane, false, after, plan_.actions);
    host_.write(action.host_offset, host_end, id, action.lane, after);
  }
  append(action, after);
}

}  // namespace

std::optional<Plan> emit(const Program& program, const Schedule& schedule, Residency residency,
                         const Profile& profile, const Limits& limits, Misfit& misfit) {
  auto plan = Emitter(program, schedule, std::move(residency), profile, limits).run(misfit);
  if (!plan) return std::nullopt;
  plan->program_hash = program.hash();
  plan->machine = profile.name;
  plan->alignment = limits.alignment;
  return plan;
}

}  // namespace sluice
