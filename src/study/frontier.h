// SPDX-License-Identifier: Apache-2.0
// The smallest caps that work for a run, and what each costs in speed: which memory, and which card, it
// takes.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "study/outlook.h"

namespace sluice::core {

struct FrontierPoint {
  BytesByTier caps;
  double tokens_per_s = 0;
  double share = 0;  // of the speed without caps
};

// A card, and the run on it with all of its memory.
struct CardOutlook {
  std::string card;
  int64_t memory_bytes = 0, device_cap_bytes = 0;
  bool fits = false;
  double tokens_per_s = 0, mfu = 0;
};

struct Frontier {
  double tokens_per_s = 0;   // without caps
  int64_t device_bytes = 0;  // held without caps
  // Ascending caps; no point is matched in speed by one that needs no more of either memory.
  std::vector<FrontierPoint> points;
  std::vector<CardOutlook> cards;
};

// What a search is at, from any thread: its name, and how many of its parts are done; total 0: it has no
// parts.
using SayWork = std::function<void(const std::string& doing, int64_t done, int64_t total)>;

// The configuration's own host cap is the largest tried; its device cap is not used.
Result<Frontier> find_frontier(const RunConfig& config, const Machine& machine,
                               const std::atomic<bool>& interrupted, const SayWork& say);

// Drops points that another one matches or beats with no more memory in either tier, and sorts.
void prune(std::vector<FrontierPoint>& points);

// As two tables.
std::string text(const Frontier& frontier);

}  // namespace sluice::core
