// SPDX-License-Identifier: Apache-2.0
// Where the time of several devices goes, and a table of more and more of them.
#include "what_if/scaling.h"
#include "ops/op.h"

#include <gtest/gtest.h>

#include "config/files/load_config.h"
#include "equivalence/rig/rig.h"
#include "support/temp_dir.h"

namespace sluice::core {
namespace {

using rig::must;

const Tier kOther = Tier::device(1);

// Two layers on two devices, forward and back: x goes to the second device, g comes back.
struct TwoLayers {
  TwoLayers() {
    plan.lanes = LaneTable::of_devices(2, true);
    for (const char* name : {"x", "y", "g", "h"}) {
      Object object;
      object.name = object.role = name;
      object.kind = ObjectKind::Activation;
      object.format = DType::F32;
      object.bytes = 4;
      program.add(object);
    }
    run("f0", Phase::Forward, 0, kDevice, {0, 10}, {});
    copy(kDevice, kOther, {10, 12}, 0);
    run("f1", Phase::Forward, 1, kOther, {12, 22}, 1);
    run("b1", Phase::Backward, 1, kOther, {22, 36}, {});
    copy(kOther, kDevice, {36, 40}, 3);
    run("b0", Phase::Backward, 0, kDevice, {40, 50}, 4);
    plan.makespan_ns = 50;
  }

  void run(const char* name, Phase phase, int layer, Tier device, Interval time,
           std::optional<uint32_t> wait) {
    Action a{ActionKind::Run, plan.lanes.compute(device)};
    a.task = program.add(name, Cast{1, DType::F32, DType::F32},
                         std::vector{ObjectId(uint32_t(program.tasks().size())),
                                     ObjectId(uint32_t(program.tasks().size() + 1) % 4)},
                         phase, layer, 0, 0);
    append(a, time, wait);
  }
  void copy(Tier from, Tier to, Interval time, uint32_t wait) {
    Action a{ActionKind::Copy, plan.lanes.copy(from, to)};
    a.from.tier = from, a.to.tier = to;
    append(a, time, wait);
  }
  void append(Action a, Interval time, std::optional<uint32_t> wait) {
    a.start_ns = time.start_ns, a.end_ns = time.end_ns;
    a.cost_ns = time.end_ns - time.start_ns;
    a.first_wait = uint32_t(plan.waits.size());
    if (wait) plan.waits.push_back(*wait);
    a.wait_count = wait ? 1 : 0;
    plan.actions.push_back(a);
  }

  Program program;
  Plan plan;
};

double sum_of(const DeviceTime& t) {
  return t.work + t.again + t.fill + t.steady + t.drain + t.copies + t.other;
}

TEST(DeviceTime, WaitsAreOfTheFillTheDrainOrBetween) {
  const TwoLayers two;
  const DeviceTime t = device_time(two.program, two.plan);
  EXPECT_NEAR(t.work, 0.44, 1e-9);
  EXPECT_NEAR(t.fill, 0.12, 1e-9);    // of the second, up to 12
  EXPECT_NEAR(t.steady, 0.30, 1e-9);  // of the first, from 10 to 40
  EXPECT_NEAR(t.drain, 0.14, 1e-9);   // of the second, from 36 on
  EXPECT_NEAR(sum_of(t), 1, 1e-9);
  EXPECT_NEAR(t.imbalance, 24.0 / 22 - 1, 1e-9);
}

TEST(DeviceTime, RecomputationAndCopiesOfTheHostAreTheirOwn) {
  TwoLayers two;
  two.plan.actions[3].recompute = true;
  Action load{ActionKind::Copy, two.plan.lanes.copy(kHost, kDevice)};
  load.from.tier = kHost, load.to.tier = kDevice;
  two.plan.actions[4] = load;
  two.plan.actions[4].start_ns = 36, two.plan.actions[4].end_ns = 40;
  Action store{ActionKind::Copy, two.plan.lanes.copy(kDevice, kHost)};
  store.from.tier = kDevice, store.to.tier = kHost;
  two.append(store, {50, 60}, 5);
  two.plan.makespan_ns = 60;
  const DeviceTime t = device_time(two.program, two.plan);
  EXPECT_NEAR(t.again, 14.0 / 120, 1e-9);
  EXPECT_NEAR(t.copies, (4.0 + 2 * 10) / 120, 1e-9);  // the load, and the store at the end
  EXPECT_NEAR(sum_of(t), 1, 1e-9);
}

class Scaling : public testing::Test {
 protected:
  static RunConfig config() {
    static const TempDir dir;
    static const std::string model =
        dir.add(
               "config.json",
               R"({"model_type": "llama", "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4,
  "num_key_value_heads": 2, "intermediate_size": 512, "vocab_size": 256, "rms_norm_eps": 1e-5,
  "rope_theta": 10000, "hidden_act": "silu", "tie_word_embeddings": false})")
            .string();
    return must(load_config("", {"model.config=" + model, "train.seq_len=256", "train.tokens_per_step=2048",
                                 "shape.chunk_tokens=256", "shape.rounds=1", "shape.head_tokens=256"}));
  }
};

TEST_F(Scaling, EveryCountIsPlannedWithTheSameTokens) {
  const std::vector<int> counts{1, 2};
  const auto points = find_scaling(config(), must(find_card("h100")), counts, {});
  ASSERT_EQ(points.size(), 2u);
  for (const ScalingPoint& p : points) {
    ASSERT_TRUE(p.trains()) << p.missing;
    EXPECT_EQ(p.found.shape.tokens(), 2048);
    EXPECT_NEAR(sum_of(p.time), 1, 1e-6) << p.devices;
  }
  EXPECT_EQ(points[0].time.fill + points[0].time.steady + points[0].time.drain, 0);
  EXPECT_GT(points[1].time.fill + points[1].time.steady + points[1].time.drain, 0);
  const Page page = scaling_page(points, "a model");
  EXPECT_EQ(page.sections.front().facts.front().value, 2048);
  const Table& table = page.sections.front().tables.front();
  EXPECT_EQ(table.rows[0].values[2], 1);
  EXPECT_NEAR(*table.rows[1].values[3], *table.rows[1].values[2] / 2, 1e-12);
}

TEST_F(Scaling, ACountThatCannotBePlannedSaysWhy) {
  const std::vector<int> counts{1};
  RunConfig small = config();
  small.caps[kDevice] = kMiB;
  const auto points = find_scaling(small, must(find_card("h100")), counts, {});
  ASSERT_FALSE(points.front().trains());
  EXPECT_NE(to_text(scaling_page(points, "a model")).find("device memory"), std::string::npos);
}

}  // namespace
}  // namespace sluice::core
