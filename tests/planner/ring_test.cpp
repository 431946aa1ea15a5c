// SPDX-License-Identifier: Apache-2.0
// Several devices: who gets which layers, what is handed over when, and that the proof rejects plans whose
// hand-overs are broken.
#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <tuple>

#include "equivalence/small_runs.h"
#include "planner/planner.h"
#include "planner/six_tasks.h"

namespace sluice::core {
namespace {

const Tier kSecond = Tier::device(1);

TEST(Rings, DealLayersInTurn) {
  const std::vector<double> eight(8, 10), two(2, 0.5), four(4, 0.25);
  EXPECT_EQ(ring_of(eight, 0, two, 4), (std::vector<size_t>{0, 0, 0, 0, 1, 1, 1, 1}));
  EXPECT_EQ(ring_of(eight, 0, two, 2), (std::vector<size_t>{0, 0, 1, 1, 0, 0, 1, 1}));
  EXPECT_EQ(ring_of(eight, 0, four, 1), (std::vector<size_t>{0, 1, 2, 3, 0, 1, 2, 3}));
  // Who has less of the time has fewer of the layers.
  EXPECT_EQ(ring_of(eight, 0, std::vector{0.25, 0.75}, 4), (std::vector<size_t>{0, 0, 1, 1, 1, 1, 1, 1}));
}

TEST(Rings, GiveTheOthersLongerLastStagesBesideTheHead) {
  const std::vector<double> eight(8, 10), two(2, 0.5), four(4, 0.25);
  EXPECT_EQ(ring_of(eight, 20, two, 1), (std::vector<size_t>{0, 1, 0, 1, 0, 1, 1, 1}));
  EXPECT_EQ(ring_of(eight, 40, two, 2), (std::vector<size_t>{0, 0, 1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(ring_of(eight, 40, four, 1), (std::vector<size_t>{1, 1, 1, 2, 2, 2, 3, 3}));
}

TEST(Rings, LeaveNoDeviceWithWhatIsOverOfAllParts) {
  // Four and a quarter layers for each of the three others.
  const std::vector<double> layers(14, 4), four(4, 0.25);
  const std::vector<size_t> ring = ring_of(layers, 12, four, 1);
  std::array<int, 4> of_device{};
  for (const size_t device : ring) ++of_device[device];
  EXPECT_EQ(of_device, (std::array{1, 4, 5, 4}));
}

Program four_chunks() {
  StageRequest request = small_request({16, 16, 2, 4, 16}, {});
  request.model.layers.resize(8, request.model.layers.front());
  return build_training(request.model, request.shape, request.numerics, request.optimizer).program;
}

TEST(Rings, HavePlacementsForEveryLengthOfStages) {
  const Program program = four_chunks();
  const std::vector<int> stages = ring_stages(program, 2);
  EXPECT_EQ(stages, (std::vector{1, 2, 3, 4}));
  for (const int layers : stages) {
    const Placement placement = ring(program, cost_of(program, Profile()), std::vector{0.5, 0.5}, layers);
    ASSERT_EQ(placement.tasks.size(), program.tasks().size());
    for (const Tier tier : placement.tasks) EXPECT_TRUE(tier == kDevice || tier == kSecond);
  }
}

// How often the devices begin another layer, pass or round.
size_t changes(const Program& program, const Placement& placement, const std::vector<TaskId>& order) {
  using Work = std::tuple<int, int, Phase>;
  std::vector<std::optional<Work>> last(placement.devices);
  size_t count = 0;
  for (const TaskId id : order) {
    const Task& task = program.task(id);
    if (task.phase == Phase::Update) continue;
    std::optional<Work>& before = last[placement.of(id).index()];
    const Work work{task.layer, task.round, task.phase};
    count += before != work;
    before = work;
  }
  return count;
}

TEST(Rings, RunALayerForAllChunksInTheOrderOfOneDevice) {
  const Program program = four_chunks();
  Profile profile;
  profile.set_lanes(LaneTable::of_devices(2, true), 1e12);
  const TaskCosts costs = cost_of(program, profile);
  Placement placement = ring(program, costs, std::vector{0.5, 0.5}, 1);
  const auto changes_under = [&](RingRule rule) {
    placement.rule = rule;
    return changes(program, placement, ring_order(program, placement, costs, profile, true));
  };
  const std::vector<RingEstimate> estimates = estimate_ring(program, placement, costs, profile);
  const RingEstimate& as_one = estimates.back();
  ASSERT_EQ(as_one.rule, RingRule::AsOne);
  EXPECT_LT(changes_under(RingRule::AsOne), changes_under(RingRule::ForwardFirst));
  EXPECT_LT(changes_under(RingRule::AsOne), changes_under(RingRule::LongestPath));
  for (const RingEstimate& e : estimates) {
    const bool forward_ahead = e.rule == RingRule::ForwardFirst || e.rule == RingRule::LongestPath;
    if (forward_ahead) {
      EXPECT_LT(as_one.bytes, e.bytes);
    }
  }
}

// The first device makes a and comes back to it; all else is the second's.
Placement two_devices() {
  return {{kDevice, kSecond, kSecond, kSecond, kSecond, kDevice}, 2, ""};
}

Profile links(bool joined) {
  Profile profile = SixTasks::link(5);
  profile.set_lanes(LaneTable::of_devices(2, joined), double(SixTasks::kBytes) / 5e-9);
  return profile;
}

std::string words(bool joined) {
  const SixTasks six;
  Limits limits = SixTasks::room(8);
  limits.set_device_bytes(limits.device_bytes());
  const Profile profile = links(joined);
  const StepSchedule step = unroll(six.program, two_devices(), task_order(six.program, six.costs, false),
                                   six.costs, profile, six.saves("", Save::Keep), limits);
  std::vector<Residency> residency;
  for (const Schedule& s : step.devices) residency.push_back(split_at(s, limits, gaps_of(s, profile)));
  Tier misfit;
  const auto plan = emit(six.program, step, std::move(residency), profile, limits, misfit);
  if (!plan) return "does not fit";
  const Status valid = verify(six.program, *plan, six.costs.workspace_bytes);
  return valid.ok() ? six.words(*plan) : valid.message();
}

TEST(HandOvers, GoFromDeviceToDeviceOrByWayOfTheHost) {
  EXPECT_EQ(words(true), "fa; copy a (fa); ba; fb (copy a); fc; bc; bb");
  EXPECT_EQ(words(false), "fa; store a (fa); load a (store a); ba; fb (load a); fc; bc; bb");
}

// A step of a small model over two devices.
class BrokenHandOvers : public testing::TestWithParam<bool> {
 protected:
  BrokenHandOvers() {
    profile_.alignment = 64;
    profile_.set_lanes(LaneTable::of_devices(2, GetParam()), 1e10);
    PlanRequest request;
    request.quick = true;
    request.placement = random_placement(program_, 2, 2);
    plan_ = rig::must(make_plan(program_, profile_, request));
    workspaces_ = cost_of(program_, profile_).workspace_bytes;
  }
  Status check(const Plan& plan) const { return verify(program_, plan, workspaces_); }
  // Copies that bring what the other device made.
  bool hands_over(const Action& a) const {
    return a.hands_over() || (a.stores() && !plan_.homes[a.object.value].anywhere()) ||
           (a.loads() && !plan_.homes[a.object.value].anywhere());
  }

  const StageRequest request_ = small_request({16, 8, 2, 2, 8, true}, kNumerics[1].numerics);
  const Program program_ =
      build_training(request_.model, request_.shape, request_.numerics, request_.optimizer).program;
  Profile profile_;
  Plan plan_;
  std::vector<int64_t> workspaces_;
};

TEST_P(BrokenHandOvers, EachMissingWaitIsFound) {
  ASSERT_TRUE(check(plan_).ok());
  int tried = 0;
  for (uint32_t id = 0; id < plan_.actions.size(); ++id) {
    const Action& a = plan_.actions[id];
    for (uint32_t w = 0; w < a.wait_count; ++w) {
      const Action& awaited = plan_.actions[plan_.waits_of(a)[w]];
      if (!hands_over(a) && !hands_over(awaited)) continue;
      Plan broken = plan_;
      Action& action = broken.actions[id];
      std::swap(broken.waits[action.first_wait + w], broken.waits[action.first_wait + action.wait_count - 1]);
      --action.wait_count;
      const Status status = check(broken);
      EXPECT_FALSE(status.ok()) << label(program_, a) << " without its wait for " << label(program_, awaited);
      EXPECT_NE(status.message().find("does not wait for"), std::string::npos) << status.message();
      ++tried;
    }
  }
  EXPECT_GT(tried, 20);
}

TEST_P(BrokenHandOvers, OthersAreFoundByTheirWords) {
  const auto first = std::ranges::find_if(plan_.actions, [&](const Action& a) { return hands_over(a); });
  ASSERT_NE(first, plan_.actions.end());
  const auto id = size_t(first - plan_.actions.begin());
  const auto refused = [&](const char* what, auto&& spoil, const char* words) {
    Plan broken = plan_;
    spoil(broken, broken.actions[id]);
    const Status status = check(broken);
    ASSERT_FALSE(status.ok()) << what;
    EXPECT_NE(status.message().find(words), std::string::npos) << what << ": " << status.message();
  };
  refused(
      "it waits for what comes later", [&](Plan& p, Action& a) { p.waits[a.first_wait] = uint32_t(id) + 1; },
      "a cycle");
  refused(
      "another lane",
      [](Plan& p, Action& a) {
        a.lane = p.lanes.copy(kHost, kDevice) == a.lane ? p.lanes.copy(kHost, kSecond)
                                                        : p.lanes.copy(kHost, kDevice);
      },
      "on lane");
  refused(
      "nothing lies where it begins", [](Plan&, Action& a) { a.from.offset += 64; }, "uses");
  refused(
      "outside the arena", [](Plan& p, Action& a) { a.to.offset = align_up(p.arenas[a.to.tier].bytes, 64); },
      "lie outside");
  refused(
      "over what the other device still needs",
      [](Plan& p, Action& a) {
        for (const Home& home : p.homes) {
          if (home.on(a.to.tier)) a.to.offset = home.offset[a.to.tier];
        }
      },
      "");
  // Some time after it somebody looks for what it should have brought.
  Plan broken = plan_;
  broken.actions[id].to.offset = broken.actions[id].from.offset;
  broken.actions[id].from = broken.actions[id].to;
  EXPECT_FALSE(check(broken).ok());
}

INSTANTIATE_TEST_SUITE_P(Ways, BrokenHandOvers, testing::Bool(),
                         [](const auto& test) { return test.param ? "joined" : "by_the_host"; });

}  // namespace
}  // namespace sluice::core
