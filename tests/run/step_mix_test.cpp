// SPDX-License-Identifier: Apache-2.0
// What a step is made of, estimated before costs are known, and where costs come from.
#include <gtest/gtest.h>
#include <stdlib.h>

#include "equivalence/small_runs.h"
#include "machine/machine.h"
#include "run/prepare/step_mix.h"
#include "run/small_session.h"
#include "setup/stages.h"

namespace sluice::core {
namespace {

int64_t runs(const StepMix& mix) {
  int64_t sum = 0;
  for (const CountedOp& one : mix.ops) sum += one.count;
  return sum;
}

TEST(StepMix, IsThatOfAPlanUnderTheCaps) {
  const std::unique_ptr<Backend> backend = rig::small_backend();
  Profile profile = rig::profile_of(*backend);
  // Slow links: what leaves the device is computed again.
  profile.set_bytes_per_s(1e6);
  Question request = small_request({16, 8, 2, 2, 8}, {}, Updates::Deferred);
  const Program program =
      build_training(request.model, request.shape, request.numerics, request.optimizer).program;
  const auto tasks = int64_t(program.tasks().size());

  request.caps[kDevice] = 200 << 10;
  const StepMix streamed = estimate_mix(program, request, profile);
  EXPECT_EQ(streamed.ops.size(), counted_ops(program).size());
  EXPECT_GT(runs(streamed), tasks);
  EXPECT_GT(streamed.loaded_bytes, 0);
  EXPECT_GT(streamed.stored_bytes, 0);

  request.caps[kDevice] = kUnlimited;
  const StepMix resident = estimate_mix(program, request, profile);
  EXPECT_EQ(runs(resident), tasks);
  EXPECT_LT(resident.loaded_bytes, streamed.loaded_bytes);
  EXPECT_EQ(resident.handed_over_bytes, 0);
  const std::unique_ptr<Backend> pair = rig::small_devices(2, true);
  EXPECT_GT(estimate_mix(program, request, rig::profile_of(*pair)).handed_over_bytes, 0);

  request.caps[kDevice] = 1;  // nothing fits
  const StepMix none = estimate_mix(program, request, profile);
  EXPECT_EQ(runs(none), tasks);
  EXPECT_EQ(none.loaded_bytes, 0);
  EXPECT_EQ(none.stored_bytes, 0);
}

// A cache that begins has what others measured, and nothing is measured. What it has itself is not replaced.
TEST(SharedCosts, AreThoseThatACacheBeginsWith) {
  const TempDir shared, first, second;
  const char* named = ::getenv("SLUICE_COSTS");
  const std::string before = named != nullptr ? named : "";
  ::setenv("SLUICE_COSTS", shared.path().c_str(), 1);
  const Prepared measured = must(prepare_small(first)), copied = must(prepare_small(second));
  EXPECT_GT(measured.start_up.measure_s, 0);
  EXPECT_EQ(copied.start_up.measure_s, 0);
  EXPECT_EQ(copied.machine.profile.measured_ns, measured.machine.profile.measured_ns);
  const std::filesystem::path cache = cost_cache(measured.config, measured.machine);
  const std::string costs = file_bytes(cache);
  EXPECT_FALSE(costs.empty());
  EXPECT_TRUE(file_bytes(shared_costs(cache)) == costs);
  EXPECT_TRUE(file_bytes(cost_cache(copied.config, copied.machine)) == costs);
  EXPECT_GT(must(prepare_small(second, {"train.seq_len=32"})).start_up.measure_s, 0);
  EXPECT_TRUE(file_bytes(shared_costs(cache)) == costs) << "it does not begin any more";
  EXPECT_EQ(shared_costs({}), "") << "nothing is kept";
  ::setenv("SLUICE_COSTS", "", 1);
  EXPECT_EQ(shared_costs(cache), "");
  ::unsetenv("SLUICE_COSTS");
  EXPECT_EQ(shared_costs(cache), "");
  if (named != nullptr) ::setenv("SLUICE_COSTS", before.c_str(), 1);
}

}  // namespace
}  // namespace sluice::core
