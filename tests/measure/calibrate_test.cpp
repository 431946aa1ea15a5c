// SPDX-License-Identifier: Apache-2.0
// Calibration on a machine whose costs are known: the simulator with a price for every command.
#include "measure/calibrate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <utility>

#include "backend/sim/sim_backend.h"
#include "backend/testing/forwarding.h"
#include "io/file.h"
#include "ops/op.h"
#include "report/small_plan.h"
#include "support/one_device.h"
#include "support/temp_dir.h"

namespace sluice::core {
namespace {

constexpr double kLoadRate = 4e9, kStoreRate = 2e9;  // bytes per second
const Op kLight = Cast{4096, DType::F32, DType::F32};
const Op kHeavy = Linear{64, 64, 64, DType::F32};

double cost_of(const Op& op) {
  return std::holds_alternative<Linear>(op) ? 3e6 : 1e5;
}

class PricedBackend final : public ForwardingBackend {
 public:
  explicit PricedBackend(double slowdown, LaneTable lanes = {})
      : ForwardingBackend(std::make_unique<SimBackend>(SimOptions{slowdown}, std::move(lanes))) {}

  Status begin(uint32_t count, bool timed) override {
    beside_ops_ = false;
    launches.clear();
    return ForwardingBackend::begin(count, timed);
  }

  Status submit(const Command& command) override {
    ++commands;
    Command priced = command;
    if (const auto* launch = std::get_if<Launch>(&command.work)) {
      priced.cost_ns = slower * cost_of(*launch->op);
      if (each_held_up > 0 && ++runs_[cost_key(*launch->op)] % each_held_up == 0) priced.cost_ns *= 10;
      beside_ops_ = true;
      ++launches[command.lane];
    } else {
      const double rate = command.lane == kLoad ? kLoadRate : kStoreRate;
      const int64_t bytes = std::get<Copy>(command.work).bytes;
      largest_copy = std::max(largest_copy, bytes);
      for (const Location& end : {std::get<Copy>(command.work).from, std::get<Copy>(command.work).to})
        furthest[end.tier] = std::max(furthest[end.tier], end.offset + bytes);
      if (beside_ops_) copied_beside_ops[command.lane] += bytes;
      priced.cost_ns = 1e9 * double(bytes) / rate;
      if (beside_ops_) priced.cost_ns *= slower_beside_ops;
    }
    return ForwardingBackend::submit(priced);
  }

  Result<Arenas> reserve(const BytesByTier& bytes) override {
    reserved = bytes;
    return ForwardingBackend::reserve(bytes);
  }

  BytesByTier memory() const override {
    BytesByTier bytes = ForwardingBackend::memory();
    bytes[kHost] += left_on_host;
    return bytes;
  }

  int64_t left_on_host = 0;
  int64_t commands = 0;
  int64_t largest_copy = 0;
  std::map<Lane, int64_t> copied_beside_ops;  // by lane
  std::map<Lane, int64_t> launches;           // of the last batch
  BytesByTier reserved, furthest;             // the end of copies
  double slower_beside_ops = 1;               // copies that are submitted after one
  double slower = 1;                          // all ops
  int64_t each_held_up = 0;                   // run of an op of so many takes ten times as long; 0: none

 private:
  std::map<std::string, int64_t> runs_;
  bool beside_ops_ = false;
};

Profile calibrated(const std::filesystem::path& cache, bool shared_cores, double slowdown,
                   int64_t* commands) {
  PricedBackend backend(slowdown);
  Profile profile;
  profile.name = "priced";
  CalibrateOptions options;
  options.shared_cores = shared_cores;
  const StepMix step{{{kLight, 1}, {kHeavy, 1}}, 0, 0};
  const Status status = calibrate(backend, step, cache, options, profile, [](int64_t, int64_t) {});
  EXPECT_TRUE(status.ok()) << status.message();
  *commands = backend.commands;
  return profile;
}

TEST(Calibrate, FindsWhatComputeLosesToCopies) {
  for (const double slowdown : {0.0, 0.25, 1.5}) {
    const TempDir dir;
    int64_t commands = 0;
    const Profile p = calibrated(dir / "costs.json", true, slowdown, &commands);
    // At the ends of the measured time one direction may have stopped.
    EXPECT_NEAR(p.copy_slowdown, slowdown, 0.02 * (1 + slowdown));
    EXPECT_NEAR(p.bytes_per_s(kHost, kDevice), kLoadRate, 1e-6 * kLoadRate);
    EXPECT_NEAR(p.bytes_per_s(kDevice, kHost), kStoreRate, 1e-6 * kStoreRate);
    EXPECT_DOUBLE_EQ(p.cost(kLight).ns, cost_of(kLight));
    EXPECT_DOUBLE_EQ(p.cost(kHeavy).ns, cost_of(kHeavy));
  }
}

// Ops of a step that devices share are timed on all of them at once, which share the host's memory, and
// beside what they hand over, too.
TEST(Calibrate, TimesOpsOfAllDevicesAtOnce) {
  for (const bool joined : {true, false}) {
    const LaneTable lanes = LaneTable::of_devices(2, joined);
    PricedBackend backend(0, lanes);
    Profile profile;
    profile.set_lanes(lanes, kStoreRate);
    StepMix step{.ops = {{kLight, 1}, {kHeavy, 1}}, .loaded_bytes = 4 * kMiB};
    step.handed_over_bytes = 2 * kMiB;
    const TempDir dir;
    ASSERT_TRUE(calibrate(backend, step, dir / "costs.json", {}, profile, [](int64_t, int64_t) {}).ok());
    std::map<Lane, int64_t>& copied = backend.copied_beside_ops;
    const int64_t loaded = copied[lanes.copy(kHost, kDevice)];
    EXPECT_GT(loaded, 0);
    const Tier other = Tier::device(1);
    for (const auto& [from, to] : {std::pair(kDevice, other), std::pair(other, kDevice)}) {
      const std::optional<Lane> lane = lanes.find(from, to);
      ASSERT_EQ(lane.has_value(), joined);
      if (!lane) continue;
      EXPECT_NEAR(double(copied[*lane]) / double(loaded), 0.5, 0.1);
    }
    EXPECT_EQ(copied[lanes.copy(kHost, other)], loaded);
    EXPECT_GT(backend.launches[lanes.compute()], 0);
    EXPECT_EQ(backend.launches[lanes.compute(other)], backend.launches[lanes.compute()]);
  }
}

// A step is the sum of its runs, also of those that another program held up.
TEST(Calibrate, TakesMeansWhereCoresAreShared) {
  for (const bool shared : {false, true}) {
    PricedBackend backend(0);
    backend.each_held_up = 10;
    CalibrateOptions options;
    options.shared_cores = shared;
    Profile profile;
    const StepMix step{{{kLight, 1}, {kHeavy, 1}}, 0, 0};
    const Status status = calibrate(backend, step, "", options, profile, [](int64_t, int64_t) {});
    ASSERT_TRUE(status.ok()) << status.message();
    for (const Op& op : {kLight, kHeavy})
      EXPECT_NEAR(profile.measured_ns.at(cost_key(op)) / cost_of(op), shared ? 1.9 : 1, 0.05) << shared;
  }
}

// Where copies take no cores from compute, links are as fast as beside a step's ops, if it has copies enough
// to tell.
TEST(Calibrate, TimesLinksBesideTheOps) {
  for (const int64_t bytes : {int64_t{0}, 64 * kMiB}) {
    PricedBackend backend(0);
    backend.slower_beside_ops = 1.25;
    Profile profile;
    profile.name = "priced";
    profile.transfer_latency_ns = 0;
    const TempDir dir;
    const StepMix step{{{kLight, 10}, {kHeavy, 10}}, bytes, bytes};
    const auto status = calibrate(backend, step, dir / "costs.json", {}, profile, [](int64_t, int64_t) {});
    ASSERT_TRUE(status.ok()) << status.message();
    const double slower = bytes > 0 ? 1.25 : 1;
    EXPECT_NEAR(profile.bytes_per_s(kHost, kDevice), kLoadRate / slower, 1e-6 * kLoadRate);
    EXPECT_NEAR(profile.bytes_per_s(kDevice, kHost), kStoreRate / slower, 1e-6 * kStoreRate);
  }
}

TEST(Calibrate, CopiesNoMoreThanASmallDeviceHasRoomFor) {
  for (const auto& [device, copy] : {std::pair{kUnlimited, 64 * kMiB},
                                     {2 * kGiB, 32 * kMiB},
                                     {100 * kMiB, 16 * kMiB},
                                     {8 * kMiB, 2 * kMiB}}) {
    PricedBackend backend(0);
    Profile profile;
    CalibrateOptions options;
    options.most_bytes[kDevice] = device;
    const TempDir dir;
    const auto status = calibrate(backend, {{{kLight, 1}}, 0, 0}, dir / "costs.json", options, profile,
                                  [](int64_t, int64_t) {});
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(backend.largest_copy, copy) << device;
  }
}

// What it takes of either tier, by the arenas that it reserves, on top of what the largest op needs, where
// cores are shared and on two devices.
TEST(Calibrate, StaysWithinWhatThereIs) {
  const LaneTable two = LaneTable::of_devices(2, true);
  for (const int64_t host : {kUnlimited, 1 * kGiB, 64 * kMiB, 24 * kMiB, 8 * kMiB}) {
    for (const int64_t device : {kUnlimited, 32 * kMiB, 1 * kMiB}) {
      for (const bool shared : {true, false}) {
        PricedBackend backend(0, shared ? LaneTable() : two);
        Profile profile;
        if (!shared) profile.set_lanes(two, kStoreRate);
        CalibrateOptions options;
        options.shared_cores = shared;
        options.most_bytes = {{kDevice, device}, {kHost, host}};
        const StepMix step{.ops = {{kLight, 1}, {kHeavy, 1}}, .loaded_bytes = kMiB, .stored_bytes = kMiB};
        const auto status = calibrate(backend, step, "", options, profile, [](int64_t, int64_t) {});
        ASSERT_TRUE(status.ok()) << status.message();
        for (const Tier tier : backend.reserved.tiers()) {
          const int64_t most = tier == kHost ? host : device;
          EXPECT_LE(backend.reserved[tier], most) << host << " " << device << " " << shared;
          EXPECT_LE(backend.furthest[tier], backend.reserved[tier]) << host << " " << device << " " << shared;
        }
        // The copies that tell the links' rates take 128 MiB, or as much as no cache has.
        if (host == kUnlimited && device == kUnlimited) {
          EXPECT_GT(backend.reserved[kHost], shared ? 100 * kMiB : 7 * kGiB);
          EXPECT_GT(backend.furthest[kHost], shared ? 100 * kMiB : 7 * kGiB);
        }
      }
    }
  }
}

// A first run with hardly any memory does not decide what is planned for one that has more.
TEST(Calibrate, MeasuresLinksAnewWhereThereIsMoreRoom) {
  const TempDir dir;
  const auto largest_copy = [&](int64_t device) {
    PricedBackend backend(0);
    Profile profile;
    profile.name = "priced";
    CalibrateOptions options;
    options.most_bytes[kDevice] = device;
    const auto status = calibrate(backend, {{{kLight, 1}}, 0, 0}, dir / "costs.json", options, profile,
                                  [](int64_t, int64_t) {});
    EXPECT_TRUE(status.ok()) << status.message();
    return backend.largest_copy;
  };
  EXPECT_EQ(largest_copy(1 * kMiB), 256 * kKiB);
  EXPECT_EQ(largest_copy(2 * kMiB), 0);
  EXPECT_EQ(largest_copy(100 * kMiB), 16 * kMiB);
  EXPECT_EQ(largest_copy(1 * kMiB), 0);
}

TEST(Calibrate, MeasuresOnce) {
  const TempDir dir;
  int64_t first_commands = 0, commands = 0;
  const Profile first = calibrated(dir / "costs.json", true, 0.5, &first_commands);
  const Profile again = calibrated(dir / "costs.json", true, 9, &commands);
  EXPECT_GT(first_commands, 0);
  EXPECT_EQ(commands, 0);
  EXPECT_EQ(again.copy_slowdown, first.copy_slowdown);
  EXPECT_EQ(again.bytes_per_s(kHost, kDevice), first.bytes_per_s(kHost, kDevice));
  EXPECT_EQ(again.bytes_per_s(kDevice, kHost), first.bytes_per_s(kDevice, kHost));
}

// A neighbour that has come since then is no reason to believe in another shape's ops less.
TEST(Calibrate, WhatIsComparedIsMeasuredAsAtTheSameMoment) {
  for (const bool compared : {false, true}) {
    Profile profile;
    profile.name = "priced";
    CalibrateOptions options;
    options.shared_cores = true;
    options.as_known = compared;
    const auto measure = [&](std::vector<CountedOp> ops, double slower) {
      PricedBackend backend(0);
      backend.slower = slower;
      ASSERT_TRUE(calibrate(backend, {std::move(ops)}, {}, options, profile, [](int64_t, int64_t) {}).ok());
    };
    measure({{kLight, 10}}, 1);
    measure({{kLight, 10}, {kHeavy, 2}}, 3);
    EXPECT_NEAR(profile.measured_ns.at(cost_key(kLight)), cost_of(kLight), 1);
    EXPECT_NEAR(profile.measured_ns.at(cost_key(kHeavy)), cost_of(kHeavy) * (compared ? 1 : 3), 10);
  }
}

// Such as what torch has in the same process. Small differences leave plans as they are.
TEST(Calibrate, PlansForWhatAProcessHoldsMoreOfADevice) {
  const TempDir dir;
  const auto overhead = [&](int64_t held) {
    PricedBackend backend(0);
    Profile profile;
    profile.name = "priced";
    CalibrateOptions options;
    options.most_bytes[kDevice] = 100 * kMiB;
    options.device_held_bytes = held;
    const auto status = calibrate(backend, {{{kLight, 1}}, 0, 0}, dir / "costs.json", options, profile,
                                  [](int64_t, int64_t) {});
    EXPECT_TRUE(status.ok()) << status.message();
    return profile.overhead_bytes[kDevice];
  };
  const int64_t first = overhead(500 * kMiB);
  EXPECT_EQ(overhead(500 * kMiB), first);
  EXPECT_EQ(overhead(506 * kMiB), first);
  EXPECT_EQ(overhead(400 * kMiB), first);
  EXPECT_EQ(overhead(630 * kMiB), first + 144 * kMiB);
}

// What measuring leaves on the host is planned with, also where costs are known.
TEST(Calibrate, PlansForWhatMeasuringLeavesOnTheHost) {
  const TempDir dir;
  const auto overhead = [&](int64_t set_aside, int64_t left) {
    PricedBackend backend(0);
    backend.left_on_host = left;
    Profile profile;
    profile.name = "priced";
    profile.overhead_bytes[kHost] = set_aside;
    CalibrateOptions options;
    options.most_bytes[kDevice] = 100 * kMiB;
    options.host_held_bytes = set_aside;
    const auto status = calibrate(backend, {{{kLight, 1}}, 0, 0}, dir / fmt::format("{}.json", left), options,
                                  profile, [](int64_t, int64_t) {});
    EXPECT_TRUE(status.ok()) << status.message();
    return profile.overhead_bytes[kHost];
  };
  const int64_t aside = 700 * kMiB;
  // Who does not say what was set aside, as `doctor`, keeps nothing that a run would plan with.
  EXPECT_EQ(overhead(0, 500 * kMiB), 0);
  EXPECT_EQ(overhead(aside, 500 * kMiB), aside);
  EXPECT_EQ(overhead(aside, 0), aside);
  EXPECT_EQ(overhead(aside, 600 * kMiB), aside);
  const int64_t more = overhead(aside, 1000 * kMiB);
  EXPECT_GE(more, 1000 * kMiB);
  EXPECT_LT(more, 1100 * kMiB);
  // Known costs, in a process that left nothing yet, and in one that holds more beside.
  EXPECT_EQ(overhead(aside, 1000 * kMiB), more);
  EXPECT_EQ(overhead(aside + 160 * kMiB, 1000 * kMiB), more + 160 * kMiB);
}

// A cache from before, without what compute loses to copies, is completed.
TEST(Calibrate, CompletesACacheWithoutTheSlowdown) {
  const TempDir dir;
  int64_t commands = 0;
  EXPECT_EQ(calibrated(dir / "costs.json", false, 0.5, &commands).copy_slowdown, 0);
  const Profile p = calibrated(dir / "costs.json", true, 0.5, &commands);
  EXPECT_GT(commands, 0);
  EXPECT_NEAR(p.copy_slowdown, 0.5, 0.03);
}

// Costs that would have the planner wait for ever, or say nonsense.
TEST(Costs, WhatCannotBeIsRefused) {
  EXPECT_TRUE(
      check_costs(R"({"steps": {"a": {"ns": {"x": 1.5}, "load_bytes_per_s": 1e9}}, "copy_slowdown": 0})")
          .ok());
  for (const char* text :
       {"", "[1]", "{}", R"({"steps": []})", R"({"steps": {"": 3}})", R"({"steps": {"": {"ns": 3}}})",
        R"({"steps": {"": {"ns": {"x": "y"}}}})", R"({"steps": {"": {"ns": {"x": 0}}}})",
        R"({"steps": {"": {"ns": {"x": -1}}}})", R"({"steps": {"": {"ns": {"x": 1e308}}}})",
        R"({"steps": {"": {"ns": {"x": 1e999}}}})", R"({"steps": {"": {"ns": {}, "load_bytes_per_s": -1}}})",
        R"({"steps": {}, "load_bytes_per_s": null})", R"({"steps": {}, "store_bytes_per_s": 1e300})",
        R"({"steps": {}, "copy_slowdown": 1e308})", R"({"steps": {}, "device_overhead_bytes": 1e30})",
        R"({"steps": {}, "device_overhead_bytes": -1})", R"({"steps": {}, "host_growth_bytes": -1})"}) {
    EXPECT_FALSE(check_costs(text).ok()) << text;
  }
}

// A file that is damaged, or another machine's, is measured anew, and that is said once.
TEST(Calibrate, TakesNothingFromAFileThatIsNotBelieved) {
  const TempDir dir;
  int64_t commands = 0;
  (void)calibrated(dir / "costs.json", true, 0.5, &commands);
  const std::string whole = *read_file(dir / "costs.json");
  const std::vector<CountedOp> ops{{kLight, 1}, {kHeavy, 1}};
  const auto said = [&](const char* file, const std::string& content, const char* machine) {
    EXPECT_TRUE(write_file(dir / file, content).ok());
    std::vector<std::string> warnings;
    CalibrateOptions options;
    options.shared_cores = true;
    options.warn = [&](const std::string& what) { warnings.push_back(what); };
    Profile profile;
    profile.name = machine;
    const bool known = recall(ops, dir / file, options, profile);
    EXPECT_EQ(known, profile.measured_ns.size() == 2);
    EXPECT_EQ(known, warnings.empty());
    return warnings.empty() ? "" : warnings.front();
  };
  const std::string path = (dir / "costs.json").string();
  EXPECT_EQ(said("costs.json", whole, "priced"), "");
  EXPECT_EQ(said("costs.json", whole, "other"),
            path + " was made for 'machine = priced', not for 'machine = other'; costs are measured anew");
  EXPECT_EQ(said("moved.json", whole, "priced"),
            (dir / "moved.json").string() +
                " was made for 'file = costs.json', not for 'file = moved.json'; costs are measured anew");
  EXPECT_NE(said("costs.json", whole.substr(0, whole.size() / 2), "priced").find("damaged"),
            std::string::npos);
  EXPECT_NE(said("costs.json", R"({"format": 3, "machine": "priced"})", "priced").find("was expected"),
            std::string::npos);
  EXPECT_GT(commands, 0);
  ASSERT_TRUE(write_file(dir / "costs.json", "").ok());
  commands = 0;
  (void)calibrated(dir / "costs.json", true, 0.5, &commands);
  EXPECT_GT(commands, 0) << "it is measured";
  EXPECT_EQ(said("costs.json", *read_file(dir / "costs.json"), "priced"), "") << "and kept again";
}

// A simulated step is one in which copies cost what the simulator says: learning from it finds the op costs
// it was simulated with.
TEST(Learn, TakesOutWhatCopiesCost) {
  const SmallPlan small = small_plan(0.2);
  Profile profile = small_profile();
  const TaskCosts costs = cost_of(small.program, profile);
  const TempDir dir;
  CalibrateOptions options;
  options.shared_cores = true;
  const Status learnt = learn(small.program, small.plan, predicted_timeline(small.plan), 0, options,
                              dir / "costs.json", profile);
  ASSERT_TRUE(learnt.ok()) << learnt.message();

  bool slowed = false;
  for (const Action& a : small.plan.actions) {
    if (a.kind == ActionKind::Run) slowed |= a.end_ns - a.start_ns > 1.01 * costs.ns[a.task.value];
  }
  ASSERT_TRUE(slowed) << "no run had a copy beside it";
  PricedBackend backend(0);
  const StepMix step{counted_ops(small.program), 0, 0};
  const Status read = calibrate(backend, step, dir / "costs.json", options, profile, [](int64_t, int64_t) {});
  ASSERT_TRUE(read.ok()) << read.message();
  EXPECT_EQ(backend.commands, 0) << "an op or the links were not learnt";
  // Ops that are measured as one may be estimated a little apart.
  std::map<std::string, std::pair<double, double>> range;
  for (size_t t = 0; t < small.program.tasks().size(); ++t) {
    auto& [least, most] =
        range.try_emplace(cost_key(small.program.tasks()[t].op), costs.ns[t], 0).first->second;
    least = std::min(least, costs.ns[t]);
    most = std::max(most, costs.ns[t]);
  }
  for (const auto& [key, between] : range) {
    EXPECT_GE(profile.measured_ns.at(key), between.first * (1 - 1e-6)) << key;
    EXPECT_LE(profile.measured_ns.at(key), between.second * (1 + 1e-6)) << key;
    EXPECT_LE(between.second, 1.03 * between.first) << key;
  }
}

// Links that take no cores from compute are for steps of the kind what they were in the traced one; for
// others they are what they were before.
TEST(Learn, TakesLinksFromTheStep) {
  const SmallPlan small = small_plan(0.2);
  Profile profile = small_profile();
  profile.transfer_latency_ns = 0;
  const double planned = profile.bytes_per_s(kHost, kDevice);
  CalibrateOptions options;
  options.kind = "one";
  const TempDir dir;
  const auto learn_from = [&](double slower) {
    Plan many = small.plan;  // in which copies are large enough to tell
    std::vector<Interval> timeline = predicted_timeline(small.plan);
    for (size_t i = 0; i < timeline.size(); ++i) {
      Action& a = many.actions[i];
      if (a.kind == ActionKind::Run) continue;
      a.bytes = kGiB;
      timeline[i] = {0, slower * 1e9 * double(a.bytes) / planned};
    }
    const Status status = learn(small.program, many, timeline, 0, options, dir / "costs.json", profile);
    ASSERT_TRUE(status.ok()) << status.message();
  };
  learn_from(1.25);
  const std::vector<CountedOp> ops = counted_ops(small.program);
  Profile same = small_profile(), other = small_profile();
  EXPECT_TRUE(recall(ops, dir / "costs.json", options, same));
  EXPECT_NEAR(same.bytes_per_s(kHost, kDevice), planned / 1.25, 1e-6 * planned);
  options.kind = "other";
  EXPECT_FALSE(recall(ops, dir / "costs.json", options, other)) << "its ops are not known";
  EXPECT_DOUBLE_EQ(other.bytes_per_s(kHost, kDevice), planned);
}

// A base that is read from its files comes at the disk's rate, which says nothing of the link's.
TEST(Learn, TellsTheDiskFromTheLink) {
  SmallPlan small = small_plan(0.2);
  Profile profile = small_profile();
  profile.transfer_latency_ns = 0;
  profile.add_disk(1e9);
  const double planned = profile.bytes_per_s(kHost, kDevice);
  std::vector<Interval> timeline = predicted_timeline(small.plan);
  int loads = 0;
  for (size_t i = 0; i < timeline.size(); ++i) {
    Action& a = small.plan.actions[i];
    if (!a.loads()) continue;
    const bool read = ++loads % 2 == 0;
    if (read) a.from.tier = kDisk;
    a.bytes = read ? kGiB / 16 : kGiB;  // a disk takes long for less
    timeline[i] = {0, 1e9 * double(a.bytes) / (read ? 2e9 : 2 * planned)};
  }
  ASSERT_GT(loads, 1);
  const Profile taught = learnt(small.program, small.plan, timeline, /*shared_cores=*/false, profile);
  EXPECT_NEAR(taught.bytes_per_s(kDisk, kDevice), 2e9, 1);
  EXPECT_NEAR(taught.bytes_per_s(kHost, kDevice), 2 * planned, 1e-6 * planned);
}

// What a step taught is not taken for steps in which ops run in another mix, nor lost by measuring those.
TEST(Learn, IsForStepsOfItsKind) {
  const SmallPlan small = small_plan(0.2);
  const TempDir dir;
  CalibrateOptions options;
  options.shared_cores = true;
  options.kind = "one";
  const Status learnt = learn(small.program, small.plan, predicted_timeline(small.plan), 0, options,
                              dir / "costs.json", small_profile());
  ASSERT_TRUE(learnt.ok()) << learnt.message();
  const StepMix step{counted_ops(small.program), 0, 0};
  const auto costs_for = [&](const std::string& kind) {
    PricedBackend backend(0);
    Profile profile = small_profile();
    options.kind = kind;
    const Status read =
        calibrate(backend, step, dir / "costs.json", options, profile, [](int64_t, int64_t) {});
    EXPECT_TRUE(read.ok()) << read.message();
    return profile.measured_ns;
  };
  const auto before = costs_for("one"), other = costs_for("other"), after = costs_for("one");
  EXPECT_EQ(before, after);
  for (const auto& [op, count] : step.ops) {
    EXPECT_DOUBLE_EQ(other.at(cost_key(op)), cost_of(op)) << cost_key(op);
    EXPECT_NE(before.at(cost_key(op)), cost_of(op)) << cost_key(op);
  }
}

}  // namespace
}  // namespace sluice::core
