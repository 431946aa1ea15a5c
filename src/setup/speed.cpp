// SPDX-License-Identifier: Apache-2.0
#include "setup/speed.h"

#include <algorithm>

namespace sluice::core {

Speed speed_of(const Program& program, const Plan& plan, double step_ns, double peak) {
  double executed = 0;
  for (const Action& a : plan.actions) {
    if (a.kind != ActionKind::Run) continue;
    executed += work(program.task(a.task).op).hardware_flops();
  }
  Speed v;
  v.tokens_per_s = double(program.facts.tokens) / step_ns * 1e9;
  v.model_tflops = program.facts.model_flops / step_ns / 1e3;
  v.hardware_tflops = executed / step_ns / 1e3;
  if (peak > 0) {
    v.mfu = v.model_tflops * 1e12 / peak;
    v.hfu = v.hardware_tflops * 1e12 / peak;
  }
  return v;
}

double peak_flops(const Prepared& p) {
  const double devices = double(p.machine.devices());
  if (p.model.products.w && p.machine.profile.narrow_peak_flops > 0)
    return p.machine.profile.narrow_peak_flops * devices;
  if (p.machine.profile.peak_flops > 0) return p.machine.profile.peak_flops * devices;
  double best = 0;
  for (const Task& task : p.stages.main.model.program.tasks()) {
    const Work w = work(task.op);
    if (w.unit == Unit::Product) best = std::max(best, w.flops / p.machine.profile.cost(task.op).ns * 1e9);
  }
  return best * devices;
}

}  // namespace sluice::core
