// SPDX-License-Identifier: Apache-2.0
// What a step takes that several processes share by data: each has the whole model and rows of its own, and
// gradients are summed over all before the update.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/cell.h"
#include "comm/group.h"
#include "pages/page.h"

namespace sluice::core {

// When gradients are exchanged, and by whom.
enum class GradientExchange : uint8_t {
  None,         // each process trains by itself: what the others stand beside
  PerTensor,    // one call for each tensor, once the backward pass is done
  Flat,         // one call for all, the same
  FlatLibrary,  // the same by the library's own sum, whose bits are not those of one process
  Planned,      // on a network lane of the plan, beside the backward pass, as `sluice train` does
  Buckets,      // the same, once gradients of kBucketBytes are complete
  Sharded,      // as planned; each process updates weights of its own and gives them the others
};
constexpr int64_t kBucketBytes = 25 << 20;  // PyTorch's
std::string_view name_of(GradientExchange exchange);

struct DataParallelResult {
  GradientExchange exchange = GradientExchange::None;
  // Seconds over ranks, of each rank's mean over its steps. The passes have the update of the step before.
  // Of sums that are planned, `summing` is what the passes wait for them.
  Measured step, passes, summing;
  Measured forward, backward, update;  // of the passes: what compute lanes spend on each
  int64_t calls = 0;                   // of a step
  int64_t bytes = 0;                   // of gradients, in f32
  // Tensors whose weights are not those of rank 0, to the bit, on some rank; nothing: they need not be.
  std::optional<double> unequal;
  double start_bytes = 0, peak_bytes = 0;  // of the fullest rank
};

struct DataParallelBench {
  std::string model, compute;
  int64_t seq_len = 0, batch = 0, steps = 0;
  int processes = 0, here = 0, cores = 0;  // all, and those on rank 0's host, which has so many cores
  int threads = 0;                         // of each process
  bool whole = false;                      // nothing was interrupted
  std::vector<DataParallelResult> results;
};

// Every rank has to call it with the same cell, on a machine of the CPU. Ends early, with what there is, on
// all ranks once `interrupted` is true on one. REQUIRES: group.size() >= 2.
Result<DataParallelBench> run_data_parallel(ProcessGroup& group, const BenchCell& cell,
                                            const Machine& machine, const BenchOptions& options,
                                            const std::atomic<bool>& interrupted,
                                            const std::function<void(const std::string&)>& doing);

Page data_parallel_page(const DataParallelBench& bench);

}  // namespace sluice::core
