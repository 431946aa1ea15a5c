// SPDX-License-Identifier: Apache-2.0
// A run that loses a device: it ends at once and says which; what it had saved is whole, and it goes on from
// there.
#include <gtest/gtest.h>

#include "backend/testing/losing_backend.h"
#include "run/loaded/caps.h"
#include "run/small_session.h"
#include "run/training/training.h"

namespace sluice::core {
namespace {

constexpr int kStepsBefore = 3;
const Tier kOther = Tier::device(1);

int64_t lost_at = 0;  // command of the second device, in the run of a test

Result<std::unique_ptr<Backend>> make_losing(const BackendOptions& options) {
  SLUICE_ASSIGN(auto inner, must(find_backend("cpu"))->make(options));
  const Loss loss = Loss::of_device(inner->lanes(), kOther, lost_at);
  return std::unique_ptr<Backend>(std::make_unique<LosingBackend>(std::move(inner), loss));
}

// The CPU, which loses its second device.
BackendKind losing_cpu() {
  BackendKind kind = *must(find_backend("cpu"));
  kind.make = make_losing;
  return kind;
}

int64_t commands_of_the_second(const Plan& plan) {
  return std::ranges::count_if(plan.actions, [&](const Action& a) {
    return plan.lanes[a.lane].from == kOther || plan.lanes[a.lane].to == kOther;
  });
}

struct RingRun {
  explicit RingRun(const TempDir& dir) : prepared(must(prepare_small(dir, {"run.devices=2"}))) {}

  // Up to the last of six steps, with a checkpoint after each.
  Status train_on(const std::filesystem::path& checkpoints) {
    const Retention all{100, 0};
    Saver saver = must(Saver::open(prepared, must(CheckpointStore::open(checkpoints, all)), {1, 0, all}, 6,
                                   silent_observer()));
    const auto session = must(Session::open(prepared));
    TrainingOptions options;
    options.saver = &saver;
    options.stop = [] { return false; };
    SLUICE_TRY(train(*session, silent_observer(), options));
    return saver.finish(*session);
  }

  Prepared prepared;
};

TEST(LostDevice, TheRunEndsAndGoesOnFromItsLastCheckpoint) {
  const TempDir dir;
  RingRun whole(dir);
  ASSERT_EQ(whole.prepared.machine.devices(), 2u);
  ASSERT_TRUE(whole.train_on(dir / "whole").ok());

  RingRun lost(dir);
  const BackendKind kind = losing_cpu();
  lost.prepared.machine.backend = &kind;
  const int64_t per_step = commands_of_the_second(lost.prepared.stages.main.plan);
  lost_at = kStepsBefore * per_step + per_step / 2;
  const Status ended = lost.train_on(dir / "lost");
  ASSERT_FALSE(ended.ok());
  EXPECT_EQ(ended.error().kind, ErrorKind::Device);
  EXPECT_NE(ended.message().find("device 1"), std::string::npos) << ended.message();
  EXPECT_TRUE(ended.message().ends_with(": injected loss")) << ended.message();
  EXPECT_EQ(latest_checkpoint(dir / "lost"), dir / "lost/step-3");

  RingRun on(dir);
  on.prepared.config.run.resume = (dir / "lost/step-3").string();
  ASSERT_TRUE(on.train_on(dir / "on").ok());
  for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
    ASSERT_FALSE(file_bytes(dir / "whole/step-6" / file).empty());
    EXPECT_TRUE(file_bytes(dir / "on/step-6" / file) == file_bytes(dir / "whole/step-6" / file)) << file;
  }
}

// The cap is that of each device: who exceeds it is said by number.
TEST(LostDevice, ACapThatOneOfThemExceedsNamesIt) {
  const BackendOptions two{.devices = {0, 1}};
  const auto backend = must(must(find_backend("cpu"))->make(two));
  const BytesByTier caps{{kDevice, 10 * kMiB}, {kOther, 10 * kMiB}, {kHost, kUnlimited}};
  const Status status = check_caps(*backend, {{kOther, 11 * kMiB}}, caps);
  EXPECT_EQ(status.message(),
            "memory.device: the process holds 11.0 MiB on device 1, 1.00 MiB more than the cap of 10.0 MiB");
  EXPECT_EQ(status.error().shortage->tier, "device");
  EXPECT_TRUE(check_caps(*backend, {{kOther, 10 * kMiB}}, caps).ok());
}

}  // namespace
}  // namespace sluice::core
