// SPDX-License-Identifier: Apache-2.0
// The smallest caps that work for a run, and what each costs in speed: which memory, and which card, it
// takes.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "what_if/comparison.h"

namespace sluice::core {

struct FrontierPoint {
  BytesByTier caps;
  double tokens_per_s = 0;
  double share = 0;  // of the speed without caps
};

struct Frontier {
  double tokens_per_s = 0;   // without caps
  size_t devices = 1;        // that share a step
  int64_t device_bytes = 0;  // held without caps, of several by the fullest
  // Ascending caps; no point is matched in speed by one that needs no more of either memory.
  std::vector<FrontierPoint> points;
  std::vector<ComparedCard> cards;  // those whose plans were compared with measured speeds
};

// The configuration's own host cap is the largest tried; its device cap is not used. Stopped, it returns what
// it has; the error of one that has nothing is Cancelled.
Result<Frontier> find_frontier(const RunConfig& config, const Machine& machine, const StudyWatch& watch);

// Drops points that another one matches or beats with no more memory in either tier, and sorts.
void prune(std::vector<FrontierPoint>& points);

// As two tables.
std::string describe(const Frontier& frontier);

}  // namespace sluice::core
