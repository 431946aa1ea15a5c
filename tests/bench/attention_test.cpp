// SPDX-License-Identifier: Apache-2.0
// Two ways to attention that compute the same.
#include "bench/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "config/config.h"
#include "config/files/load_config.h"
#include "equivalence/rig/rig.h"

namespace sluice::core {
namespace {

using rig::must;

const auto kQuiet = [](const std::string&) {};

Machine this_cpu() {
  return must(resolve_machine(must(load_config("", {"run.backend=cpu"})), ""));
}
AttentionResult run(const AttentionCell& cell) {
  const std::atomic<bool> never = false;
  return must(run_attention(cell, this_cpu(), {.steps = 2, .warm_up = 0}, never, kQuiet));
}

// Sums of S numbers of f32, each of a size below `largest`, in two orders: S roundings apart at most, of
// values that have been rounded some times more.
TEST(Attention, NaiveIsFused) {
  for (const AttentionCell& cell : {AttentionCell{2, 33, 16}, {3, 128, 32}, {1, 200, 64}}) {
    const AttentionResult r = run(cell);
    ASSERT_TRUE(r.fused.ok()) << r.fused.message;
    ASSERT_TRUE(r.naive.ok()) << r.naive.message;
    EXPECT_GT(r.largest, 0.1);
    EXPECT_LE(r.difference, double(cell.length + cell.head_dim) * 0x1p-24 * r.largest) << cell.length;
    EXPECT_GT(r.naive.products_s, 0);
    EXPECT_GT(r.naive.softmax_s, 0);
    EXPECT_LE(r.naive.products_s + r.naive.softmax_s,
              (r.naive.forward.mean + r.naive.backward.mean) * 1.0001);
  }
}

// Rounding q and k to bf16, by 2^-9 of a value each, moves a score of D products of at most 1, divided by the
// square root of D, by 2^-8 sqrt(D) at most, and a weight by twice that of itself. A key's weights over all
// queries are 1 + 1/2 + ... + 1/S where all scores are alike, which is about what those of random ones are;
// what is summed with them and the results are rounded, too.
TEST(Attention, InBf16ItIsNaiveButForRounding) {
  const AttentionCell wide{2, 64, 16}, narrow{2, 64, 16, DType::BF16};
  const AttentionResult f32 = run(wide), bf16 = run(narrow);
  ASSERT_TRUE(bf16.fused.ok()) << bf16.fused.message;
  EXPECT_LE(bf16.difference, (1 + std::log(64.0)) * (0x1p-7 * std::sqrt(16.0) + 0x1p-7));
  EXPECT_GT(bf16.difference, 0x1p-12 * bf16.largest) << "of f32";
  // q, k, v and o of 2 bytes instead of 4.
  EXPECT_EQ(f32.fused.kept_bytes - bf16.fused.kept_bytes, 4 * 2 * (2 * 64 * 16));
}

TEST(Attention, OnlyTheNaiveOneGrowsWithTheSquare) {
  const AttentionResult a = run({1, 128, 16}), b = run({1, 256, 16});
  EXPECT_LE(b.fused.kept_bytes, 2 * a.fused.kept_bytes);
  // Scores alone: 4 bytes each, once before the backward pass and twice within it.
  EXPECT_GE(b.naive.kept_bytes - a.naive.kept_bytes, 4 * (256 * 256 - 128 * 128));
  EXPECT_GE(b.naive.peak_bytes, 2 * 4 * 256 * 256);
}

TEST(Attention, WhatDoesNotFitSaysSoAndTheOtherRuns) {
  const AttentionResult r = run({1000000, 16384, 16});
  EXPECT_EQ(r.naive.status, "does not fit");
  EXPECT_NE(r.naive.message.find("are left"), std::string::npos) << r.naive.message;
  const auto json =
      nlohmann::json::parse(to_json(attention_page(std::vector<AttentionResult>{r, run({1, 32, 16})})));
  EXPECT_TRUE(json["attention"]["times"][0]["naive_forward_s"].is_null());
  EXPECT_NE(json["attention"]["times"][0]["message"].get<std::string>().find("naive: does not fit"),
            std::string::npos);
  EXPECT_FALSE(json["attention"]["times"][1]["naive_forward_s"].is_null());
  EXPECT_EQ(json["attention"]["parts"].size(), 1u);
  EXPECT_EQ(json["attention"]["parts"][0]["products_flops"], 6 * 2 * 32 * 32 * 16);
}

TEST(Attention, ResultsAreReadBackAsTheyWere) {
  const AttentionResult both = run({1, 32, 16}), one = run({1000000, 16384, 16});
  for (const AttentionResult& r : {both, one}) {
    const auto back = attention_of(nlohmann::json::parse(to_json(r).dump()));
    ASSERT_TRUE(back.has_value());
    EXPECT_EQ(to_json(*back).dump(), to_json(r).dump());
  }
  EXPECT_TRUE(both.ok());
  EXPECT_FALSE(one.ok()) << "with more memory it is to be tried again";
  EXPECT_FALSE(attention_of(nlohmann::json::parse("{}")).has_value());
}

TEST(Attention, AnInterruptionLeavesNoResult) {
  const std::atomic<bool> at_once = true;
  const auto found = run_attention({1, 32, 16}, this_cpu(), {}, at_once, kQuiet);
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().kind, ErrorKind::Cancelled);
}

}  // namespace
}  // namespace sluice::core
