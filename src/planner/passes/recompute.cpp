// Recomputation: which activations could be dropped, at what price, and the order of tasks once some are.
#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "planner/passes/passes.h"

namespace sluice {
namespace {

bool recomputable(const Program& program, const Task& task) {
  return std::all_of(task.uses.begin(), task.uses.end(), [&](const Use& u) {
    return u.access == Access::Read || program.object(u.object).kind == ObjectKind::Activation;
  });
}

struct Index {
  std::vector<std::vector<uint32_t>> writers;  // by object, in program order
  std::vector<bool> crosses;                   // read in the forward and in the backward pass
  std::vector<uint32_t> forward_end;           // last forward task using it
};

Index index_of(const Program& program) {
  const size_t n = program.objects().size();
  Index index{std::vector<std::vector<uint32_t>>(n), std::vector<bool>(n, false), std::vector<uint32_t>(n, 0)};
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
    index.crosses[o] = index.crosses[o] && !writers.empty() &&
                       std::all_of(writers.begin(), writers.end(),
                                   [&](uint32_t t) { return recomputable(program, program.tasks()[t]); });
  }
  return index;
}

// Tasks to run again to have object `o` back when everything that crosses into the backward pass is kept, but `o`.
void closure(const Program& program, const Index& index, uint32_t o, std::set<uint32_t>& tasks) {
  for (const uint32_t t : index.writers[o]) {
    if (!tasks.insert(t).second) continue;
    for (const Use& u : program.tasks()[t].uses) {
      const bool temporary =
          program.object(u.object).kind == ObjectKind::Activation && !index.crosses[u.object.value];
      if (temporary && u.object.value != o) closure(program, index, u.object.value, tasks);
    }
  }
}

}  // namespace

std::vector<RecomputeGroup> recompute_groups(const Program& program, const TaskCosts& costs) {
  const Index index = index_of(program);
  struct RoleFacts {
    std::set<std::string> together;
    double ns = 0, bytes = 0;
  };
  std::map<std::string, RoleFacts> roles;
  for (uint32_t o = 0; o < program.objects().size(); ++o) {
    const Object& object = program.objects()[o];
    // The residual stream between layers is what recomputation starts from; it is always kept.
    if (!index.crosses[o] || object.role == "x" || object.layer < 0) continue;
    std::set<uint32_t> tasks;
    closure(program, index, o, tasks);
    RoleFacts& facts = roles[object.role];
    facts.together.insert(object.role);
    facts.bytes += double(object.bytes);
    for (const uint32_t t : tasks) {
      facts.ns += costs.ns[t];
      for (const Use& u : program.tasks()[t].uses) {
        if (u.access != Access::Read && index.crosses[u.object.value]) {
          facts.together.insert(program.object(u.object).role);
        }
      }
    }
  }
  // Roles that come back together form one group; the group's price is its dearest member's, paid once.
  std::vector<RecomputeGroup> groups;
  std::set<std::string> done;
  for (const auto& [role, facts] : roles) {
    if (!done.insert(role).second) continue;
    RecomputeGroup group{{role}, 0};
    double ns = facts.ns, bytes = facts.bytes;
    for (const auto& [other, other_facts] : roles) {
      if (done.count(other) || (!facts.together.count(other) && !other_facts.together.count(role))) continue;
      done.insert(other);
      group.roles.push_back(other);
      ns = std::max(ns, other_facts.ns);
      bytes += other_facts.bytes;
    }
    group.ns_per_byte = ns / bytes;
    groups.push_back(std::move(group));
  }
  std::stable_sort(groups.begin(), groups.end(),
                   [](const auto& a, const auto& b) { return a.ns_per_byte > b.ns_per_byte; });
  return groups;
}

namespace {

class Unroller {
 public:
  Unroller(const Program& program, const TaskCosts& costs, const std::vector<bool>& dropped, const Limits& limits)
      : program_(program), costs_(costs), dropped_(dropped), limits_(limits), index_(index_of(program)),
        current_(program.objects().size(), UINT32_MAX) {}

  Schedule run() {
    double now = 0;
    for (uint32_t t = 0; t < program_.tasks().size(); ++t) {
      const Task& task = program_.tasks()[t];
      provide_inputs(task);
      append(t, false);
      if (task.phase != Phase::Forward) continue;
      for (const Use& u : task.uses) {
        const uint32_t o = u.object.value;
        if (dropped_[o] && index_.crosses[o] && index_.forward_end[o] == t) current_[o] = UINT32_MAX;
      }
    }
    for (const Run& run : out_.runs) {
      out_.start_ns.push_back(now);
      out_.workspace_bytes.push_back(costs_.workspace_bytes[run.task.value]);
      now += costs_.ns[run.task.value];
    }
    out_.start_ns.push_back(now);
    out_.workspace_bytes.push_back(limits_.boundary_device_bytes);
    return std::move(out_);
  }

 private:
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
      v.fixed = home.device_offset != kNowhere;
      v.host_home = v.host_home || (!v.fixed && home.host_offset != kNowhere);
    }
    out_.values.push_back(std::move(v));
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
      if (!uses.empty() && uses.back().position == position) {
        uses.back().writes = uses.back().writes || writes;
      } else {
        uses.push_back({position, writes});
      }
    }
  }

  const Program& program_;
  const TaskCosts& costs_;
  const std::vector<bool>& dropped_;
  const Limits& limits_;
  const Index index_;
  std::vector<uint32_t> current_;  // value of each object now; UINT32_MAX: not there
  Schedule out_;
};

}  // namespace

Schedule unroll(const Program& program, const TaskCosts& costs, const std::vector<bool>& dropped,
                const Limits& limits) {
  return Unroller(program, costs, dropped, limits).run();
}

}  // namespace sluice
