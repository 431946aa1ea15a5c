// SPDX-License-Identifier: Apache-2.0
// Recomputation: which activations could be dropped, at what price, and the order of tasks once some are.
#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "planner/passes/passes.h"

namespace sluice::core {
namespace {

bool recomputable(const Program& program, const Task& task) {
  return std::all_of(task.uses.begin(), task.uses.end(), [&](const Use& u) {
    return u.access == Access::Read || program.object(u.object).kind == ObjectKind::Activation;
  });
}

// By object.
struct Index {
  std::vector<std::vector<uint32_t>> writers;  // in program order
  std::vector<bool> crosses;  // written in the forward pass, used in the backward pass, can be computed again
  std::vector<bool> temporary;        // only used in the forward pass, can be computed again
  std::vector<uint32_t> forward_end;  // last forward task using it
};

Index index_of(const Program& program) {
  const size_t n = program.objects().size();
  Index index{std::vector<std::vector<uint32_t>>(n), std::vector<bool>(n, false), std::vector<bool>(n, false),
              std::vector<uint32_t>(n, 0)};
  for (uint32_t t = 0; t < program.tasks().size(); ++t) {
    const Task& task = program.tasks()[t];
    for (const Use& u : task.uses) {
      const uint32_t o = u.object.value;
      if (program.object(u.object).kind != ObjectKind::Activation) continue;
      if (u.access != Access::Read) index.writers[o].push_back(t);
      if (task.phase == Phase::Forward) index.forward_end[o] = t;
      if (task.phase == Phase::Backward) index.crosses[o] = true;
    }
  }
  for (size_t o = 0; o < n; ++o) {
    const auto& writers = index.writers[o];
    const bool again = !writers.empty() && std::all_of(writers.begin(), writers.end(), [&](uint32_t t) {
      return recomputable(program, program.tasks()[t]);
    });
    index.temporary[o] = again && !index.crosses[o];
    index.crosses[o] = again && index.crosses[o];
  }
  return index;
}

// Tasks to run again to have object `o` back when everything that crosses into the backward pass is kept, but
// `o`.
void closure(const Program& program, const Index& index, uint32_t o, std::set<uint32_t>& tasks) {
  for (const uint32_t t : index.writers[o]) {
    if (!tasks.insert(t).second) continue;
    for (const Use& u : program.tasks()[t].uses) {
      if (index.temporary[u.object.value] && u.object.value != o)
        closure(program, index, u.object.value, tasks);
    }
  }
}

}  // namespace

std::vector<uint32_t> last_writers_that_can_run_again(const Program& program) {
  const Index index = index_of(program);
  std::vector<uint32_t> out(program.objects().size(), UINT32_MAX);
  for (size_t o = 0; o < out.size(); ++o) {
    if (index.crosses[o] || index.temporary[o]) out[o] = index.writers[o].back();
  }
  return out;
}

std::vector<RecomputeUnit> recompute_units(const Program& program, const TaskCosts& costs) {
  const Index index = index_of(program);
  const auto objects = static_cast<uint32_t>(program.objects().size());
  std::vector<std::set<uint32_t>> tasks(objects);
  std::vector<uint32_t> first(objects);  // the first object of its unit, so far
  std::iota(first.begin(), first.end(), 0u);
  const auto unit_of = [&](uint32_t o) {
    while (first[o] != o) o = first[o];
    return o;
  };
  // What the same tasks write comes back together. The residual stream between layers is what recomputation
  // starts from; it is always kept.
  const auto droppable = [&](uint32_t o) {
    return index.crosses[o] && program.objects()[o].role != "x" && program.objects()[o].layer >= 0;
  };
  for (uint32_t o = 0; o < objects; ++o) {
    if (!droppable(o)) continue;
    closure(program, index, o, tasks[o]);
    for (const uint32_t t : tasks[o]) {
      for (const Use& u : program.tasks()[t].uses) {
        if (u.access == Access::Read || !droppable(u.object.value)) continue;
        const uint32_t one = unit_of(o), other = unit_of(u.object.value);
        first[std::max(one, other)] = std::min(one, other);
      }
    }
  }
  std::map<uint32_t, std::pair<RecomputeUnit, std::set<uint32_t>>> units;
  for (uint32_t o = 0; o < objects; ++o) {
    if (!droppable(o)) continue;
    auto& [unit, again] = units[unit_of(o)];
    unit.objects.push_back(ObjectId(o));
    unit.bytes += program.objects()[o].bytes;
    again.insert(tasks[o].begin(), tasks[o].end());
  }
  std::vector<RecomputeUnit> out;
  for (auto& [o, entry] : units) {
    for (const uint32_t t : entry.second) entry.first.ns += costs.ns[t];
    out.push_back(std::move(entry.first));
  }
  return out;
}

namespace {

class Unroller {
 public:
  Unroller(const Program& program, const TaskCosts& costs, const Saves& saves, const Limits& limits)
      : program_(program),
        costs_(costs),
        saves_(saves),
        limits_(limits),
        index_(index_of(program)),
        current_(program.objects().size(), UINT32_MAX) {}

  Schedule run(const std::vector<TaskId>& order) {
    double now = 0;
    for (const TaskId id : order) {
      const uint32_t t = id.value;
      const Task& task = program_.tasks()[t];
      provide_inputs(task);
      append(t, false);
      if (task.phase != Phase::Forward) continue;
      for (const Use& u : task.uses) {
        const uint32_t o = u.object.value;
        const bool gone = index_.temporary[o] || (saves_[o] == Save::Again && index_.crosses[o]);
        if (gone && index_.forward_end[o] == t) current_[o] = UINT32_MAX;
      }
    }
    mark_crossings();
    for (const Run& run : out_.runs) {
      out_.start_ns.push_back(now);
      out_.workspace_bytes.push_back(costs_.workspace_bytes[run.task.value]);
      now += costs_.ns[run.task.value];
    }
    out_.start_ns.push_back(now);
    out_.workspace_bytes.push_back(limits_.boundary_bytes[kDevice]);
    return std::move(out_);
  }

 private:
  void mark_crossings() {
    for (size_t i = 0; i < out_.values.size(); ++i) {
      Value& v = out_.values[i];
      if (last_forward_[i] == kNoUse || v.uses.back().position == last_forward_[i]) continue;
      v.crossing = 0;
      while (v.uses[v.crossing].position != last_forward_[i]) ++v.crossing;
    }
  }

  void provide_inputs(const Task& task) {
    for (const Use& u : task.uses) {
      if (u.access != Access::Write && current_[u.object.value] == UINT32_MAX) provide(u.object.value);
    }
  }

  // Makes an object's content available: given ones exist, dropped ones run their writers again.
  void provide(uint32_t o) {
    if (index_.writers[o].empty()) {
      current_[o] = new_value(o, true);
      return;
    }
    for (const uint32_t t : index_.writers[o]) {
      for (const Use& u : program_.tasks()[t].uses) {
        if (u.object.value != o && u.access != Access::Write && current_[u.object.value] == UINT32_MAX) {
          provide(u.object.value);
        }
      }
      append(t, true);
    }
  }

  uint32_t new_value(uint32_t o, bool given) {
    const Object& object = program_.objects()[o];
    Value v;
    v.object = ObjectId(o);
    v.bytes = align_up(object.bytes, limits_.alignment);
    v.circular = object.persistent;
    v.given = given;
    v.needed_after = object.kind == ObjectKind::Metric;
    v.host_home = object.kind == ObjectKind::Input || object.kind == ObjectKind::Metric;
    if (!limits_.fixed_homes.empty()) {
      const Home& home = limits_.fixed_homes[o];
      v.fixed = home.on(kDevice);
      v.host_home = v.host_home || (!v.fixed && home.on(kHost));
    }
    out_.values.push_back(std::move(v));
    last_forward_.push_back(kNoUse);
    return static_cast<uint32_t>(out_.values.size() - 1);
  }

  void append(uint32_t t, bool recompute) {
    const Task& task = program_.tasks()[t];
    const auto position = static_cast<uint32_t>(out_.runs.size());
    out_.runs.push_back({TaskId(t), recompute, static_cast<uint32_t>(out_.use_values.size())});
    for (const Use& u : task.uses) {
      uint32_t& value = current_[u.object.value];
      if (value == UINT32_MAX) value = new_value(u.object.value, program_.object(u.object).persistent);
      out_.use_values.push_back(value);
      std::vector<ValueUse>& uses = out_.values[value].uses;
      const bool writes = u.access != Access::Read;
      if (task.phase == Phase::Forward && !recompute &&
          program_.object(u.object).kind == ObjectKind::Activation) {
        last_forward_[value] = position;
      }
      if (!uses.empty() && uses.back().position == position) {
        uses.back().writes = uses.back().writes || writes;
        uses.back().overwrites = false;
      } else {
        uses.push_back(
            {position, writes,
             u.access == Access::Write && u.offset == 0 && u.bytes == program_.object(u.object).bytes});
      }
    }
  }

  const Program& program_;
  const TaskCosts& costs_;
  const Saves& saves_;
  const Limits& limits_;
  const Index index_;
  std::vector<uint32_t> last_forward_;  // by value: position of its last use in the forward pass
  std::vector<uint32_t> current_;       // value of each object now; UINT32_MAX: not there
  Schedule out_;
};

}  // namespace

Schedule unroll(const Program& program, const std::vector<TaskId>& order, const TaskCosts& costs,
                const Saves& saves, const Limits& limits) {
  return Unroller(program, costs, saves, limits).run(order);
}

}  // namespace sluice::core
