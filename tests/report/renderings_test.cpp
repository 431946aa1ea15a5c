// SPDX-License-Identifier: Apache-2.0
// Text, JSON and differences.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "report/small_plan.h"

namespace sluice::core {
namespace {

using nlohmann::json;

bool has(const std::string& text, std::string_view what) {
  return text.find(what) != std::string::npos;
}

TEST(PageOfText, SaysWhatItMust) {
  SmallPlan p = small_plan(0.2);
  p.context.what_ifs = {{"+1 KiB device", 1.031}};
  const PlanSummary s = p.report().summary;
  const std::string text = to_page_of_text(s);
  for (const char* part :
       {"bound", "gap", "binds", "policy", "waiting for loads", "computed again", "by kind", "param",
        "between steps", "for backward", "stalls, the longest", "+1 KiB device", "+3.1 %"}) {
    EXPECT_TRUE(has(text, part)) << part << " is missing in\n" << text;
  }
  EXPECT_TRUE(has(text, format_bytes(s.tiers[kDevice].arena_bytes)));
}

// The memory that helps most comes first; of what is not known nothing is said.
TEST(MoreMemory, IsSaidInWordsAndNumbers) {
  SmallPlan p = small_plan(0.2);
  EXPECT_FALSE(has(to_page_of_text(p.report().summary), "more     "));
  p.plan.speedup_with_more[kDevice] = 1.0124;
  p.plan.speedup_with_more[kHost] = 1.031;
  const PlanSummary s = p.report().summary;
  EXPECT_TRUE(
      has(to_page_of_text(s),
          "\nmore     a GiB more of host memory would make the step about 3.1 % faster, of device memory "
          "about 1.2 %\n"))
      << to_page_of_text(s);
  const json j = json::parse(p.json());
  EXPECT_EQ(j["device"]["speedup_with_gib_more"], 1.0124);
  const auto read = parse_summary(p.json());
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->more_memory, s.more_memory);
  EXPECT_EQ(read->tiers[kHost].speedup_with_more, 1.031);
  p.plan.speedup_with_more = ByTier<double>({{kDevice, 1.0}});
  EXPECT_EQ(p.report().summary.more_memory,
            "a GiB more of device memory would make the step less than 1 % faster");
  EXPECT_TRUE(json::parse(p.json())["host"]["speedup_with_gib_more"].is_null());
}

// "r x.L3.r0c1" of what the JSON says that a run uses.
std::vector<std::string> uses_of(const json& actions, const json& lane, size_t run) {
  const auto where = actions["where"][lane["where"][run].get<size_t>()].get<std::string>();
  std::vector<std::string> parts, out;
  for (std::istringstream in(where); std::getline(in, parts.emplace_back(), '.');) {
  }
  std::istringstream in(actions["uses"][lane["uses"][run].get<size_t>()].get<std::string>());
  for (std::string use; std::getline(in, use, ';');) {
    std::istringstream words(use);
    std::string access, what, at;
    words >> access >> what >> at;
    for (size_t k = at.find('%'); k != std::string::npos; k = at.find('%'))
      at.replace(k, 2, parts.at(size_t(at[k + 1] - '0') + 1));
    out.push_back(access + " " + actions["what"][std::stoul(what)].get<std::string>() + at);
  }
  return out;
}

void expect_uses_and_waits(const SmallPlan& p, const json& j) {
  ByLane<std::vector<uint32_t>> on(p.plan.lanes);  // actions in the order of each lane
  for (uint32_t id = 0; id < p.plan.actions.size(); ++id) on[p.plan.actions[id].lane].push_back(id);
  for (const Lane l : p.plan.lanes) {
    const json& lane = j["actions"]["lanes"][l.index()];
    std::vector<int64_t> last(p.plan.lanes.size());
    size_t wait = 0, run = 0;
    for (size_t i = 0; i < on[l].size(); ++i) {
      const Action& a = p.plan.actions[on[l][i]];
      ASSERT_EQ(lane["wait_count"][i], a.wait_count);
      for (const uint32_t other : p.plan.waits_of(a)) {
        const auto k = lane["wait_lane"][wait].get<size_t>();
        last[k] += lane["wait_at"][wait++].get<int64_t>();
        EXPECT_EQ(k, p.plan.actions[other].lane.index());
        EXPECT_EQ(on[p.plan.actions[other].lane].at(size_t(last[k])), other);
      }
      if (a.kind != ActionKind::Run) continue;
      std::vector<std::string> wanted;
      for (const Use& use : p.program.task(a.task).uses) {
        const char access = use.access == Access::Read ? 'r' : use.access == Access::Write ? 'w' : 'a';
        wanted.push_back(std::string(1, access) + " " + p.program.object(use.object).name);
      }
      EXPECT_EQ(uses_of(j["actions"], lane, run++), wanted);
    }
    EXPECT_EQ(lane["wait_at"].size(), wait);
    EXPECT_EQ(lane["uses"].size(), run);
  }
}

TEST(Json, HoldsEveryActionAndTheMemory) {
  const SmallPlan p = small_plan(0.2);
  const PlanReport r = p.report();
  const json j = json::parse(p.json());
  size_t seen = 0;
  for (const Lane l : p.plan.lanes) {
    const json& lane = j["actions"]["lanes"][l.index()];
    int64_t end = 0;
    size_t i = 0;
    for (const Action& a : p.plan.actions) {
      if (a.lane != l) continue;
      const std::string name = j["actions"]["what"][lane["what"][i].get<size_t>()].get<std::string>() +
                               j["actions"]["where"][lane["where"][i].get<size_t>()].get<std::string>();
      EXPECT_TRUE(has(describe(p.program, a), name)) << name;
      EXPECT_EQ(end + lane["gap"][i].get<int64_t>(), std::llround(a.start_ns));
      end += lane["gap"][i].get<int64_t>() + lane["ns"][i].get<int64_t>();
      EXPECT_EQ(end, std::llround(a.end_ns));
      if (a.kind == ActionKind::Copy) {
        EXPECT_EQ(j["actions"]["sizes"][lane["size"][i].get<size_t>()], a.bytes);
      }
      ++i;
    }
    seen += i;
    EXPECT_EQ(lane["ns"].size(), i);
  }
  EXPECT_EQ(seen, p.plan.actions.size());
  expect_uses_and_waits(p, j);

  int64_t peak = 0;
  std::map<std::string, int64_t> now;
  for (size_t i = 0; i < j["memory"]["device"]["ns"].size(); ++i) {
    int64_t total = 0;
    for (const auto& [kind, change] : j["memory"]["device"]["kinds"].items()) {
      now[kind] += change[i].get<int64_t>();
      total += now[kind];
    }
    peak = std::max(peak, total);
  }
  EXPECT_EQ(peak, r.summary.tiers[kDevice].peak_bytes);
  EXPECT_EQ(j["stalls"]["at"].size(), r.stalls.size());
  EXPECT_EQ(j["device"]["cap_bytes"], p.context.caps[kDevice]);
  EXPECT_EQ(j["model"], p.context.model);
  ASSERT_EQ(j["passes"].size(), r.passes.size());
  EXPECT_EQ(j["passes"][0]["phase"], "forward");
  EXPECT_EQ(j["passes"][0]["end_ns"], std::llround(r.passes[0].end_ns));
  EXPECT_EQ(j["interleaved"], interleaved(r.passes));
  EXPECT_TRUE(j["host"]["cap_bytes"].is_null()) << "no cap";
}

TEST(Json, ReadsBackWhatItWrote) {
  SmallPlan p = small_plan(0.2);
  p.context.what_ifs = {{"+1 KiB device", 1.031}};
  p.context.tokens_per_s = 1.0 / 3;
  const std::string text = p.json();
  const auto read = parse_summary(text);
  ASSERT_TRUE(read.ok()) << read.message();
  // A report that holds what was read writes the same again.
  PlanReport again = p.report();
  again.summary = *read;
  EXPECT_EQ(to_json(again, p.program, p.plan), text);
  EXPECT_EQ(describe_difference(*read, p.report().summary),
            "the plans are the same in everything that a report shows\n");
}

TEST(Json, RefusesWhatIsNoPlan) {
  EXPECT_TRUE(has(parse_summary("plan for program 12").message(), "not JSON"));
  EXPECT_TRUE(has(parse_summary("").message(), "not JSON"));
  EXPECT_TRUE(has(parse_summary("{\"traceEvents\":[]}").message(), "sluice plan 1"));
  EXPECT_TRUE(has(parse_summary("[1]").message(), "sluice plan 1"));
  json j = json::parse(small_plan(2).json());
  j["lanes"].erase(2);
  EXPECT_TRUE(has(parse_summary(j.dump()).message(), "damaged"));
  j = json::parse(small_plan(2).json());
  j["lanes"][2]["lane"] = "elevator";
  EXPECT_TRUE(has(parse_summary(j.dump()).message(), "damaged: there is no lane elevator"));
  j = json::parse(small_plan(2).json());
  j["step_ns"] = "fast";
  EXPECT_TRUE(has(parse_summary(j.dump()).message(), "damaged: a value is missing, or is of another kind"));
}

TEST(Html, EmbedsTheJsonAsItIs) {
  const std::string text = small_plan(0.2).json(), html = to_html(text);
  const std::string begin = "<script type=\"application/json\" id=\"plan\">";
  const size_t at = html.find(begin) + begin.size();
  EXPECT_EQ(json::parse(html.substr(at, html.find("</script>", at) - at)), json::parse(text));
}

TEST(Diff, SaysWhatChangedBetweenTwoCaps) {
  const SmallPlan tight = small_plan(0.2), roomy = small_plan(2);
  const PlanSummary before = tight.report().summary, after = roomy.report().summary;
  const std::string words = describe_difference(before, after);
  EXPECT_TRUE(has(words, "% faster")) << words;
  EXPECT_TRUE(has(words, "cap " + format_bytes(before.tiers[kDevice].cap_bytes) + ", then none")) << words;
  EXPECT_TRUE(has(words, "no longer computed again")) << words;
  EXPECT_TRUE(has(words, "now 100 % kept on the device")) << words;
  EXPECT_TRUE(has(words, "of param per step, then 0 B")) << words;
  EXPECT_TRUE(has(words, "waiting for loads")) << words;
  EXPECT_FALSE(has(words, "a test")) << "facts that are equal are not mentioned:\n" << words;
  EXPECT_TRUE(has(describe_difference(after, before), "% slower"));
}

TEST(Diff, ComparesStepsOfDifferentSizePerToken) {
  PlanSummary before = small_plan(2).report().summary, after = before;
  after.tokens = 2 * before.tokens;
  after.step_ns = 1.6 * before.step_ns;  // a quarter more tokens in the same time
  EXPECT_TRUE(has(describe_difference(before, after), "25.0 % faster per token"))
      << describe_difference(before, after);
}

}  // namespace
}  // namespace sluice::core
