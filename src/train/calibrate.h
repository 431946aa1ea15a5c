// Measured op times of a backend, cached on disk.
#pragma once

#include <filesystem>
#include <functional>
#include <span>

#include "backend/backend.h"
#include "cost/profile.h"
#include "plan/plan.h"

namespace sluice {

// Called with (done, total) as ops are measured.
using Progress = std::function<void(int64_t, int64_t)>;

struct CalibrateOptions {
  // Every op is timed after that long a time of its own load: at the clocks that a device holds under it
  // rather than those of an idle one.
  double heat_ns = 0;
  // Copies and kernels share cores and memory bandwidth, as on a CPU: links are timed while compute is busy,
  // and compute's loss is measured into profile.copy_slowdown. Elsewhere links are timed alone, both
  // directions at once.
  bool shared_cores = false;
};

// Times every op, warmed up, on arenas of its own, with random real-valued data, into profile.measured_ns
// (medians), and the links into its transfer rates. What `cache` holds for a machine of profile.name is not
// measured again. `backend` must not have reserved its arenas yet; afterwards it is good for nothing else.
Status calibrate(Backend& backend, std::span<const Op> ops, const std::filesystem::path& cache,
                 const CalibrateOptions& options, Profile& profile, const Progress& progress);

// Replaces costs in the cache by what they were within a measured step, less what copies beside them cost
// (profile.copy_slowdown): medians over the runs of each op, amid all the others and with the links at work.
// Also keeps what the process held on the device beside its arena, if that was more. `shared_cores` as for
// calibrate().
Status learn(const Program& program, const Plan& plan, std::span<const Interval> timeline,
             int64_t device_overhead_bytes, bool shared_cores, const std::filesystem::path& cache,
             Profile profile);

}  // namespace sluice
