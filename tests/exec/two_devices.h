// SPDX-License-Identifier: Apache-2.0
// Random plans for two devices and a host: what a lane more must not break.
//
// Every tier has an arena of a few cells, every object takes one cell. Tasks make an object from an earlier
// one, each on a device of its own; between them objects are copied over all lanes. An action waits for
// exactly those earlier ones that it has to follow and that nothing else makes it follow, found here by sets
// of actions instead of clocks.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "ops/op.h"
#include "plan/plan.h"

namespace sluice::core {

inline const Tier kSecond = Tier::device(1);

// The lanes of one device, then those for a second one, then those between the host and memories behind it.
inline LaneTable two_devices() {
  LaneTable lanes;
  lanes.add(kDevice, kSecond);
  lanes.add_compute(kSecond);
  lanes.add(kSecond, kDevice);
  lanes.add(kHost, kSecond);
  lanes.add(kSecond, kHost);
  for (const Tier tier : tiers_of(2)) {
    if (tier <= kHost || tier == kDisk) continue;
    lanes.add(kHost, tier);
    lanes.add(tier, kHost);
  }
  return lanes;
}

class RandomPlan {
 public:
  static constexpr int64_t kBytes = 64;  // of a cell: 16 f32
  static constexpr int64_t kCells = 6;   // of an arena
  static constexpr uint32_t kTasks = 30;

  explicit RandomPlan(uint64_t seed) : random_(seed) {
    plan.lanes = two_devices();
    for (const Tier tier : tiers()) plan.arenas[tier].bytes = kCells * kBytes;
    plan.alignment = kBytes;
    make_program();
    plan.program_hash = program.hash();
    plan.homes.resize(program.objects().size());
    plan.homes[0].set(kHost, 0);
    cells_[{kHost, 0}].object = 0;
    for (uint32_t task = 0; task < kTasks; ++task) run(task);
  }

  static std::vector<Tier> tiers() { return two_devices().tiers(); }
  std::vector<int64_t> workspaces() const { return std::vector<int64_t>(kTasks, kBytes); }

  Program program;
  Plan plan;

 private:
  static constexpr uint32_t kNothing = UINT32_MAX;

  struct Cell {
    uint32_t object = kNothing;
    uint32_t writer = kNothing;
    std::set<uint32_t> touched;  // since it was written, and by whom it was
  };

  uint32_t below(size_t n) { return uint32_t(random_() % n); }

  // Object 0 comes from the host; task i makes object i + 1 from one of the three before it.
  void make_program() {
    for (uint32_t o = 0; o <= kTasks; ++o) {
      Object object;
      object.name = object.role = "x" + std::to_string(o);
      object.kind = o == 0 ? ObjectKind::Input : ObjectKind::Activation;
      object.format = DType::F32;
      object.bytes = kBytes;
      program.add(object);
    }
    for (uint32_t t = 0; t < kTasks; ++t) {
      sources_.push_back(t - std::min(t, below(3)));
      program.add("t" + std::to_string(t), Cast{kBytes / 4, DType::F32, DType::F32},
                  std::vector{ObjectId(sources_[t]), ObjectId(t + 1)}, Phase::Forward, 0, 0, 0);
    }
  }

  bool needed(uint32_t object, uint32_t from_task) const {
    return std::find(sources_.begin() + from_task, sources_.end(), object) != sources_.end();
  }
  std::vector<std::pair<Tier, int64_t>> places_of(uint32_t object) const {
    std::vector<std::pair<Tier, int64_t>> out;
    for (const auto& [place, cell] : cells_) {
      if (cell.object == object) out.push_back(place);
    }
    return out;
  }
  // A cell of the tier that may be overwritten before task `task`, other than those given.
  int64_t free_cell(Tier tier, uint32_t task, const std::set<int64_t>& taken) {
    std::vector<int64_t> free;
    for (int64_t c = 0; c < kCells; ++c) {
      const uint32_t object = cells_[{tier, c}].object;
      const bool last_copy = object != kNothing && needed(object, task) && places_of(object).size() == 1;
      if (!last_copy && !taken.contains(c)) free.push_back(c);
    }
    return free[below(free.size())];
  }

  void run(uint32_t task) {
    for (uint32_t extra = below(3); extra > 0; --extra) move_something(task);
    const Tier device = Tier::device(below(2));
    const int64_t from = bring(sources_[task], device, task);
    const int64_t to = free_cell(device, task, {from});
    const int64_t workspace = free_cell(device, task, {from, to});
    Action a{ActionKind::Run, plan.lanes.compute(device)};
    a.task = TaskId(task);
    a.first_address = uint32_t(plan.addresses.size());
    a.address_count = 2;
    plan.addresses.insert(plan.addresses.end(), {from * kBytes, to * kBytes});
    a.workspace_offset = workspace * kBytes;
    a.bytes = kBytes;
    append(a, {{device, from}}, {{{device, to}, task + 1}, {{device, workspace}, kNothing}});
  }

  void move_something(uint32_t task) {
    std::vector<uint32_t> objects;
    for (const auto& [place, cell] : cells_) {
      if (cell.object != kNothing) objects.push_back(cell.object);
    }
    const uint32_t object = objects[below(objects.size())];
    const auto places = places_of(object);
    copy(object, places[below(places.size())], tiers()[below(tiers().size())], task);
  }

  // The cell in which the object is on the device, after a copy if need be.
  int64_t bring(uint32_t object, Tier device, uint32_t task) {
    const auto places = places_of(object);
    for (const auto& [tier, cell] : places) {
      if (tier == device) return cell;
    }
    auto from = places[below(places.size())];
    if (from.first > kHost) from = {kHost, copy(object, from, kHost, task)};
    return copy(object, from, device, task);
  }

  int64_t copy(uint32_t object, std::pair<Tier, int64_t> from, Tier to, uint32_t task) {
    const auto lane = plan.lanes.find(from.first, to);
    if (from.first == to || !lane) return kNowhere;
    const int64_t cell = free_cell(to, task, {});
    Action a{ActionKind::Copy, *lane};
    a.object = ObjectId(object);
    a.from = {from.first, from.second * kBytes};
    a.to = {to, cell * kBytes};
    a.bytes = kBytes;
    a.cost_ns = 5;
    append(a, {from}, {{{to, cell}, object}});
    return cell;
  }

  void append(Action a, const std::vector<std::pair<Tier, int64_t>>& reads,
              const std::vector<std::pair<std::pair<Tier, int64_t>, uint32_t>>& writes) {
    const auto id = uint32_t(plan.actions.size());
    std::set<uint32_t> must;  // happen before
    for (const auto& place : reads) {
      if (cells_[place].writer != kNothing) must.insert(cells_[place].writer);
      cells_[place].touched.insert(id);
    }
    for (const auto& [place, object] : writes) {
      Cell& cell = cells_[place];
      must.insert(cell.touched.begin(), cell.touched.end());
      cell = {object, id, {id}};
    }
    must.erase(id);
    std::set<uint32_t> known;
    const auto learn = [&](uint32_t earlier) {
      known.insert(earlier);
      known.insert(before_[earlier].begin(), before_[earlier].end());
    };
    for (uint32_t earlier = id; earlier-- > 0;) {
      if (plan.actions[earlier].lane == a.lane) {
        learn(earlier);
        break;
      }
    }
    a.first_wait = uint32_t(plan.waits.size());
    for (auto it = must.rbegin(); it != must.rend(); ++it) {
      if (known.contains(*it)) continue;
      plan.waits.push_back(*it);
      learn(*it);
    }
    a.wait_count = uint32_t(plan.waits.size()) - a.first_wait;
    if (a.cost_ns == 0) a.cost_ns = 10;
    plan.actions.push_back(a);
    before_.push_back(std::move(known));
  }

  std::mt19937_64 random_;
  std::vector<uint32_t> sources_;  // by task
  std::map<std::pair<Tier, int64_t>, Cell> cells_;
  std::vector<std::set<uint32_t>> before_;  // by action
};

}  // namespace sluice::core
