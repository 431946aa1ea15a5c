// SPDX-License-Identifier: Apache-2.0
#include "setup/beside.h"

#include <algorithm>
#include <initializer_list>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace sluice::core {
namespace {

// The room of the plan that takes the least.
Result<BytesByTier> least_room(const Program& program, PlanRequest request, const Profile& profile) {
  request.least = true;  // which is also the one that leaves most to the host
  SLUICE_ASSIGN(const Plan plan, make_plan(program, profile, request));
  BytesByTier room;
  int64_t on_device = 0;
  for (const Tier tier : plan.lanes.tiers()) {
    room[tier] = std::max<int64_t>(plan.arenas[tier].bytes - request.base[tier], 0);
    if (tier.is_device()) on_device = std::max(on_device, room[tier]);
  }
  // On several devices the same: which one has most to do is not known yet.
  for (const Tier tier : plan.lanes.tiers()) {
    if (tier.is_device()) room[tier] = on_device + on_device / 16;
    room[tier] = align_up(room[tier], profile.alignment);
  }
  return room;
}

// Where the stages have the objects of a program that outlive their steps, and where the room beside the last
// of them begins.
PlanRequest places_beside(const Program& program, std::initializer_list<const Stage*> stages) {
  std::unordered_map<std::string_view, const Home*> homes;
  PlanRequest request;
  const Plan* newest = nullptr;
  for (const Stage* stage : stages) {
    if (stage == nullptr) continue;
    newest = &stage->plan;
    for (size_t o = 0; o < newest->homes.size(); ++o) {
      const Object& object = stage->model.program.objects()[o];
      if (object.persistent) homes[object.name] = &newest->homes[o];
    }
  }
  for (const Object& o : program.objects()) {
    const auto it = homes.find(o.name);
    request.fixed_homes.push_back(o.persistent && it != homes.end() ? *it->second : Home{});
  }
  request.placement = placed_at(program, request.fixed_homes, newest->devices());
  for (const Tier tier : newest->lanes.tiers()) request.base[tier] = newest->arenas[tier].boundary_offset;
  return request;
}

// The free stretch of an arena between steps around its reserved room.
struct Stretch {
  int64_t begin, end;
};
Stretch free_around(const Stage& stepping, Tier tier, int64_t room, int64_t alignment) {
  const int64_t begin = stepping.plan.arenas[tier].boundary_offset, end = begin + room;
  Stretch out{0, std::max(end, stepping.plan.arenas[tier].bytes)};
  for (size_t o = 0; o < stepping.plan.homes.size(); ++o) {
    const Home& home = stepping.plan.homes[o];
    if (!home.on(tier)) continue;
    const int64_t first = home.offset(tier), last = first + stepping.model.program.objects()[o].bytes;
    if (last <= begin) out.begin = std::max(out.begin, align_up(last, alignment));
    if (first >= end) out.end = std::min(out.end, first);
  }
  return out;
}

}  // namespace

namespace {

Result<BytesByTier> room_apart(const Program& program, const Profile& profile, Caches caches,
                               const BytesByTier& inner_room) {
  PlanRequest request;
  request.boundary_bytes = inner_room;
  for (const Object& o : program.objects()) {
    Home home;
    if (o.persistent && (caches == Caches::Shared || o.kind != ObjectKind::Cache)) {
      home.set(kHost, request.base[kHost]);
      request.base[kHost] += align_up(o.bytes, profile.alignment);
    }
    request.fixed_homes.push_back(home);
  }
  // Whatever runs where: on one device is most of it.
  request.placement = placed_at(program, request.fixed_homes, profile.devices());
  return least_room(program, std::move(request), profile);
}

}  // namespace

Result<BytesByTier> room_beside(const Program& program, const Profile& profile, Caches caches) {
  return room_apart(program, profile, caches, {});
}

Result<BytesByTier> room_with(const Program& program, const Program* inner, const Profile& profile) {
  BytesByTier inner_room;
  if (inner != nullptr) {
    SLUICE_ASSIGN(inner_room, room_beside(*inner, profile));
  }
  return room_apart(program, profile, Caches::Own, inner_room);
}

Result<BytesByTier> room_beside(const Program& program, const Stage& stepping, const Profile& profile) {
  return least_room(program, places_beside(program, {&stepping}), profile);
}

Status plan_beside(Stages& stages, const BytesByTier& room, const Profile& profile,
                   const std::stop_token& stop) {
  const auto named = [&](std::vector<Stage>& among, std::string_view name) -> Stage* {
    const auto it = std::ranges::find(among, name, &Stage::name);
    return it == among.end() ? nullptr : &*it;
  };
  std::vector<Stage> planned;
  planned.reserve(stages.beside.size());
  for (Stage& stage : stages.beside) {
    const Program& program = stage.model.program;
    const Stage* const outer = named(planned, stage.inside);
    PlanRequest request = places_beside(program, {&stages.main, outer});
    request.stop = stop;
    BytesByTier inner_room;
    const auto inner = std::ranges::find(stages.beside, stage.name, &Stage::inside);
    if (inner != stages.beside.end()) {
      SLUICE_ASSIGN(inner_room, room_beside(inner->model.program, profile));
    }
    request.boundary_bytes = inner_room;
    BytesByTier own_room = room;
    if (outer != nullptr) {
      SLUICE_ASSIGN(own_room, room_beside(program, profile));
    }
    // More than it needs lets loads run ahead. Of several devices all have as much.
    BytesByTier bytes;
    int64_t on_device = kUnlimited;
    for (const Tier tier : stages.main.plan.lanes.tiers()) {
      if (room[tier] > 0) {
        Stretch free = free_around(stages.main, tier, room[tier], profile.alignment);
        if (outer != nullptr) {
          const Stretch within = free_around(*outer, tier, own_room[tier], profile.alignment);
          free = {std::max(free.begin, within.begin), std::min(free.end, within.end)};
        }
        request.base[tier] = free.begin;
        bytes[tier] = free.end - free.begin;
      }
      if (tier.is_device()) on_device = std::min(on_device, bytes[tier]);
    }
    for (const Tier tier : stages.main.plan.lanes.tiers()) {
      const int64_t end = request.base[tier] + (tier.is_device() ? on_device : bytes[tier]);
      request.caps[tier] = end + profile.held_beside(tier, end, /*actions=*/0);
    }
    auto plan = make_plan(program, profile, request);
    if (!plan.ok() && stage.optional && plan.error().kind == ErrorKind::DoesNotFit) continue;
    SLUICE_ASSIGN(stage.plan, std::move(plan));
    planned.push_back(std::move(stage));
  }
  stages.beside = std::move(planned);
  for (const Stage& stage : stages.beside)
    SLUICE_TRY(verify_beside(stages, stage, [](const Stage& s) -> const Plan& { return s.plan; }));
  return {};
}

Status verify_beside(const Stages& stages, const Stage& stage,
                     const std::function<const Plan&(const Stage&)>& plan_of) {
  const auto beside = [&](const Stage& other) {
    return verify_beside(stage.model.program, plan_of(stage), other.model.program, plan_of(other));
  };
  SLUICE_TRY(beside(stages.main));
  return stage.inside.empty() ? Status() : beside(stages.at(stage.inside));
}

const Stage* Stages::find(std::string_view name) const {
  const auto it = std::ranges::find(beside, name, &Stage::name);
  return it == beside.end() ? nullptr : &*it;
}

Stage* Stages::find(std::string_view name) {
  return const_cast<Stage*>(std::as_const(*this).find(name));
}

const Stage& Stages::at(std::string_view name) const {
  const Stage* stage = find(name);
  SLUICE_CHECK(stage != nullptr, "no program \"{}\" was planned", name);
  return *stage;
}

BytesByTier Stages::arena_bytes() const {
  BytesByTier bytes;
  for_each_stage(*this, [&](const Stage& s) { raise_to(s.plan.arena_bytes(), bytes); });
  return bytes;
}

BytesByTier Stages::process_bytes(const Profile& profile) const {
  BytesByTier bytes = arena_bytes();
  for (const Tier tier : bytes.tiers())
    bytes[tier] += profile.held_beside(tier, bytes[tier], int64_t(main.plan.actions.size()));
  return bytes;
}

namespace {

void add_ops(const Program& program, std::unordered_set<std::string>& seen, std::vector<SharedOp>& out) {
  for (const Task& task : program.tasks()) {
    if (seen.insert(to_text(task.op)).second) out.push_back(task.op);
  }
}

}  // namespace

std::vector<SharedOp> all_ops(const Stages& stages) {
  std::vector<SharedOp> out;
  std::unordered_set<std::string> seen;
  for_each_stage(stages, [&](const Stage& s) { add_ops(s.model.program, seen, out); });
  return out;
}

std::vector<SharedOp> all_ops(const Program& program) {
  std::vector<SharedOp> out;
  std::unordered_set<std::string> seen;
  add_ops(program, seen, out);
  return out;
}

}  // namespace sluice::core
