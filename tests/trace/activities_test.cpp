// SPDX-License-Identifier: Apache-2.0
// From a profiler's records to rows of the trace.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "report/small_plan.h"
#include "trace/trace.h"

namespace sluice::core {
namespace {

TEST(KernelName, LosesReturnTypeAndParameters) {
  EXPECT_EQ(kernel_name("void sluice::core::rms_norm<__nv_bfloat16>(int, float const*)"),
            "sluice::core::rms_norm<__nv_bfloat16>");
  EXPECT_EQ(kernel_name("_ZN6sluice4core4cuda12_GLOBAL__N_13addEPfi"), "sluice::core::cuda::add");
  EXPECT_EQ(kernel_name("_ZN6sluice4core3addIfEEvPT_"), "sluice::core::add<float>");
  EXPECT_EQ(kernel_name("void f<(int)3, g<2> >(h (*)(int))"), "f<(int)3, g<2> >");
  EXPECT_EQ(kernel_name("nvjet_tst_128x256_64x4_TNN"), "nvjet_tst_128x256_64x4_TNN");
  EXPECT_EQ(kernel_name("copy to device"), "copy to device");
  EXPECT_EQ(kernel_name(""), "");
}

// The step began at 5,000 of the profiler's clock; command 0 ran from 100 to 300 and command 1 from 300 to
// 900.
constexpr uint64_t kBegin = 1'700'000'000'000'005'000;
const std::vector<Interval> kTimeline{{100, 300}, {300, 900}};

TEST(PlaceOnTimeline, FindsTheBeginOfTheStep) {
  const std::vector<ProfiledActivity> records{
      {"second", 7, 12, kBegin + 350, kBegin + 600, 0},
      {"copy to device", 9, 30, kBegin + 400, kBegin + 500, 4096},
      {"first", 7, 11, kBegin + 110, kBegin + 295, 0},
      {"third", 7, 13, kBegin + 600, kBegin + 895, 0},
  };
  const std::vector<ProfiledCall> calls{{11, 0}, {12, 1}, {13, 1}, {99, 1}};
  const auto placed = place_on_timeline(records, calls, kTimeline);
  ASSERT_EQ(placed.size(), 4u);
  EXPECT_EQ(placed[0].name, "first");
  EXPECT_EQ(placed[0].command, 0u);
  EXPECT_EQ(placed[1].name, "second");
  EXPECT_EQ(placed[1].command, 1u);
  EXPECT_EQ(placed[2].name, "copy to device");
  EXPECT_EQ(placed[2].command, std::nullopt);
  EXPECT_EQ(placed[2].bytes, 4096);
  EXPECT_EQ(placed[2].stream, 9u);
  // Bounds: not before 5 under ("first" and "third" end 5 before their commands), not after 10 over ("first"
  // begins 10 after); so it is taken to be 2.5 later than it was.
  EXPECT_DOUBLE_EQ(placed[0].time.start_ns, 110 - 2.5);
  EXPECT_DOUBLE_EQ(placed[3].time.end_ns, 895 - 2.5);
}

TEST(PlaceOnTimeline, BeginsAtZeroWhenNothingIsKnown) {
  const auto placed = place_on_timeline({{"a", 1, 5, kBegin, kBegin + 10, 0}}, {}, {});
  ASSERT_EQ(placed.size(), 1u);
  EXPECT_DOUBLE_EQ(placed[0].time.start_ns, 0);
  EXPECT_DOUBLE_EQ(placed[0].time.end_ns, 10);
  EXPECT_TRUE(place_on_timeline({}, {}, kTimeline).empty());
}

TEST(ChromeTrace, HasARowPerStream) {
  const SmallPlan small = small_plan(0.5);
  const std::vector<Interval> timeline = predicted_timeline(small.plan);
  uint32_t load = 0;
  while (!small.plan.actions[load].loads()) ++load;
  const std::vector<DeviceActivity> activities{
      {"copy to device", 21, timeline[load], 640, load},
      {"odd \"name\"\\", 13, {10, 20}, 0, std::nullopt},
  };
  const auto trace = nlohmann::json::parse(chrome_trace(small.program, small.plan, timeline, activities));
  std::map<int, std::string> rows;
  std::map<std::string, nlohmann::json> found;
  for (const auto& event : trace["traceEvents"]) {
    if (event["name"] == "thread_name") rows[event["tid"]] = event["args"]["name"];
    if (event["ph"] == "X" && event["tid"] >= 100) found[event["name"]] = event;
  }
  ASSERT_EQ(found.size(), 2u);
  const auto& copy = found["copy to device"];
  EXPECT_EQ(rows[copy["tid"]], "stream 21 (load)");
  EXPECT_EQ(copy["args"]["bytes"], 640);
  EXPECT_EQ(copy["args"]["action"], describe(small.program, small.plan.actions[load]));
  EXPECT_NEAR(copy["ts"].get<double>(), timeline[load].start_ns / 1e3, 1e-3);
  EXPECT_EQ(rows[found["odd \"name\"\\"]["tid"]], "stream 13");
  EXPECT_EQ(found["odd \"name\"\\"]["args"]["action"], "");
}

// Viewers drop a slice that begins before the one in front of it ends.
TEST(ChromeTrace, NeighboursDoNotOverlap) {
  const SmallPlan small = small_plan(0.5);
  std::vector<Interval> timeline(small.plan.actions.size());
  // Ends between two whole nanoseconds, and rounds of microseconds that go apart; by another clock than the
  // step's, the first begin before it.
  for (size_t a = 0; a < timeline.size(); ++a)
    timeline[a] = {333.3336 * double(a) - 1000.2004, 333.3336 * double(a + 1) - 1000.2004};
  const auto trace = nlohmann::json::parse(chrome_trace(small.program, small.plan, timeline, {}));
  std::vector<std::pair<int64_t, int64_t>> slices;
  for (const auto& event : trace["traceEvents"]) {
    if (event["ph"] != "X") continue;
    const int64_t start = std::llround(1000 * event["ts"].get<double>());
    slices.emplace_back(start, start + std::llround(1000 * event["dur"].get<double>()));
  }
  ASSERT_EQ(slices.size(), timeline.size());
  std::sort(slices.begin(), slices.end());
  for (size_t s = 1; s < slices.size(); ++s)
    EXPECT_EQ(slices[s - 1].second, slices[s].first) << "slice " << s;
}

}  // namespace
}  // namespace sluice::core
