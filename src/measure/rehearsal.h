// SPDX-License-Identifier: Apache-2.0
// Times the ops of a step in about the mix in which the step runs them: each is as fast as the others let it
// be. Under a limit on power a GPU's clock follows the mix, so that ops timed one after the other are off by
// up to 20 %. Beside attention, which draws less, products run faster than among themselves, and attention
// slower. Copies with the host beside them take 1 to 4 %; those between devices run beside them, too. Several
// GPUs run the mix at once, as they share a host's memory. On a CPU ops find the caches as others left
// them.
#pragma once

#include <algorithm>
#include <functional>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "cost/profile.h"
#include "measure/link_runs.h"
#include "measure/row_sample.h"

namespace sluice::core {

// Called with (done, total) as ops are measured.
using OpProgress = std::function<void(int64_t, int64_t)>;

// The ops and copies of a step.
struct StepMix {
  std::vector<CountedOp> ops;
  int64_t loaded_bytes = 0, stored_bytes = 0;
  int64_t handed_over_bytes = 0;  // from device to device: each sends and receives as many for its ops
  RowSample rows;                 // of what it runs on, where documents begin inside a row
};

// Sums of copies over a link.
struct LinkSums {
  int64_t bytes = 0;
  double ns = 0;  // how long all copies took together, less the latency of each

  void add(int64_t copied, const Interval& time, double latency_ns);
  LinkSums& operator+=(const LinkSums& more) {
    bytes += more.bytes, ns += more.ns;
    return *this;
  }
  // Bytes per second; `otherwise`, when less than `enough` was copied, which is too little to tell.
  double rate(double otherwise, int64_t enough = kGiB) const;
};

// Places many ops in the arena of each device, where operands of different ops share memory. Those that are
// only read lie apart from those that are written, and hold values that the ops can really meet.
class Rehearsal {
 public:
  // For ops on a device arena of at most most_bytes[kDevice], where that is enough for what is read and what
  // is written to lie apart. Else all ops share the same floats, which decay from run to run. On the host it
  // takes no more than most_bytes[kHost], but for some 5 MiB that it cannot do without: where there is
  // little, ops run less often. Attention over packed rows meets documents as `rows` has them. So many of the
  // backend's devices, which are alike, run them.
  Rehearsal(std::span<const CountedOp> ops, const Backend& backend, const BytesByTier& most_bytes,
            RowSample rows = {}, size_t devices = 1);

  // Bytes that fill() takes of the arenas. After it the host's are free again.
  BytesByTier arena_bytes() const;

  // Makes operands that the ops can really meet, in the arenas from the offsets `base` on.
  Status fill(Backend& backend, const Arenas& arenas, const BytesByTier& base);

  // REQUIRES: filled.
  Launch launch(size_t op, size_t device = 0) const {
    const Placed& placed = placed_[device];
    return {&*ops_[op].op, placed.operands[op], placed.workspaces[op]};
  }

  struct Copies : LinkCopy {
    double copies = 0;  // that go with one step
    double ns = 0;      // of one copy, about
    size_t device = 0;  // beside whose ops
  };
  struct Traffic {
    std::vector<Copies> links;
    double latency_ns = 0;  // of a copy
  };

  struct Times {
    std::vector<double> ns;       // by op: medians, over all devices
    std::vector<double> mean_ns;  // the same: what a step adds up to where other programs take cores from it
    std::vector<LinkSums> links;  // as in Traffic
  };

  // How long the mix runs: as long as kSteps steps, where that is between these. Longer steps than half of it
  // run half of one, up to 2.5 times as long.
  struct Length {
    static constexpr double kSteps = 50;  // medians of so many mean something
    static constexpr double kSecond = 1e9;
    double least_ns = kSecond, most_ns = kSecond;

    // On a machine whose ops run for settle_ns until their speed is that of a long run.
    static Length of(double settle_ns) { return {settle_ns, std::max(kSecond, settle_ns)}; }
  };

  // Every op runs twice on each device to warm up. Then all do, interleaved, with their shares of a step (but
  // three times those that are short, and all at least once), and copies beside them. REQUIRES: filled, and
  // the backend is prepared for the ops.
  Result<Times> time(Backend& backend, const Length& length, const Traffic& traffic,
                     const OpProgress& progress) const;

 private:
  struct Region {
    int64_t offset = 0, bytes = 0;
    int64_t used = 0;  // by what is placed already
  };
  Region& region_of(const Operand& operand);
  template <class F>
  void for_each_float_region(F f);
  int64_t place();
  Result<double> run_mix(Backend& backend, const Length& length, const std::vector<double>& estimates,
                         const Traffic& traffic, Times& times) const;

  std::vector<CountedOp> ops_;
  RowSample rows_;
  std::vector<int64_t> workspace_bytes_;  // by op
  int64_t alignment_;
  // Ids, positions and the like, of which every operand has its own, and workspaces. Floats by type, what
  // they are like, and whether an op writes them. All floats, where these cannot lie apart.
  Region small_, workspace_, floats_[2][4][2], shared_;
  bool apart_ = true;
  int64_t device_bytes_ = 0;
  int64_t most_commands_;                      // of one mix: each takes memory of the host
  int64_t periods_;                            // of floats that are made, see FloatBlocks
  std::vector<std::vector<int64_t>> offsets_;  // in the arena, by op and operand
  // On a device, by op.
  struct Placed {
    std::vector<std::vector<Buffer>> operands;
    std::vector<Buffer> workspaces;
  };
  std::vector<Placed> placed_;  // by device
};

// Runs a launch `times` times, one after the other.
Result<std::vector<Interval>> run_repeatedly(Backend& backend, const Launch& launch, size_t times);

// REQUIRES: not empty.
double median(std::vector<double> values);
// How long they took, at least 1 ns: a clock may not tell the ends of a short run apart. REQUIRES: not empty.
double median_ns(std::span<const Interval> timeline);

}  // namespace sluice::core
