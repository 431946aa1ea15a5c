// SPDX-License-Identifier: Apache-2.0
// Proof that a plan which runs between two steps leaves alone what the plan of the steps has lying there.
#include <fmt/format.h>

#include <iterator>
#include <map>
#include <unordered_map>

#include "plan/plan.h"

namespace sluice::core {
namespace {

constexpr size_t kNobody = SIZE_MAX;

// Persistent objects of a program, and their places between its steps.
class Residents {
 public:
  Residents(const Program& program, const Plan& plan) : program_(program), plan_(plan) {
    for (size_t o = 0; o < plan.homes.size(); ++o) {
      const Object& object = program.objects()[o];
      if (!object.persistent) continue;
      by_name_.emplace(object.name, o);
      for (const auto& [tier, begin] : plan.homes[o].places()) lie_[tier][begin] = {begin + object.bytes, o};
    }
  }

  // The index of the one of this name, or kNobody.
  size_t find(const Object& object) const {
    const auto it = object.persistent ? by_name_.find(object.name) : by_name_.end();
    return it == by_name_.end() ? kNobody : it->second;
  }
  const Object& object(size_t resident) const { return program_.objects()[resident]; }
  const Home& home(size_t resident) const { return plan_.homes[resident]; }

  // The first one that some of `bytes` bytes at a place would cover, but `own`; or kNobody.
  size_t under(Location place, int64_t bytes, size_t own) const {
    const auto& there = lie_[place.tier];
    auto it = there.lower_bound(place.offset);
    if (it != there.begin() && std::prev(it)->second.end > place.offset) --it;
    for (; it != there.end() && it->first < place.offset + bytes; ++it) {
      if (it->second.object != own || it->first != place.offset) return it->second.object;
    }
    return kNobody;
  }

 private:
  struct Stretch {
    int64_t end;
    size_t object;
  };

  const Program& program_;
  const Plan& plan_;
  std::unordered_map<std::string_view, size_t> by_name_;
  ByTier<std::map<int64_t, Stretch>> lie_;  // by where they begin
};

}  // namespace

Status verify_beside(const Program& program, const Plan& plan, const Program& stepping, const Plan& steps) {
  const Residents residents(stepping, steps);
  std::vector<size_t> same;  // the resident that an object is
  for (size_t o = 0; o < plan.homes.size(); ++o) {
    const Object& object = program.objects()[o];
    const size_t resident = same.emplace_back(residents.find(object));
    if (resident != kNobody &&
        (plan.homes[o] != residents.home(resident) || object.bytes != residents.object(resident).bytes)) {
      return error("{} is not where a step leaves it", object.name);
    }
    for (const Location& place : plan.homes[o].places()) {
      const size_t under = residents.under(place, object.bytes, resident);
      if (under != kNobody) {
        return error("the {} homes of {} and {} overlap", name_of(place.tier), object.name,
                     residents.object(under).name);
      }
    }
  }
  for (uint32_t id = 0; id < plan.actions.size(); ++id) {
    const Action& a = plan.actions[id];
    const auto keeps_off = [&](Location place, int64_t bytes, size_t own) -> Status {
      const size_t under = residents.under(place, bytes, own);
      if (under == kNobody) return {};
      return error("action {} ({}) overwrites {} in the {} arena, which the next step needs", id,
                   describe(program, a), residents.object(under).name, name_of(place.tier));
    };
    if (a.kind == ActionKind::Copy) {
      SLUICE_TRY(keeps_off(a.to, program.object(a.object).bytes, same[a.object.value]));
      continue;
    }
    const Task& task = program.task(a.task);
    const auto addresses = plan.addresses_of(a);
    const Tier device = plan.device_of(a);
    for (size_t i = 0; i < task.uses.size(); ++i) {
      if (task.uses[i].access == Access::Read) continue;
      const ObjectId object = task.uses[i].object;
      SLUICE_TRY(keeps_off({device, addresses[i]}, program.object(object).bytes, same[object.value]));
    }
    if (a.bytes > 0) SLUICE_TRY(keeps_off({device, a.workspace_offset}, a.bytes, kNobody));
  }
  return {};
}

}  // namespace sluice::core
