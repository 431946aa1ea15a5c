// SPDX-License-Identifier: Apache-2.0
// Places on the host that cross the step's boundary: the proof takes a plan in which a gradient's serves an
// activation while its content is of no use, and rejects each way to get that wrong.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "ops/op.h"
#include "plan/plan.h"
#include "support/one_device.h"

namespace sluice::core {
namespace {

constexpr int64_t kBytes = 256;  // of every object: 8 x 8 f32

enum ObjectIndex : uint32_t { kW, kG, kX, kA, kB };

// The step of a deferred update: w += g of the step before; a = x; b = w; then g anew from a and b.
Program deferred() {
  Program p;
  const auto object = [&](const char* name, ObjectKind kind, bool persistent) {
    Object o;
    o.name = o.role = name;
    o.kind = kind;
    o.format = DType::F32;
    o.bytes = kBytes;
    o.persistent = persistent;
    p.add(std::move(o));
  };
  object("w", ObjectKind::Param, true);
  object("g", ObjectKind::Grad, true);
  object("x", ObjectKind::Input, false);
  object("a", ObjectKind::Activation, false);
  object("b", ObjectKind::Activation, false);
  const auto add = [&](const char* name, Op op, std::vector<ObjectId> bound) {
    p.add(name, op, bound, Phase::Forward, 0, 0, 0);
  };
  const auto id = [](ObjectIndex o) { return ObjectId(o); };
  const LinearWgrad product{8, 8, 8, DType::F32, DType::F32, true};
  LinearWgrad anew = product;
  anew.accumulate = false;
  add("update", product, {id(kG), id(kG), id(kW)});
  add("first", Cast{64, DType::F32, DType::F32}, {id(kX), id(kA)});
  add("second", Cast{64, DType::F32, DType::F32}, {id(kW), id(kB)});
  add("gradient", anew, {id(kA), id(kB), id(kG)});
  return p;
}

struct Step {
  Action action;
  std::vector<int64_t> addresses;
  std::vector<uint32_t> waits;
};

// Where things lie: on the device w and four places more; on the host x, and one place that g and a share.
constexpr int64_t kDeviceW = 0, kOne = 256, kTwo = 512, kThree = 768, kFour = 1024, kHostX = 0, kShared = 256;

struct Draft {
  int64_t host_bytes = 512;
  Home w, g;
  std::vector<Step> steps;
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

enum StepIndex : uint32_t { kLoadG, kUpdate, kLoadX, kFirst, kStoreA, kSecond, kLoadA, kGradient, kStoreG };

Draft valid() {
  Draft d;
  d.w.set(kDevice, kDeviceW);
  d.g.set(kHost, kShared);
  d.steps = {move(kLoad, kG, kOne, kShared, {}),
             run(0, {kOne, kOne, kDeviceW}, {kLoadG}),
             move(kLoad, kX, kTwo, kHostX, {}),
             run(1, {kTwo, kThree}, {kLoadX}),
             move(kStore, kA, kThree, kShared, {kLoadG, kFirst}),
             run(2, {kDeviceW, kOne}, {}),
             move(kLoad, kA, kTwo, kShared, {kStoreA, kFirst}),
             run(3, {kTwo, kOne, kThree}, {kLoadA, kStoreA}),
             move(kStore, kG, kThree, kShared, {kLoadA, kGradient})};
  return d;
}

Status check(const Draft& d) {
  const Program program = deferred();
  Plan plan;
  plan.program_hash = program.hash();
  plan.arenas[kDevice].bytes = 1280;
  plan.arenas[kHost].bytes = d.host_bytes;
  plan.alignment = 64;
  plan.homes.resize(program.objects().size());
  plan.homes[kW] = d.w;
  plan.homes[kG] = d.g;
  plan.homes[kX].set(kHost, kHostX);
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
  return verify(program, plan, std::vector<int64_t>(program.tasks().size(), 0));
}

TEST(Boundary, APlaceServesAnotherWhileItsContentIsOfNoUse) {
  const Status status = check(valid());
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

class BreaksTheBoundary : public testing::TestWithParam<Broken> {};

TEST_P(BreaksTheBoundary, AndIsRejected) {
  Draft d = valid();
  GetParam().breaking(d);
  const Status status = check(d);
  ASSERT_FALSE(status.ok());
  for (const std::string& part : GetParam().says) {
    EXPECT_NE(status.message().find(part), std::string::npos) << status.message() << "\nlacks: " << part;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Places, BreaksTheBoundary,
    testing::Values(Broken{"freed_before_its_last_load",
                           [](Draft& d) {
                             // x and a come first: a goes where g still waits for the update.
                             const std::vector<Step> all = d.steps;
                             d.steps = {all[kLoadX],  all[kFirst], all[kStoreA],   all[kLoadG], all[kUpdate],
                                        all[kSecond], all[kLoadA], all[kGradient], all[kStoreG]};
                             const std::vector<uint32_t> waits[] = {{}, {0}, {1}, {2}, {3},
                                                                    {}, {2}, {6}, {7}};
                             for (size_t i = 0; i < d.steps.size(); ++i) d.steps[i].waits = waits[i];
                           },
                           {"load g", "uses g", "where a lies"}},
                    Broken{"freed_while_its_last_load_is_under_way",
                           [](Draft& d) {
                             // `first` runs before the update, so that nothing that a's store waits for has
                             // g's load.
                             const std::vector<Step> all = d.steps;
                             d.steps = {all[kLoadX],  all[kFirst], all[kLoadG],    all[kStoreA], all[kUpdate],
                                        all[kSecond], all[kLoadA], all[kGradient], all[kStoreG]};
                             const std::vector<uint32_t> waits[] = {{}, {0}, {}, {1}, {2}, {}, {3}, {6}, {7}};
                             for (size_t i = 0; i < d.steps.size(); ++i) d.steps[i].waits = waits[i];
                           },
                           {"store a", "does not wait for action 2 (load g)", "it overwrites g"}},
                    Broken{"first_round_reads_the_place_of_a_gradient",
                           [](Draft& d) {
                             // a is never stored: what it is loaded from is g's content, of the step before.
                             d.steps[kStoreA] = move(kStore, kX, kTwo, kHostX, {kFirst});
                           },
                           {"load a", "uses a", "where g lies"}},
                    Broken{"read_after_the_gradient_has_come_back",
                           [](Draft& d) { d.steps.push_back(move(kLoad, kA, kTwo, kShared, {kStoreG})); },
                           {"load a", "uses a", "where g lies"}},
                    Broken{"overlaps_another_place_across_the_boundary",
                           [](Draft& d) {
                             d.w = {};
                             d.w.set(kHost, kShared + 128);
                             d.host_bytes = 768;
                           },
                           {"host homes of", "overlap"}},
                    Broken{"a_place_begins_before_the_one_around_the_boundary_ends",
                           [](Draft& d) {
                             // a lies half over g's place, from before g is loaded.
                             const std::vector<Step> all = d.steps;
                             d.steps = {all[kLoadX],  all[kFirst], all[kStoreA],   all[kLoadG], all[kUpdate],
                                        all[kSecond], all[kLoadA], all[kGradient], all[kStoreG]};
                             const std::vector<uint32_t> waits[] = {{}, {0}, {1}, {2}, {3},
                                                                    {}, {2}, {6}, {7}};
                             for (size_t i = 0; i < d.steps.size(); ++i) d.steps[i].waits = waits[i];
                             d.steps[2].action.to.offset = d.steps[6].action.from.offset = kShared + 128;
                             d.host_bytes = 768;
                           },
                           {"load g", "uses g"}},
                    Broken{"taken_back_while_the_last_load_from_it_is_under_way",
                           [](Draft& d) {
                             // What is loaded nobody waits for: `gradient` reads a where it was made.
                             d.steps[kLoadA] = move(kLoad, kA, kFour, kShared, {kStoreA});
                             d.steps[kGradient] = run(3, {kThree, kOne, kTwo}, {});
                             d.steps[kStoreG] = move(kStore, kG, kTwo, kShared, {kGradient});
                           },
                           {"store g", "does not wait for action 6 (load a)", "it overwrites a"}},
                    Broken{"the_end_does_not_leave_what_the_start_expects",
                           [](Draft& d) { d.steps.pop_back(); },
                           {"after the step g is not at its host home", "write-back is lost"}},
                    Broken{"the_end_leaves_it_elsewhere",
                           [](Draft& d) {
                             d.steps[kStoreG].action.to.offset = 512;
                             d.host_bytes = 768;
                           },
                           {"after the step g is not at its host home"}},
                    Broken{"the_end_leaves_the_content_of_the_step_before",
                           [](Draft& d) {
                             // Its place is kept free of a, and the store of the new content is left out.
                             d.steps[kStoreA].action.to.offset = d.steps[kLoadA].action.from.offset = 512;
                             d.host_bytes = 768;
                             d.steps.pop_back();
                           },
                           {"after the step g is not at its host home in its last version"}},
                    Broken{"the_start_expects_it_where_the_end_does_not_leave_it",
                           [](Draft& d) {
                             d.steps[kLoadG].action.from.offset = 512;
                             d.host_bytes = 768;
                           },
                           {"load g", "uses g", "nothing lies"}},
                    Broken{"the_start_expects_it_on_the_device",
                           [](Draft& d) {
                             d.g.set(kDevice, kOne);
                             d.steps.erase(d.steps.begin());
                             for (Step& s : d.steps) {
                               std::erase(s.waits, 0u);
                               for (uint32_t& w : s.waits) --w;
                             }
                           },
                           {"after the step g is not at its device home"}},
                    Broken{"what_does_not_outlive_the_step_is_expected_at_its_start",
                           [](Draft& d) {
                             // a of the step before would lie there, if it had a home.
                             d.steps[kStoreA] = move(kStore, kX, kTwo, kHostX, {kFirst});
                             d.steps[kLoadA].action.from.offset = 512;
                             d.host_bytes = 768;
                           },
                           {"load a", "nothing lies"}}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace sluice::core
