// Proof of a Plan. Runs the plan's actions in order over a map of both arenas that says which version of
// which object lies where and who touched it last, and checks every dependency against happens-before.
// Happens-before comes from vector clocks: lanes are few, so an action's clock is one index per lane.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "base/bytes.h"
#include "plan/plan.h"

namespace sluice {
namespace {

constexpr int64_t kNone = -1;
using Clock =
    std::array<int64_t, kLaneCount>;  // newest action of each lane known to have finished; kNone: none

// A placed object (or a workspace: object invalid) and the last accesses of it.
struct Block {
  int64_t end;
  ObjectId object;
  uint32_t version = 0;
  int64_t writer = kNone;           // action that produced this content
  Clock last{kNone, kNone, kNone};  // newest access per lane
};

// What lies where in one arena.
class ArenaMap {
 public:
  ArenaMap(std::string_view name, int64_t bytes) : name_(name), bytes_(bytes) {}

  std::map<int64_t, Block>& blocks() { return blocks_; }
  std::string_view name() const { return name_; }

  Status in_bounds(int64_t offset, int64_t bytes, int64_t alignment, std::string_view who) const {
    if (offset < 0 || bytes < 0 || offset + bytes > bytes_) {
      return error("{}: bytes {} to {} lie outside the {} arena of {}", who, offset, offset + bytes, name_,
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
      if (begin < offset) blocks_[begin] = Block{offset, ObjectId(), 0, kNone, block.last};
      if (block.end > end)
        it = blocks_.insert_or_assign(end, Block{block.end, ObjectId(), 0, kNone, block.last}).first;
    }
    return {};
  }

  Block* at(int64_t offset) {
    const auto it = blocks_.find(offset);
    return it == blocks_.end() ? nullptr : &it->second;
  }

 private:
  std::string_view name_;
  int64_t bytes_;
  std::map<int64_t, Block> blocks_;
};

class Verifier {
 public:
  Verifier(const Program& program, const Plan& plan, std::span<const int64_t> workspace_bytes)
      : program_(program),
        plan_(plan),
        workspace_(workspace_bytes),
        versions_(versions_of(program)),
        device_("device", plan.device_bytes),
        host_("host", plan.host_bytes) {}

  Status run();

 private:
  Status place_homes();
  Status order(uint32_t id);
  Status transfer(uint32_t id);
  Status launch(uint32_t id);
  Status check_end();
  // Bytes [offset, offset + bytes) get new content from action `id`: whatever was there must be done with.
  Status overwrite(ArenaMap& arena, int64_t offset, int64_t bytes, ObjectId object, uint32_t version,
                   uint32_t id);
  // Action `id` uses the object at `offset`, which must be `version` there.
  Result<Block*> use(ArenaMap& arena, int64_t offset, ObjectId object, uint32_t version, uint32_t id);
  Status after(int64_t earlier, uint32_t id, std::string_view why, ObjectId object) const;
  Status after_all(const Block& block, uint32_t id, std::string_view why) const;
  std::string who(uint32_t id) const {
    return fmt::format("action {} ({})", id, label(program_, plan_.actions[id]));
  }
  std::string name(ObjectId id) const { return id.valid() ? program_.object(id).name : "a workspace"; }

  const Program& program_;
  const Plan& plan_;
  std::span<const int64_t> workspace_;
  const Versions versions_;
  ArenaMap device_, host_;
  std::vector<Clock> clocks_;
  std::vector<bool> ran_;
  Clock lane_last_{kNone, kNone, kNone};
};

Status Verifier::after(int64_t earlier, uint32_t id, std::string_view why, ObjectId object) const {
  if (earlier == kNone) return {};
  const auto lane = static_cast<size_t>(plan_.actions[size_t(earlier)].lane);
  if (clocks_[id][lane] >= earlier || plan_.actions[id].lane == plan_.actions[size_t(earlier)].lane)
    return {};
  return error("{} does not wait for {}: {} {}", who(id), who(uint32_t(earlier)), why, name(object));
}

Status Verifier::after_all(const Block& block, uint32_t id, std::string_view why) const {
  for (const int64_t access : block.last) SLUICE_TRY(after(access, id, why, block.object));
  return {};
}

Status Verifier::overwrite(ArenaMap& arena, int64_t offset, int64_t bytes, ObjectId object, uint32_t version,
                           uint32_t id) {
  SLUICE_TRY(arena.in_bounds(offset, bytes, plan_.alignment, who(id)));
  SLUICE_TRY(arena.clear(offset, offset + bytes,
                         [&](const Block& block) { return after_all(block, id, "it overwrites"); }));
  Block block{offset + bytes, object, version, int64_t{id}, {kNone, kNone, kNone}};
  block.last[static_cast<size_t>(plan_.actions[id].lane)] = id;
  arena.blocks()[offset] = block;
  return {};
}

Result<Block*> Verifier::use(ArenaMap& arena, int64_t offset, ObjectId object, uint32_t version,
                             uint32_t id) {
  Block* block = arena.at(offset);
  if (block == nullptr || block->object != object) {
    return error("{} uses {} at {} offset {}, where {} lies", who(id), name(object), arena.name(), offset,
                 block == nullptr ? "nothing" : name(block->object));
  }
  if (block->version != version) {
    return error("{} needs version {} of {}; the one at {} offset {} is version {}", who(id), version,
                 name(object), arena.name(), offset, block->version);
  }
  SLUICE_TRY(after(block->writer, id, "it reads", object));
  int64_t& last = block->last[static_cast<size_t>(plan_.actions[id].lane)];
  last = std::max<int64_t>(last, id);
  return block;
}

Status Verifier::place_homes() {
  if (plan_.homes.size() != program_.objects().size()) {
    return error("the plan has {} homes for {} objects", plan_.homes.size(), program_.objects().size());
  }
  for (size_t i = 0; i < plan_.homes.size(); ++i) {
    const Object& o = program_.objects()[i];
    const Home& home = plan_.homes[i];
    const bool fixed = o.kind == ObjectKind::Input || o.kind == ObjectKind::Metric;
    if (fixed && home.host_offset == kNowhere)
      return error("{} {} has no host home", name_of(o.kind), o.name);
    if (o.persistent && home.host_offset == kNowhere && home.device_offset == kNowhere) {
      return error("{} must survive the step and has no home", o.name);
    }
    const bool given = o.persistent || o.kind == ObjectKind::Input || o.kind == ObjectKind::Constant;
    for (auto [arena, offset] : {std::pair{&device_, home.device_offset}, {&host_, home.host_offset}}) {
      if (offset == kNowhere || !given) continue;
      SLUICE_TRY(arena->in_bounds(offset, o.bytes, plan_.alignment, "home of " + o.name));
      SLUICE_TRY(arena->clear(offset, offset + o.bytes, [&](const Block& block) -> Status {
        return error("the {} homes of {} and {} overlap", arena->name(), o.name, name(block.object));
      }));
      arena->blocks()[offset] = Block{offset + o.bytes, ObjectId(i)};
    }
  }
  return {};
}

Status Verifier::order(uint32_t id) {
  const Action& a = plan_.actions[id];
  const auto lane = static_cast<size_t>(a.lane);
  Clock& clock = clocks_[id];
  clock = {kNone, kNone, kNone};
  const auto join = [&](int64_t earlier) {
    if (earlier == kNone) return;
    const Clock& other = clocks_[size_t(earlier)];
    for (size_t l = 0; l < kLaneCount; ++l) clock[l] = std::max(clock[l], other[l]);
    auto& own = clock[static_cast<size_t>(plan_.actions[size_t(earlier)].lane)];
    own = std::max(own, earlier);
  };
  join(lane_last_[lane]);
  for (const uint32_t wait : plan_.waits_of(a)) {
    if (wait >= id)
      return error("{} waits for action {}, which does not come before it: a cycle", who(id), wait);
    join(wait);
  }
  lane_last_[lane] = id;
  return {};
}

Status Verifier::transfer(uint32_t id) {
  const Action& a = plan_.actions[id];
  if (a.object.value >= program_.objects().size()) return error("action {} moves an unknown object", id);
  const bool load = a.kind == ActionKind::Load;
  if (a.lane != (load ? Lane::Load : Lane::Store)) return error("{} is on lane {}", who(id), name_of(a.lane));
  if (a.bytes != program_.object(a.object).bytes) return error("{} moves {} bytes", who(id), a.bytes);
  ArenaMap& from = load ? host_ : device_;
  ArenaMap& to = load ? device_ : host_;
  const int64_t from_offset = load ? a.host_offset : a.device_offset;
  const int64_t to_offset = load ? a.device_offset : a.host_offset;
  Block* source = from.at(from_offset);
  const uint32_t version = source == nullptr ? 0 : source->version;
  SLUICE_ASSIGN(source, use(from, from_offset, a.object, version, id));
  return overwrite(to, to_offset, a.bytes, a.object, version, id);
}

Status Verifier::launch(uint32_t id) {
  const Action& a = plan_.actions[id];
  if (a.task.value >= program_.tasks().size()) return error("action {} runs an unknown task", id);
  const Task& task = program_.task(a.task);
  const auto addresses = plan_.addresses_of(a);
  if (a.lane != Lane::Compute) return error("{} is on lane {}", who(id), name_of(a.lane));
  if (addresses.size() != task.uses.size()) {
    return error("{} has {} addresses for {} uses", who(id), addresses.size(), task.uses.size());
  }
  const auto& before = versions_.before[a.task.value];
  for (size_t i = 0; i < task.uses.size(); ++i) {
    if (task.uses[i].access != Access::Write) {
      SLUICE_ASSIGN(Block * block, use(device_, addresses[i], task.uses[i].object, before[i], id));
      (void)block;
    }
  }
  for (size_t i = 0; i < task.uses.size(); ++i) {
    const Use& u = task.uses[i];
    if (u.access == Access::Write) {
      SLUICE_TRY(
          overwrite(device_, addresses[i], program_.object(u.object).bytes, u.object, before[i] + 1, id));
    } else if (u.access == Access::Accumulate) {
      Block& block = *device_.at(addresses[i]);
      SLUICE_TRY(after_all(block, id, "it changes"));
      block.version = before[i] + 1;
      block.writer = id;
    }
  }
  if (a.bytes < workspace_[a.task.value]) {
    return error("{} has {} bytes of workspace, it needs {}", who(id), a.bytes, workspace_[a.task.value]);
  }
  if (a.bytes > 0) SLUICE_TRY(overwrite(device_, a.device_offset, a.bytes, ObjectId(), 0, id));
  // Whatever the task wrote last must not have covered what it uses.
  for (size_t i = 0; i < task.uses.size(); ++i) {
    const Block* block = device_.at(addresses[i]);
    if (block == nullptr || block->object != task.uses[i].object) {
      return error("{}: {} overlaps another operand or the workspace", who(id), name(task.uses[i].object));
    }
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
    const Home& home = plan_.homes[i];
    if (!o.persistent && o.kind != ObjectKind::Metric) continue;
    for (auto [arena, offset] : {std::pair{&device_, home.device_offset}, {&host_, home.host_offset}}) {
      if (offset == kNowhere) continue;
      const Block* block = arena->at(offset);
      if (block == nullptr || block->object != ObjectId(i) || block->version != versions_.last[i]) {
        return error("after the step {} is not at its {} home in its last version: a write-back is lost",
                     o.name, arena->name());
      }
    }
  }
  return {};
}

Status Verifier::run() {
  if (plan_.program_hash != program_.hash()) {
    return error("the plan is for program {:016x}, not for {:016x}", plan_.program_hash, program_.hash());
  }
  SLUICE_TRY(place_homes());
  clocks_.resize(plan_.actions.size());
  ran_.assign(program_.tasks().size(), false);
  for (uint32_t id = 0; id < plan_.actions.size(); ++id) {
    SLUICE_TRY(order(id));
    SLUICE_TRY(plan_.actions[id].kind == ActionKind::Run ? launch(id) : transfer(id));
  }
  return check_end();
}

}  // namespace

Status verify(const Program& program, const Plan& plan, std::span<const int64_t> workspace_bytes) {
  return Verifier(program, plan, workspace_bytes).run();
}

}  // namespace sluice
