// SPDX-License-Identifier: Apache-2.0
// Programs that run between steps, and the room that is kept for them.
#include <gtest/gtest.h>

#include "base/bytes.h"
#include "cost/card.h"
#include "equivalence/small_runs.h"
#include "setup/beside.h"

namespace sluice::core {
namespace {

using rig::must;

// A round of chunks goes through a model layer by layer: the room for an evaluation holds chunks of a few
// layers, not of all.
TEST(BesideAStep, RoomOnTheHostIsHeldClosely) {
  const Profile profile = *profile_of(*find_card("h100"), DType::BF16);
  const Numerics numerics{DType::BF16, DType::BF16, DType::BF16, MasterWeights::Off, true};
  const BuiltProgram model =
      build_evaluation(model_of({256, 12, 4, 2, 64, 768, 1000}), {4096, 512, 8, 1, 512}, numerics);
  int64_t all = 0;
  for (const Object& o : model.program.objects()) all += o.persistent ? 0 : o.bytes;
  const BytesByTier room = must(room_beside(model.program, profile));
  EXPECT_LE(room[kHost], all / 4);
}

// Devices of a ring have not the same free around the room, and no plan may take more than its own has:
// device 1 has just the room that is kept, device 0 all that is free.
TEST(BesideARing, PlansKeepToEachDevicesRoom) {
  Profile profile = *profile_of(*find_card("h100"), DType::BF16);
  profile.set_lanes(LaneTable::of_devices(2, false), 0);
  Question request =
      small_request({512, 512, 1, 2, 512}, {DType::BF16, DType::BF16, DType::BF16, MasterWeights::Off, true},
                    Updates::Deferred);
  request.model = model_of({256, 7, 4, 2, 64, 768, 1000});
  request.optimizer.part_elements = 64 << 10;
  request.caps[kDevice] = profile.overhead_bytes[kDevice] + 58 * kMiB;
  Stages stages = must(make_stages(request, profile));
  ASSERT_EQ(stages.beside.size(), 1u);
  const BytesByTier room = must(room_beside(stages.beside.front().model.program, profile));
  Plan& main = stages.main.plan;
  // Wherever the plan has them: homes one behind the other, then the room, on the second device between the
  // last two of them.
  for (const Tier device : {Tier::device(0), Tier::device(1)}) {
    const bool second = device == Tier::device(1);
    int64_t end = 0;
    Home* last = nullptr;
    for (size_t o = 0; o < main.homes.size(); ++o) {
      Home& home = main.homes[o];
      if (!home.on(device)) continue;
      last = &home;
      home.set(device, end);
      end += align_up(stages.main.model.program.objects()[o].bytes, profile.alignment);
    }
    ASSERT_NE(last, nullptr);
    ASSERT_GT(main.arenas[device].bytes, end + room[device] + 16 * kMiB);
    main.arenas[device].boundary_offset = second ? last->offset(device) : end;
    if (second) last->set(device, align_up(last->offset(device) + room[device], profile.alignment));
  }
  const Status planned = plan_beside(stages, room, profile);
  EXPECT_TRUE(planned.ok()) << planned.message();
}

}  // namespace
}  // namespace sluice::core
