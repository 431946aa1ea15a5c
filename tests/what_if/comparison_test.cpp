// SPDX-License-Identifier: Apache-2.0
// A model of one layer on cards that take it, that are too small and that nobody knows rates of.
#include "what_if/comparison.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <nlohmann/json.hpp>

#include "config/files/load_config.h"
#include "equivalence/rig/rig.h"
#include "support/temp_dir.h"

namespace sluice::core {
namespace {

using rig::must;

constexpr const char* kModel =
    R"({"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4,
  "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 96, "vocab_size": 128, "rms_norm_eps": 1e-5,
  "rope_theta": 10000, "hidden_act": "silu", "tie_word_embeddings": false})";

RunConfig small_config(const std::string& device_mem = "none") {
  static const TempDir dir;
  static const std::string model = dir.add("config.json", kModel).string();
  return must(load_config(
      "", {"model.config=" + model, "train.seq_len=64", "train.tokens_per_step=64", "shape.chunk_tokens=64",
           "shape.rounds=1", "sample.tokens=0", "memory.device=" + device_mem}));
}

// As large as its overheads, its driver's gigabyte and `bytes` more; slow links.
Card card_with(int64_t bytes) {
  Card card = must(find_card("rtx4090"));
  card.key = card.name = "small";
  card.memory_bytes = kGiB + kHeldByDevice + bytes;
  card.load_rate = card.store_rate = 2e8;
  return card;
}

const std::vector<int64_t> kAnyHost{kUnlimited};

std::vector<ComparedCard> compared(const std::vector<Card>& cards,
                                   const std::vector<int64_t>& hosts = kAnyHost,
                                   const std::string& device_mem = "none") {
  const std::vector<CardsOfHost> one_of_each(cards.begin(), cards.end());
  return compare_cards(small_config(device_mem), one_of_each, hosts, {});
}

TEST(Compare, SaysWhatIsMissingAndGoesOn) {
  const auto found = compared({card_with(kMiB / 16), must(find_card("v100-16gb")), must(find_card("h100"))});
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].missing.find("needs "), 0u) << found[0].missing;
  EXPECT_NE(found[0].missing.find("of device memory"), std::string::npos) << found[0].missing;
  EXPECT_NE(found[1].missing.find("rates"), std::string::npos) << found[1].missing;
  ASSERT_TRUE(found[2].trains()) << found[2].missing;
  EXPECT_GT(found[2].found.speed.tokens_per_s, 0);
  EXPECT_FALSE(found[2].found.binds.empty());
  EXPECT_EQ(found[2].caps[kDevice], found[2].card.usable_bytes());
}

TEST(Compare, WhatIsSaidToBeMissingIsEnough) {
  const auto refused = compared({card_with(kMiB / 16)}).front();
  const std::string need = refused.missing.substr(6, refused.missing.find(" of ") - 6);
  Card enough = card_with(0);
  enough.memory_bytes =
      must(parse_bytes(need.substr(0, need.find(' ')) + need.substr(need.find(' ') + 1))) + kGiB;
  EXPECT_TRUE(compared({enough}).front().trains()) << need;
}

TEST(Compare, ADeviceCapCountsForEveryCardAndNoneHasMoreThanItsMemory) {
  const auto found = compared({card_with(64 * kMiB), must(find_card("h100"))}, kAnyHost, "4GiB");
  EXPECT_NE(found[0].missing.find("memory.device"), std::string::npos) << found[0].missing;
  ASSERT_TRUE(found[1].trains()) << found[1].missing;
  EXPECT_EQ(found[1].caps[kDevice], 4 * kGiB);
}

TEST(Compare, MoreHostMemoryIsNeverSlower) {
  const std::vector<int64_t> hosts{kHeldByHost + kMiB / 4, kHeldByHost + kMiB, kHeldByHost + 64 * kMiB};
  const auto found = compared({card_with(kMiB / 2), must(find_card("h100"))}, hosts);
  ASSERT_EQ(found.size(), 6u);
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].caps[kHost], hosts[i % 3]);
    if (i % 3 == 0 || !found[i - 1].trains()) continue;
    ASSERT_TRUE(found[i].trains()) << found[i].missing;
    EXPECT_GE(found[i].found.speed.tokens_per_s, found[i - 1].found.speed.tokens_per_s);
  }
}

TEST(Compare, HostsThatShareAStepAreCountedNamedAndPaid) {
  const Clusters clusters{{1, 2}, [](Machine& machine, int hosts) {
                            machine.processes = hosts;
                            machine.profile.network.bytes_per_s = 1e9;
                          }};
  const std::vector<CardsOfHost> cards{{must(find_card("h100"))}};
  RunConfig config = small_config();
  config.train.tokens_per_step = 128;
  const auto found = compare_cards(config, cards, kAnyHost, {}, clusters);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].name(), "H100 80 GB");
  EXPECT_EQ(found[1].name(), "2 hosts with H100 80 GB");
  ASSERT_TRUE(found[1].trains()) << found[1].missing;
  // The small step of this test waits for its sums.
  EXPECT_NE(found[1].found.speed.tokens_per_s, found[0].found.speed.tokens_per_s);
  const auto json =
      nlohmann::json::parse(to_json(page_of(found, {.title = "t", .usd_per_hour = {{"h100", 2}}})));
  EXPECT_EQ(json["comparison"]["cards"][0]["usd_per_hour"], 2);
  EXPECT_EQ(json["comparison"]["cards"][1]["usd_per_hour"], 4);
}

// A stopped comparison has an answer, and finds it again.
TEST(Compare, StoppedItHasWhatWasPlannedAndGoesOnFromThere) {
  const TempDir dir;
  const std::vector<CardsOfHost> cards{{must(find_card("h100"))},
                                       {must(find_card("v100-16gb"))},
                                       {must(find_card("rtx4090"))},
                                       {card_with(kMiB / 16)}};
  std::stop_source source;
  std::mutex mutex;
  std::vector<std::string> rows;
  StudyWatch watch{.stop = source.get_token(), .cache = dir / "kept"};
  watch.row = [&](const std::string& row) {
    const std::lock_guard lock(mutex);
    rows.push_back(row);
    source.request_stop();
  };
  const auto some = compare_cards(small_config(), cards, kAnyHost, watch);
  ASSERT_FALSE(rows.empty());
  EXPECT_LT(some.size(), cards.size() + 1);
  EXPECT_TRUE(std::ranges::all_of(some, &ComparedCard::is_known));

  watch.stop = {};
  rows.clear();
  const auto all = compare_cards(small_config(), cards, kAnyHost, watch);
  ASSERT_EQ(all.size(), cards.size());
  EXPECT_EQ(rows.size(), 3u) << "nothing is planned for a card without rates";
  // From what was kept, whatever came out: speeds and refusals.
  const auto again = compare_cards(small_config(), cards, kAnyHost, watch);
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(again[i].missing, all[i].missing);
    EXPECT_EQ(again[i].found.speed.tokens_per_s, all[i].found.speed.tokens_per_s);
    EXPECT_EQ(again[i].found.bytes, all[i].found.bytes);
    EXPECT_EQ(again[i].found.binds, all[i].found.binds);
  }
  EXPECT_EQ(again[0].found.speed.tokens_per_s, compared({cards[0].card}).front().found.speed.tokens_per_s);
}

TEST(Compare, SeveralCardsOfOneHostShareAStep) {
  RunConfig config = small_config();
  config.train.tokens_per_step = 256;
  const Card card = must(find_card("rtx3090"));
  const std::vector<CardsOfHost> cards{{card, 2}, {card}};
  const auto found = compare_cards(config, cards, kAnyHost, {});
  EXPECT_EQ(found[0].name(), "2 x RTX 3090 24 GB");
  EXPECT_EQ(found[0].devices, 2u);
  EXPECT_EQ(found[1].name(), "RTX 3090 24 GB");
}

TEST(Compare, CostsAndDaysFollowFromTheSpeed) {
  ComparedCard fast{must(find_card("h100"))}, dear{must(find_card("rtx4090"))},
      none{must(find_card("v100-16gb"))};
  fast.caps = dear.caps = none.caps = BytesByTier(8 * kGiB);
  fast.found.speed.tokens_per_s = 1e6, fast.found.binds = "compute";
  dear.found.speed.tokens_per_s = 1e3;
  none.missing = "rates";
  ComparisonText text{.title = "t", .usd_per_hour = {{"h100", 3.6}}, .tokens = 8.64e10};
  const auto json = nlohmann::json::parse(
      to_json(page_of(std::vector<ComparedCard>{fast, dear, none}, text)))["comparison"];
  ASSERT_EQ(json["cards"].size(), 2u);
  EXPECT_EQ(json["cards"][0]["tokens_per_s"], 1'000'000);
  EXPECT_DOUBLE_EQ(json["cards"][0]["usd_per_billion"].get<double>(), 1.0);
  EXPECT_DOUBLE_EQ(json["cards"][0]["days"].get<double>(), 1.0);
  EXPECT_DOUBLE_EQ(json["cards"][0]["usd"].get<double>(), 86.4);
  EXPECT_EQ(json["cards"][0]["binds"], "compute");
  EXPECT_TRUE(json["cards"][1]["usd_per_billion"].is_null());
  EXPECT_DOUBLE_EQ(json["cards"][1]["days"].get<double>(), 1000.0);
  ASSERT_EQ(json["cannot"].size(), 1u);
  EXPECT_EQ(json["cannot"][0]["missing"], "rates");
}

}  // namespace
}  // namespace sluice::core
