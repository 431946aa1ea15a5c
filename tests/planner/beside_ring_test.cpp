// SPDX-License-Identifier: Apache-2.0
// What runs between the steps of a ring: devices have not the same free around the room that is kept, and no
// plan may take more than its own has.
#include <gtest/gtest.h>

#include "base/bytes.h"
#include "cost/card.h"
#include "equivalence/small_runs.h"
#include "plans/beside.h"

namespace sluice::core {
namespace {

using rig::must;

// Device 1 has just the room that is kept, device 0 all that is free.
TEST(BesideARing, PlansKeepToEachDevicesRoom) {
  Profile profile = *profile_of(*find_card("h100"), DType::BF16);
  profile.set_lanes(LaneTable::of_devices(2, false), 0);
  StageRequest request =
      small_request({512, 512, 1, 2, 512}, {DType::BF16, DType::BF16, DType::BF16, MasterWeights::Off, true},
                    Updates::Deferred);
  request.model = model_of({256, 7, 4, 2, 64, 768, 1000});
  request.optimizer.part_elements = 64 << 10;
  request.quick = true;
  request.caps[kDevice] = profile.overhead_bytes[kDevice] + 58 * kMiB;
  Stages stages = must(make_stages(request, profile));
  ASSERT_EQ(stages.beside.size(), 1u);
  const BytesByTier room = must(room_beside(stages.beside.front().model.program, profile));
  Plan& main = stages.main.plan;
  const Tier device = Tier::device(1);
  const int64_t end = main.arenas[device].boundary_offset + room[device];
  Home* next = nullptr;  // behind the room
  for (Home& home : main.homes) {
    const int64_t at = home.offset[device];
    if (home.on(device) && at >= end && (next == nullptr || at < next->offset[device])) next = &home;
  }
  ASSERT_NE(next, nullptr);
  ASSERT_GT(next->offset[device], end + (16 << 20));
  next->offset[device] = align_up(end, profile.alignment);
  const Status planned = plan_beside(stages, room, profile);
  EXPECT_TRUE(planned.ok()) << planned.message();
}

}  // namespace
}  // namespace sluice::core
