// SPDX-License-Identifier: Apache-2.0
// Plans with more lanes than those of one device and a host: the proof sees every wait between any two of
// them, and the backends that serve any lanes run such plans as their waits say.
#include "exec/two_devices.h"

#include <cstring>

#include "backend/testing/delaying_backend.h"
#include "backend/testing/recording_backend.h"
#include "exec/executor.h"
#include "ops/op.h"
#include "plan/store.h"

namespace sluice::core {
namespace {

// So many that every two lanes meet in some.
constexpr uint64_t kFar = Tier::kFar - 1;  // but for the disk
constexpr uint64_t kPlans = 60 * kFar * kFar;

TEST(TwoDevices, PlansAreProved) {
  for (uint64_t seed = 0; seed < kPlans; ++seed) {
    const RandomPlan p(seed);
    const Status status = verify(p.program, p.plan, p.workspaces());
    EXPECT_TRUE(status.ok()) << "seed " << seed << ": " << status.message();
  }
}

// Without a wait `b` may meet what `a` still uses: one of them writes a tier that both use.
bool can_meet(const LaneEnds& a, const LaneEnds& b) {
  return a.to == b.to || a.to == b.from || a.from == b.to;
}

TEST(TwoDevices, TheProofMissesNoWaitBetweenTwoLanes) {
  std::set<std::pair<Lane, Lane>> seen;
  for (uint64_t seed = 0; seed < kPlans; ++seed) {
    const RandomPlan p(seed);
    for (size_t id = 0; id < p.plan.actions.size(); ++id) {
      const Action& a = p.plan.actions[id];
      for (uint32_t w = 0; w < a.wait_count; ++w) {
        Plan broken = p.plan;
        uint32_t* waits = broken.waits.data() + a.first_wait;
        const uint32_t left_out = waits[w];
        std::swap(waits[w], waits[a.wait_count - 1]);
        --broken.actions[id].wait_count;
        const Status status = verify(p.program, broken, p.workspaces());
        ASSERT_FALSE(status.ok()) << "seed " << seed << ", action " << id << " without " << left_out;
        // For that one, or for another that was known through it.
        EXPECT_TRUE(status.message().starts_with("action " + std::to_string(id) + " ")) << status.message();
        EXPECT_NE(status.message().find("does not wait for action "), std::string::npos) << status.message();
        seen.emplace(p.plan.actions[left_out].lane, a.lane);
      }
    }
  }
  const LaneTable lanes = two_devices();
  for (const Lane a : lanes) {
    for (const Lane b : lanes) {
      EXPECT_EQ(seen.contains({a, b}), a != b && can_meet(lanes[a], lanes[b]))
          << name_of(lanes[a]) << " before " << name_of(lanes[b]);
    }
  }
}

TEST(TwoDevices, LanesAndTiersMustBeTheActionsOwn) {
  RandomPlan p(1);
  const auto rejected = [&](size_t id, auto&& change, const std::string& why) {
    Plan broken = p.plan;
    change(broken.actions[id]);
    const Status status = verify(p.program, broken, p.workspaces());
    ASSERT_FALSE(status.ok()) << why;
    EXPECT_NE(status.message().find(why), std::string::npos) << status.message();
  };
  size_t run = 0, peer = 0;
  while (p.plan.actions[run].lane != p.plan.lanes.compute(kSecond)) ++run;
  while (p.plan.actions[peer].lane != p.plan.lanes.copy(kDevice, kSecond)) ++peer;
  const Lane compute = p.plan.lanes.compute(kDevice);
  rejected(
      run, [&](Action& a) { a.lane = compute; }, "at device offset");
  rejected(
      run, [&](Action& a) { a.lane = p.plan.lanes.copy(kHost, kSecond); }, "is on lane load1");
  rejected(
      peer, [&](Action& a) { a.lane = compute; }, "from device to device1 on lane compute");
  rejected(
      peer, [&](Action& a) { a.to.tier = kHost; }, "from device to host on lane device>device1");
  rejected(
      peer, [&](Action& a) { a.lane = Lane(p.plan.lanes.size()); },
      fmt::format("is on lane {0} of {0}", p.plan.lanes.size()));
}

TEST(TwoDevices, PlansAreStoredWithTheirLanes) {
  const RandomPlan p(2);
  const auto back = plan_from_bytes(to_bytes(p.plan));
  ASSERT_TRUE(back.ok()) << back.message();
  EXPECT_EQ(back->lanes, p.plan.lanes);
  EXPECT_EQ(to_text(p.program, *back), to_text(p.program, p.plan));
  EXPECT_NE(to_text(p.program, *back).find("device>device1 copy x"), std::string::npos);
}

TEST(TwoDevices, PlansOfProcessesAreStoredWithTheirNetworks) {
  RandomPlan p(2);
  p.plan.lanes.add_networks();
  const auto back = plan_from_bytes(to_bytes(p.plan));
  ASSERT_TRUE(back.ok()) << back.message();
  EXPECT_EQ(back->lanes, p.plan.lanes);
  EXPECT_NE(back->lanes, RandomPlan(2).plan.lanes);
}

TEST(TwoDevices, TheSimulatorKeepsTheOrderOfLanesAndWaits) {
  for (uint64_t seed = 0; seed < kPlans; ++seed) {
    RandomPlan p(seed);
    predict(p.program, p.plan);
    double sum_ns = 0;
    ByLane<double> end_ns(p.plan.lanes);
    for (const Action& a : p.plan.actions) {
      double ready_ns = end_ns[a.lane];
      for (const uint32_t wait : p.plan.waits_of(a))
        ready_ns = std::max(ready_ns, p.plan.actions[wait].end_ns);
      EXPECT_EQ(a.start_ns, ready_ns) << "seed " << seed;
      EXPECT_EQ(a.end_ns, a.start_ns + a.cost_ns) << "seed " << seed;
      end_ns[a.lane] = a.end_ns;
      sum_ns += a.cost_ns;
    }
    EXPECT_LT(p.plan.makespan_ns, sum_ns) << "lanes overlap";
  }
}

// A copy slows down the compute lanes of the devices that it reads or writes, no others.
TEST(TwoDevices, CopiesSlowDownTheirOwnDevices) {
  const LaneTable lanes = two_devices();
  const auto compute_ns = [&](Tier from, Tier to) {
    SimBackend sim({.copy_slowdown = 0.5}, lanes);
    const Op op = Cast{};
    EXPECT_TRUE(sim.begin(3, true).ok());
    EXPECT_TRUE(sim.submit({0, lanes.copy(from, to), {}, Copy{{from, 0}, {to, 0}, 1}, 1000}).ok());
    EXPECT_TRUE(sim.submit({1, lanes.compute(kDevice), {}, Launch{&op, {}, {}}, 100}).ok());
    EXPECT_TRUE(sim.submit({2, lanes.compute(kSecond), {}, Launch{&op, {}, {}}, 100}).ok());
    std::vector<Interval> times;
    EXPECT_FALSE(sim.finish(&times));
    return std::pair(times[1].end_ns, times[2].end_ns);
  };
  EXPECT_EQ(compute_ns(kHost, kDevice), std::pair(150., 100.));
  EXPECT_EQ(compute_ns(kSecond, kHost), std::pair(100., 150.));
  EXPECT_EQ(compute_ns(kDevice, kSecond), std::pair(150., 150.));
}

// What carries for the network takes its part of the cores that compute beside it, and no others.
TEST(TwoDevices, NetworksSlowDownTheirOwnDevices) {
  LaneTable lanes = two_devices();
  lanes.add_networks();
  for (const bool second : {false, true}) {
    SimBackend sim({.network_share = 0.2}, lanes);
    const Op op = Cast{};
    ASSERT_TRUE(sim.begin(3, true).ok());
    ASSERT_TRUE(
        sim.submit(
               {0, lanes.running(LaneKind::Network, second ? kSecond : kDevice), {}, Launch{&op, {}, {}}, 50})
            .ok());
    ASSERT_TRUE(sim.submit({1, lanes.compute(kDevice), {}, Launch{&op, {}, {}}, 100}).ok());
    ASSERT_TRUE(sim.submit({2, lanes.compute(kSecond), {}, Launch{&op, {}, {}}, 100}).ok());
    std::vector<Interval> times;
    ASSERT_FALSE(sim.finish(&times));
    EXPECT_EQ(times[0].end_ns, 50);
    EXPECT_DOUBLE_EQ(times[second ? 2 : 1].end_ns, 110);  // 40 of the first 50
    EXPECT_EQ(times[second ? 1 : 2].end_ns, 100);
  }
}

// Runs every command as it comes, with arenas in main memory. A launch makes its output, and garbage of its
// workspace, from its input.
class ImmediateBackend final : public Backend {
 public:
  ImmediateBackend() {
    for (const Tier tier : RandomPlan::tiers()) {
      arenas_[tier].assign(RandomPlan::kCells * RandomPlan::kBytes, std::byte{0xee});
      bases_[tier] = arenas_[tier].data();
    }
    for (std::byte& b : arenas_[kHost]) b = std::byte{7};
  }

  const Arenas& bases() const { return bases_; }
  const ByTier<std::vector<std::byte>>& content() const { return arenas_; }

  std::string_view name() const override { return "immediate"; }
  const LaneTable& lanes() const override { return lanes_; }
  int64_t alignment() const override { return RandomPlan::kBytes; }
  int64_t workspace_bytes(const Op&) const override { return RandomPlan::kBytes; }
  Result<Arenas> reserve(const BytesByTier&) override { return bases_; }
  Status prepare(std::span<const SharedOp>) override { return {}; }
  Status begin(uint32_t, bool) override { return {}; }
  Status submit(const Command& command) override {
    if (const auto* launch = std::get_if<Launch>(&command.work)) {
      const Buffer &in = launch->operands[0], &out = launch->operands[1];
      for (int64_t i = 0; i < in.bytes; ++i) {
        out.data[i] = std::byte(std::to_integer<int>(in.data[i]) * 5 + 3);
        launch->workspace.data[i] = out.data[i] ^ std::byte{0xff};
      }
    } else {
      const auto& copy = std::get<Copy>(command.work);
      std::memcpy(at(copy.to), at(copy.from), size_t(copy.bytes));
    }
    return {};
  }
  Status wait(uint32_t) override { return {}; }
  std::optional<Fault> finish(std::vector<Interval>*) override { return {}; }
  Status upload(Location to, const std::byte* from, int64_t bytes) override {
    std::memcpy(at(to), from, size_t(bytes));
    return {};
  }
  Status download(std::byte* to, Location from, int64_t bytes) override {
    std::memcpy(to, at(from), size_t(bytes));
    return {};
  }
  BytesByTier memory() const override { return {}; }

 private:
  std::byte* at(Location place) const { return bases_[place.tier] + place.offset; }

  const LaneTable lanes_ = two_devices();
  ByTier<std::vector<std::byte>> arenas_;
  Arenas bases_;
};

TEST(TwoDevices, AnyOrderThatTheWaitsAllowGivesTheSame) {
  for (uint64_t seed = 0; seed < kPlans; ++seed) {
    const RandomPlan p(seed);
    ImmediateBackend in_order;
    EXPECT_TRUE(Executor(p.program, p.plan, in_order, in_order.bases()).step().ok());
    for (uint64_t order = 0; order < 10; ++order) {
      ImmediateBackend inner;
      DelayingBackend delaying(inner, {.seed = order, .window = 40});
      EXPECT_TRUE(Executor(p.program, p.plan, delaying, inner.bases()).step().ok());
      EXPECT_TRUE(inner.content() == in_order.content()) << "plan " << seed << ", order " << order;
    }
  }
}

// Takes a step's commands at once when they come again, and counts how often.
class AtOnceBackend final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  Result<bool> submit_at_once(std::span<const Command> commands,
                              std::unique_ptr<Recording>& recording) override {
    if (!recording) {
      recording = std::make_unique<Recording>();
      return false;
    }
    for (const Command& command : commands) SLUICE_TRY(inner().submit(command));
    ++at_once;
    return true;
  }

  int at_once = 0;
};

TEST(TwoDevices, StepsThatComeAgainMayGoOnAtOnce) {
  const RandomPlan p(1);
  ImmediateBackend inner, one_by_one;
  AtOnceBackend backend(inner);
  Executor executor(p.program, p.plan, backend, inner.bases());
  Executor other(p.program, p.plan, one_by_one, one_by_one.bases());
  const auto step = [&](std::vector<Interval>* timeline, int at_once) {
    EXPECT_TRUE(executor.step(timeline).ok());
    EXPECT_TRUE(other.step().ok());
    EXPECT_EQ(backend.at_once, at_once);
    EXPECT_TRUE(inner.content() == one_by_one.content());
  };
  step(nullptr, 0);
  step(nullptr, 1);
  step(nullptr, 2);
  std::vector<Interval> timeline;
  step(&timeline, 2);  // every command is timed
  std::vector<SharedOp> ops;
  for (const Task& task : p.program.tasks()) ops.push_back(task.op);
  executor.set_ops(ops);  // what is recorded has others
  step(nullptr, 2);
  step(nullptr, 3);
}

TEST(TwoDevices, ARecordNamesTheLanes) {
  std::set<std::string> names;
  for (uint64_t seed = 0; seed < 5; ++seed) {
    const RandomPlan p(seed);
    ImmediateBackend inner;
    RecordingBackend recording(inner);
    EXPECT_TRUE(Executor(p.program, p.plan, recording, inner.bases()).step().ok());
    ASSERT_EQ(recording.records().size(), p.plan.actions.size());
    for (size_t id = 0; id < p.plan.actions.size(); ++id) {
      const Action& a = p.plan.actions[id];
      const auto waits = p.plan.waits_of(a);
      EXPECT_EQ(recording.records()[id].lane, name_of(p.plan.lanes[a.lane]));
      EXPECT_EQ(recording.records()[id].waits, std::vector(waits.begin(), waits.end()));
      names.insert(recording.records()[id].lane);
    }
  }
  EXPECT_EQ(names.size(), two_devices().size());
}

// The high-water mark of what is handed out, in every tier.
TEST(TwoDevices, TheLedgerHasEveryTier) {
  const RandomPlan p(4);
  ImmediateBackend backend;
  const Executor executor(p.program, p.plan, backend, backend.bases());
  for (const Tier tier : RandomPlan::tiers()) {
    EXPECT_GT(executor.ledger()[tier], 0) << name_of(tier);
    EXPECT_LE(executor.ledger()[tier], p.plan.arenas[tier].bytes) << name_of(tier);
  }
}

}  // namespace
}  // namespace sluice::core
