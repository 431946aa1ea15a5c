// SPDX-License-Identifier: Apache-2.0
// A model of two layers on a card that is nearly too small for it, beside little and more host memory.
#include "what_if/planned.h"

#include <gtest/gtest.h>

#include <bit>
#include <nlohmann/json.hpp>

#include "config/files/load_config.h"
#include "equivalence/rig/rig.h"
#include "estimate/subject.h"

namespace sluice::core {
namespace {

using rig::must;

PlannedModel small_model() {
  RunConfig config =
      must(load_config("", {"train.seq_len=64", "train.tokens_per_step=128", "sample.tokens=0"}));
  config.caps[kDevice] = kHeldByDevice + 33 * kMiB;
  // Most of it is one tensor: searches for what fits take the less time the smaller the rest.
  return {.model = model_of(
              {.dim = 64, .layers = 2, .heads = 4, .kv_heads = 2, .head_dim = 16, .ffn = 32, .vocab = 384}),
          .config = std::move(config),
          .tokens = 3.6e9,
          .usd_per_hour = 2};
}

// What a process holds of the host does not grow, so that caps are a few MiB.
Machine small_machine(const PlannedModel& asked) {
  Card card = must(find_card("rtx4090"));
  card.host_growth = {};
  return must(simulated_machine(asked.config, std::move(card)));
}

std::vector<PlannedCase> planned(const PlannedModel& asked, const Machine& machine) {
  const std::vector<int64_t> hosts{kHeldByHost + 2 * kMiB, kHeldByHost + 4 * kMiB};
  return must(plan_cases(asked, machine, hosts));
}

bool fits_with(const PlannedModel& asked, const Machine& machine, int64_t host_cap, ModelSpec model,
               int64_t seq_len, int64_t chunk_tokens = 0) {
  RunConfig config = asked.config;
  config.caps[kHost] = host_cap;
  config.train.seq_len = config.train.tokens_per_step = seq_len;
  config.shape.chunk_tokens = chunk_tokens;
  return must(fits(std::move(config), machine, StepSpec{.model = std::move(model)}));
}

TEST(Planned, WhatFitsAtMostFitsAndMoreDoesNotWithoutMoreMemory) {
  constexpr int64_t kWhole = 2048;  // tokens, up to which the search cuts no sequence
  const PlannedModel q = small_model();
  const Machine machine = small_machine(q);
  const std::vector<PlannedCase> cases = planned(q, machine);
  for (const PlannedCase& c : cases) {
    ASSERT_GT(c.layers, 0);
    ASSERT_LT(c.layers, kMostPlannedLayers);
    EXPECT_EQ(c.params, scaled_to(q.model, c.layers).params());
    EXPECT_TRUE(fits_with(q, machine, c.host_cap, scaled_to(q.model, c.layers), 64));
    EXPECT_FALSE(fits_with(q, machine, c.host_cap, scaled_to(q.model, c.layers + 1), 64)) << c.layers;
    ASSERT_GE(c.seq_len, kLeastPlannedTokens);
    ASSERT_LT(c.seq_len, kMostPlannedTokens);
    // 0: of any chunks.
    const auto chunk = [](int64_t seq_len) {
      return seq_len > kWhole ? int64_t(std::bit_floor(uint64_t(seq_len))) / 8 : 0;
    };
    EXPECT_TRUE(fits_with(q, machine, c.host_cap, q.model, c.seq_len, chunk(c.seq_len)));
    const int64_t more = c.seq_len + std::max(chunk(c.seq_len), kLeastPlannedTokens);
    EXPECT_FALSE(fits_with(q, machine, c.host_cap, q.model, more, chunk(more))) << c.seq_len;
  }
  EXPECT_GT(cases[1].layers, cases[0].layers);
  EXPECT_LE(cases[0].seq_len, kWhole);
  EXPECT_GT(cases[1].seq_len, kWhole) << "where sequences are cut into chunks";
}

TEST(Planned, HoursAndCostAreThoseOfTheSpeed) {
  const PlannedModel q = small_model();
  PlannedCase c{.host_cap = kHeldByHost, .params = 7};
  c.found.speed.tokens_per_s = 12'500;
  Page page;
  page.sections.push_back(planned_section(q, small_machine(q), std::vector{c}));
  const auto json = nlohmann::json::parse(to_json(page))["planned"];
  EXPECT_DOUBLE_EQ(json["speed"][0]["tokens_per_s"].get<double>(), 12'500);
  EXPECT_DOUBLE_EQ(json["cost"][0]["hours"].get<double>(), 80);
  EXPECT_DOUBLE_EQ(json["cost"][0]["usd"].get<double>(), 160);
  EXPECT_EQ(json["limits"][0]["params"], 7);
}

// With room for everything nothing is computed again, and what a plan holds is what the backward pass reads,
// the chunk under way beside it.
TEST(Planned, ActivationsAreTheFormulasWhereThereIsRoom) {
  PlannedModel q = small_model();
  q.config.caps[kDevice] += kMiB / 2;
  q.config.shape.chunk_tokens = 128, q.config.shape.rounds = 1;
  const Machine machine = small_machine(q);
  // Little more, so that the searches for what fits at most end soon.
  q.model.layers.resize(1);
  const std::vector<int64_t> hosts{kHeldByHost + kMiB / 4};
  const PlannedCase c = must(plan_cases(q, machine, hosts)).front();
  EXPECT_EQ(c.round_tokens, 128);
  EXPECT_EQ(c.host_activations, 0);
  EXPECT_GE(c.device_activations, c.everything_bytes);
  EXPECT_LE(c.device_activations, 2 * c.everything_bytes);
}

TEST(Planned, WhatDoesNotFitSaysWhatIsMissing) {
  PlannedModel q = small_model();
  q.config.caps[kDevice] = kHeldByDevice + kMiB / 8;
  const Machine machine = small_machine(q);
  const auto cases = planned(q, machine);
  EXPECT_EQ(cases[0].layers, 0);
  EXPECT_EQ(cases[0].seq_len, 0);
  Page page;
  page.sections.push_back(planned_section(q, machine, cases));
  const auto json = nlohmann::json::parse(to_json(page))["planned"];
  EXPECT_TRUE(json["speed"][0]["tokens_per_s"].is_null());
  EXPECT_NE(json["speed"][0]["binds"].get<std::string>().find("of device memory"), std::string::npos);
  EXPECT_TRUE(json["limits"][0]["seq_len"].is_null());
  EXPECT_FALSE(json.contains("cost"));
}

TEST(Planned, OneThatIsStoppedIsCancelled) {
  const PlannedModel q = small_model();
  std::stop_source source;
  source.request_stop();
  const Machine machine = small_machine(q);
  const std::vector<int64_t> hosts{least_host_cap(machine)};
  const auto found = plan_cases(q, machine, hosts, {.stop = source.get_token()});
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().kind, ErrorKind::Cancelled);
}

}  // namespace
}  // namespace sluice::core
