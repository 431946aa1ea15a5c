// SPDX-License-Identifier: Apache-2.0
// How fast the links of a machine are: each alone, and all at once, as a step's copies use them.
#pragma once

#include <atomic>
#include <span>
#include <string>
#include <vector>

#include "base/interval.h"
#include "machine/machine.h"
#include "pages/page.h"

namespace sluice::core {

// Bytes per second.
struct RateSpread {
  int64_t copies = 0;                         // that were timed
  double mean = 0;                            // all that they moved, by the time that they took
  double deviation = 0, least = 0, most = 0;  // of single copies
};
// The spread over copies of so many bytes. REQUIRES: not empty.
RateSpread spread_of(std::span<const Interval> copies, int64_t bytes);

// The result of one link and direction.
struct LinkResult {
  std::string name;  // "host to device 0"
  RateSpread alone;  // nothing else is copied
  RateSpread all;    // all links of all devices are at work
};

struct LinkBench {
  int64_t bytes = 0;  // of a copy
  std::vector<LinkResult> links;
};

struct LinkOptions {
  int64_t bytes = 0;  // of a copy; 0: as many as calibration takes
  double ns = 3e8;    // for how long a link is timed, about, but no fewer than 8 copies
};

// Times every lane that copies: between the host and each device, and between neighbours of the ring where
// they copy to each other. The first copy of each lane warms up. The error of an interruption is Cancelled.
Result<LinkBench> run_links(const Machine& machine, const LinkOptions& options,
                            const std::atomic<bool>& interrupted);

Page links_page(const LinkBench& bench);

}  // namespace sluice::core
