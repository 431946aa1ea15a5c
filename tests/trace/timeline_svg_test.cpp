// SPDX-License-Identifier: Apache-2.0
// The picture of a step: what it shows, and that its size is that of a picture.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "report/small_plan.h"
#include "support/count.h"
#include "trace/trace.h"

namespace sluice::core {
namespace {

// The actions of a plan over and over: what a plan of many layers and chunks looks like from afar.
struct LongStep {
  Plan plan;
  std::vector<Interval> timeline;
};
LongStep repeated(const Plan& plan, int times) {
  LongStep out{plan, {}};
  out.plan.actions.clear();
  const std::vector<Interval> once = predicted_timeline(plan);
  for (int i = 0; i < times; ++i) {
    for (size_t id = 0; id < plan.actions.size(); ++id) {
      out.plan.actions.push_back(plan.actions[id]);
      Action& a = out.plan.actions.back();
      a.wait_count = 0;
      const double shift = i * plan.makespan_ns;
      out.timeline.push_back({once[id].start_ns + shift, once[id].end_ns + shift});
      a.start_ns = out.timeline.back().start_ns, a.end_ns = out.timeline.back().end_ns;
    }
  }
  return out;
}

size_t rectangles(const std::string& svg) {
  size_t paths = 0;
  for (size_t at = svg.find("<path d=\""); at != std::string::npos; at = svg.find("<path d=\"", at + 1)) {
    const std::string_view path = std::string_view(svg).substr(at, svg.find('>', at) - at);
    paths += size_t(std::count(path.begin(), path.end(), 'M'));
  }
  return paths + count(svg, "<rect");
}

TEST(TimelineSvg, ShowsEveryPart) {
  const SmallPlan p = random_small_plan(3);
  const std::string svg = timeline_svg(p.program, p.plan, predicted_timeline(p.plan), "a <model>");
  for (const char* part :
       {">a &lt;model&gt;<", ">rounds<", ">forward<", ">backward<", ">again<", ">update<", ">waiting<",
        ">load<", ">store<", ">param<", ">activation<", ">device memory: at most ", ">host memory: at most ",
        " reserved<", "@media (prefers-color-scheme:dark)"}) {
    EXPECT_NE(svg.find(part), std::string::npos) << part;
  }
  EXPECT_NE(svg.find(format_bytes(p.plan.arenas[kDevice].bytes) + " reserved<"), std::string::npos);
}

// What is exchanged is in a row of its own, and no second one of computing.
TEST(TimelineSvg, ShowsTheNetwork) {
  const SmallPlan p = small_plan_of_processes();
  const std::string svg = timeline_svg(p.program, p.plan, predicted_timeline(p.plan), "");
  EXPECT_EQ(count(svg, ">network<"), 1);
  EXPECT_EQ(count(svg, ">waiting<"), 1);
}

// A plan of more than 20,000 actions, and one twice as large.
TEST(TimelineSvg, SizeIsThePicturesNotThePlans) {
  const SmallPlan p = random_small_plan(3);
  const int times = 20'000 / int(p.plan.actions.size()) + 1;
  for (const int many : {times, 2 * times}) {
    const LongStep step = repeated(p.plan, many);
    ASSERT_GT(step.plan.actions.size(), 20'000u);
    const std::string svg = timeline_svg(p.program, step.plan, step.timeline);
    EXPECT_LT(svg.size(), 300'000u) << many;
    // Of each of six rows of one sort a column every pixel; of those of several sorts a few.
    EXPECT_LT(rectangles(svg), 12'000u) << many;
  }
}

TEST(TimelineSvg, NothingLeavesThePicture) {
  const SmallPlan p = random_small_plan(3);
  const std::string svg = timeline_svg(p.program, p.plan, predicted_timeline(p.plan));
  for (size_t at = svg.find("text-anchor=\"middle\""); at != std::string::npos;
       at = svg.find("text-anchor=\"middle\"", at + 1)) {
    const size_t begin = svg.rfind("<text x=\"", at) + 9, open = svg.find('>', at) + 1;
    const double x = std::stod(svg.substr(begin)), half = 3.3 * double(svg.find('<', open) - open);
    EXPECT_GE(x - half, 0) << svg.substr(begin, 150);
    EXPECT_LE(x + half, 1100) << svg.substr(begin, 150);
  }
}

TEST(RoundPasses, CoverTheirRoundsInRowsThatDoNotOverlap) {
  const SmallPlan p = random_small_plan(3);
  const std::vector<Interval> timeline = predicted_timeline(p.plan);
  const std::vector<RoundPass> passes = round_passes(p.program, p.plan, timeline);
  for (size_t id = 0; id < p.plan.actions.size(); ++id) {
    const Action& a = p.plan.actions[id];
    if (a.kind != ActionKind::Run || a.recompute) continue;
    const Task& task = p.program.task(a.task);
    size_t covering = 0;
    for (const RoundPass& pass : passes) {
      const bool mine = pass.phase == task.phase && pass.round == task.round;
      covering += mine && pass.start_ns <= timeline[id].start_ns && timeline[id].end_ns <= pass.end_ns;
    }
    // A deferred update is in the passes.
    EXPECT_EQ(covering, task.phase == Phase::Update ? 0u : 1u) << task.name;
  }
  for (size_t i = 0; i < passes.size(); ++i) {
    EXPECT_LE(passes[i].busy_ns, passes[i].end_ns - passes[i].start_ns + 1e-6);
    for (size_t j = 0; j < i; ++j) {
      EXPECT_TRUE(passes[i].row != passes[j].row || passes[i].start_ns >= passes[j].end_ns) << i << j;
    }
  }
}

TEST(RoundPasses, AreInterleavedWhereOnesForwardBeginsInAnothersBackward) {
  const RoundPass forward{Phase::Forward, 1, 10, 20, 5}, backward{Phase::Backward, 0, 5, 15, 5};
  const RoundPass later{Phase::Backward, 0, 0, 10, 5}, own{Phase::Backward, 1, 5, 15, 5};
  EXPECT_TRUE(interleaved(std::vector{forward, backward}));
  EXPECT_FALSE(interleaved(std::vector{forward, later}));
  EXPECT_FALSE(interleaved(std::vector{forward, own}));
}

}  // namespace
}  // namespace sluice::core
