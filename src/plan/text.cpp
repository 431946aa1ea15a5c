#include <fmt/format.h>

#include <iterator>

#include "base/hash.h"
#include "plan/plan.h"

namespace sluice {

std::string label(const Program& program, const Action& a) {
  switch (a.kind) {
    case ActionKind::Run: {
      if (a.task.value >= program.tasks().size()) return "an unknown task";
      return program.task(a.task).name + (a.recompute ? " (again)" : "");
    }
    case ActionKind::Load:
      return "load " + program.object(a.object).name;
    case ActionKind::Store:
      return "store " + program.object(a.object).name;
  }
  return "?";
}

std::string to_text(const Program& program, const Plan& plan) {
  std::string out;
  auto put = std::back_inserter(out);
  fmt::format_to(put, "plan for program {:016x} on {}\ndevice {} host {} alignment {}\n", plan.program_hash,
                 plan.machine, plan.device_bytes, plan.host_bytes, plan.alignment);
  for (size_t i = 0; i < plan.homes.size(); ++i) {
    const Home& home = plan.homes[i];
    if (home.device_offset == kNowhere && home.host_offset == kNowhere) continue;
    fmt::format_to(put, "home {} device {} host {}\n", program.objects()[i].name, home.device_offset,
                   home.host_offset);
  }
  for (size_t id = 0; id < plan.actions.size(); ++id) {
    const Action& a = plan.actions[id];
    fmt::format_to(put, "{} {} {}", id, name_of(a.lane), label(program, a));
    if (a.kind != ActionKind::Run) {
      fmt::format_to(put, " device {} host {} bytes {}", a.device_offset, a.host_offset, a.bytes);
    } else {
      fmt::format_to(put, " at {}", fmt::join(plan.addresses_of(a), ","));
      if (a.bytes > 0) fmt::format_to(put, " workspace {}+{}", a.device_offset, a.bytes);
    }
    if (a.wait_count > 0) fmt::format_to(put, " waits {}", fmt::join(plan.waits_of(a), ","));
    fmt::format_to(put, "\n");
  }
  return out;
}

uint64_t hash_of(const Program& program, const Plan& plan) {
  return Hash().add(to_text(program, plan)).value();
}

PlanTotals totals(const Program& program, const Plan& plan) {
  PlanTotals t;
  double compute_end = 0;
  for (const Action& a : plan.actions) {
    switch (a.kind) {
      case ActionKind::Run: {
        const double f = flops(program.task(a.task).op);
        t.flops += f;
        t.compute_ns += a.cost_ns;
        if (a.recompute) {
          t.recompute_flops += f;
          t.recompute_ns += a.cost_ns;
        }
        t.stall_ns += a.start_ns - compute_end;
        compute_end = a.end_ns;
        break;
      }
      case ActionKind::Load:
        t.loaded_bytes += a.bytes;
        t.load_ns += a.cost_ns;
        ++t.loads;
        break;
      case ActionKind::Store:
        t.stored_bytes += a.bytes;
        t.store_ns += a.cost_ns;
        ++t.stores;
        break;
    }
  }
  return t;
}

}  // namespace sluice
