// SPDX-License-Identifier: Apache-2.0
// Which backends there are, and what machine a configuration gets.
#include "backend/registry/registry.h"

#include <gtest/gtest.h>

#include <set>

#include "machine/machine.h"
#include "ops/gpu_workspace.h"
#include "ops/op.h"

namespace sluice::core {
namespace {

TEST(Registry, EveryBackendIsFoundByItsName) {
  std::set<std::string_view> names;
  for (const BackendKind* kind : backends()) {
    EXPECT_TRUE(names.insert(kind->name).second) << kind->name;
    const auto found = find_backend(kind->name);
    ASSERT_TRUE(found.ok()) << found.message();
    EXPECT_EQ(*found, kind);
    EXPECT_EQ(kind->traits.runs_models, kind->find != nullptr && kind->make != nullptr) << kind->name;
  }
}

TEST(Registry, AnUnknownNameIsAnErrorThatListsTheOthers) {
  const auto found = find_backend("abacus");
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.message(), "run.backend = abacus: allowed are auto, cuda, cpu, sim");
}

// Costs are kept by it, and an empty one would mix machines.
TEST(Registry, WhatIsFoundHasAName) {
  int64_t found_any = 0;
  for (const BackendKind* kind : backends()) {
    if (!kind->traits.runs_models) continue;
    const auto found = kind->find({});
    if (!found.ok()) {
      EXPECT_EQ(found.error().kind, ErrorKind::Device) << found.message();
      continue;
    }
    EXPECT_FALSE(found->name.empty()) << kind->name;
    EXPECT_FALSE(found->description.empty()) << kind->name;
    ++found_any;
  }
  EXPECT_GE(found_any, 1);
}

TEST(Machine, AutoIsTheFirstThatFindsItsHardware) {
  const BackendKind* first = nullptr;
  for (const BackendKind* kind : backends()) {
    if (first == nullptr && kind->traits.runs_models && kind->find({}).ok()) first = kind;
  }
  const auto machine = resolve_machine(RunConfig(), "");
  ASSERT_TRUE(machine.ok()) << machine.message();
  EXPECT_EQ(machine->backend, first);
  EXPECT_GT(machine->profile.overhead_bytes[kHost], 0);
}

TEST(Machine, PresetsAreFoundHoweverTheirNamesAreWritten) {
  for (const char* name : {"rtx4090", "RTX4090", "rtx 4090", "RTX-4090", "NVIDIA GeForce RTX 4090"}) {
    const auto machine = resolve_machine(RunConfig(), name);
    ASSERT_TRUE(machine.ok()) << machine.message();
    EXPECT_EQ(machine->profile.name, "rtx4090");
  }
  const auto none = resolve_machine(RunConfig(), "abacus");
  ASSERT_FALSE(none.ok());
  EXPECT_TRUE(none.message().starts_with("machine 'abacus': known are ")) << none.message();
  for (const Card& card : cards()) EXPECT_NE(none.message().find(card.key), std::string::npos) << card.key;
}

TEST(Machine, APresetIsOnlyPlannedFor) {
  RunConfig config;
  const auto preset = resolve_machine(config, "h100");
  ASSERT_TRUE(preset.ok()) << preset.message();
  EXPECT_FALSE(preset->traits().runs_models);
  EXPECT_EQ(preset->profile.name, "h100");
  // What it asks for beside operands is what the backend would ask for, also for ops to come.
  const Op ops[] = {SumSq{.elements = 1 << 20, .slot = 0, .slots = 1, .dtype = DType::BF16, .first = true},
                    Cast{1 << 20, DType::F32, DType::BF16},
                    HeadLoss{.tokens = 4096,
                             .dim = 4096,
                             .vocab = 128256,
                             .sub_tokens = 1024,
                             .dtype = DType::BF16,
                             .grad_dtype = DType::BF16}};
  for (const Op& op : ops)
    EXPECT_EQ(preset->profile.workspace_bytes(op), workspace_bytes(op, GpuLibraries{.capability = {9, 0}}));
  config.run.backend = "sim";
  const auto simulated = resolve_machine(config, "");
  ASSERT_TRUE(simulated.ok()) << simulated.message();
  EXPECT_FALSE(simulated->traits().runs_models);
}

}  // namespace
}  // namespace sluice::core
