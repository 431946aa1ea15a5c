// SPDX-License-Identifier: Apache-2.0
// The proof of plans: a plan written by hand passes, and every way of breaking it is rejected with the words
// for it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "ops/op.h"
#include "plan/plan.h"
#include "plan/store.h"
#include "support/one_device.h"

namespace sluice::core {
namespace {

constexpr int64_t kBytes = 256;  // of every object: 8 x 8 f32
constexpr int64_t kWorkspace = 128;

Object object(std::string name, ObjectKind kind, bool persistent = false) {
  Object o;
  o.name = o.role = std::move(name);
  o.kind = kind;
  o.format = DType::F32;
  o.bytes = kBytes;
  o.persistent = persistent;
  return o;
}

enum ObjectIndex : uint32_t { kX, kY, kW, kM };

// y = x;  w += y^T x;  m = w. x comes from the host, w lives there, m goes there.
Program example() {
  Program p;
  for (Object o : {object("x", ObjectKind::Input), object("y", ObjectKind::Activation),
                   object("w", ObjectKind::Param, true), object("m", ObjectKind::Metric)}) {
    p.add(std::move(o));
  }
  const auto add = [&](const char* name, Op op, std::vector<ObjectId> bound) {
    p.add(name, op, bound, Phase::Forward, 0, 0, 0);
  };
  add("copy", Cast{64, DType::F32, DType::F32}, {ObjectId(kX), ObjectId(kY)});
  add("change", LinearWgrad{8, 8, 8, DType::F32, DType::F32, true},
      {ObjectId(kY), ObjectId(kX), ObjectId(kW)});
  add("show", Cast{64, DType::F32, DType::F32}, {ObjectId(kW), ObjectId(kM)});
  return p;
}

// One action with its own addresses and waits: easier to break than the Plan's shared arrays.
struct Step {
  Action action;
  std::vector<int64_t> addresses;
  std::vector<uint32_t> waits;
};

struct Draft {
  BytesByTier bytes{{kDevice, 1280}, {kHost, 768}};
  std::vector<Step> steps;
  std::vector<Home> homes;
  std::vector<int64_t> workspaces{0, kWorkspace, 0};
  uint64_t hash_change = 0;
  std::function<void(Plan&)> spoil = [](Plan&) {};  // what no Step can say
};

Step move(Lane lane, ObjectIndex object, int64_t device, int64_t host, std::vector<uint32_t> waits) {
  Action a{ActionKind::Copy, lane};
  a.object = ObjectId(object);
  a.from = a.to = {kDevice, device};
  (lane == kLoad ? a.from : a.to) = {kHost, host};
  a.bytes = kBytes;
  return {a, {}, std::move(waits)};
}

Step run(uint32_t task, std::vector<int64_t> addresses, std::vector<uint32_t> waits) {
  Action a{ActionKind::Run, kCompute};
  a.task = TaskId(task);
  return {a, std::move(addresses), std::move(waits)};
}

enum StepIndex : size_t { kLoadX, kLoadW, kCopy, kChange, kShow, kStoreW, kStoreM };

Home on_host(int64_t offset) {
  Home home;
  home.set(kHost, offset);
  return home;
}

Draft valid() {
  Draft d;
  d.steps = {move(kLoad, kX, 0, 0, {}),
             move(kLoad, kW, 256, 256, {}),
             run(0, {0, 512}, {kLoadX}),
             run(1, {512, 0, 256}, {kLoadW}),
             run(2, {256, 1024}, {}),
             move(kStore, kW, 256, 256, {kChange}),
             move(kStore, kM, 1024, 512, {kShow})};
  d.steps[kChange].action.workspace_offset = 768;
  d.steps[kChange].action.bytes = kWorkspace;
  d.homes = {on_host(0), {}, on_host(256), on_host(512)};
  return d;
}

Status check(const Draft& d) {
  const Program program = example();
  Plan plan;
  plan.program_hash = program.hash() + d.hash_change;
  for (const Tier tier : d.bytes.tiers()) plan.arenas[tier].bytes = d.bytes[tier];
  plan.alignment = 64;
  plan.homes = d.homes;
  for (const Step& s : d.steps) {
    Action a = s.action;
    a.first_address = uint32_t(plan.addresses.size());
    a.address_count = uint32_t(s.addresses.size());
    a.first_wait = uint32_t(plan.waits.size());
    a.wait_count = uint32_t(s.waits.size());
    plan.addresses.insert(plan.addresses.end(), s.addresses.begin(), s.addresses.end());
    plan.waits.insert(plan.waits.end(), s.waits.begin(), s.waits.end());
    plan.actions.push_back(a);
  }
  d.spoil(plan);
  return verify(program, plan, d.workspaces);
}

TEST(Verify, TakesAValidPlan) {
  const Status status = check(valid());
  EXPECT_TRUE(status.ok()) << status.message();
}

// The proof knows the order of lanes: whoever waits for a lane's second action has its first.
TEST(Verify, TakesAnotherOrder) {
  Draft d = valid();
  std::swap(d.steps[kLoadX], d.steps[kLoadW]);
  d.steps[kCopy].waits = {1};
  d.steps[kChange].waits = {};
  const Status status = check(d);
  EXPECT_TRUE(status.ok()) << status.message();
}

struct Broken {
  const char* name;
  std::function<void(Draft&)> breaking;
  std::vector<std::string> says;
};
void PrintTo(const Broken& b, std::ostream* out) {
  *out << b.name;
}

void erase(Draft& d, size_t step) {
  d.steps.erase(d.steps.begin() + long(step));
  for (Step& s : d.steps) {
    for (uint32_t& w : s.waits) w -= w > step;
  }
}

class Rejects : public testing::TestWithParam<Broken> {};

TEST_P(Rejects, Plan) {
  Draft d = valid();
  GetParam().breaking(d);
  const Status status = check(d);
  ASSERT_FALSE(status.ok());
  for (const std::string& part : GetParam().says) {
    EXPECT_NE(status.message().find(part), std::string::npos) << status.message() << "\nlacks: " << part;
  }
}

INSTANTIATE_TEST_SUITE_P(UseBeforeArrival, Rejects,
                         testing::Values(Broken{"never_loaded",
                                                [](Draft& d) {
                                                  erase(d, kLoadX);
                                                  d.steps[kCopy - 1].waits = {};
                                                },
                                                {"copy", "uses x", "nothing lies"}},
                                         Broken{"loaded_later",
                                                [](Draft& d) {
                                                  std::rotate(d.steps.begin() + kLoadW,
                                                              d.steps.begin() + kCopy,
                                                              d.steps.begin() + kShow);
                                                  d.steps[2].waits = {};  // change, now before the load
                                                },
                                                {"change", "uses w", "nothing lies"}},
                                         Broken{"not_computed_yet",
                                                [](Draft& d) {
                                                  std::swap(d.steps[kCopy], d.steps[kChange]);
                                                  d.steps[kCopy].waits = {kLoadX, kLoadW};
                                                },
                                                {"change", "uses y"}},
                                         Broken{"stored_before_computed",
                                                [](Draft& d) { d.steps[kStoreM].action.from.offset = 768; },
                                                {"store m", "uses m"}},
                                         Broken{"old_version",
                                                [](Draft& d) {
                                                  d.steps.insert(d.steps.begin() + kShow,
                                                                 move(kLoad, kW, 256, 256, {kChange}));
                                                  d.steps[kShow + 1].waits = {kShow};
                                                  d.steps[kShow + 2].waits = {kShow};
                                                  d.steps[kShow + 3].waits = {kShow + 1};
                                                },
                                                {"show", "needs version 1 of w", "is version 0"}}),
                         [](const auto& test) { return test.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Overlap, Rejects,
    testing::Values(
        Broken{"live_object",
               [](Draft& d) {
                 d.steps[kCopy].addresses[1] = d.steps[kChange].addresses[0] = 256;  // y over w
                 d.steps[kCopy].waits = {kLoadW};
               },
               {"change", "uses w", "where y lies"}},
        Broken{"part_of_a_live_object",
               [](Draft& d) {
                 d.steps[kCopy].addresses[1] = d.steps[kChange].addresses[0] = 448;
                 d.steps[kCopy].waits = {kLoadW};
               },
               {"change", "uses w"}},
        Broken{"own_operands", [](Draft& d) { d.steps[kShow].addresses[1] = 320; }, {"show", "overlaps"}},
        Broken{"workspace_and_operand",
               [](Draft& d) { d.steps[kChange].action.workspace_offset = 512; },
               {"change", "overlaps"}},
        Broken{"homes", [](Draft& d) { d.homes[kW].set(kHost, 128); }, {"homes of", "overlap"}},
        Broken{"load_over_what_is_read",
               [](Draft& d) {
                 // x leaves for w before `change` has read it.
                 d.steps.insert(d.steps.begin() + kChange, move(kLoad, kW, 0, 256, {kCopy}));
                 d.steps[kChange + 1].waits = {kChange};
                 d.steps[kChange + 3].waits = {kChange + 1};
                 d.steps[kChange + 4].waits = {kChange + 2};
               },
               {"change", "uses x"}}),
    [](const auto& test) { return test.param.name; });

INSTANTIATE_TEST_SUITE_P(
    CapOverrun, Rejects,
    testing::Values(
        Broken{"device",
               [](Draft& d) { d.bytes[kDevice] = 1216; },
               {"show", "256 bytes from 1024", "outside the device arena of 1216"}},
        Broken{"host",
               [](Draft& d) { d.bytes[kHost] = 704; },
               {"store m", "256 bytes from 512", "outside the host arena of 704"}},
        Broken{"home", [](Draft& d) { d.bytes[kHost] = 448; }, {"home of w", "outside the host arena"}},
        Broken{"workspace",
               [](Draft& d) { d.steps[kChange].action.workspace_offset = 1216; },
               {"change", "outside the device arena"}},
        Broken{"below_zero",
               [](Draft& d) { d.steps[kShow].addresses[1] = d.steps[kStoreM].action.from.offset = -64; },
               {"show", "outside the device arena"}},
        Broken{"alignment",
               [](Draft& d) { d.steps[kShow].addresses[1] = d.steps[kStoreM].action.from.offset = 1000; },
               {"show", "1000", "not a multiple of 64"}}),
    [](const auto& test) { return test.param.name; });

INSTANTIATE_TEST_SUITE_P(
    MissingWait, Rejects,
    testing::Values(Broken{"task_for_load",
                           [](Draft& d) { d.steps[kCopy].waits = {}; },
                           {"copy", "does not wait for action 0 (load x)", "it reads x"}},
                    Broken{"accumulation_for_load",
                           [](Draft& d) { d.steps[kChange].waits = {}; },
                           {"change", "does not wait for action 1 (load w)"}},
                    Broken{"store_for_task",
                           [](Draft& d) { d.steps[kStoreW].waits = {kCopy}; },
                           {"store w", "does not wait for action 3 (change)"}},
                    Broken{"metric_for_task",
                           [](Draft& d) { d.steps[kStoreM].waits = {}; },
                           {"store m", "does not wait for action 4 (show)"}},
                    Broken{"load_over_a_reader",
                           [](Draft& d) { d.steps.push_back(move(kLoad, kX, 256, 0, {})); },
                           {"load x", "does not wait for", "it overwrites w"}},
                    Broken{"write_over_a_store_in_flight",
                           [](Draft& d) {
                             // y is computed again, over w, which is being stored.
                             Step again = run(0, {0, 256}, {});
                             again.action.recompute = true;
                             d.steps.push_back(again);
                           },
                           {"copy (again)", "does not wait for action 5 (store w)"}},
                    Broken{"change_under_a_store_in_flight",
                           [](Draft& d) {
                             d.steps.insert(d.steps.begin() + kChange, move(kStore, kW, 256, 256, {kLoadW}));
                             d.steps[kChange + 2].waits = {};
                             d.steps[kChange + 3].waits = {kChange + 1};
                             d.steps[kChange + 4].waits = {kChange + 2};
                           },
                           {"change", "does not wait for action 3 (store w)", "it changes w"}}),
    [](const auto& test) { return test.param.name; });

INSTANTIATE_TEST_SUITE_P(Cycle, Rejects,
                         testing::Values(Broken{"waits_for_a_later_one",
                                                [](Draft& d) { d.steps[kLoadW].waits = {kShow}; },
                                                {"load w", "cycle"}},
                                         Broken{"waits_for_itself",
                                                [](Draft& d) {
                                                  d.steps[kCopy].waits = {kLoadX, kCopy};
                                                },
                                                {"copy", "cycle"}},
                                         Broken{"waits_for_nothing_there",
                                                [](Draft& d) {
                                                  d.steps[kStoreM].waits = {kShow, 1000};
                                                },
                                                {"store m", "1000"}}),
                         [](const auto& test) { return test.param.name; });

INSTANTIATE_TEST_SUITE_P(
    LostWriteBack, Rejects,
    testing::Values(
        Broken{"never_stored", [](Draft& d) { erase(d, kStoreW); }, {"w", "write-back is lost"}},
        Broken{"metric_never_stored", [](Draft& d) { erase(d, kStoreM); }, {"m", "write-back is lost"}},
        Broken{"stored_before_the_change",
               [](Draft& d) {
                 std::rotate(d.steps.begin() + kChange, d.steps.begin() + kStoreW, d.steps.begin() + kStoreM);
                 d.steps[kChange].waits = {kLoadW};
                 d.steps[kChange + 1].waits = {kChange};
                 d.steps[kStoreM].waits = {kShow + 1};
               },
               {"w", "write-back is lost"}},
        Broken{"stored_elsewhere",
               [](Draft& d) { d.steps[kStoreW].action.to.offset = 0; },
               {"w", "write-back is lost"}},
        Broken{"second_home_is_stale",
               [](Draft& d) {
                 d.homes[kW].set(kDevice, 1024);
                 d.bytes[kDevice] = 1536;
                 d.steps[kShow].addresses[1] = d.steps[kStoreM].action.from.offset = 1280;
               },
               {"w", "device home", "write-back is lost"}},
        Broken{"home_overwritten",
               [](Draft& d) { d.steps[kStoreM].action.to.offset = 256; },
               {"write-back is lost"}}),
    [](const auto& test) { return test.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Malformed, Rejects,
    testing::Values(
        Broken{"other_program", [](Draft& d) { d.hash_change = 1; }, {"the plan is for program"}},
        Broken{"task_left_out",
               [](Draft& d) {
                 erase(d, kStoreM);
                 erase(d, kShow);
               },
               {"show never runs"}},
        Broken{"task_run_twice",
               [](Draft& d) {
                 d.steps.push_back(run(1, {512, 0, 256}, {kStoreW}));
               },
               {"change", "needs version 0 of w"}},
        Broken{"unknown_task", [](Draft& d) { d.steps[kShow].action.task = TaskId(9); }, {"unknown task"}},
        Broken{"unknown_object",
               [](Draft& d) { d.steps[kLoadX].action.object = ObjectId(9); },
               {"unknown object"}},
        Broken{"too_few_addresses",
               [](Draft& d) { d.steps[kShow].addresses.pop_back(); },
               {"show", "1 addresses for 2 uses"}},
        Broken{"part_of_an_object",
               [](Draft& d) { d.steps[kLoadX].action.bytes = 128; },
               {"load x", "moves 128"}},
        Broken{"copy_on_the_wrong_lane", [](Draft& d) { d.steps[kLoadX].action.lane = kStore; }, {"load x"}},
        Broken{"task_on_the_wrong_lane", [](Draft& d) { d.steps[kCopy].action.lane = kLoad; }, {"copy"}},
        Broken{"workspace_too_small", [](Draft& d) { d.workspaces[1] = 192; }, {"change", "192"}},
        Broken{"no_home", [](Draft& d) { d.homes[kW] = {}; }, {"w", "has no home"}},
        Broken{"input_without_host_home",
               [](Draft& d) {
                 d.homes[kX] = {};
                 d.homes[kX].set(kDevice, 0);
               },
               {"x", "no host home"}},
        Broken{"homes_missing", [](Draft& d) { d.homes.pop_back(); }, {"3 homes for 4 objects"}}),
    [](const auto& test) { return test.param.name; });

// Numbers that no planner writes, as a file may hold them: the proof says no and does nothing else with them.
constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();

Broken spoilt(const char* name, std::function<void(Plan&)> spoil, std::vector<std::string> says) {
  return {name, [spoil](Draft& d) { d.spoil = spoil; }, std::move(says)};
}

INSTANTIATE_TEST_SUITE_P(
    Hostile, Rejects,
    testing::Values(
        spoilt("lane_255", [](Plan& p) { p.actions[kCopy].lane = Lane(255); }, {"lane 255 of 3"}),
        spoilt("lane_4", [](Plan& p) { p.actions[kLoadX].lane = Lane(4); }, {"lane 4 of 3"}),
        spoilt("no_lanes", [](Plan& p) { p.lanes = *LaneTable::of({}); }, {}),
        spoilt("unknown_kind", [](Plan& p) { p.actions[kStoreW].kind = ActionKind(7); }, {"kind 7"}),
        spoilt("address_that_wraps",
               [](Plan& p) {
                 // A load and its uses, moved to where offset + bytes is negative.
                 p.actions[kLoadX].to.offset = kHuge - 63;
                 for (int64_t& address : p.addresses) address = address == 0 ? kHuge - 63 : address;
               },
               {"load x", "outside the device arena"}),
        spoilt("home_that_wraps", [](Plan& p) { p.homes[kW].set(kHost, kHuge - 63); },
               {"home of w", "outside the host arena"}),
        spoilt("home_far_below", [](Plan& p) { p.homes[kW].set(kHost, -kHuge - 1); },
               {"home of w", "outside the host arena"}),
        spoilt("workspace_that_wraps", [](Plan& p) { p.actions[kChange].workspace_offset = kHuge - 63; },
               {"change", "outside the device arena"}),
        spoilt("workspace_of_any_size", [](Plan& p) { p.actions[kChange].bytes = kHuge; },
               {"change", "outside the device arena"}),
        spoilt("workspace_of_less_than_nothing", [](Plan& p) { p.actions[kCopy].bytes = -64; }, {"copy"}),
        spoilt("addresses_beyond_the_table", [](Plan& p) { p.actions[kShow].first_address = UINT32_MAX; },
               {"addresses 4294967295 to 4294967297"}),
        spoilt("waits_beyond_the_table", [](Plan& p) { p.actions[kShow].wait_count = UINT32_MAX; },
               {"waits"}),
        spoilt("waits_that_are_shared",
               [](Plan& p) {
                 for (Action& a : p.actions) a.first_wait = 0, a.wait_count = uint32_t(p.waits.size());
               },
               {"wait 28 times", "4 waits"}),
        spoilt("no_alignment", [](Plan& p) { p.alignment = 0; }, {"alignment is 0"}),
        spoilt("arena_below_zero", [](Plan& p) { p.arenas[kDevice].bytes = -1; }, {"device arena of -1"}),
        spoilt("arena_that_no_lane_joins", [](Plan& p) { p.arenas[Tier::device(3)].bytes = 64; },
               {"device3 arena of 64"}),
        spoilt("room_far_beyond", [](Plan& p) { p.arenas[kHost].boundary_offset = kHuge; }, {"room from"}),
        spoilt("home_of_what_does_not_last", [](Plan& p) { p.homes[kY].set(kDevice, kHuge); },
               {"y has a home"}),
        spoilt("time_that_never_ends",
               [](Plan& p) { p.actions[kShow].cost_ns = std::numeric_limits<double>::infinity(); },
               {"inf ns"}),
        spoilt("copy_that_runs_again", [](Plan& p) { p.actions[kLoadX].recompute = true; },
               {"action 0 copies, and has what only a run has"}),
        spoilt("copy_of_a_task", [](Plan& p) { p.actions[kLoadX].task = TaskId(INT32_MAX); },
               {"action 0 copies"}),
        spoilt("copy_with_addresses", [](Plan& p) { p.actions[kLoadX].address_count = 1; },
               {"action 0 copies"}),
        spoilt("run_of_an_object", [](Plan& p) { p.actions[kCopy].object = ObjectId(INT32_MAX); },
               {"action 2 runs a task, and has what only a copy has"}),
        spoilt("run_from_somewhere", [](Plan& p) { p.actions[kCopy].from.offset = 0; },
               {"action 2 runs a task"}),
        spoilt("run_again_of_what_did_not_run", [](Plan& p) { p.actions[kCopy].recompute = true; },
               {"action 2 runs copy for the first time, and says otherwise"}),
        spoilt("time_beyond_all_sums", [](Plan& p) { p.actions[kShow].cost_ns = 1e300; },
               {"takes 1e+300 ns"}),
        spoilt("end_before_its_beginning",
               [](Plan& p) { p.makespan_ns = 5, p.actions[kShow].start_ns = 2, p.actions[kShow].end_ns = 1; },
               {"begins at 2 ns and ends at 1 ns of 5"}),
        spoilt("end_after_the_step", [](Plan& p) { p.actions[kShow].end_ns = 2; }, {"ends at 2 ns of 0"}),
        spoilt("words_that_a_terminal_obeys", [](Plan& p) { p.policy = "\x1b]0;title\a"; },
               {"not for people"}),
        spoilt("words_without_end", [](Plan& p) { p.policy.assign(1 << 20, 'a'); }, {"1048576 bytes"}),
        spoilt("time_that_is_none", [](Plan& p) { p.makespan_ns = std::nan(""); }, {"nan ns"}),
        Broken{"written_over_before_it_is_changed",
               [](Draft& d) {
                 // `change` reads y, x and w and changes w: here y, which a later operand covers, is given
                 // too.
                 d.steps[kChange].addresses[0] = d.steps[kChange].addresses[2];
               },
               {"change"}}),
    [](const auto& test) { return test.param.name; });

// A plan that runs between two steps leaves alone what lies there.
TEST(Verify, KeepsOffWhatLiesThereBetweenSteps) {
  const Program program = example();
  const auto plan_of = [](const Draft& d) {
    Plan plan;
    Draft copy = d;
    copy.spoil = [&](Plan& p) { plan = p; };
    const Status status = check(copy);
    EXPECT_TRUE(status.ok()) << status.message();
    return plan;
  };
  const Plan steps = plan_of(valid());
  const auto says = [&](const Draft& d) {
    const Status status = verify_beside(program, plan_of(d), program, steps);
    return status.ok() ? "" : status.message();
  };
  EXPECT_EQ(says(valid()), "") << "it may write its own objects";
  Draft elsewhere = valid();
  elsewhere.bytes[kHost] = 1024;
  elsewhere.homes[kW].set(kHost, 768);
  elsewhere.steps[kLoadW].action.from.offset = elsewhere.steps[kStoreW].action.to.offset = 768;
  EXPECT_EQ(says(elsewhere), "w is not where a step leaves it");

  // Another program, whose only object that lasts has another name: what it has on the host must lie
  // elsewhere.
  Program other;
  for (Object o : program.objects()) {
    o.name += "'";
    other.add(std::move(o));
  }
  for (const Task& task : program.tasks()) other.add(task);
  Plan plan = steps;
  plan.program_hash = other.hash();
  EXPECT_EQ(verify_beside(other, plan, program, steps).message(), "the host homes of w' and w overlap");
  plan.homes[kW].set(kHost, 768);
  EXPECT_EQ(verify_beside(other, plan, program, steps).message(),
            "action 5 (store w') overwrites w in the host arena, which the next step needs");
  plan.actions[kStoreW].to.offset = 768;
  EXPECT_TRUE(verify_beside(other, plan, program, steps).ok());
  Plan resident = steps;
  resident.homes[kW].set(kDevice, 1024);
  EXPECT_EQ(verify_beside(other, plan, program, resident).message(),
            "action 4 (show) overwrites w in the device arena, which the next step needs");
}

// Every byte of a good plan, changed to others: there is an answer, and none is a crash.
TEST(Verify, AnswersWhateverTheBytesAre) {
  const Program program = example();
  Plan plan;
  Draft d = valid();
  d.spoil = [&](Plan& p) { plan = p; };
  ASSERT_TRUE(check(d).ok());
  const std::string content = to_bytes(plan);
  int taken = 0;
  for (size_t at = 0; at < content.size(); ++at) {
    for (const int value : {0, 1, 4, 0x40, 0x7f, 0x80, 0xff}) {
      std::string changed = content;
      changed[at] = char(value);
      const auto read = plan_from_bytes(changed);
      if (read.ok()) taken += verify(program, *read, d.workspaces).ok();
    }
  }
  EXPECT_GT(taken, 0) << "times and words may be others";
}

}  // namespace
}  // namespace sluice::core
