// SPDX-License-Identifier: Apache-2.0
#include "what_if/outlook.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <thread>

#include "plan/stalls.h"
#include "search/refusal.h"
#include "what_if/grid.h"
#include "what_if/kept.h"

namespace sluice::core {

Outlook outlook_of(const Prepared& p) {
  const Stage& s = p.stages.main;
  Outlook o;
  o.step_ns = s.plan.makespan_ns;
  o.lower_bound_ns = s.plan.lower_bound_ns;
  o.speed = speed_of(s.model.program, s.plan, o.step_ns, peak_flops(p));
  o.shape = p.shape;
  o.binds = what_binds(s.plan, totals(s.model.program, s.plan),
                       sum_by_cause(stalls_of(s.plan, predicted_timeline(s.plan))));
  o.bytes = p.stages.process_bytes(p.machine.profile);
  return o;
}

Result<Outlook> outlook(RunConfig config, const Machine& machine, const StudyWatch& watch) {
  SLUICE_ASSIGN(StepSpec step, step_of(config, true));
  const KeptAnswer<Outlook> kept("outlook 1", config, machine, step, watch.cache);
  if (auto found = kept.find()) return std::move(*found);
  PrepareOptions options;
  options.stop = watch.stop;
  options.compared = true;
  const auto prepared = prepare_on(std::move(config), machine, std::move(step), options);
  if (!prepared.ok() && prepared.error().kind != ErrorKind::DoesNotFit) return prepared.error();
  Outlook o;
  if (prepared.ok()) {
    o = outlook_of(*prepared);
  } else {
    o.refusal = prepared.error();
  }
  kept.keep(o);
  return o;
}

Result<bool> fits(RunConfig config, const Machine& machine, const StudyWatch& watch) {
  SLUICE_ASSIGN(StepSpec step, step_of(config, true));
  const KeptAnswer<bool> kept("fits 1", config, machine, step, watch.cache);
  if (const auto found = kept.find()) return *found;
  SLUICE_ASSIGN(const bool fit, fits(std::move(config), machine, std::move(step)));
  kept.keep(fit);
  return fit;
}

Result<bool> fits(RunConfig config, const Machine& machine, StepSpec step) {
  const Status status = check_fit(std::move(config), machine, std::move(step));
  if (!status.ok() && status.error().kind != ErrorKind::DoesNotFit) return status.error();
  return status.ok();
}

int64_t readable_cap(int64_t bytes) {
  return align_up(bytes, int64_t(std::bit_floor(uint64_t(std::max<int64_t>(bytes / 100, 1)))));
}

std::string missing_memory(const Error& refusal) {
  const auto& shortage = refusal.shortage;
  if (!shortage || !shortage->need_bytes) return refusal.message;
  return fmt::format("needs {} of {} memory", cap_text(readable_cap(*shortage->need_bytes)), shortage->tier);
}

int planning_threads(const Machine& machine) {
  return machine.traits().runs_models ? 1 : int(std::max(1u, std::thread::hardware_concurrency()));
}

Result<bool> LeastCaps::ask(const BytesByTier& caps) {
  for (const Answer& k : known_) {
    if (k.fits && within(k.caps, caps)) return true;
    if (!k.fits && within(caps, k.caps)) return false;
  }
  SLUICE_ASSIGN(const bool fits, fits_(caps));
  know(caps, fits);
  return fits;
}

Result<int64_t> LeastCaps::cap(Tier tier, BytesByTier caps) {
  const auto at = [&](int64_t cap) {
    caps[tier] = cap;
    return ask(caps);
  };
  int64_t low = 1, high = kUnlimited;
  for (const Answer& k : known_) {
    caps[tier] = k.caps[tier];  // so that the others decide
    if (!k.fits && within(caps, k.caps)) low = std::max(low, k.caps[tier]);
    if (k.fits && within(k.caps, caps)) high = std::min(high, k.caps[tier]);
  }
  if (high == kUnlimited) {
    SLUICE_ASSIGN(const bool any, at(kUnlimited));
    if (!any) return int64_t{0};
    constexpr int64_t kTooMuch = int64_t{1} << 60;
    for (high = std::max(2 * low, 64 * kMiB);; high *= 2) {
      if (high > kTooMuch) return int64_t{0};
      SLUICE_ASSIGN(const bool enough, at(high));
      if (enough) break;
      low = high;
    }
  }
  // Close above what is known not to fit first: in a grid, neighbours need about the same.
  for (int64_t step = low / precision_ + 1; low > 1 && high - low > 2 * step; step *= 4) {
    SLUICE_ASSIGN(const bool enough, at(low + step));
    (enough ? high : low) = low + step;
    if (enough) break;
  }
  while (high - low > high / precision_) {
    const double middle =
        high > 2 * low ? std::sqrt(double(low) * double(high)) : double(low + (high - low) / 2);
    SLUICE_ASSIGN(const bool enough, at(int64_t(middle)));
    (enough ? high : low) = int64_t(middle);
  }
  return high;
}

}  // namespace sluice::core
