// SPDX-License-Identifier: Apache-2.0
// Smallest caps, frontiers and what-ifs of a model of two layers on an invented machine.
#include "what_if/frontier.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>

#include "config/files/load_config.h"
#include "equivalence/rig/rig.h"
#include "support/temp_dir.h"
#include "what_if/what_if.h"

namespace sluice::core {
namespace {

using rig::must;

// Slow links and nothing held beside the arenas: memory decides the speed.
Machine slow_links() {
  Machine m;
  m.description = "invented";
  m.profile.name = "invented";
  m.profile.set_bytes_per_s(2e8);
  m.profile.peak_flops = 1e11;
  return m;
}

// A frontier takes dozens of searches, each of which tries device budgets from the least that works up to its
// cap. One large tensor keeps these two within a factor of two, so there are few to try.
constexpr const char* kModel =
    R"({"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 32, "vocab_size": 2048, "rms_norm_eps": 1e-5,
  "rope_theta": 10000, "hidden_act": "silu", "tie_word_embeddings": true})";

RunConfig small_config(const std::string& device_mem = "none", const std::string& host_mem = "none") {
  static const TempDir dir;
  static const std::string model = dir.add("config.json", kModel).string();
  return must(load_config(
      "", {"model.config=" + model, "train.seq_len=64", "train.tokens_per_step=64", "shape.chunk_tokens=64",
           "shape.rounds=1", "sample.tokens=0", "memory.device=" + device_mem, "memory.host=" + host_mem}));
}

BytesByTier caps(int64_t device, int64_t host) {
  BytesByTier out(kUnlimited);
  out[kDevice] = device;
  out[kHost] = host;
  return out;
}

TEST(LeastCaps, FindsTheEdgeAndAsksForNothingThatFollows) {
  int asked = 0;
  // Fits when the device has 10 MiB, or when it has 40 MiB and the host is small.
  LeastCaps least(
      [&](const BytesByTier& caps) -> Result<bool> {
        ++asked;
        return caps[kDevice] >= 40 * kMiB || (caps[kDevice] >= 10 * kMiB && caps[kHost] >= 100 * kMiB);
      },
      64);
  const int64_t wide = must(least.cap(kDevice, caps(kUnlimited, kUnlimited)));
  EXPECT_GE(wide, 10 * kMiB);
  EXPECT_LE(wide, 10 * kMiB + 10 * kMiB / 60);
  const int64_t narrow = must(least.cap(kDevice, caps(kUnlimited, 50 * kMiB)));
  EXPECT_GE(narrow, 40 * kMiB);
  EXPECT_LE(narrow, 41 * kMiB);
  const int before = asked;
  EXPECT_EQ(must(least.cap(kDevice, caps(kUnlimited, kUnlimited))), wide);
  EXPECT_EQ(asked, before);
  EXPECT_EQ(must(least.cap(kHost, caps(5 * kMiB, kUnlimited))), 0);
  const int64_t host = must(least.cap(kHost, caps(20 * kMiB, kUnlimited)));
  EXPECT_GE(host, 100 * kMiB);
  EXPECT_LE(host, 102 * kMiB);
}

TEST(Frontier, PruneDropsWhatIsMatchedWithLess) {
  std::vector<FrontierPoint> points{{caps(8, 64), 100, 0},
                                    {caps(8, 128), 100, 0},
                                    {caps(16, 64), 90, 0},
                                    {caps(16, 128), 120, 0},
                                    {caps(4, 128), 50, 0}};
  prune(points);
  ASSERT_EQ(points.size(), 3u);
  EXPECT_EQ(points[0].caps[kDevice], 4);
  EXPECT_EQ(points[1].caps[kHost], 64);
  EXPECT_EQ(points[2].tokens_per_s, 120);
}

TEST(Frontier, IsMonotonePrunedAndBeginsAtTheSmallestCap) {
  const Machine machine = slow_links();
  const RunConfig config = small_config();
  const Frontier f = must(find_frontier(config, machine, {}));
  ASSERT_FALSE(f.points.empty());
  ASSERT_GE(f.points.size(), 2u) << f.points[0].caps[kDevice] << " of the device, " << f.points[0].caps[kHost]
                                 << " of the host: " << f.points[0].tokens_per_s << " tok/s";
  for (size_t i = 0; i < f.points.size(); ++i) {
    const FrontierPoint& p = f.points[i];
    EXPECT_GT(p.share, 0) << i;
    EXPECT_LE(p.share, 1 + 1e-9) << i;
    for (const FrontierPoint& q : f.points) {
      if (q.caps[kDevice] > p.caps[kDevice] && q.caps[kHost] >= p.caps[kHost]) {
        EXPECT_GT(q.tokens_per_s, p.tokens_per_s)
            << "device " << q.caps[kDevice] << " against " << p.caps[kDevice];
      }
    }
  }
  EXPECT_NEAR(std::max_element(f.points.begin(), f.points.end(),
                               [](const auto& a, const auto& b) { return a.share < b.share; })
                  ->share,
              1, 1e-9);
  // The least of the device is the tightest pair: there plans are those of `plan`.
  RunConfig planned = config;
  planned.caps = f.points.front().caps;
  EXPECT_EQ(outlook_of(must(prepare_on(planned, machine, true))).speed.tokens_per_s,
            f.points.front().tokens_per_s);
  RunConfig less = config;
  less.caps[kDevice] = f.points.front().caps[kDevice] * 9 / 10;
  less.caps[kHost] = f.points.front().caps[kHost];
  const auto refused = prepare_on(less, machine, true);
  ASSERT_FALSE(refused.ok());
  // And the cap is one that a refusal names, to a 32nd and up to a number that is easy to read.
  ASSERT_NE(refused.error().shortage->tier, "host");
  less.caps[kDevice] = *refused.error().shortage->need_bytes;
  EXPECT_TRUE(must(outlook(less, machine)).fits());
  EXPECT_LE(f.points.front().caps[kDevice], readable_cap(less.caps[kDevice] + less.caps[kDevice] / 32));
  EXPECT_EQ(f.cards.size(), 7u);
  for (const ComparedCard& c : f.cards) EXPECT_TRUE(c.trains()) << c.card.key << ": " << c.missing;
  EXPECT_NE(describe(f).find("RTX 4090 24 GB"), std::string::npos);
}

TEST(Frontier, OfSeveralDevicesCapsAreThoseOfEach) {
  Frontier f;
  f.devices = 2;
  f.tokens_per_s = 1000;
  f.device_bytes = 3 * kGiB;
  f.cards.push_back({.card = must(find_card("h100")), .missing = "memory", .devices = 2});
  const std::string said = describe(f);
  EXPECT_NE(said.find("1000 tok/s with 3.00 GiB on the fullest of the devices, whose cap is that of each"),
            std::string::npos)
      << said;
  EXPECT_NE(said.find("2 x H100"), std::string::npos) << said;
}

TEST(WhatIf, SignsFollowTheMemory) {
  const Machine machine = slow_links();
  LeastCaps least(
      [&](const BytesByTier& caps) {
        RunConfig config = small_config();
        config.caps = caps;
        return fits(std::move(config), machine);
      },
      64);
  const std::string cap =
      std::to_string(must(least.cap(kDevice, caps(kUnlimited, kUnlimited))) * 5 / 4) + "B";
  const Prepared tight = must(prepare_on(small_config(cap, "1GiB"), machine, false));
  const std::vector<WhatIf> found = what_ifs(tight);
  ASSERT_EQ(found.size(), 4u);
  EXPECT_TRUE(found[0].change.starts_with("+") && found[0].change.ends_with(" device")) << found[0].change;
  EXPECT_GE(found[0].speedup, 1);
  EXPECT_EQ(found[1].change, "+256 MiB host");
  EXPECT_GE(found[1].speedup, 1);
  EXPECT_TRUE(found[2].change.starts_with("half the device cap")) << found[2].change;
  EXPECT_EQ(found[2].speedup, 0);  // less than the smallest that works
  EXPECT_EQ(found[3].change, "2x tokens per step");
  EXPECT_GT(found[3].speedup, 0);
}

TEST(WhatIf, WithoutACapHalfOfWhatItHoldsIsAsked) {
  const Prepared whole = must(prepare_on(small_config(), slow_links(), false));
  std::vector<std::string> rows;
  std::mutex mutex;
  std::stop_source source;
  StudyWatch watch{.stop = source.get_token()};
  watch.row = [&](const std::string& row) {
    const std::lock_guard lock(mutex);
    rows.push_back(row);
  };
  const std::vector<WhatIf> found = what_ifs(whole, watch);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_TRUE(found[0].change.starts_with("half the device memory")) << found[0].change;
  EXPECT_LT(found[0].speedup, 1);
  EXPECT_EQ(rows.size(), 2u);  // as they come
  source.request_stop();
  EXPECT_TRUE(what_ifs(whole, watch).empty());
}

TEST(WhatIf, ExactResultsHaveAPrice) {
  RunConfig config = small_config("5MiB");
  EXPECT_EQ(price_of_exact(must(prepare_on(config, slow_links(), false))), "");
  config.run.exact = true;
  config.train.compute = DType::BF16;
  const std::string said = price_of_exact(must(prepare_on(config, slow_links(), false)));
  EXPECT_TRUE(said.starts_with("run.exact = true: a step takes ")) << said;
  EXPECT_NE(said.find(" s without it, if its kernels"), std::string::npos) << said;
}

// What a study says of a pair of caps is what planning them says: whether they work, how fast they are, and
// which cap would do.
TEST(Outlook, IsThatOfPlanningTheseCaps) {
  const Machine machine = slow_links();
  const Outlook all = must(outlook(small_config(), machine));
  const auto works = [&](const BytesByTier& caps) {
    RunConfig config = small_config();
    config.caps = caps;
    return must(fits(std::move(config), machine));
  };
  int refused = 0;
  for (const int64_t host : {1, 8}) {
    RunConfig config = small_config();
    config.caps[kDevice] = all.bytes[kDevice] * 5 / 8;
    config.caps[kHost] = all.bytes[kDevice] * host / 8;
    SCOPED_TRACE(fmt::format("device {}, host {}", config.caps[kDevice], config.caps[kHost]));
    const auto planned = prepare_on(config, machine, true);
    const Outlook found = must(outlook(config, machine));
    EXPECT_EQ(planned.ok(), found.fits());
    EXPECT_EQ(planned.ok(), must(fits(config, machine)));
    if (planned.ok()) {
      EXPECT_EQ(outlook_of(*planned).speed.tokens_per_s, found.speed.tokens_per_s);
      continue;
    }
    ++refused;
    EXPECT_EQ(planned.message(), found.refusal->message);
    const Tier tier = found.refusal->shortage->tier == "host" ? kHost : kDevice;
    config.caps[tier] = *found.refusal->shortage->need_bytes;
    EXPECT_TRUE(works(config.caps));
    config.caps[tier] = config.caps[tier] * 49 / 50;
    EXPECT_FALSE(works(config.caps));
  }
  EXPECT_EQ(refused, 1);
}

// outlook() tells refusals for memory from other errors by how the planner begins them.
TEST(Outlook, RefusalsForMemoryAreNoErrors) {
  const Machine machine = slow_links();
  const Outlook device = must(outlook(small_config("1kB"), machine));
  EXPECT_FALSE(device.fits());
  EXPECT_TRUE(device.refusal && device.refusal->shortage->tier == "device");
  const Outlook all = must(outlook(small_config(), machine));
  const Outlook host =
      must(outlook(small_config(std::to_string(all.bytes[kDevice] / 2) + "B", "1kB"), machine));
  EXPECT_FALSE(host.fits());
  EXPECT_TRUE(host.refusal && host.refusal->shortage->tier == "host");
  RunConfig wrong = small_config();
  wrong.model.config = "nowhere.json";
  EXPECT_FALSE(outlook(wrong, machine).ok());
}

TEST(Frontier, StoppedItHasWhatWasPlanned) {
  const Machine machine = slow_links();
  std::stop_source source;
  StudyWatch watch{.stop = source.get_token()};
  watch.row = [&](const std::string& row) {
    if (row.starts_with("device ")) source.request_stop();
  };
  const Frontier f = must(find_frontier(small_config(), machine, watch));
  EXPECT_GT(f.tokens_per_s, 0);
  EXPECT_LE(f.points.size(), 1u);
  EXPECT_TRUE(f.cards.empty());
  EXPECT_NE(describe(f).find("without caps: "), std::string::npos);
}

TEST(Frontier, MoreThanTheCardHasIsNoWhatIf) {
  Machine machine = must(resolve_machine(RunConfig(), "rtx4090"));
  RunConfig config = small_config();
  config.caps[kDevice] = machine.card->usable_bytes();
  const std::vector<WhatIf> found = what_ifs(must(prepare_on(config, machine, true)));
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found[0].change, "+4 GiB device (card: 24.0 GiB)");
  EXPECT_EQ(found[0].speedup, 0);
}

}  // namespace
}  // namespace sluice::core
