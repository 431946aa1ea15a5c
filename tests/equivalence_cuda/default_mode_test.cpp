// SPDX-License-Identifier: Apache-2.0
// Without determinism a plan may move results no further than running again does.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "backend/cuda/cuda_backend.h"
#include "equivalence/small_runs.h"

namespace sluice::core {
namespace {

constexpr int kRuns = 6;
constexpr int64_t kSteps = 4;

std::unique_ptr<Backend> default_backend() {
  CudaOptions options;
  options.deterministic = false;
  options.tune = false;
  return rig::must(make_cuda_backend(options));
}

// Larger than the other programs, so that attention takes the library's kernels, whose sums have no fixed
// order.
Question request(int64_t device_cap_bytes) {
  Question r =
      small_request({512, 512, 4, 2, 256}, {DType::BF16, DType::BF16, DType::BF16, MasterWeights::Off, true});
  r.model = model_of({256, 2, 4, 2, 64, 512, 61});
  r.caps[kDevice] = device_cap_bytes;
  return r;
}

struct Spread {
  double mean = 0, most = 0;  // of the last step's loss, and how far a run lay from it
  int64_t device_bytes = 0, loads = 0;
};
Spread losses_under(int64_t device_cap_bytes) {
  rig::Rig run(request(device_cap_bytes), default_backend());
  Spread out;
  std::vector<double> losses;
  for (int i = 0; i < kRuns; ++i) losses.push_back(rig::run_steps(run, kSteps).losses.back());
  for (const double loss : losses) out.mean += loss / kRuns;
  for (const double loss : losses) out.most = std::max(out.most, std::abs(loss - out.mean));
  out.device_bytes = run.plan().arenas[kDevice].bytes;
  out.loads = totals(run.model().program, run.plan()).loads.actions;
  return out;
}

TEST(DefaultMode, CapsMoveLossesNoFurtherThanRunningAgain) {
  const Spread free = losses_under(kUnlimited);
  const Spread capped = losses_under(free.device_bytes * 6 / 10);
  EXPECT_GT(capped.loads, free.loads);
  // Bits of the losses' own sums.
  const double rounding = 1e-6 * free.mean;
  EXPECT_LE(std::abs(capped.mean - free.mean), 2 * (free.most + capped.most) + rounding)
      << "loss " << free.mean << " +- " << free.most << " without a cap, " << capped.mean << " +- "
      << capped.most << " under it";
}

}  // namespace
}  // namespace sluice::core
