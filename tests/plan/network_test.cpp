// SPDX-License-Identifier: Apache-2.0
// Lanes to other processes: what may run there, and in which order.
#include <gtest/gtest.h>

#include "ops/op.h"
#include "plan/plan.h"

namespace sluice::core {
namespace {

constexpr int64_t kElements = 64, kBytes = 256, kSlots = 2;

LaneTable two_devices() {
  LaneTable lanes = LaneTable::of_devices(2, false);
  lanes.add_networks();
  return lanes;
}

// The gradients of two weights, each summed over four processes by a device of its own.
struct Example {
  Program program;
  Plan plan;
  std::vector<ObjectId> grads, sums;

  Example() {
    plan.lanes = two_devices();
    plan.alignment = 64;
    for (size_t d = 0; d < 2; ++d) {
      grads.push_back(add_object("g" + std::to_string(d), DType::F32, kBytes));
      sums.push_back(add_object("sums" + std::to_string(d), DType::F64, kSlots * 8));
    }
    for (size_t d = 0; d < 2; ++d) {
      const SumOverProcesses sum{.elements = kElements,
                                 .processes = 4,
                                 .slot = 0,
                                 .slots = kSlots,
                                 .dtype = DType::F32,
                                 .first = true};
      const std::vector<Bound> uses{grads[d], sums[d]};
      const TaskId task = program.add("sum" + std::to_string(d), sum, uses, Phase::Update, int(d), -1, -1);
      Action a{ActionKind::Run, plan.lanes.running(LaneKind::Network, Tier::device(d))};
      a.task = task;
      a.first_address = uint32_t(plan.addresses.size());
      a.address_count = 2;
      for (const int64_t address : {0, 256}) plan.addresses.push_back(address);
      plan.actions.push_back(a);
      plan.arenas[Tier::device(d)].bytes = 512;
    }
    plan.homes.resize(program.objects().size());
    for (size_t d = 0; d < 2; ++d) {
      plan.homes[grads[d].value].set(Tier::device(d), 0);
      plan.homes[sums[d].value].set(Tier::device(d), 256);
    }
    // The second waits for the first.
    plan.waits = {0};
    plan.actions[1].wait_count = 1;
    plan.program_hash = program.hash();
  }
  ObjectId add_object(const std::string& name, DType type, int64_t bytes) {
    return program.add(Object{name, name, ObjectKind::Grad, type, bytes, -1, -1, -1, true});
  }
  std::string proved() const {
    const std::vector<int64_t> workspaces(program.tasks().size(), 0);
    const Status status = verify(program, plan, workspaces);
    return status.ok() ? "" : std::string(status.message());
  }
};

TEST(Network, RunsWhatExchangesInOneOrder) {
  const Example example;
  EXPECT_EQ(example.proved(), "");
  EXPECT_EQ(exchanges(example.plan), (std::vector<TaskId>{TaskId(0), TaskId(1)}));
  EXPECT_EQ(totals(example.program, example.plan).exchanges.bytes, 2 * kBytes * 2 * 3 / 4);
}

TEST(Network, OfTwoDevicesIsRefusedWithoutAnOrder) {
  Example example;
  example.plan.actions[1].wait_count = 0;
  EXPECT_NE(example.proved().find("processes exchange in one order"), std::string::npos) << example.proved();
}

TEST(Network, RunsNothingElse) {
  Example exchanging;
  exchanging.plan.actions[0].lane = exchanging.plan.lanes.compute(kDevice);
  EXPECT_NE(exchanging.proved().find("is on lane compute"), std::string::npos) << exchanging.proved();
  Program program;
  const ObjectId x = program.add(Object{"x", "x", ObjectKind::Grad, DType::F32, kBytes, -1, -1, -1, true});
  const std::vector<Bound> uses{x, x};
  program.add("cast", Cast{kElements, DType::F32, DType::F32}, uses, Phase::Update, 0, -1, -1);
  Plan plan;
  plan.lanes.add_networks();
  plan.arenas[kDevice].bytes = kBytes;
  plan.homes.resize(1);
  plan.homes[0].set(kDevice, 0);
  plan.program_hash = program.hash();
  Action a{ActionKind::Run, plan.lanes.running(LaneKind::Network, kDevice)};
  a.task = TaskId(0);
  a.address_count = 2;
  plan.addresses = {0, 0};
  plan.actions = {a};
  const Status status = verify(program, plan, std::vector<int64_t>{0});
  ASSERT_FALSE(status.ok());
  EXPECT_NE(std::string(status.message()).find("is on lane network"), std::string::npos) << status.message();
}

}  // namespace
}  // namespace sluice::core
