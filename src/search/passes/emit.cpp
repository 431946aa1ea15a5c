// SPDX-License-Identifier: Apache-2.0
// From residency to a Plan: addresses, the order of submission, and the waits that make it safe at any
// timing.
#include <algorithm>
#include <map>

#include "plan/clock.h"
#include "search/passes/grouped.h"
#include "search/passes/passes.h"

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
    if (it != ranges_.begin()) {
      Range& before = std::prev(it)->second;
      if (before.end > offset) {
        after.join(before.touched);
        if (before.end > end) it = ranges_.emplace_hint(it, end, before);
        before.end = offset;
      }
    }
    auto fresh = ranges_.end();  // most often in place of a range that was there before
    while (it != ranges_.end() && it->first < end) {
      after.join(it->second.touched);
      if (it->second.end > end) ranges_.emplace_hint(std::next(it), end, it->second);
      if (it->first == offset) {
        fresh = it++;
      } else {
        it = ranges_.erase(it);
      }
    }
    if (fresh == ranges_.end()) fresh = ranges_.emplace_hint(it, offset, Range{end, id, Clock(lanes_)});
    fresh->second = {end, id, Clock(lanes_)};
    fresh->second.touched.add(lane, id);
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

// By object: where it would lie on the disk, which has room for all that files have; kNowhere: it is not
// there.
std::vector<int64_t> places_on_disk(const Program& program, int64_t alignment) {
  std::vector<int64_t> out(program.objects().size(), kNowhere);
  int64_t end = 0;
  for (size_t o = 0; o < out.size(); ++o) {
    const Object& object = program.objects()[o];
    if (!object.in_files) continue;
    out[o] = end;
    end = align_up(end + object.bytes, alignment);
  }
  return out;
}

// One device while its part of the plan is made.
struct Side {
  Side(const DeviceSchedule& schedule, Residency residency, const LaneTable& lanes)
      : s(schedule), r(std::move(residency)), tier(schedule.device), memory(lanes) {}

  const DeviceSchedule& s;
  Residency r;
  const Tier tier;
  Tracker memory;
  std::vector<int64_t> workspace_address;
  Grouped loads, stores;              // spans by position
  std::vector<uint32_t> current;      // by value: the span it is in
  std::vector<int64_t> host_address;  // by value

  const Value& value_of(const Span& span) const { return s.values[span.value]; }
  // The next span of the same value; after the last comes the first.
  uint32_t next_span(uint32_t span) const {
    const uint32_t value = r.spans[span].value;
    if (span + 1 < r.spans.size() && r.spans[span + 1].value == value) return span + 1;
    while (span > 0 && r.spans[span - 1].value == value) --span;
    return span;
  }
};

class Emitter {
 public:
  Emitter(const Program& program, const StepSchedule& schedule, std::vector<Residency> residency,
          const Profile& profile, const Limits& limits)
      : program_(program),
        actions_(actions_of(schedule, residency, profile)),
        s_(schedule),
        profile_(profile),
        limits_(limits),
        n_(schedule.size()),
        lanes_(profile.lanes()),
        host_(lanes_),
        lane_last_(lanes_, kNone) {
    for (const Lane lane : lanes_) by_age_.push_back(lane);
    sides_.reserve(residency.size());
    for (size_t d = 0; d < residency.size(); ++d)
      sides_.emplace_back(schedule.devices[d], std::move(residency[d]), lanes_);
  }

  std::optional<Plan> run(MissingRoom& missing_room) {
    // The host does not depend on the devices' addresses, and packs fast.
    missing_room = {kHost};
    if (!pack_host(missing_room.bytes)) return std::nullopt;
    for (Side& side : sides_) {
      missing_room = {side.tier};
      if (!pack_device(side)) return std::nullopt;
    }
    set_homes();
    for (Side& side : sides_) order_events(side);
    for (uint32_t p = 0; p <= n_; ++p) {
      for (Side& side : sides_) {
        for (const uint32_t i : side.loads[p]) transfer(side, i, p, true);
      }
      if (p == n_) break;
      if (s_.devices.front().runs[p].kind == RunKind::HandOver) {
        hand_over(p);
      } else {
        launch(p);
      }
      for (Side& side : sides_) {
        for (const uint32_t i : side.stores[p]) transfer(side, i, p, false);
      }
    }
    plan_.lanes = lanes_;
    SLUICE_CHECK(int64_t(plan_.actions.size()) == actions_, "{} actions, not {}", plan_.actions.size(),
                 actions_);
    return std::move(plan_);
  }

 private:
  std::vector<uint32_t> ends_of_runs(const Side& side) const;
  bool pack_device(Side& side);
  // The missing bytes if it does not.
  bool pack_host(int64_t& missing_bytes);
  void set_homes();
  void order_events(Side& side);
  void launch(uint32_t position);
  void hand_over(uint32_t position);
  // Where the use of a value at a position finds it.
  int64_t address_of(Side& side, uint32_t value, uint32_t position);
  // Brings the span's value to the device before a position, or stores it behind one.
  void transfer(Side& side, uint32_t span, uint32_t position, bool load);
  // An object from a place to another; with a task and its chooser, what that chooses.
  struct Choice {
    TaskId task;
    ObjectId object;  // the chooser, where it lies on the device, and the position behind which it does
    Location place;
    uint32_t known_at;
    int64_t bytes;
    double ns;
  };
  void copy(ObjectId object, Location from, Location to, const std::optional<Choice>& choice = {});
  PackTime time() const { return PackTime(s_.turns); }
  // A few rounds are packed in the way of the whole.
  size_t many_on_device() const { return s_.devices.front().left_out_ns > 0 ? 0 : kManyItems; }
  size_t many_on_host() const { return s_.devices.front().left_out_ns > 0 ? 0 : kManyOnHost; }
  Tracker& memory_of(Tier tier) { return tier == kHost ? host_ : sides_[tier.index()].memory; }
  // Appends the action, waiting for what `after` says beyond what its lane already knows.
  void append(Action action, const Clock& after);

  const Program& program_;
  const int64_t actions_;
  const StepSchedule& s_;
  const Profile& profile_;
  const Limits& limits_;
  const uint32_t n_;
  const LaneTable lanes_;

  Plan plan_;
  std::vector<Side> sides_;  // by device
  std::vector<int64_t>
      by_way_of_;  // by position: where on the host a hand-over passes; kNowhere: it does not
  Tracker host_;
  std::vector<Clock> clocks_;  // what has happened before an action
  ByLane<int64_t> lane_last_;
  int64_t last_exchange_ = kNone;                      // the newest action of a network lane
  std::vector<Lane> by_age_;                           // see append()
  std::optional<std::pair<Location, uint32_t>> told_;  // the chooser that the host was told last
};

// By position, the last one that begins while the device is still at its run: what other devices do meanwhile
// has positions behind it.
std::vector<uint32_t> Emitter::ends_of_runs(const Side& side) const {
  const std::vector<double>& start_ns = s_.devices.front().start_ns;
  std::vector<uint32_t> out(n_ + 1);
  for (uint32_t p = 0; p <= n_; ++p) {
    out[p] = p;
    if (p == n_) continue;
    const Run& run = s_.devices.front().runs[p];
    if (run.kind != RunKind::Task || run.device != side.tier) continue;
    while (out[p] + 1 < n_ && start_ns[out[p] + 1] < start_ns[p] + run.ns) ++out[p];
  }
  return out;
}

bool Emitter::pack_device(Side& side) {
  const int64_t base = limits_.base[side.tier];
  std::vector<PackItem> items;
  std::vector<size_t> packed;  // spans whose address is not given
  for (size_t i = 0; i < side.r.spans.size(); ++i) {
    const Span& s = side.r.spans[i];
    if (s.address != kNowhere) continue;
    packed.push_back(i);
    const int64_t bytes = side.value_of(s).bytes;
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
    if (side.s.workspace_bytes[p] == 0) continue;
    items.emplace_back(side.s.workspace_bytes[p], p, p);
    owners.push_back(p);
  }
  const int64_t space = align_down(limits_.bytes[side.tier], limits_.alignment);
  const auto packs = [&](std::vector<PackItem>& some) {
    return (limits_.search_places ? pack_few(some, time(), space)
                                  : pack_closely(some, time(), space, many_on_device())) != kNowhere;
  };
  // Where there is room, nothing gets the memory of a run that is still at work. A copy from another device
  // would wait for its end, and whoever sent it soon, too.
  std::vector<PackItem> apart;
  if (sides_.size() > 1) {
    apart = items;
    const std::vector<uint32_t> ends = ends_of_runs(side);
    for (size_t i = 0; i < apart.size(); ++i) {
      PackItem& item = apart[i];
      const bool always = i < packed.size() && side.r.spans[packed[i]].always;
      if (always || item.begin > item.end) continue;
      item.end = ends[item.end];
      item.earliest_end = ends[item.earliest_end];
    }
  }
  if (!apart.empty() && packs(apart)) {
    items = std::move(apart);
  } else if (!packs(items)) {
    return false;
  }
  // The end of the arena needs no alignment behind it.
  int64_t& arena_bytes = plan_.arenas[side.tier].bytes;
  arena_bytes = base;
  for (size_t i = 0; i < packed.size(); ++i) {
    Span& span = side.r.spans[packed[i]];
    span.address = base + items[i].offset;
    arena_bytes = std::max(arena_bytes, span.address + program_.object(side.value_of(span).object).bytes);
    if (span.always) continue;
    span.begin = items[i].begin;
    span.end = items[i].end;
  }
  side.workspace_address.assign(n_ + 1, kNowhere);
  for (size_t i = 0; i < owners.size(); ++i) {
    const PackItem& item = items[packed.size() + i];
    side.workspace_address[owners[i]] = base + item.offset;
    arena_bytes = std::max(arena_bytes, side.workspace_address[owners[i]] + item.bytes);
  }
  plan_.arenas[side.tier].boundary_offset = side.workspace_address[n_];
  return true;
}

bool Emitter::pack_host(int64_t& missing_bytes) {
  struct Owner {
    size_t side;     // sides_.size(): a hand-over
    uint32_t index;  // of its value, or its position
    ObjectId object;
  };
  std::vector<PackItem> items;
  std::vector<Owner> owners;
  constexpr size_t kNoItem = SIZE_MAX;
  std::vector<size_t> home_of(program_.objects().size(), kNoItem);  // by object: the item of its home
  std::vector<std::pair<Owner, size_t>> sharing;                    // of such an item
  for (size_t d = 0; d < sides_.size(); ++d) {
    Side& side = sides_[d];
    side.host_address.assign(side.s.values.size(), kNowhere);
    for (const HostSlot& slot : side.r.slots) {
      const Value& v = side.s.values[slot.value];
      const Owner owner{d, slot.value, v.object};
      const bool given = !limits_.fixed_homes.empty() && limits_.fixed_homes[v.object.value].on(kHost);
      if (given) {
        side.host_address[slot.value] = limits_.fixed_homes[v.object.value].offset(kHost);
        continue;
      }
      size_t& home = home_of[v.object.value];
      if (slot.home && home != kNoItem) {
        sharing.emplace_back(owner, home);
        continue;
      }
      if (slot.home) home = items.size();
      items.emplace_back(v.bytes, slot.begin, slot.end);
      owners.push_back(owner);
    }
  }
  by_way_of_.assign(n_, kNowhere);
  const DeviceSchedule& s = s_.devices.front();
  for (uint32_t p = 0; p < n_; ++p) {
    const Run& run = s.runs[p];
    if (run.kind != RunKind::HandOver || profile_.joins(run.device, run.to)) continue;
    // Until it has arrived, as planned: who takes the place before that waits for it.
    const auto arrived = std::upper_bound(s.start_ns.begin() + p, s.start_ns.end(), s.start_ns[p] + run.ns);
    const auto last = std::min(n_ - 1, uint32_t(arrived - s.start_ns.begin()));
    items.emplace_back(align_up(program_.object(run.object).bytes, limits_.alignment), p, last);
    owners.push_back({sides_.size(), p, run.object});
  }
  if (limits_.boundary_bytes[kHost] > 0) items.emplace_back(limits_.boundary_bytes[kHost], 0, n_);
  const int64_t space = align_down(limits_.bytes[kHost] - limits_.host_bytes_of(actions_), limits_.alignment);
  const std::vector<PackItem> asked = items;
  // Nothing on the host can give way, so the ways that place fast serve as well. Where everything fits
  // side by side they would use more of it than needed.
  int64_t beside = 0;
  for (const PackItem& item : items) beside += item.bytes;
  if (limits_.host_closely) {
    if (const int64_t used = pack_least(items, time()); used == kNowhere || used > space) return false;
  } else if (pack(items, time(), space, beside > space ? many_on_host() : many_on_device()) == kNowhere &&
             pack_few(items = asked, time(), space) == kNowhere) {
    missing_bytes = bytes_wanted(asked, time()) - space;
    return false;
  }
  PlannedArena& arena = plan_.arenas[kHost];
  arena.bytes = limits_.base[kHost];
  for (size_t i = 0; i < owners.size(); ++i) {
    const auto& [side, index, object] = owners[i];
    const int64_t address = limits_.base[kHost] + items[i].offset;
    (side == sides_.size() ? by_way_of_ : sides_[side].host_address)[index] = address;
    arena.bytes = std::max(arena.bytes, address + program_.object(object).bytes);
  }
  for (const auto& [owner, item] : sharing)
    sides_[owner.side].host_address[owner.index] = limits_.base[kHost] + items[item].offset;
  if (limits_.boundary_bytes[kHost] > 0) {
    arena.boundary_offset = limits_.base[kHost] + items.back().offset;
    arena.bytes = std::max(arena.bytes, arena.boundary_offset + limits_.boundary_bytes[kHost]);
  }
  return true;
}

void Emitter::set_homes() {
  plan_.homes.assign(program_.objects().size(), {});
  const std::vector<int64_t> places = places_on_disk(program_, limits_.alignment);
  for (size_t o = 0; o < places.size(); ++o) {
    if (places[o] != kNowhere)
      plan_.arenas[kDisk].bytes =
          std::max(plan_.arenas[kDisk].bytes, places[o] + program_.objects()[o].bytes);
  }
  for (Side& side : sides_) {
    side.current.assign(side.s.values.size(), UINT32_MAX);
    for (uint32_t i = 0; i < side.r.spans.size(); ++i) {
      const Span& span = side.r.spans[i];
      // A value that no load brings is written into its first span.
      if (side.current[span.value] == UINT32_MAX && !span.load) side.current[span.value] = i;
      if (!span.always && !span.wraps()) continue;
      side.current[span.value] = i;
      plan_.homes[side.value_of(span).object.value].set(side.tier, span.address);
    }
    for (const Span& span : side.r.spans) {
      const Value& v = side.value_of(span);
      if (v.on_disk && span.load) plan_.homes[v.object.value].set(kDisk, places[v.object.value]);
    }
    for (const HostSlot& slot : side.r.slots) {
      const Value& v = side.s.values[slot.value];
      if (slot.home) plan_.homes[v.object.value].set(kHost, side.host_address[slot.value]);
    }
  }
  for (size_t o = 0; o < limits_.fixed_homes.size(); ++o) {
    const Home& fixed = limits_.fixed_homes[o];
    if (!fixed.anywhere()) continue;
    plan_.homes[o] = fixed;
    for (const auto& [tier, offset] : fixed.places()) {
      int64_t& bytes = plan_.arenas[tier].bytes;
      bytes = std::max(bytes, offset + program_.objects()[o].bytes);
    }
  }
}

void Emitter::order_events(Side& side) {
  const std::vector<Span>& spans = side.r.spans;
  side.loads = Grouped(n_ + 1, [&](auto&& add) {
    for (uint32_t i = 0; i < spans.size(); ++i) {
      if (spans[i].load) add(spans[i].begin, i);
    }
  });
  side.stores = Grouped(n_ + 1, [&](auto&& add) {
    for (uint32_t i = 0; i < spans.size(); ++i) {
      if (spans[i].store) add(spans[i].store_at, i);
    }
  });
  // Loads go in the order of use; loads for the next step come last.
  for (uint32_t p = 0; p <= n_; ++p) {
    const std::span<uint32_t> loads = side.loads[p];
    if (loads.size() < 2) continue;
    std::stable_sort(loads.begin(), loads.end(), [&](uint32_t a, uint32_t b) {
      const Span &x = spans[a], &y = spans[b];
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

int64_t Emitter::address_of(Side& side, uint32_t value, uint32_t p) {
  const Value& v = side.s.values[value];
  if (v.fixed) return limits_.fixed_homes[v.object.value].offset(side.tier);
  // A value overwritten after a time away comes back without a load.
  uint32_t& current = side.current[value];
  while (!side.r.spans[current].covers(p)) current = side.next_span(current);
  return side.r.spans[current].address;
}

void Emitter::launch(uint32_t p) {
  const Run& run = s_.devices.front().runs[p];
  Side& side = sides_[run.device.index()];
  const uint32_t first_value = side.s.runs[p].first_value;
  const Task& task = program_.task(run.task);
  const auto id = static_cast<uint32_t>(plan_.actions.size());
  const Lane lane = lanes_.running(lane_of(task.op), side.tier);
  Action action{ActionKind::Run, lane};
  action.task = run.task;
  action.recompute = run.recompute;
  action.first_address = static_cast<uint32_t>(plan_.addresses.size());
  action.address_count = static_cast<uint32_t>(task.uses.size());
  action.cost_ns = run.ns;
  Clock after(lanes_);
  for (size_t i = 0; i < task.uses.size(); ++i)
    plan_.addresses.push_back(address_of(side, side.s.use_values[first_value + i], p));
  // In the order of data flow: what is read before what is overwritten.
  for (const bool writes : {false, true}) {
    for (size_t i = 0; i < task.uses.size(); ++i) {
      const Use& use = task.uses[i];
      if ((use.access == Access::Write) != writes) continue;
      const int64_t address = plan_.addresses[action.first_address + i];
      const int64_t end = address + program_.object(use.object).bytes;
      if (writes) {
        side.memory.write(address, end, id, lane, after);
      } else {
        side.memory.use(address, end, id, lane, use.access == Access::Accumulate, after, plan_.actions);
      }
    }
  }
  // Other processes exchange in this order, too, whichever devices do.
  if (lanes_[lane].kind() == LaneKind::Network) {
    if (last_exchange_ != kNone)
      after.add(plan_.actions[size_t(last_exchange_)].lane, uint32_t(last_exchange_));
    last_exchange_ = id;
  }
  if (side.s.workspace_bytes[p] > 0) {
    action.workspace_offset = side.workspace_address[p];
    action.bytes = side.s.workspace_bytes[p];
    side.memory.write(action.workspace_offset, action.workspace_offset + action.bytes, id, lane, after);
  }
  append(action, after);
}

void Emitter::hand_over(uint32_t p) {
  const Run& run = s_.devices.front().runs[p];
  Side &from = sides_[run.device.index()], &to = sides_[run.to.index()];
  const auto place = [&](Side& side) {
    return Location{side.tier, address_of(side, side.s.use_values[side.s.runs[p].first_value], p)};
  };
  if (by_way_of_[p] == kNowhere) return copy(run.object, place(from), place(to));
  const Location between{kHost, by_way_of_[p]};
  copy(run.object, place(from), between);
  copy(run.object, between, place(to));
}

void Emitter::transfer(Side& side, uint32_t index, uint32_t p, bool load) {
  const Span& span = side.r.spans[index];
  const Value& v = side.value_of(span);
  const Location on_device{side.tier, span.address};
  const Location far = v.on_disk ? Location{kDisk, plan_.homes[v.object.value].offset(kDisk)}
                                 : Location{kHost, side.host_address[span.value]};
  if (!load) return copy(v.object, on_device, far);
  side.current[span.value] = index;
  if (!v.chosen) return copy(v.object, far, on_device);
  const ChosenLoad& c = *v.chosen;
  const Location chooser{side.tier, address_of(side, c.chooser, p)};
  copy(v.object, far, on_device,
       Choice{c.task, side.s.values[c.chooser].object, chooser, c.known_at, c.bytes, c.ns});
}

void Emitter::copy(ObjectId object, Location from, Location to, const std::optional<Choice>& choice) {
  const auto id = static_cast<uint32_t>(plan_.actions.size());
  Action action{ActionKind::Copy, lanes_.copy(from.tier, to.tier)};
  const int64_t bytes = program_.object(object).bytes;
  action.object = object;
  action.bytes = bytes;
  action.from = from;
  action.to = to;
  action.cost_ns = profile_.transfer_ns(bytes, from.tier, to.tier);
  Clock after(lanes_);
  if (choice) {
    action.task = choice->task;
    action.first_address = uint32_t(plan_.addresses.size());
    action.address_count = 1;
    plan_.addresses.push_back(choice->place.offset);
    action.bytes = choice->bytes;
    action.cost_ns = choice->ns;
    // Reading the chooser back takes its time once.
    const auto told = std::pair(choice->place, choice->known_at);
    if (told_ != told) action.cost_ns += profile_.transfer_ns(0, to.tier, from.tier);
    told_ = told;
    const int64_t begin = choice->place.offset;
    memory_of(to.tier).use(begin, begin + program_.object(choice->object).bytes, id, action.lane, false,
                           after, plan_.actions);
  }
  // Nothing is ever written to the disk.
  if (from.tier != kDisk)
    memory_of(from.tier).use(from.offset, from.offset + bytes, id, action.lane, false, after, plan_.actions);
  memory_of(to.tier).write(to.offset, to.offset + bytes, id, action.lane, after);
  append(action, after);
}

}  // namespace

int64_t actions_of(const StepSchedule& schedule, const std::vector<Residency>& residency,
                   const Profile& profile) {
  int64_t actions = schedule.size();
  for (const Run& run : schedule.devices.front().runs)
    actions += run.kind == RunKind::HandOver && !profile.joins(run.device, run.to);  // by way of the host
  for (const Residency& r : residency) {
    for (const Span& span : r.spans) actions += span.load + span.store;
  }
  return actions;
}

std::optional<Plan> emit(const Program& program, const StepSchedule& schedule,
                         std::vector<Residency> residency, const Profile& profile, const Limits& limits,
                         MissingRoom& missing_room) {
  auto plan = Emitter(program, schedule, std::move(residency), profile, limits).run(missing_room);
  if (!plan) return std::nullopt;
  plan->program_hash = program.hash();
  plan->machine = profile.name;
  plan->alignment = limits.alignment;
  return plan;
}

}  // namespace sluice::core
