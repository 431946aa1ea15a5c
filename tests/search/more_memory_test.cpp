// SPDX-License-Identifier: Apache-2.0
// What a plan says of a little more memory, beside plans that have it.
#include "search/more_memory.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "search/planner.h"
#include "search/shape.h"
#include "search/test_machine.h"
#include "setup/stages.h"

namespace sluice::core {
namespace {

// Of a step whose state is 26 GiB.
class MoreMemory : public testing::Test {
 protected:
  static Program step() {
    OptimizerConfig optimizer;
    optimizer.deferred = true;
    StepShape shape{kChunk, kChunk, 1, 1, kChunk};
    spread(shape, 14, 12, 3);
    return subject_of(model_of({4096, 8, 32, 8, 128, 14336, 512}), {}, optimizer).program(shape, false);
  }
  Plan plan(int64_t device_bytes, int64_t host_bytes, bool weigh) const {
    PlanRequest request;
    request.caps[kDevice] = device_bytes;
    request.caps[kHost] = host_bytes;
    request.weigh_memory = weigh;
    request.threads = 2;
    auto plan = make_plan(program_, profile_, request);
    EXPECT_TRUE(plan.ok()) << (plan.ok() ? "" : plan.message());
    return plan.ok() ? std::move(*plan) : Plan();
  }

  static constexpr int64_t kChunk = 2048;
  const Program program_ = step();
  const Profile profile_ = test_machine(5e9);
};

// Each is right within a factor of two, and the plan is the one that it would be otherwise.
TEST_F(MoreMemory, IsWorthAboutWhatPlansWithItSay) {
  ASSERT_GT(program_.tasks().size(), kLargeProgram);
  const Plan p = plan(6 * kMoreMemory, 24 * kMoreMemory, true);
  const Plan silent = plan(6 * kMoreMemory, 24 * kMoreMemory, false);
  EXPECT_EQ(p.addresses, silent.addresses);
  EXPECT_EQ(p.makespan_ns, silent.makespan_ns);
  EXPECT_EQ(silent.speedup_with_more, ByTier<double>());
  for (const Tier tier : {kDevice, kHost}) {
    const int64_t on_device = tier == kDevice ? 7 : 6, on_host = tier == kHost ? 25 : 24;
    const Plan more = plan(on_device * kMoreMemory, on_host * kMoreMemory, false);
    const double gain = p.makespan_ns / more.makespan_ns - 1, said = p.speedup_with_more[tier] - 1;
    EXPECT_GT(gain, 0.005) << name_of(tier) << ": too little to tell";
    EXPECT_GE(said, gain / 2) << name_of(tier);
    EXPECT_LE(said, gain * 2) << name_of(tier);
  }
}

TEST_F(MoreMemory, IsWorthNothingWhereAllButALittleFits) {
  const Plan p = plan(8 * kMoreMemory, kUnlimited, true);
  EXPECT_GE(p.speedup_with_more[kDevice], 1);
  EXPECT_LE(p.speedup_with_more[kDevice], 1.002);
  EXPECT_EQ(p.speedup_with_more[kHost], 0) << "it has no cap";
}

// Plans of a step whose shape is chosen for its caps, each by itself.
class SinglePlans : public testing::Test {
 protected:
  // Infinite where none fits.
  double step_ns(const BytesByTier& caps) const {
    const ShapeSubject subject = subject_of(model_, {}, {});
    Cut cut;
    cut.seq_len = 1024, cut.tokens_per_step = 2048;
    Effort effort;
    effort.threads = 2, effort.explain = false;
    const auto choice = choose_shape(subject, cut, caps, effort, profile_);
    if (!choice.ok()) return kNone;
    PlanRequest request{effort, caps};
    request.known = choice->settings;
    const auto plan = make_plan(subject.program(choice->shape, choice->late_moments), profile_, request);
    return plan.ok() ? plan->makespan_ns : kNone;
  }

  static constexpr double kNone = std::numeric_limits<double>::infinity();
  const ModelSpec model_ = model_of({256, 2, 4, 2, 64, 512, 512});
  const Profile profile_ = test_machine(2e8);
};

// With 40 MiB of the host some must be pinned to the device, and other settings are tried than with 120:
// those with which each shape is compared have to be as good.
TEST_F(SinglePlans, AreNoSlowerWithMoreOfTheHost) {
  BytesByTier caps(kUnlimited);
  caps[kDevice] = 16 * kMiB, caps[kHost] = 40 * kMiB;
  const double before = step_ns(caps);
  caps[kHost] = 120 * kMiB;
  ASSERT_LT(before, kNone);
  EXPECT_LE(step_ns(caps), 1.001 * before);
}

}  // namespace
}  // namespace sluice::core
