// SPDX-License-Identifier: Apache-2.0
#include "backend/testing/delaying_backend.h"

#include <array>
#include <set>

#include "backend_testing/fake_backend.h"
#include "ops/op.h"
#include "support/one_device.h"

namespace sluice::core {
namespace {

constexpr uint32_t kCommands = 60;

// Command i copies i + 1 bytes on lane i % 3 and waits for two earlier commands.
std::vector<uint32_t> waits_of(uint32_t id) {
  if (id < 7) return {};
  return {id - 7, id - 4};
}

void submit_all(Backend& backend) {
  ASSERT_TRUE(backend.begin(kCommands, true).ok());
  for (uint32_t id = 0; id < kCommands; ++id) {
    const std::vector<uint32_t> waits = waits_of(id);
    ASSERT_TRUE(backend.submit(copy_command(id, Lane(id % 3), id + 1, waits)).ok());
  }
}

// The callers' ids in the order in which the inner backend saw them.
std::vector<uint32_t> order_of(const FakeBackend& inner) {
  std::vector<uint32_t> order;
  for (const auto& seen : inner.commands) order.push_back(static_cast<uint32_t>(seen.bytes - 1));
  return order;
}

std::vector<uint32_t> order_with(const Delays& delays) {
  FakeBackend inner;
  DelayingBackend backend(inner, delays);
  submit_all(backend);
  EXPECT_FALSE(backend.finish(nullptr));
  return order_of(inner);
}

TEST(DelayingBackend, PassesEveryCommandOnOnce) {
  const std::vector<uint32_t> order = order_with({.window = 16});
  EXPECT_EQ(std::set(order.begin(), order.end()).size(), kCommands);
  EXPECT_EQ(order.size(), kCommands);
}

TEST(DelayingBackend, KeepsTheOrderOfALane) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    std::array<uint32_t, 3> next{0, 1, 2};
    for (const uint32_t id : order_with({.seed = seed})) {
      EXPECT_EQ(id, next[id % 3]);
      next[id % 3] += 3;
    }
  }
}

TEST(DelayingBackend, TranslatesWaitsAndKeepsThemBefore) {
  FakeBackend inner;  // checks that waits are earlier
  DelayingBackend backend(inner, {.seed = 5});
  submit_all(backend);
  EXPECT_FALSE(backend.finish(nullptr));
  const std::vector<uint32_t> order = order_of(inner);
  for (const auto& seen : inner.commands) {
    std::vector<uint32_t> waits;
    for (const uint32_t w : seen.waits) waits.push_back(order[w]);
    EXPECT_EQ(waits, waits_of(order[seen.id]));
  }
}

TEST(DelayingBackend, OrderDependsOnTheSeedAlone) {
  EXPECT_EQ(order_with({.seed = 1}), order_with({.seed = 1}));
  std::set<std::vector<uint32_t>> orders;
  for (uint64_t seed = 0; seed < 20; ++seed) orders.insert(order_with({.seed = seed}));
  EXPECT_EQ(orders.size(), 20u);
}

TEST(DelayingBackend, HoldsBackNoMoreThanTheWindow) {
  FakeBackend inner;
  DelayingBackend backend(inner, {.window = 8});
  submit_all(backend);
  EXPECT_EQ(inner.commands.size(), kCommands - 8);
}

TEST(DelayingBackend, PausesDependOnTheSeedToo) {
  const Delays paused{.seed = 1, .longest = std::chrono::microseconds(1)};
  EXPECT_EQ(order_with(paused), order_with(paused));
}

TEST(DelayingBackend, TimelineIsInTheCallersOrder) {
  FakeBackend inner;
  DelayingBackend backend(inner, {.seed = 3});
  submit_all(backend);
  std::vector<Interval> timeline;
  EXPECT_FALSE(backend.finish(&timeline));
  const std::vector<uint32_t> order = order_of(inner);
  ASSERT_EQ(timeline.size(), kCommands);
  for (size_t i = 0; i < order.size(); ++i) EXPECT_EQ(timeline[order[i]].start_ns, double(i));
}

TEST(DelayingBackend, FaultNamesTheCallersCommand) {
  FakeBackend inner;
  inner.fault_at = 20;
  DelayingBackend backend(inner, {.seed = 3});
  submit_all(backend);
  const std::optional<Fault> fault = backend.finish(nullptr);
  ASSERT_TRUE(fault.has_value());
  EXPECT_EQ(fault->command, order_of(inner)[20]);
}

TEST(DelayingBackend, PassesNothingOnAfterAFault) {
  FakeBackend inner;
  inner.fault_at = 20;
  DelayingBackend backend(inner, {.seed = 3});
  submit_all(backend);
  backend.finish(nullptr);
  EXPECT_EQ(inner.commands.size(), 21u);
}

// The spans of a command may be gone when it is passed on.
TEST(DelayingBackend, CopiesWhatACommandPointsTo) {
  FakeBackend inner;
  DelayingBackend backend(inner, {});
  const Op op = Cast{};
  ASSERT_TRUE(backend.begin(1, true).ok());
  {
    std::vector<Buffer> operands{{nullptr, 123}};
    ASSERT_TRUE(backend.submit({.id = 0, .lane = kCompute, .work = Launch{&op, operands, {}}}).ok());
    operands[0].bytes = 0;
  }
  EXPECT_FALSE(backend.finish(nullptr));
  EXPECT_EQ(inner.commands.at(0).bytes, 123);
}

}  // namespace
}  // namespace sluice::core
