// SPDX-License-Identifier: Apache-2.0
// How fast processes of one job exchange and sum what they have.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "backend/kind.h"
#include "base/dtype.h"
#include "comm/group.h"
#include "pages/page.h"

namespace sluice::core {

// Mean of a call, by the slowest rank.
struct CallTime {
  double seconds = 0;
  int64_t calls = 0;
};

struct CollectiveResult {
  int ranks = 0;
  int64_t bytes = 0;  // that each rank has
  DType dtype = DType::F32;
  CallTime ours;
  CallTime library;   // its own; no calls: MPI's for this type
  int64_t wrong = 0;  // elements that are not, to the bit, what one process computes; of ours, over all ranks
};

struct CollectiveBench {
  bool sums = true;  // all-reduce; false: each rank sends to the next while it receives from the one before
  int processes = 0, here = 0, cores = 0;  // all, and those on rank 0's host, which has so many cores
  std::string joined_by;                   // from device to device; empty: memory of hosts
  bool whole = false;                      // nothing was interrupted
  std::vector<CollectiveResult> results;
};

struct CollectiveOptions {
  bool sums = true;
  std::vector<int64_t> bytes;  // multiples of 4
  std::vector<DType> dtypes;   // F32, BF16
  double seconds = 0.3;        // to time each for, about, but no fewer than 3 calls
  // Joins the devices of a group; empty: memory of hosts is exchanged.
  std::function<Result<JoinedDevices>(Network&)> join;
};

// Times all sizes, types, and numbers of ranks: 2, 4, 8, ... and all of the group's. Every rank has to call
// it with the same options and gets the same results; `doing` is told what comes next. Ends early, with what
// there is, on all ranks when `interrupted` is true on one: before the next cell at the latest. REQUIRES:
// group.size() >= 2.
Result<CollectiveBench> run_collectives(ProcessGroup& group, const CollectiveOptions& options,
                                        const std::atomic<bool>& interrupted,
                                        const std::function<void(const std::string&)>& doing);

// With the columns of nccl-tests: algbw is bytes by seconds, busbw that times what an algorithm without waste
// moves over each rank's link. In an all-reduce that is 2 (n - 1) / n of them, in a send all.
Page collectives_page(const CollectiveBench& bench);

}  // namespace sluice::core
