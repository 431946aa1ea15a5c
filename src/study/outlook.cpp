#include "study/outlook.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <thread>

namespace sluice {
Outlook outlook_of(const Prepared& p) {
  const Stage& s = p.stages.training;
  Outlook o;
  o.step_ns = s.plan.makespan_ns;
  o.lower_bound_ns = s.plan.lower_bound_ns;
  o.speed = speed_of(s.model.program, s.plan, o.step_ns, peak_flops(p));
  o.shape = p.shape;
  o.bytes = p.stages.arena_bytes();
  for (const Tier tier : kTiers) o.bytes[tier] += p.machine.profile.overhead_bytes[tier];
  return o;
}

Result<Outlook> outlook(RunConfig config, const Machine& machine) {
  const auto prepared = prepare_on(std::move(config), machine, false);
  if (prepared.ok()) return outlook_of(*prepared);
  if (prepared.error().kind != ErrorKind::DoesNotFit) return prepared.error();
  Outlook o;
  o.refusal = prepared.error();
  return o;
}

Result<bool> fits(RunConfig config, const Machine& machine) {
  const Status status = check_fit(std::move(config), machine);
  if (!status.ok() && status.error().kind != ErrorKind::DoesNotFit) return status.error();
  return status.ok();
}

int64_t readable_cap(int64_t bytes) {
  return align_up(bytes, int64_t(std::bit_floor(uint64_t(std::max<int64_t>(bytes / 100, 1)))));
}

int planning_threads(const Machine& machine) {
  return machine.traits().runs_models ? 1 : int(std::max(1u, std::thread::hardware_concurrency()));
}

void LeastCaps::know(int64_t device, int64_t host, bool fits) {
  known_.push_back({device, host, fits});
}

Result<bool> LeastCaps::ask(int64_t device, int64_t host) {
  for (const Answer& k : known_) {
    if (k.fits && k.device <= device && k.host <= host) return true;
    if (!k.fits && k.device >= device && k.host >= host) return false;
  }
  SLUICE_ASSIGN(const bool fits, fits_(device, host));
  know(device, host, fits);
  return fits;
}

Result<int64_t> LeastCaps::least(int64_t other_cap, bool of_device) {
  const auto at = [&](int64_t cap) { return of_device ? ask(cap, other_cap) : ask(other_cap, cap); };
  int64_t low = 1, high = kUnlimited;
  for (const Answer& k : known_) {
    const int64_t cap = of_device ? k.device : k.host, other = of_device ? k.host : k.device;
    if (!k.fits && other >= other_cap) low = std::max(low, cap);
    if (k.fits && other <= other_cap) high = std::min(high, cap);
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

}  // namespace sluice
