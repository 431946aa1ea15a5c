// SPDX-License-Identifier: Apache-2.0
// Proof of a Plan. Runs the plan's actions in order over a map of every arena. The map says which version of
// which object lies where and who touched it last. Every dependency is checked against happens-before.
// Happens-before comes from vector clocks: lanes are few, so an action's clock is one index per lane.
//
// A plan may come from a file that anybody wrote. Whatever its numbers are, the proof ends with an answer.
// Numbers that are used as an index are checked before anything else (well_formed). No sum of two of its
// numbers is made before both are known to be in bounds. Time and memory are bounded by the plan's size.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>

#include "base/bytes.h"
#include "base/printable.h"
#include "ops/chosen_parts.h"
#include "plan/clock.h"
#include "plan/plan.h"

namespace sluice::core {
namespace {

constexpr int64_t kNone = -1;
// Times that sums and pictures can be made of, and words that can be shown.
constexpr double kMostNs = 1e18;
constexpr size_t kMostTextBytes = 1 << 16;

// A placed object (or a workspace: object invalid) and the last accesses of it.
struct Block {
  int64_t end;
  ObjectId object;
  uint32_t version;
  int64_t writer;    // action that produced this content; kNone: it was there before the step
  Clock touched;     // newest access per lane
  TaskId chooser{};  // only what this task chooses is there; invalid: everything is
};

// A map of one arena.
class ArenaMap {
 public:
  ArenaMap() = default;
  ArenaMap(Tier tier, int64_t bytes) : name_(name_of(tier)), bytes_(bytes) {}

  std::string_view name() const { return name_; }

  Status in_bounds(int64_t offset, int64_t bytes, int64_t alignment, std::string_view who) const {
    if (offset < 0 || bytes < 0 || bytes > bytes_ || offset > bytes_ - bytes) {
      return error("{}: {} bytes from {} on lie outside the {} arena of {}", who, bytes, offset, name_,
                   bytes_);
    }
    if (offset % alignment != 0) {
      return error("{}: {} offset {} is not a multiple of {}", who, name_, offset, alignment);
    }
    return {};
  }

  // Removes what overlaps [offset, end) and calls f(block) for each. What is left of a block on either side
  // holds no object any more, but its accesses still count.
  template <class F>
  Status clear(int64_t offset, int64_t end, F&& f) {
    auto it = blocks_.lower_bound(offset);
    if (it != blocks_.begin() && std::prev(it)->second.end > offset) --it;
    while (it != blocks_.end() && it->first < end) {
      SLUICE_TRY(f(it->second));
      const auto [begin, block] = *it;
      it = blocks_.erase(it);
      if (begin < offset) put(begin, {offset, ObjectId(), 0, kNone, block.touched});
      if (block.end > end) it = put(end, {block.end, ObjectId(), 0, kNone, block.touched});
    }
    return {};
  }

  std::map<int64_t, Block>::iterator put(int64_t offset, Block block) {
    return blocks_.insert_or_assign(offset, std::move(block)).first;
  }
  Block* at(int64_t offset) {
    const auto it = blocks_.find(offset);
    return it == blocks_.end() ? nullptr : &it->second;
  }

 private:
  std::string_view name_;
  int64_t bytes_ = 0;
  std::map<int64_t, Block> blocks_;
};

class Verifier {
 public:
  Verifier(const Program& program, const Plan& plan, std::span<const int64_t> workspace_bytes)
      : program_(program),
        plan_(plan),
        workspace_(workspace_bytes),
        versions_(versions_of(program)),
        lane_last_(plan.lanes, kNone) {
    for (const Tier tier : placed_in()) arenas_[tier] = ArenaMap(tier, plan.arenas[tier].bytes);
  }

  Status run();

 private:
  Status well_formed() const;
  Status well_formed(uint32_t id) const;
  Status place_homes();
  Status order(uint32_t id);
  Status copy(uint32_t id);
  Status launch(uint32_t id);
  Status check_end();
  bool keeps_content(const Use& u, uint32_t before) const;
  // `bytes` bytes at a place get new content from action `id`: whatever was there must be done with.
  Status overwrite(Location place, int64_t bytes, ObjectId object, uint32_t version, uint32_t id);
  // Action `id` uses the object at a place, which must be `version` there.
  // All of it must be there, unless it came in part for the `reader`.
  Result<Block*> use(Location place, ObjectId object, uint32_t version, uint32_t id, TaskId reader = {});
  // That a copy by the choice of a task has what the task says of it.
  Status choice_is_made(uint32_t id);
  Status after(int64_t earlier, uint32_t id, std::string_view why, ObjectId object) const;
  Status after_all(const Block& block, uint32_t id, std::string_view why) const;
  std::string who(uint32_t id) const {
    return fmt::format("action {} ({})", id, describe(program_, plan_.actions[id]));
  }
  std::string name(ObjectId id) const { return id.valid() ? program_.object(id).name : "a workspace"; }

  // The tiers that hold something: memories, and the disk where lanes read it.
  std::vector<Tier> placed_in() const {
    std::vector<Tier> out = plan_.lanes.tiers();
    if (plan_.lanes.reads()) out.push_back(kDisk);
    return out;
  }

  const Program& program_;
  const Plan& plan_;
  std::span<const int64_t> workspace_;
  const Versions versions_;
  ByTier<ArenaMap> arenas_;
  std::vector<Clock> clocks_;  // what has happened before an action
  std::vector<bool> ran_;
  ByLane<int64_t> lane_last_;
  int64_t last_exchange_ = kNone;  // the newest action of a network lane
};

Status Verifier::after(int64_t earlier, uint32_t id, std::string_view why, ObjectId object) const {
  if (earlier == kNone) return {};
  const Lane lane = plan_.actions[size_t(earlier)].lane;
  if (clocks_[id].has(lane, uint32_t(earlier)) || plan_.actions[id].lane == lane) return {};
  return error("{} does not wait for {}: {} {}", who(id), who(uint32_t(earlier)), why, name(object));
}

Status Verifier::after_all(const Block& block, uint32_t id, std::string_view why) const {
  for (const Lane lane : plan_.lanes) {
    if (const auto access = block.touched.newest(lane)) SLUICE_TRY(after(*access, id, why, block.object));
  }
  return {};
}

Status Verifier::overwrite(Location place, int64_t bytes, ObjectId object, uint32_t version, uint32_t id) {
  ArenaMap& arena = arenas_[place.tier];
  SLUICE_TRY(arena.in_bounds(place.offset, bytes, plan_.alignment, who(id)));
  const int64_t end = place.offset + bytes;
  SLUICE_TRY(arena.clear(place.offset, end,
                         [&](const Block& block) { return after_all(block, id, "it overwrites"); }));
  Block block{end, object, version, int64_t{id}, Clock(plan_.lanes)};
  block.touched.add(plan_.actions[id].lane, id);
  arena.put(place.offset, std::move(block));
  return {};
}

Result<Block*> Verifier::use(Location place, ObjectId object, uint32_t version, uint32_t id, TaskId reader) {
  ArenaMap& arena = arenas_[place.tier];
  Block* block = arena.at(place.offset);
  if (block == nullptr || block->object != object) {
    return error("{} uses {} at {} offset {}, where {} lies", who(id), name(object), arena.name(),
                 place.offset, block == nullptr ? "nothing" : name(block->object));
  }
  if (block->version != version) {
    return error("{} needs version {} of {}; the one at {} offset {} is version {}", who(id), version,
                 name(object), arena.name(), place.offset, block->version);
  }
  if (block->chooser.valid() && block->chooser != reader) {
    return error("{} uses {}, of which only what {} chooses was loaded", who(id), name(object),
                 program_.task(block->chooser).name);
  }
  SLUICE_TRY(after(block->writer, id, "it reads", object));
  block->touched.add(plan_.actions[id].lane, id);
  return block;
}

// Checks an action alone: its numbers point at existing things.
Status Verifier::well_formed(uint32_t id) const {
  const Action& a = plan_.actions[id];
  if (a.lane.index() >= plan_.lanes.size()) {
    return error("action {} is on lane {} of {}", id, a.lane.index(), plan_.lanes.size());
  }
  if (a.kind == ActionKind::Run) {
    if (a.task.value >= program_.tasks().size()) return error("action {} runs an unknown task", id);
    if (a.object.valid() || a.from != Location{} || a.to != Location{})
      return error("action {} runs a task, and has what only a copy has", id);
  } else if (a.kind == ActionKind::Copy) {
    if (a.object.value >= program_.objects().size()) return error("action {} moves an unknown object", id);
    if (a.recompute || a.address_count != (a.task.valid() ? 1 : 0) || a.workspace_offset != kNowhere)
      return error("action {} copies, and has what only a run has", id);
    if (a.task.valid() && a.task.value >= program_.tasks().size())
      return error("action {} copies what an unknown task chooses", id);
  } else {
    return error("action {} is of kind {}, which there is not", id, int{static_cast<uint8_t>(a.kind)});
  }
  if (uint64_t{a.first_address} + a.address_count > plan_.addresses.size()) {
    return error("action {} has addresses {} to {} of {}", id, a.first_address,
                 uint64_t{a.first_address} + a.address_count, plan_.addresses.size());
  }
  if (uint64_t{a.first_wait} + a.wait_count > plan_.waits.size()) {
    return error("action {} has waits {} to {} of {}", id, a.first_wait,
                 uint64_t{a.first_wait} + a.wait_count, plan_.waits.size());
  }
  if (!(a.cost_ns >= 0) || !(a.cost_ns <= kMostNs)) return error("action {} takes {} ns", id, a.cost_ns);
  if (!(a.start_ns >= 0) || !(a.start_ns <= a.end_ns) || !(a.end_ns <= plan_.makespan_ns)) {
    return error("action {} begins at {} ns and ends at {} ns of {}", id, a.start_ns, a.end_ns,
                 plan_.makespan_ns);
  }
  return {};
}

// That every index, count and size can be used: the rest of the proof takes them as they are.
Status Verifier::well_formed() const {
  if (plan_.alignment < 1) return error("the plan's alignment is {}", plan_.alignment);
  for (const double ns : {plan_.makespan_ns, plan_.lower_bound_ns}) {
    if (!(ns >= 0) || !(ns <= kMostNs)) return error("the plan or its lower bound takes {} ns", ns);
  }
  for (const Tier tier : plan_.speedup_with_more.tiers()) {
    const double times = plan_.speedup_with_more[tier];
    if (!(times >= 0) || !(times <= kMostNs))
      return error("with more {} memory {} times as fast", name_of(tier), times);
  }
  // The machine's name is the user's; it is only bounded.
  if (std::max(plan_.machine.size(), plan_.policy.size()) > kMostTextBytes ||
      printable(plan_.policy) != plan_.policy) {
    return error("the plan's words are {} bytes, or not for people",
                 std::max(plan_.machine.size(), plan_.policy.size()));
  }
  const std::vector<Tier> joined = placed_in();
  for (const LaneEnds& ends : plan_.lanes.ends()) {
    if (ends.to == kDisk || (ends.from == kDisk && !ends.to.is_device()))
      return error("lane {}: the disk is read to a device, and nothing is written to it", name_of(ends));
  }
  for (const Tier tier : plan_.arenas.tiers()) {
    const auto& [bytes, boundary] = plan_.arenas[tier];
    const bool used = std::find(joined.begin(), joined.end(), tier) != joined.end();
    if (bytes < 0 || (bytes > 0 && !used) || boundary < kNowhere || boundary - plan_.alignment > bytes) {
      return error("the plan has a {} arena of {} bytes with room from {} on", name_of(tier), bytes,
                   boundary);
    }
  }
  if (plan_.homes.size() != program_.objects().size()) {
    return error("the plan has {} homes for {} objects", plan_.homes.size(), program_.objects().size());
  }
  for (size_t o = 0; o < plan_.homes.size(); ++o) {
    for (const auto& [tier, offset] : plan_.homes[o].places()) {
      if (std::find(joined.begin(), joined.end(), tier) == joined.end())
        return error("the {} home of {} is on no lane", name_of(tier), program_.objects()[o].name);
      if (tier == kDisk && !program_.objects()[o].in_files)
        return error("{} has a home on the disk, and no file has it", program_.objects()[o].name);
    }
  }
  if (plan_.actions.size() >= std::numeric_limits<uint32_t>::max()) {
    return error("the plan has {} actions", plan_.actions.size());
  }
  uint64_t waits = 0;
  for (uint32_t id = 0; id < plan_.actions.size(); ++id) {
    SLUICE_TRY(well_formed(id));
    waits += plan_.actions[id].wait_count;
  }
  // Shared waits would make the proof take as long as their product.
  if (waits > plan_.waits.size()) {
    return error("the plan's actions wait {} times; it has {} waits", waits, plan_.waits.size());
  }
  return {};
}

Status Verifier::place_homes() {
  for (size_t i = 0; i < plan_.homes.size(); ++i) {
    const Object& o = program_.objects()[i];
    const Home& home = plan_.homes[i];
    const bool fixed = o.kind == ObjectKind::Input || o.kind == ObjectKind::Metric;
    if (fixed && !home.on(kHost)) return error("{} {} has no host home", name_of(o.kind), o.name);
    if (o.persistent && !home.anywhere()) return error("{} must survive the step and has no home", o.name);
    const bool given = o.persistent || o.kind == ObjectKind::Input || o.kind == ObjectKind::Constant;
    if (!given && !fixed && home.anywhere())
      return error("{} has a home and does not outlive the step", o.name);
    if (!given) continue;
    for (const auto& [tier, offset] : home.places()) {
      ArenaMap& arena = arenas_[tier];
      SLUICE_TRY(arena.in_bounds(offset, o.bytes, plan_.alignment, "home of " + o.name));
      const int64_t end = offset + o.bytes;
      SLUICE_TRY(arena.clear(offset, end, [&](const Block& block) -> Status {
        return error("the {} homes of {} and {} overlap", arena.name(), o.name, name(block.object));
      }));
      arena.put(offset, {end, ObjectId(i), 0, kNone, Clock(plan_.lanes)});
    }
  }
  return {};
}

Status Verifier::order(uint32_t id) {
  const Action& a = plan_.actions[id];
  Clock clock(plan_.lanes);
  const auto join = [&](uint32_t earlier) {
    clock.join(clocks_[earlier]);
    clock.add(plan_.actions[earlier].lane, earlier);
  };
  if (lane_last_[a.lane] != kNone) join(uint32_t(lane_last_[a.lane]));
  for (const uint32_t wait : plan_.waits_of(a)) {
    if (wait >= id)
      return error("{} waits for action {}, which does not come before it: a cycle", who(id), wait);
    join(wait);
  }
  clocks_.push_back(std::move(clock));
  lane_last_[a.lane] = id;
  return {};
}

Status Verifier::copy(uint32_t id) {
  const Action& a = plan_.actions[id];
  if (const LaneEnds joins{a.from.tier, a.to.tier}; !joins.copies() || plan_.lanes[a.lane] != joins) {
    return error("{} goes from {} to {} on lane {}", who(id), name_of(a.from.tier), name_of(a.to.tier),
                 name_of(plan_.lanes[a.lane]));
  }
  const int64_t bytes = program_.object(a.object).bytes;
  if (a.chooses()) {
    SLUICE_TRY(choice_is_made(id));
  } else if (a.bytes != bytes) {
    return error("{} moves {} bytes", who(id), a.bytes);
  }
  const Block* source = arenas_[a.from.tier].at(a.from.offset);
  const uint32_t version = source == nullptr ? 0 : source->version;
  SLUICE_ASSIGN(source, use(a.from, a.object, version, id));
  SLUICE_TRY(overwrite(a.to, bytes, a.object, version, id));
  arenas_[a.to.tier].at(a.to.offset)->chooser = a.task;
  return {};
}

// The task reads the object as one of which it chooses parts, and nowhere else. The chooser, which tells
// which, is on the device, in the version that the task will read, before the copy. So whoever submits the
// copy can read it then.
Status Verifier::choice_is_made(uint32_t id) {
  const Action& a = plan_.actions[id];
  const Task& task = program_.task(a.task);
  const auto parts = chosen_parts(task.op);
  const auto uses_of = [&](const Use& u) { return u.object == a.object; };
  const int64_t bytes = program_.object(a.object).bytes;
  if (!a.loads() || !a.to.tier.is_device() || !parts || task.uses[parts->object].object != a.object ||
      task.uses[parts->object].bytes != bytes || task.uses[parts->chooser].offset != 0 ||
      std::ranges::count_if(task.uses, uses_of) != 1)
    return error("{}: {} does not choose parts of it", who(id), task.name);
  if (a.bytes != parts->expected_bytes(bytes))
    return error("{} moves {} bytes, where {} are expected", who(id), a.bytes, parts->expected_bytes(bytes));
  const Location chooser{a.to.tier, plan_.addresses_of(a).front()};
  const uint32_t version = versions_.before[a.task.value][parts->chooser];
  SLUICE_ASSIGN(const Block* read, use(chooser, task.uses[parts->chooser].object, version, id));
  (void)read;
  return {};
}

// A write of a part needs the rest, unless it is the first: then the rest is nothing yet.
bool Verifier::keeps_content(const Use& u, uint32_t before) const {
  if (u.access != Access::Write) return true;
  const Object& o = program_.object(u.object);
  return (u.offset != 0 || u.bytes != o.bytes) && (before > 0 || o.persistent);
}

Status Verifier::launch(uint32_t id) {
  const Action& a = plan_.actions[id];
  const Task& task = program_.task(a.task);
  const auto addresses = plan_.addresses_of(a);
  if (plan_.lanes[a.lane].kind() != lane_of(task.op))
    return error("{} is on lane {}", who(id), name_of(plan_.lanes[a.lane]));
  const Tier device = plan_.device_of(a);
  if (plan_.lanes[a.lane].kind() == LaneKind::Network) {
    if (last_exchange_ != kNone && plan_.actions[size_t(last_exchange_)].lane != a.lane &&
        !clocks_[id].has(plan_.actions[size_t(last_exchange_)].lane, uint32_t(last_exchange_)))
      return error("{} does not wait for {}: processes exchange in one order", who(id),
                   who(uint32_t(last_exchange_)));
    last_exchange_ = id;
  }
  ArenaMap& arena = arenas_[device];
  if (addresses.size() != task.uses.size()) {
    return error("{} has {} addresses for {} uses", who(id), addresses.size(), task.uses.size());
  }
  const auto& before = versions_.before[a.task.value];
  for (size_t i = 0; i < task.uses.size(); ++i) {
    if (keeps_content(task.uses[i], before[i])) {
      SLUICE_ASSIGN(Block * block, use({device, addresses[i]}, task.uses[i].object, before[i], id, a.task));
      (void)block;
    }
  }
  for (size_t i = 0; i < task.uses.size(); ++i) {
    const Use& u = task.uses[i];
    if (u.access == Access::Write) {
      SLUICE_TRY(
          overwrite({device, addresses[i]}, program_.object(u.object).bytes, u.object, before[i] + 1, id));
    } else if (u.access == Access::Accumulate) {
      Block* const block = arena.at(addresses[i]);
      if (block == nullptr || block->object != u.object)
        break;  // what was written has covered it: said below
      SLUICE_TRY(after_all(*block, id, "it changes"));
      block->version = before[i] + 1;
      block->writer = id;
    }
  }
  if (a.bytes < workspace_[a.task.value]) {
    return error("{} has {} bytes of workspace, it needs {}", who(id), a.bytes, workspace_[a.task.value]);
  }
  if (a.bytes > 0) SLUICE_TRY(overwrite({device, a.workspace_offset}, a.bytes, ObjectId(), 0, id));
  // Whatever the task wrote last must not have covered what it uses.
  for (size_t i = 0; i < task.uses.size(); ++i) {
    const Block* block = arena.at(addresses[i]);
    if (block == nullptr || block->object != task.uses[i].object) {
      return error("{}: {} overlaps another operand or the workspace", who(id), name(task.uses[i].object));
    }
  }
  if (a.recompute != ran_[a.task.value]) {
    return error("action {} runs {} {}, and says otherwise", id, task.name,
                 ran_[a.task.value] ? "again" : "for the first time");
  }
  ran_[a.task.value] = true;
  return {};
}

Status Verifier::check_end() {
  for (size_t t = 0; t < ran_.size(); ++t) {
    if (!ran_[t]) return error("task {} never runs", program_.tasks()[t].name);
  }
  for (size_t i = 0; i < plan_.homes.size(); ++i) {
    const Object& o = program_.objects()[i];
    if (!o.persistent && o.kind != ObjectKind::Metric) continue;
    for (const auto& [tier, offset] : plan_.homes[i].places()) {
      const Block* block = arenas_[tier].at(offset);
      if (block == nullptr || block->object != ObjectId(i) || block->version != versions_.last[i] ||
          block->chooser.valid()) {
        return error("after the step {} is not at its {} home in its last version: a write-back is lost",
                     o.name, name_of(tier));
      }
    }
  }
  return {};
}

Status Verifier::run() {
  if (plan_.program_hash != program_.hash()) {
    return error("the plan is for program {:016x}, not for {:016x}", plan_.program_hash, program_.hash());
  }
  SLUICE_CHECK(workspace_.size() == program_.tasks().size(), "{} workspaces for {} tasks", workspace_.size(),
               program_.tasks().size());
  SLUICE_TRY(well_formed());
  SLUICE_TRY(place_homes());
  clocks_.reserve(plan_.actions.size());
  ran_.assign(program_.tasks().size(), false);
  for (uint32_t id = 0; id < plan_.actions.size(); ++id) {
    SLUICE_TRY(order(id));
    SLUICE_TRY(plan_.actions[id].kind == ActionKind::Run ? launch(id) : copy(id));
  }
  return check_end();
}

}  // namespace

Status verify(const Program& program, const Plan& plan, std::span<const int64_t> workspace_bytes) {
  return Verifier(program, plan, workspace_bytes).run();
}

}  // namespace sluice::core
