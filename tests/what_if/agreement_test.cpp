// SPDX-License-Identifier: Apache-2.0
// Every question about caps has the answer of `plan`: sweeps, comparisons, what-ifs, frontiers, and the check
// before anything is measured. Asked where both memories are tight, at caps that a refusal names and around
// them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <optional>

#include "config/files/load_config.h"
#include "equivalence/rig/rig.h"
#include "io/file.h"
#include "run/prepare/plan_cache.h"
#include "support/temp_dir.h"
#include "what_if/comparison.h"
#include "what_if/sweep_cells.h"
#include "what_if/what_if.h"

namespace sluice::core {
namespace {

using rig::must;

// A layer, whose step is cut into rounds by whoever plans it.
constexpr const char* kModel =
    R"({"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4,
  "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 96, "vocab_size": 128, "rms_norm_eps": 1e-5,
  "rope_theta": 10000, "hidden_act": "silu", "tie_word_embeddings": false})";

// A card that holds nothing beside what is planned, so that caps are those of plans.
Card card() {
  Card c = must(find_card("rtx4090"));
  c.held_bytes = {};
  c.host_growth = {};
  return c;
}

RunConfig config_at(int64_t device_cap, int64_t host_cap) {
  static const TempDir dir;
  static const std::string model = dir.add("config.json", kModel).string();
  RunConfig config =
      must(load_config("", {"model.config=" + model, "train.seq_len=64", "train.tokens_per_step=128",
                            "sample.tokens=0", "shape.chunk_tokens=64"}));
  config.caps[kDevice] = device_cap;
  config.caps[kHost] = host_cap;
  return config;
}

Machine machine() {
  return must(simulated_machine(config_at(kUnlimited, kUnlimited), card()));
}

Result<Prepared> planned(int64_t device_cap, int64_t host_cap) {
  return prepare_on(config_at(device_cap, host_cap), machine(), true);
}

// What a plan says of a pair of caps: how fast it is, or why there is none.
struct Answer {
  std::optional<double> tokens_per_s;
  std::string refusal;

  friend bool operator==(const Answer&, const Answer&) = default;
  friend std::ostream& operator<<(std::ostream& out, const Answer& a) {
    return a.tokens_per_s ? out << *a.tokens_per_s << " tok/s" : out << "refused: " << a.refusal;
  }
};

Answer answer(const Result<Prepared>& p) {
  if (!p.ok()) return {{}, p.message()};
  return {outlook_of(*p).speed.tokens_per_s, {}};
}

int64_t need(const Result<Prepared>& refused, Tier tier) {
  SLUICE_CHECK(!refused.ok() && refused.error().shortage->tier == name_of(tier),
               "{} bytes: not refused for it", name_of(tier));
  return *refused.error().shortage->need_bytes;
}

const std::atomic<bool> kNever = false;

// A device that holds a little more than it must, beside hosts around the least that leaves.
struct Tight {
  int64_t device = need(planned(1, kUnlimited), kDevice) + 96 * kKiB,
          least_host = need(planned(device, 1), kHost);
};

// Each asked for this many bytes more than the least host.
class Agreement : public testing::TestWithParam<int64_t> {};

TEST_P(Agreement, OfSweepsComparisonsAndTheCheckBeforeAnythingIsMeasured) {
  const Tight tight;
  const int64_t host = tight.least_host + GetParam();
  const RunConfig config = config_at(tight.device, host);
  const Answer plan = answer(planned(tight.device, host));
  EXPECT_EQ(plan.tokens_per_s.has_value(), GetParam() >= 0) << plan;

  const Status works = check_fit(config, machine());
  EXPECT_EQ(works.ok(), plan.tokens_per_s.has_value()) << (works.ok() ? "" : works.message());

  SweepGroup group{{host}, {tight.device}, {{{}, config}}};
  SweepRow& row = group.cells.front().row;
  row.caps = config.caps;
  plan_cell(group.cells.front(), machine());
  EXPECT_EQ((row.ok() ? Answer{row.tokens_per_s, {}} : Answer{{}, row.message}), plan);

  const CardsOfHost on{card()};
  const ComparedCard compared = compare_cards(config, {&on, 1}, {&host, 1}, {}).front();
  EXPECT_EQ((compared.trains() ? Answer{compared.found.speed.tokens_per_s, {}}
                               : Answer{{}, compared.found.refusal->message}),
            plan);

  if (row.ok()) return;
  // What a sweep says is needed works, and is at most an eighth more than what the refusal names.
  ASSERT_TRUE(find_needs(group, machine(), kNever).ok());
  EXPECT_GE(row.needs[kHost], tight.least_host);
  EXPECT_LE(row.needs[kHost], tight.least_host * 9 / 8);
}

INSTANTIATE_TEST_SUITE_P(AboveTheLeastHost, Agreement, testing::Values(-16 * kKiB, 0, 64 * kKiB));

// What `sluice plan` prints is what the run does that follows it, whatever of it was kept meanwhile.
TEST(Agreement, OfThePlanThatIsPrintedAndTheOneThatTrains) {
  const Tight tight;
  const RunConfig config = config_at(tight.device, tight.least_host + 64 * kKiB);
  const TempDir dir;
  const PlanCache cache(dir / "plans");
  const auto text_of = [](const Result<Prepared>& p) {
    const Stage& s = must(Result(p)).stages.main;
    return fmt::format("{}\n{}", to_text(p->shape), to_text(s.model.program, s.plan));
  };
  const std::string printed = text_of(prepare_on(config, machine(), true, {nullptr, &cache}));
  const auto trains = [&] {
    return text_of(prepare_on(config, machine(), must(step_of(config, true)), {nullptr, &cache}));
  };
  EXPECT_EQ(trains(), printed);
  for (const auto& file : must(list_files(dir / "plans"))) {
    if (file.string().starts_with("plans-")) std::filesystem::remove(dir / "plans" / file);
  }
  EXPECT_EQ(trains(), printed);
}

TEST(WhatIfs, AgreeWithPlans) {
  const Tight tight;
  const int64_t host = tight.least_host + 64 * kKiB;
  const auto more = [](int64_t cap) { return cap + int64_t(std::bit_floor(uint64_t(cap / 4))); };
  const Prepared now = must(planned(tight.device, host));
  const Answer expected[] = {answer(planned(more(tight.device), host)),
                             answer(planned(tight.device, more(host))),
                             answer(planned(tight.device / 2, host))};
  const std::vector<WhatIf> found = what_ifs(now);
  ASSERT_GE(found.size(), std::size(expected));
  for (size_t i = 0; i < std::size(expected); ++i) {
    EXPECT_DOUBLE_EQ(found[i].speedup * outlook_of(now).speed.tokens_per_s,
                     expected[i].tokens_per_s.value_or(0))
        << found[i].change;
  }
}

}  // namespace
}  // namespace sluice::core
