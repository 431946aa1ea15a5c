// SPDX-License-Identifier: Apache-2.0
// What a refusal says is true: the cap that it names works, and a little less does not.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "equivalence/small_runs.h"
#include "search/planner.h"
#include "search/refusal.h"

namespace sluice::core {
namespace {

// A byte count that follows `before`; 0 if there is none.
int64_t bytes_after(const std::string& message, const std::string& before) {
  const auto at = message.find(before);
  if (at == std::string::npos) return 0;
  const auto from = at + before.size();
  const auto bytes = parse_bytes(message.substr(from, message.find(',', from) - from));
  return bytes.ok() ? *bytes : 0;
}

// What it says: the kind, the tier, the cap that was given, and one that works.
int64_t needed(const Error& refusal, std::string_view tier, int64_t given) {
  EXPECT_EQ(refusal.kind, ErrorKind::DoesNotFit);
  const auto& shortage = refusal.shortage;
  EXPECT_TRUE(shortage && shortage->tier == tier && shortage->given_bytes == given);
  return shortage ? shortage->need_bytes.value_or(0) : 0;
}

int64_t residents_named(const std::string& message) {
  const auto residents = message.find("largest residents are ");
  if (residents == std::string::npos) return 0;
  const std::string list = message.substr(residents, message.find(". Raise") - residents);
  return 1 + std::count(list.begin(), list.end(), ',');
}

class Refusals : public testing::TestWithParam<NamedShape> {
 protected:
  Result<Plan> plan(int64_t device, int64_t host, bool explain = true) const {
    PlanRequest request;
    request.explain = explain;
    request.caps[kDevice] = device;
    request.caps[kHost] = host;
    request.boundary_bytes[kDevice] = request.boundary_bytes[kHost] = 1000;
    return make_plan(program_, profile_, request);
  }
  bool works(int64_t device, int64_t host) const { return plan(device, host, false).ok(); }
  // What the process holds itself counts.
  static Profile profile() {
    Profile p;
    p.overhead_bytes[kDevice] = 5000;
    p.overhead_bytes[kHost] = 3000;
    // A tenth of what is on the host, and some bytes for every action.
    p.host_growth = {.per_arena_gib = kGiB / 10, .per_action = 40};
    return p;
  }

  const Question request_ = small_request(GetParam().shape, kNumerics[1].numerics);
  const Program program_ =
      build_training(request_.model, request_.shape, request_.numerics, request_.optimizer).program;
  const Profile profile_ = profile();
};

TEST_P(Refusals, NameADeviceCapThatWorks) {
  const auto refused = plan(1, kUnlimited);
  ASSERT_FALSE(refused.ok());
  SCOPED_TRACE(refused.message());
  EXPECT_TRUE(refused.message().starts_with("device memory:"));
  EXPECT_EQ(residents_named(refused.message()), 3);
  const int64_t cap = bytes_after(refused.message(), "cap that works is ");
  EXPECT_TRUE(works(cap, kUnlimited));
  EXPECT_TRUE(works(needed(refused.error(), "device", 1), kUnlimited));
  EXPECT_FALSE(works(cap * 97 / 100, kUnlimited));
}

TEST_P(Refusals, NameAHostCapThatWorks) {
  const int64_t all =
      rig::must(plan(kUnlimited, kUnlimited)).arenas[kDevice].bytes + profile_.overhead_bytes[kDevice];
  const int64_t least = bytes_after(plan(1, kUnlimited).message(), "cap that works is ");
  int64_t before = INT64_MAX;
  for (const int64_t device : {least, least + (all - least) / 2, kUnlimited}) {
    const auto refused = plan(device, 1);
    ASSERT_FALSE(refused.ok());
    SCOPED_TRACE(refused.message());
    EXPECT_TRUE(refused.message().starts_with("host memory:"));
    EXPECT_EQ(residents_named(refused.message()), 3);
    const int64_t cap = bytes_after(
        refused.message(), device == kUnlimited ? "beside no device cap is "
                                                : "beside a device cap of " + format_bytes(device) + " is ");
    const auto accepted = plan(device, cap);
    ASSERT_TRUE(accepted.ok()) << accepted.message();
    const int64_t arena = accepted->arenas[kHost].bytes, actions = int64_t(accepted->actions.size());
    EXPECT_LE(arena + profile_.held_beside(kHost, arena, actions), cap);
    EXPECT_FALSE(works(device, cap * 97 / 100));
    EXPECT_TRUE(works(device, needed(refused.error(), "host", 1)));
    // What more of the device holds, the host does not have to.
    EXPECT_LT(cap, before);
    before = cap;
  }
}

// A device cap is named beside the host cap that was given, while there is one that works.
TEST_P(Refusals, NameADeviceCapBesideTheHosts) {
  const int64_t free = bytes_after(plan(1, kUnlimited).message(), "cap that works is ");
  const int64_t host =
      bytes_after(plan(free, 1).message(), "beside a device cap of " + format_bytes(free) + " is ") / 2;
  const auto refused = plan(1, host);
  ASSERT_FALSE(refused.ok());
  SCOPED_TRACE(refused.message());
  const int64_t cap = bytes_after(refused.message(), "beside a host cap of " + format_bytes(host) + " is ");
  EXPECT_GT(cap, free);
  EXPECT_TRUE(works(cap, host));
  EXPECT_FALSE(works(cap * 97 / 100, host));
  EXPECT_NE(plan(1, 1).message().find("which no device cap works with"), std::string::npos);
}

// Without an explanation a refusal knows no cap that works, and is of the same kind.
TEST_P(Refusals, AreToldByTheirKindAlsoUnexplained) {
  PlanRequest request;
  request.explain = false;
  request.caps[kDevice] = 1;
  const auto refused = make_plan(program_, profile_, request);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(needed(refused.error(), "device", 1), 0);
}

// Plans a program at pairs of caps, and asks whether they work.
class Asked {
 public:
  Asked(const Program& program, const Profile& profile, bool quick)
      : program_(program), profile_(profile), quick_(quick) {}

  Result<Plan> plan(int64_t device, int64_t host, bool explain = true) const {
    PlanRequest request = at(device, host);
    request.explain = explain;
    return make_plan(program_, profile_, request);
  }
  bool has_plan(int64_t device, int64_t host) const { return plan(device, host, false).ok(); }
  Status works(int64_t device, int64_t host) const { return caps_work(program_, profile_, at(device, host)); }

 private:
  PlanRequest at(int64_t device, int64_t host) const {
    PlanRequest request;
    request.quick = quick_;
    request.caps[kDevice] = device;
    request.caps[kHost] = host;
    return request;
  }
  const Program& program_;
  const Profile& profile_;
  const bool quick_;
};

// Up from what is too little of both: what works goes on working with more of either. A cap that is named
// works beside the other as it was given, and a little less does not; with less, the same is named.
void expect_true_refusals(const Asked& asked, int64_t device_bytes, int64_t host_bytes) {
  constexpr int kSteps = 2;
  const auto device_at = [&](int i) { return device_bytes * (2 * i + 1) / 3; };
  const auto host_at = [&](int i) { return host_bytes * (2 * i + 1) / 3; };
  std::map<std::pair<std::string, int64_t>, int64_t> named;  // by the tier and the cap beside it
  bool worked[kSteps][kSteps];
  for (int d = 0; d < kSteps; ++d) {
    for (int h = 0; h < kSteps; ++h) {
      const int64_t device = device_at(d), host = host_at(h);
      SCOPED_TRACE(fmt::format("device {}, host {}", device, host));
      const Status works = asked.works(device, host);
      worked[d][h] = works.ok();
      const bool less = (d > 0 && worked[d - 1][h]) || (h > 0 && worked[d][h - 1]);
      if (less) {
        EXPECT_TRUE(works.ok()) << works.message();
      }
      if (works.ok()) {
        EXPECT_TRUE(less || asked.has_plan(device, host));
        continue;
      }
      EXPECT_EQ(works.message(), asked.plan(device, host).message());
      const auto& shortage = works.error().shortage;
      ASSERT_TRUE(shortage && shortage->need_bytes) << works.message();
      const std::string& tier = shortage->tier;
      const bool of_host = tier == "host";
      const int64_t cap = *shortage->need_bytes;
      const auto [it, is_new] = named.try_emplace({tier, of_host ? device : host}, cap);
      if (!is_new || works.message().find("which no device cap works with") != std::string::npos) {
        EXPECT_EQ(it->second, cap) << works.message();
        continue;
      }
      EXPECT_TRUE(asked.has_plan(of_host ? device : cap, of_host ? cap : host)) << works.message();
      EXPECT_FALSE(asked.has_plan(of_host ? device : cap * 49 / 50, of_host ? cap * 49 / 50 : host))
          << works.message();
    }
  }
  EXPECT_TRUE(worked[kSteps - 1][kSteps - 1]);
  EXPECT_FALSE(worked[0][0]);
}

TEST(RefusalsOfSmallPrograms, AreTrueForEveryPairOfCaps) {
  const Question request = small_request(kShapes[0].shape, kNumerics[1].numerics);
  const Program program =
      build_training(request.model, request.shape, request.numerics, request.optimizer).program;
  const Profile profile;
  const Asked asked(program, profile, false);
  const Plan all = rig::must(asked.plan(kUnlimited, kUnlimited));
  expect_true_refusals(asked, all.arenas[kDevice].bytes, 2 * persistent_bytes(program));
}

// Of many tasks, which are planned at the whole budget only.
Program large_program() {
  Question request = small_request({64, 64, 1, 8, 64}, kNumerics[0].numerics);
  request.model = model_of({64, 8, 4, 2, 16, 96, 61});
  return build_training(request.model, request.shape, request.numerics, request.optimizer).program;
}

TEST(RefusalsOfLargePrograms, AreTrueForEveryPairOfCaps) {
  const Program program = large_program();
  ASSERT_GT(program.tasks().size(), kLargeProgram);
  const Profile profile = [] {
    Profile p;
    p.overhead_bytes[kHost] = 3000;
    return p;
  }();
  const Asked asked(program, profile, true);
  expect_true_refusals(asked, persistent_bytes(program) * 3 / 4, persistent_bytes(program) * 5 / 4);
}

// A little above the least of the device a quick search has few settings. No host is too small without a cap.
TEST(RefusalsOfLargePrograms, AreTrueWithoutAHostCap) {
  const Program program = large_program();
  const Profile profile;
  const Asked asked(program, profile, true);
  const int64_t least = rig::must(minimal_device_bytes(program, profile, {}));
  for (const int64_t device : {least, least * 76 / 75}) {
    const auto plan = asked.plan(device, kUnlimited);
    EXPECT_TRUE(plan.ok()) << plan.message();
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, Refusals, testing::ValuesIn(kShapes),
                         [](const auto& test) { return std::string(test.param.name); });

// Only devices and the host are placed on.
TEST_P(Refusals, ATierThatNothingIsPlacedOnIsNamed) {
  for (const Tier tier : tiers_of(1)) {
    if (tier <= kHost) continue;
    Profile joined;
    joined.links.push_back({kHost, tier});
    const auto refused = make_plan(program_, joined, {});
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.message().find(fmt::format("joins {},", name_of(tier))), std::string::npos)
        << refused.message();
  }
}

}  // namespace
}  // namespace sluice::core
