// SPDX-License-Identifier: Apache-2.0
// The page of what a run's routers did.
#include "commands/router_page.h"

#include <gtest/gtest.h>

#include "commands/text_runs.h"
#include "draw/markup.h"

namespace sluice::core {
namespace {

TEST(RouterPage, HasTheLastStepsLayersAndAllSteps) {
  RouterHistory steps;
  for (Series* series : {&steps.variation, &steps.worst_variation, &steps.entropy, &steps.balance, &steps.z})
    series->points = {{1, 0.5}, {2, 0.25}};
  const ExpertLoad last{.variation = 0.6,
                        .worst_variation = 0.9,
                        .worst_layer = 3,
                        .busiest = 2.5,
                        .entropy = 1.25,
                        .balance = 2.125,
                        .z = 0.75,
                        .layers = {{1, 0.3, 1.5, {1.25, 0.75, 1, 1}}, {3, 0.9, 1.0, {0, 2.5, 1.5, 0}}}};
  const Page page = router_page("notes", steps, 2, last);
  ASSERT_EQ(page.sections.size(), 2);
  const Section& now = page.sections[0];
  std::vector<std::pair<std::string, double>> facts;
  for (const Fact& fact : now.facts) facts.emplace_back(fact.key, fact.value);
  EXPECT_EQ(facts, (std::vector<std::pair<std::string, double>>{{"load_variation", 0.6},
                                                                {"worst_load_variation", 0.9},
                                                                {"busiest_expert", 2.5},
                                                                {"entropy", 1.25},
                                                                {"balance_loss", 2.125},
                                                                {"z_loss", 0.75}}));
  ASSERT_EQ(now.tables.size(), 1);
  ASSERT_EQ(now.tables[0].rows.size(), 2);
  EXPECT_EQ(now.tables[0].rows[0].values, (std::vector<std::optional<double>>{0.3, 1.25, 0.75, 0, 1.5}));
  EXPECT_EQ(now.tables[0].rows[1].values, (std::vector<std::optional<double>>{0.9, 2.5, 0, 2, 1.0}));
  EXPECT_EQ(now.tables[0].rows[1].note, "the worst");
  ASSERT_EQ(now.plots.size(), 1);
  std::vector<double> loads;
  for (const Point& point : now.plots[0].series[0].points) loads.push_back(point.y);
  EXPECT_EQ(loads, (std::vector<double>{2.5, 1.5, 0, 0}));
  for (const Plot& plot : page.sections[1].plots) {
    for (const Series& series : plot.series) EXPECT_EQ(series.points.size(), 2) << plot.title;
  }
}

class RouterPageOfRuns : public testing::Test {
 protected:
  RouterPageOfRuns() {
    auto model = nlohmann::json::parse(
        file_bytes(std::filesystem::path(SLUICE_FIXTURES) / "olmoe_tiny" / "config.json"));
    model["vocab_size"] = 256;
    runs_.dir_.add("mixture/config.json", model.dump());
  }
  std::vector<std::string> settings(std::vector<std::string> more = {}) const {
    more.insert(more.begin(),
                {"model.config=" + (runs_.dir_ / "mixture/config.json").string(), "eval.every=0"});
    return more;
  }
  std::vector<nlohmann::json> metrics(const std::string& run) const {
    std::vector<nlohmann::json> lines;
    std::ifstream in(runs_.dir_ / (run + "/metrics.jsonl"));
    for (std::string line; std::getline(in, line);) lines.push_back(nlohmann::json::parse(line));
    return lines;
  }

  TextRuns runs_;
};

// And has, of a run that goes on, the steps that were made before.
TEST_F(RouterPageOfRuns, SaysWhatTheMetricsDo) {
  const std::vector<std::string> of_mixture = settings({"train.router_z_loss=0.01"});
  ASSERT_TRUE(runs_.start("run", of_mixture).ok());
  const std::string page = file_bytes(runs_.dir_ / "run/routers.html");
  const nlohmann::json router = metrics("run").back()["router"];
  for (const auto& [key, form] : {std::pair{"load_variation", Form::Share},
                                  {"worst_load_variation", Form::Share},
                                  {"busiest_expert", Form::Number},
                                  {"entropy", Form::Number},
                                  {"balance_loss", Form::Number},
                                  {"z_loss", Form::Number}}) {
    const std::string text = escape_markup(to_text(router[key].get<double>(), form));
    EXPECT_NE(page.find("<td class=\"n\">" + text + "</td>"), page.npos) << key << ": " << text;
  }
  runs_.cut_to("run", 2, 2);
  std::filesystem::remove(runs_.dir_ / "run/routers.html");
  ASSERT_TRUE(runs_.start("run", of_mixture).ok());
  EXPECT_EQ(file_bytes(runs_.dir_ / "run/routers.html"), page);
}

TEST_F(RouterPageOfRuns, AModelWithoutRoutersHasNoZLoss) {
  const Outcome outcome = runs_.start("run", {"train.router_z_loss=0.01"});
  EXPECT_FALSE(outcome.ok());
  EXPECT_NE(outcome.message.find("train.router_z_loss = 0.01: this llama model has no routers"),
            std::string::npos)
      << outcome.message;
}

}  // namespace
}  // namespace sluice::core
