// SPDX-License-Identifier: Apache-2.0
#include "backend/testing/losing_backend.h"

#include <algorithm>

#include "backend_testing/fake_backend.h"

namespace sluice::core {
namespace {

const Tier kOther = Tier::device(1);

class TwoFakeDevices : public FakeBackend {
 public:
  const LaneTable& lanes() const override { return lanes_; }

 private:
  const LaneTable lanes_ = LaneTable::of_devices(2, true);
};

class Losing : public testing::Test {
 protected:
  Lane load(Tier device) const { return inner_.lanes().copy(kHost, device); }
  Lane peer() const { return inner_.lanes().copy(kDevice, kOther); }

  // Commands of the lanes, one after the other, with what they wait for. What reached the inner backend, by
  // the ids of the caller, which are the bytes that they copy.
  struct Sent {
    Lane lane;
    std::vector<uint32_t> waits;
  };
  std::vector<int64_t> passed(LosingBackend& backend, const std::vector<Sent>& commands) {
    EXPECT_TRUE(backend.begin(uint32_t(commands.size()), false).ok());
    for (uint32_t id = 0; id < commands.size(); ++id) {
      EXPECT_TRUE(backend.submit(copy_command(id, commands[id].lane, id, commands[id].waits)).ok()) << id;
    }
    std::vector<int64_t> out;
    for (const FakeBackend::Seen& seen : inner_.commands) out.push_back(seen.bytes);
    return out;
  }

  TwoFakeDevices inner_;
};

TEST_F(Losing, WhatWaitsForNothingLostGoesOn) {
  LosingBackend backend(inner_, Loss::of_lane(peer(), 2));
  const auto there = passed(backend, {{peer(), {}},
                                      {load(kDevice), {}},
                                      {peer(), {}},          // fails
                                      {load(kDevice), {1}},  // goes on
                                      {load(kOther), {2}},   // waits for what failed
                                      {load(kOther), {}},    // behind that on its lane
                                      {load(kDevice), {5}}});
  EXPECT_EQ(there, (std::vector<int64_t>{0, 1, 3}));
  const auto fault = backend.finish(nullptr);
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->command, 2u);
  EXPECT_EQ(fault->error.message, "injected loss");
  EXPECT_EQ(fault->error.kind, ErrorKind::Device);
}

TEST_F(Losing, WaitsNameTheInnerBackendsCommands) {
  LosingBackend backend(inner_, Loss::of_lane(peer(), 1));
  passed(backend, {{peer(), {}}, {load(kDevice), {}}, {load(kOther), {1}}});
  EXPECT_EQ(inner_.commands.back().waits, std::vector<uint32_t>{0});
}

TEST_F(Losing, ADeviceHasAllLanesThatReachIt) {
  const Loss loss = Loss::of_device(inner_.lanes(), kOther, 1);
  for (const Lane lane : inner_.lanes()) {
    const LaneEnds& ends = inner_.lanes()[lane];
    EXPECT_EQ(std::ranges::count(loss.lanes, lane), ends.from == kOther || ends.to == kOther)
        << name_of(ends);
  }
}

TEST_F(Losing, ALostDeviceIsNotReachedAgain) {
  LosingBackend backend(inner_, Loss::of_device(inner_.lanes(), kOther, 1));
  EXPECT_TRUE(backend.upload({kOther, 0}, nullptr, 0).ok());
  EXPECT_EQ(passed(backend, {{load(kOther), {}}}), std::vector<int64_t>{});
  EXPECT_TRUE(backend.finish(nullptr));
  EXPECT_FALSE(backend.upload({kOther, 0}, nullptr, 0).ok());
  EXPECT_FALSE(backend.download(nullptr, {kOther, 0}, 0).ok());
  EXPECT_FALSE(backend.clear({kOther, 0}, 0).ok());
  EXPECT_FALSE(backend.begin(0, false).ok());
  EXPECT_TRUE(backend.download(nullptr, {kHost, 0}, 0).ok());
}

TEST_F(Losing, AFaultOfTheInnerBackendKeepsItsCommand) {
  LosingBackend backend(inner_, Loss::of_lane(peer(), 100));
  inner_.fault_at = 1;
  EXPECT_TRUE(backend.begin(2, false).ok());
  EXPECT_TRUE(backend.submit(copy_command(0, load(kDevice), 0)).ok());
  EXPECT_FALSE(backend.submit(copy_command(1, load(kDevice), 1)).ok());
  EXPECT_EQ(backend.finish(nullptr)->command, 1u);
}

}  // namespace
}  // namespace sluice::core
