// SPDX-License-Identifier: Apache-2.0
// Steps of a small model on this CPU: what is measured adds up, whatever the times are.
#include "bench/cell.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <numeric>

#include "bench/cell_pages.h"
#include "bench/results.h"
#include "equivalence/rig/rig.h"
#include "estimate/counts.h"
#include "lowering/build.h"
#include "setup/resolve.h"
#include "support/temp_dir.h"

namespace sluice::core {
namespace {

using rig::must;

constexpr const char* kSmall = "layers=2,dim=32,ffn=64,heads=2,vocab=64";
const auto kQuiet = [](const std::string&) {};

class Cells : public ::testing::Test {
 protected:
  BenchCell cell(const std::string& compute = "f32", std::vector<std::string> settings = {}) {
    settings.push_back("data.cache=" + dir_.path().string());
    settings.push_back("run.backend=cpu");
    return must(make_cell(kSmall, 32, 2, compute, settings));
  }
  CellResult run(const BenchCell& c) {
    const std::atomic<bool> never = false;
    return must(run_cell(c, must(resolve_machine(c.config, "")), {.steps = 2, .warm_up = 1}, never, kQuiet));
  }

  TempDir dir_;
};

TEST_F(Cells, WhatIsMeasuredAddsUp) {
  for (const char* compute : {"f32", "bf16"}) {
    const CellResult r = run(cell(compute));
    ASSERT_TRUE(r.ok()) << r.message;
    EXPECT_EQ(r.params, parameter_parts(must(bench_model(kSmall))).all());
    EXPECT_EQ(r.steps, 2);
    double phases = 0, classes = 0, forward = 0, top = 0;
    for (const Measured& m : r.phases) {
      EXPECT_GT(m.mean, 0);
      phases += m.mean;
    }
    EXPECT_NEAR(phases + r.others.mean, r.step.mean, 1e-9 * r.step.mean);
    for (const OpTime& t : r.classes) {
      classes += t.s;
      forward += t.forward_s;
    }
    EXPECT_NEAR(classes, phases, 1e-9 * phases);
    EXPECT_NEAR(forward, r.phases[size_t(Phase::Forward)].mean, 1e-9 * forward);
    for (const OpTime& t : r.top) top += t.s;
    EXPECT_LE(top, classes * (1 + 1e-9));
    EXPECT_NEAR(r.tokens_per_s * r.step.mean, 64, 1e-6);
  }
}

TEST_F(Cells, RunsAreThoseOfTheProgram) {
  const BenchCell c = cell();
  const CellResult r = run(c);
  const StepShape shape{.seq_len = 32, .chunk_tokens = 64, .head_tokens = 64};
  const BuiltProgram model = build_training(c.spec, shape, {}, {});
  ASSERT_EQ(r.shape, to_text(shape)) << "another shape was chosen";
  std::array<int64_t, kOpClasses> counts{};
  for (const Task& t : model.program.tasks()) ++counts[size_t(class_of(t))];
  for (size_t k = 0; k < kOpClasses; ++k) {
    EXPECT_EQ(r.classes[k].count, counts[k]) << r.classes[k].name;
    EXPECT_GT(counts[k], 0) << r.classes[k].name;
  }
}

TEST_F(Cells, MemoryIsThatOfTheObjects) {
  const BenchCell c = cell();
  const CellResult r = run(c);
  const int64_t weights = 4 * r.params;
  ASSERT_FALSE(r.memory.empty());
  for (const MemorySample& m : r.memory) {
    EXPECT_EQ(m.params, weights);
    EXPECT_EQ(m.state, 2 * weights);
    EXPECT_LE(m.all(), r.predicted_device_bytes);
  }
  for (const int64_t peak : r.peak_bytes) {
    EXPECT_GE(peak, 3 * weights);
    EXPECT_LE(peak, r.predicted_device_bytes);
  }
  EXPECT_GE(r.forward_only_bytes, weights);
  EXPECT_LT(r.forward_only_bytes, 3 * weights);
}

TEST_F(Cells, WhatDoesNotFitSaysSo) {
  const CellResult small_cap = run(cell("f32", {"memory.device=64KiB"}));
  EXPECT_EQ(small_cap.status, "does not fit");
  EXPECT_NE(small_cap.message.find("the smallest cap that works"), std::string::npos) << small_cap.message;
  BenchCell huge = cell();
  huge.spec = must(bench_model("layers=900,dim=16384,ffn=65536,heads=128,vocab=64"));
  const CellResult no_memory = run(huge);
  EXPECT_EQ(no_memory.status, "does not fit");
  EXPECT_NE(no_memory.message.find("weights, gradients and state take"), std::string::npos)
      << no_memory.message;
}

TEST_F(Cells, AnInterruptionLeavesNoResult) {
  const BenchCell c = cell();
  const std::atomic<bool> at_once = true;
  const auto found = run_cell(c, must(resolve_machine(c.config, "")), {}, at_once, kQuiet);
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().kind, ErrorKind::Cancelled);
}

TEST_F(Cells, InputsDifferWhereResultsDo) {
  const BenchCell c = cell();
  const Machine machine = must(resolve_machine(c.config, ""));
  const std::string inputs = inputs_of(c, machine, {});
  EXPECT_EQ(inputs_of(cell(), machine, {}), inputs);
  EXPECT_NE(inputs_of(cell("bf16"), machine, {}), inputs);
  EXPECT_NE(inputs_of(cell("f32", {"memory.device=1GiB"}), machine, {}), inputs);
  EXPECT_NE(inputs_of(c, machine, {.steps = 6}), inputs);
}

// What refuses runs in f32 is measured in it, against the peak of f32.
TEST_F(Cells, MeasureF32WhereRunsAreRefusedInIt) {
  const Machine refuses = must(resolve_machine(RunConfig(), "h100"));
  const Card h100 = must(find_card("h100"));
  for (const char* compute : {"f32", "bf16"}) {
    const BenchCell c = cell(compute);
    const bool f32 = c.compute == "f32";
    EXPECT_EQ(resolve_numerics(c.config, refuses).ok(), !f32);
    const Machine machine = machine_for(c, refuses);
    EXPECT_TRUE(resolve_numerics(c.config, machine).ok());
    EXPECT_EQ(machine.takes_f32, f32);
    EXPECT_EQ(machine.profile.peak_flops, f32 ? h100.peak.f32 : h100.peak.bf16);
    EXPECT_EQ(machine.profile.rates.product_flops < refuses.profile.rates.product_flops / 10, f32);
    EXPECT_EQ(machine.profile.rates.memory_bytes, refuses.profile.rates.memory_bytes);
  }
  const BenchCell c = cell();
  const Machine cpu = must(resolve_machine(c.config, ""));
  EXPECT_EQ(machine_for(c, cpu).profile.rates.product_flops, cpu.profile.rates.product_flops);
}

TEST(CellResults, ComeBackFromJson) {
  CellResult r{.model = "m", .compute = "f32", .inputs = "abc", .seq_len = 8, .batch = 2, .status = "ok"};
  r.params = 12, r.steps = 3, r.step = {0.5, 0.1}, r.phases[1] = {0.25, 0.05};
  r.peak_bytes = {1, 2, 3};
  r.classes[0] = {"products", 4, 0.5, 0.25};
  r.top = {{"linear", 2, 0.5, 0.25}};
  r.memory = {{0.1, 1, 2, 3, 4, 5}};
  const nlohmann::json json = nlohmann::json::parse(to_json(r).dump());
  const auto back = cell_of(json);
  ASSERT_TRUE(back);
  EXPECT_EQ(nlohmann::json(to_json(*back)), json);
  EXPECT_FALSE(cell_of(nlohmann::json::parse(R"({"model": "m"})")));
  EXPECT_FALSE(cell_of(nlohmann::json::parse("3")));
}

TEST(CellResults, OfAFileTheLastOfEachCounts) {
  CellResult r{.model = "m", .inputs = "abc", .status = "error"};
  CellResult better = r;
  better.status = "ok";
  const std::string line = to_json(better).dump();
  const TempDir dir;
  const auto path = dir.add(
      "cells.jsonl", to_json(r).dump() + "\n" + line + "\nrubbish\n" + line.substr(0, line.size() / 2));
  const auto found = must(load_measured(path, cell_of));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_TRUE(found.at("abc").ok());
  EXPECT_TRUE(must(load_measured(dir.path() / "none.jsonl", cell_of)).empty());
}

TEST(CellPages, HaveTheResultsNumbers) {
  CellResult r{.model = "m", .compute = "f32", .seq_len = 8, .batch = 2, .status = "ok"};
  r.params = 12, r.step = {0.5, 0.1}, r.phases = {{{0.125, 0}, {0.25, 0}, {0.0625, 0}}};
  r.tokens_per_s = 32, r.model_flops = 100, r.peak_flops = 1000;
  r.classes[0] = {"products", 4, 0.375, 0.125};
  r.classes[1] = {"attention", 4, 0.125, 0};
  r.peak_bytes = {1, 2, 3};
  r.memory = {{0.1, 1, 2, 3, 4, 5}};
  CellResult refused{.model = "big", .compute = "f32", .seq_len = 8, .batch = 2, .status = "does not fit"};
  refused.message = "arenas take much";
  const std::vector<CellResult> cells{r, refused};
  const auto model = nlohmann::json::parse(to_json(model_page(cells)))["model"];
  EXPECT_EQ(model["cells"][0]["backward_s"], 0.25);
  EXPECT_EQ(model["cells"][0]["mfu"], 0.2);
  EXPECT_EQ(model["peaks"][0]["backward_peak_bytes"], 2);
  EXPECT_EQ(model["cannot"][0]["message"], "does not fit: arenas take much");
  const auto kernels = nlohmann::json::parse(to_json(kernels_page(cells)))["m_2_8_f32"];
  EXPECT_EQ(kernels["classes"][0]["share"], 0.75);
  EXPECT_EQ(kernels["classes"][0]["forward_share"], 1);
  const Page memory = memory_page(cells);
  EXPECT_EQ(nlohmann::json::parse(to_json(memory))["memory"]["cells"][0]["update_peak_bytes"], 3);
  const Plot& plot = memory.sections.front().plots.front();
  EXPECT_DOUBLE_EQ(plot.series.back().points.front().y, 15.0 / 1048576);
}

TEST(BenchModels, AreThoseOfTheCourse) {
  const auto params = [](const char* name) { return parameter_parts(must(bench_model(name))).all(); };
  EXPECT_EQ(params("small"), 128'625'408);
  EXPECT_EQ(params("medium"), 423'183'360);
  EXPECT_EQ(params("large"), 969'411'840);
  EXPECT_EQ(params("xl"), 1'998'235'200);
  EXPECT_EQ(params("2.7B"), 3'406'809'600);
  EXPECT_FALSE(bench_model("params=7B").ok());
}

TEST(Measurements, HaveMeanAndSampleDeviation) {
  const Measured m = measured_of({1, 2, 3, 4});
  EXPECT_DOUBLE_EQ(m.mean, 2.5);
  EXPECT_DOUBLE_EQ(m.deviation * m.deviation, 5.0 / 3);
  EXPECT_EQ(measured_of({7}).deviation, 0);
}

}  // namespace
}  // namespace sluice::core
