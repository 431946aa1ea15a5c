// SPDX-License-Identifier: Apache-2.0
// Loads of what a task chooses: the choice is made and on the device before, and what came in part is read by
// that task alone.
#include <gtest/gtest.h>

#include <cmath>

#include "base/bytes.h"
#include "ops/chosen_parts.h"
#include "ops/op.h"
#include "plan/plan.h"
#include "support/one_device.h"

namespace sluice::core {
namespace {

constexpr Mixture kMixture{4, 8, 2};
constexpr int64_t kIn = 8, kOut = 8, kWeights = 4 * kIn * kOut * 4;

// chosen -> sort -> routing; y = the second four experts' product of x. Then z = a copy of their weights.
struct Example {
  Program program;
  Plan plan;
  ObjectId chosen, routing, x, w, y, z;
  enum ActionIndex : size_t { kLoadChosen, kLoadX, kSort, kLoadW, kProduct, kStoreY };

  explicit Example(bool copies_weights = false) {
    chosen = object("chosen", ObjectKind::Input, DType::I32, kMixture.rows());
    routing = object("routing", ObjectKind::Activation, DType::I32,
                     RoutingLayout{kMixture.experts, kMixture.rows()}.elements());
    x = object("x", ObjectKind::Input, DType::F32, kMixture.tokens * kIn);
    w = object("w", ObjectKind::Param, DType::F32, kWeights / 4);
    y = object("y", ObjectKind::Metric, DType::F32, kMixture.rows() * kOut);
    add("sort", SortByExpert{kMixture}, {chosen, routing});
    add("product", GroupedLinear{kMixture, {4, 4}, kIn, kOut, DType::F32, true, false}, {x, w, routing, y});
    if (copies_weights) {
      z = object("z", ObjectKind::Activation, DType::F32, kWeights / 4);
      add("copy", Cast{kWeights / 4, DType::F32, DType::F32}, {w, z});
    }
    plan.alignment = 64;
    plan.arenas[kDevice].bytes = plan.arenas[kHost].bytes = 16384;
    plan.homes.resize(program.objects().size());
    int64_t place = 0;
    for (const ObjectId o : {chosen, x, w, y}) {
      plan.homes[o.value].set(kHost, place);
      place += align_up(program.object(o).bytes, plan.alignment);
    }
    copy(kLoad, chosen, 0, {});
    copy(kLoad, x, 512, {});
    run(TaskId(0), {0, 1024}, {kLoadChosen});
    copy(kLoad, w, 2048, {kSort});
    Action& load = plan.actions.back();
    load.task = TaskId(1);
    load.first_address = uint32_t(plan.addresses.size());
    load.address_count = 1;
    plan.addresses.push_back(1024);
    load.bytes = chosen_parts(program.task(TaskId(1)).op)->expected_bytes(kWeights);
    run(TaskId(1), {512, 2048, 1024, 4096}, {kLoadW});
    copy(kStore, y, 4096, {kProduct});
    if (copies_weights) run(TaskId(2), {2048, 8192}, {});
    plan.program_hash = program.hash();
  }

  Action& action(size_t i) { return plan.actions[i]; }
  void no_waits(size_t i) { plan.actions[i].wait_count = 0; }
  std::string proved() const {
    const std::vector<int64_t> workspaces(program.tasks().size(), 0);
    const Status status = verify(program, plan, workspaces);
    return status.ok() ? "" : std::string(status.message());
  }
  void copy(Lane lane, ObjectId o, int64_t device, std::vector<uint32_t> waits) {
    Action a{ActionKind::Copy, lane};
    a.object = o;
    a.bytes = program.object(o).bytes;
    a.from = a.to = {kDevice, device};
    (lane == kLoad ? a.from : a.to) = Location{kHost, plan.homes[o.value].offset(kHost)};
    append(a, waits);
  }

 private:
  ObjectId object(const char* name, ObjectKind kind, DType type, int64_t elements) {
    Object o{name, name, kind, type, elements * size_of(type)};
    o.persistent = kind == ObjectKind::Param;
    return program.add(std::move(o));
  }
  void add(const char* name, Op op, const std::vector<ObjectId>& bound) {
    program.add(name, op, bound, Phase::Forward, 0, 0, 0);
  }
  void run(TaskId task, const std::vector<int64_t>& addresses, std::vector<uint32_t> waits) {
    Action a{ActionKind::Run, kCompute};
    a.task = task;
    a.first_address = uint32_t(plan.addresses.size());
    a.address_count = uint32_t(addresses.size());
    plan.addresses.insert(plan.addresses.end(), addresses.begin(), addresses.end());
    append(a, waits);
  }
  void append(Action a, const std::vector<uint32_t>& waits) {
    a.first_wait = uint32_t(plan.waits.size());
    a.wait_count = uint32_t(waits.size());
    plan.waits.insert(plan.waits.end(), waits.begin(), waits.end());
    plan.actions.push_back(a);
  }
};

void expect_refused(const Example& example, std::initializer_list<const char*> says) {
  const std::string message = example.proved();
  ASSERT_NE(message, "");
  for (const char* part : says)
    EXPECT_NE(message.find(part), std::string::npos) << message << "\nlacks: " << part;
}

TEST(ChosenLoad, BehindItsRoutingIsProved) {
  const Example example;
  EXPECT_EQ(example.proved(), "");
  const PlanTotals t = totals(example.program, example.plan);
  EXPECT_EQ(t.chosen.actions, 1);
  EXPECT_EQ(t.chosen_from, kWeights);
  // 1 - (1 - 2 / 8)^4 of them.
  EXPECT_EQ(t.chosen.bytes, int64_t(std::ceil(kWeights * (1 - 0.75 * 0.75 * 0.75 * 0.75))));
  const std::string text = to_text(example.program, example.plan);
  EXPECT_NE(text.find("load chosen of w device 2048 host"), std::string::npos) << text;
  EXPECT_NE(text.find(" by product at 1024 waits 2"), std::string::npos) << text;
  EXPECT_NE(describe(example.program, example.plan).find("experts  1 of the loads wait"), std::string::npos);
}

TEST(ChosenLoad, ThatDoesNotWaitForItsRoutingIsRefused) {
  Example example;
  example.no_waits(Example::kLoadW);
  expect_refused(example, {"load chosen of w", "does not wait for action 2 (sort)", "it reads routing"});
}

TEST(ChosenLoad, BeforeItsRoutingIsRefused) {
  Example example;
  std::swap(example.action(Example::kSort), example.action(Example::kLoadW));
  example.no_waits(Example::kSort);
  expect_refused(example, {"load chosen of w", "uses routing"});
}

TEST(ChosenLoad, ThatLooksElsewhereForItsRoutingIsRefused) {
  Example example;
  example.plan.addresses[example.action(Example::kLoadW).first_address] = 512;
  expect_refused(example, {"load chosen of w", "uses routing at device offset 512, where x lies"});
}

TEST(ChosenLoad, ThatOverwritesItsRoutingIsRefused) {
  Example example;
  example.action(Example::kLoadW).to.offset = 1024;
  example.plan.addresses[example.action(Example::kProduct).first_address + 1] = 1024;
  expect_refused(example, {"product", "routing"});
}

TEST(ChosenLoad, IsReadByItsTaskAlone) {
  expect_refused(Example(true), {"copy", "uses w, of which only what product chooses was loaded"});
}

TEST(ChosenLoad, IsNotStored) {
  Example example;
  example.copy(kStore, example.w, 2048, {Example::kProduct});
  expect_refused(example, {"store w", "only what product chooses"});
}

TEST(ChosenLoad, IsNoHome) {
  Example example;
  example.plan.homes[example.w.value].set(kDevice, 2048);
  expect_refused(example, {"after the step w is not at its device home"});
}

TEST(ChosenLoad, OfWhatATaskReadsWholeIsRefused) {
  Example example;
  Action& load = example.action(Example::kLoadX);
  load.task = TaskId(1);
  load.first_address = example.action(Example::kLoadW).first_address;
  load.address_count = 1;
  expect_refused(example, {"load chosen of x", "product does not choose parts of it"});
  Example sorted;
  sorted.action(Example::kLoadW).task = TaskId(0);
  expect_refused(sorted, {"load chosen of w", "sort does not choose parts of it"});
  Example unknown;
  unknown.action(Example::kLoadW).task = TaskId(7);
  expect_refused(unknown, {"an unknown task"});
}

TEST(ChosenLoad, ThatExpectsOtherBytesIsRefused) {
  Example example;
  ++example.action(Example::kLoadW).bytes;
  expect_refused(example, {"load chosen of w", "are expected"});
}

TEST(ChosenLoad, WithoutAnAddressIsRefused) {
  Example example;
  example.action(Example::kLoadW).address_count = 0;
  expect_refused(example, {"action 3 copies, and has what only a run has"});
}

// One token has top_k, very many have all, and of a group as much as of all.
TEST(ChosenParts, ExpectAsManyAsTokensChoose) {
  const auto expected = [](int64_t tokens, int64_t experts, int64_t top_k, ExpertGroup group) {
    return chosen_parts(GroupedLinear{{{tokens, experts, top_k}, group, 8, 8, DType::F32}, true, false})
        ->expected;
  };
  EXPECT_DOUBLE_EQ(expected(1, 128, 8, {0, 128}), 8);
  EXPECT_DOUBLE_EQ(expected(1, 128, 8, {32, 32}), 2);
  EXPECT_DOUBLE_EQ(expected(2, 4, 2, {0, 4}), 3);
  EXPECT_DOUBLE_EQ(expected(3, 4, 4, {0, 4}), 4);
  EXPECT_NEAR(expected(100'000, 128, 8, {0, 128}), 128, 1e-9);
  EXPECT_FALSE(chosen_parts(Cast{8, DType::F32, DType::F32}).has_value());
}

}  // namespace
}  // namespace sluice::core
