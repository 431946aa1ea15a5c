// Measured op times of a backend, cached on disk.
#pragma once

#include <filesystem>
#include <functional>
#include <span>

#include "backend/backend.h"
#include "cost/profile.h"

namespace sluice {

// Called with (done, total) as ops are measured.
using Progress = std::function<void(int64_t, int64_t)>;

// Times every op, warmed up, on arenas of its own, with random real-valued data, into profile.measured_ns (medians), and
// the links with both directions busy into its transfer rates. What `cache` holds for a machine of profile.name is
// not measured again. With `heat_ns` every op is timed right after that long a time of the heaviest one, at the clocks that
// a device holds under load rather than those of an idle one. `backend` must not have reserved its arenas yet;
// afterwards it is good for nothing else.
Status calibrate(Backend& backend, std::span<const Op> ops, const std::filesystem::path& cache, double heat_ns,
                 Profile& profile, const Progress& progress);

}  // namespace sluice
