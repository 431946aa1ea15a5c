// Measured op times of a backend, cached on disk.
#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <string>

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
  // What kind of step the costs are for, such as the model, number formats and sequence length in words. What
  // ops took within a step is kept for its kind alone: under a limit on power a GPU's clock is that of the
  // mix. Beside attention, which draws less, products took 10 % less time on an H200 than among products, and
  // attention 10 to 18 % more than alone.
  std::string kind;
};

// Times every op, warmed up, on arenas of its own, with random real-valued data, into profile.measured_ns
// (medians), and the links into its transfer rates. What the file at `path` holds for a machine of
// profile.name is not measured again. `backend` must not have reserved its arenas yet; afterwards it is good
// for nothing else.
Status calibrate(Backend& backend, std::span<const Op> ops, const std::filesystem::path& path,
                 const CalibrateOptions& options, Profile& profile, const Progress& progress);

// Keeps what ops took within a measured step, less what copies beside them cost (profile.copy_slowdown), for
// steps of options.kind: medians over the runs of each op, amid all the others and with the links at work.
// There they win over the times that calibrate() takes. Also keeps what the process held on the device beside
// its arena, if that was more.
Status learn(const Program& program, const Plan& plan, std::span<const Interval> timeline,
             int64_t device_overhead_bytes, const CalibrateOptions& options,
             const std::filesystem::path& path, Profile profile);

}  // namespace sluice
