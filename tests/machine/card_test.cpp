// SPDX-License-Identifier: Apache-2.0
// Machines as data: those known by name, and machine files.
#include "cost/card.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>
#include <vector>

#include "config/config.h"
#include "config/files/load_config.h"
#include "io/file.h"
#include "machine/machine.h"
#include "ops/op.h"
#include "setup/resolve.h"

namespace sluice::core {
namespace {

class MachineFile : public testing::Test {
 protected:
  MachineFile() { std::filesystem::create_directories(path_.parent_path()); }

  Result<Card> read(const std::string& text) {
    EXPECT_TRUE(write_file(path_, text).ok());
    return read_card(path_);
  }
  std::string refusal(const std::string& text) {
    const auto card = read(text);
    return card.ok() ? "" : card.message();
  }

  const std::filesystem::path path_ = std::filesystem::path(testing::TempDir()) / "sluice_machine" /
                                      testing::UnitTest::GetInstance()->current_test_info()->name() /
                                      "mine.toml";
};

// A machine that steps reach something of, in f32.
const char* const kSmall = R"(
[memory]
size = "2GiB"
reached_bytes_per_s = 1e10
[reached_flops.f32]
products = 2e11
attention_forward = 1e11
attention_backward = 9e10
[links]
load_bytes_per_s = 5e9
store_bytes_per_s = 4e9
)";

TEST(Cards, AreDifferentAndInTheOrderOfTheirMemory) {
  std::set<std::string> keys;
  for (const Card& card : cards()) EXPECT_TRUE(keys.insert(card.key).second) << card.key;
  EXPECT_TRUE(std::is_sorted(cards().begin(), cards().end(),
                             [](const Card& a, const Card& b) { return a.memory_bytes < b.memory_bytes; }));
}

TEST(Cards, SayWhereTheirNumbersComeFrom) {
  for (const Card& card : cards()) {
    EXPECT_FALSE(card.peak_source.empty()) << card.key;
    EXPECT_EQ(card.reached_source.empty(), !card.can_be_planned()) << card.key;
    EXPECT_EQ(card.link_source.empty(), card.load_rate == 0) << card.key;
  }
}

TEST(Cards, AreFoundByTheirNamesAndByThoseOfDrivers) {
  for (const Card& card : cards()) {
    for (const std::string& name : {card.key, card.name, "NVIDIA " + card.name}) {
      const auto found = find_card(name);
      ASSERT_TRUE(found.ok()) << found.message();
      EXPECT_EQ(found->key, card.key);
    }
  }
  for (const auto& [driver, key] : {std::pair{"NVIDIA GeForce RTX 4060 Ti", "rtx4060ti"},
                                    {"NVIDIA A100-SXM4-80GB", "a100"},
                                    {"NVIDIA A100-PCIE-40GB", "a100-40gb"},
                                    {"NVIDIA H100 80GB HBM3", "h100"},
                                    {"NVIDIA H200", "h200"},
                                    {"NVIDIA GeForce RTX 3080", "rtx3080"},
                                    {"NVIDIA GeForce RTX 4070 Ti", "rtx4070ti"},
                                    {"NVIDIA GeForce RTX 4060 Laptop GPU", "laptop"},
                                    {"NVIDIA L4", "l4"},
                                    {"NVIDIA L40S", "l40s"},
                                    {"NVIDIA A40", "a40"},
                                    {"NVIDIA A10", "a10"},
                                    {"NVIDIA RTX A5000", "a5000"},
                                    {"NVIDIA H20", "h20"},
                                    {"NVIDIA GB10", "gb10"},
                                    {"Tesla V100-SXM2-16GB", "v100-16gb"},
                                    {"2 x NVIDIA H100 80GB HBM3", "h100"},
                                    {"NVIDIA GH200 480GB", "gh200"},
                                    {"NVIDIA RTX 6000 Ada Generation", "rtx6000ada"}}) {
    const Card* card = card_called(driver);
    ASSERT_NE(card, nullptr) << driver;
    EXPECT_EQ(card->key, key) << driver;
    EXPECT_EQ(find_card(driver)->key, key);
  }
  // Another chip, or another amount of it, has other rates.
  for (const char* other : {"NVIDIA T4", "NVIDIA L40", "NVIDIA A4000", "NVIDIA A10G", "NVIDIA H100 NVL",
                            "NVIDIA GeForce RTX 3080 Ti", "NVIDIA GeForce RTX 4070 Ti SUPER",
                            "NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA GeForce RTX 4090 D"}) {
    EXPECT_EQ(card_called(other), nullptr) << other;
    EXPECT_FALSE(find_card(other).ok()) << other;
  }
}

// Sluice computes in bf16 or f32: what has rates of neither serves arithmetic.
TEST(Cards, WithoutRatesOfAFormatAreNotPlannedForInIt) {
  for (const char* key : {"v100", "mi300x", "tpuv5p"}) {
    const auto machine = resolve_machine(RunConfig(), key);
    ASSERT_FALSE(machine.ok()) << key;
    EXPECT_NE(machine.message().find("sluice estimate"), std::string::npos) << machine.message();
  }
  EXPECT_FALSE(profile_of(*find_card("h100"), DType::F32).ok());
}

TEST_F(MachineFile, OfEveryCardReadsBackAsTheCard) {
  for (const Card& card : cards()) {
    const auto back = read(to_toml(card));
    if (!card.can_be_planned()) continue;  // what its process holds is unknown, and then read as usual
    ASSERT_TRUE(back.ok()) << card.key << ": " << back.message();
    EXPECT_EQ(to_toml(*back), to_toml(card));
  }
}

TEST_F(MachineFile, GivesItsFormatTheRatesThatItSays) {
  ASSERT_TRUE(read(kSmall).ok());
  const auto machine = resolve_machine(RunConfig(), path_.string());
  ASSERT_TRUE(machine.ok()) << machine.message();
  EXPECT_FALSE(machine->fast_bf16);
  EXPECT_TRUE(machine->takes_f32);
  EXPECT_EQ(machine->profile.rates.product_flops, 2e11);
  EXPECT_EQ(machine->profile.rates.attention_backward_flops, 9e10);
  EXPECT_EQ(machine->profile.bytes_per_s(kHost, kDevice), 5e9);
  EXPECT_EQ(machine->profile.bytes_per_s(kDevice, kHost), 4e9);
  ASSERT_TRUE(machine->card.has_value());
  EXPECT_EQ(machine->card->usable_bytes(), kGiB);
}

TEST_F(MachineFile, HasNoRatesOfAnotherFormat) {
  ASSERT_TRUE(read(kSmall).ok());
  RunConfig config;
  config.train.compute = DType::BF16;
  const auto machine = resolve_machine(config, path_.string());
  ASSERT_FALSE(machine.ok());
  EXPECT_EQ(
      machine.message(),
      "train.compute = bf16: mine has rates of steps in f32 only, and none is made from another format's");
}

TEST_F(MachineFile, HasACapabilityWithItsMinorNumber) {
  const std::pair<const char*, ComputeCapability> written[] = {
      {"8.9", {8, 9}}, {"9", {9, 0}}, {"12.0", {12, 0}}, {"12.1", {12, 1}}};
  for (const auto& [text, capability] : written) {
    const auto card = read(fmt::format("compute_capability = {}\n{}", text, kSmall));
    ASSERT_TRUE(card.ok()) << card.message();
    EXPECT_EQ(card->compute_capability, capability) << text;
  }
  for (const char* text : {"0.5", "8.93", "-8.9", "100", "nan"}) {
    EXPECT_NE(refusal(fmt::format("compute_capability = {}\n{}", text, kSmall)).find("such as 8.9"),
              std::string::npos)
        << text;
  }
}

// Products in 8 bits are a matter of the chip, whatever library there is.
TEST(Cards, MultiplyIn8BitsFromAdaOn) {
  for (const Card& card : cards()) {
    if (!card.can_be_planned()) continue;
    EXPECT_EQ(multiplies_float8(card.compute_capability), card.peak.f8 > 0) << card.key;
    RunConfig config;
    config.train.compute = DType::F8E4M3;
    const auto machine = resolve_machine(config, card.key);
    ASSERT_TRUE(machine.ok()) << machine.message();
    EXPECT_EQ(resolve_numerics(config, *machine, {}).ok(), card.peak.f8 > 0) << card.key;
  }
  const auto rate = [](const char* card) {
    return profile_of(*find_card(card), DType::BF16)->rates.narrow_share;
  };
  EXPECT_LT(rate("rtx4090"), rate("h200"));
}

TEST_F(MachineFile, ThatIsWrongIsRefusedWithTheKey) {
  const std::string small = kSmall;
  EXPECT_NE(refusal("name = \"x\"").find("memory.size"), std::string::npos);
  EXPECT_NE(refusal("[memory]\nsize = \"2GiB\"\nrate = 3").find("did you mean 'memory.size'"),
            std::string::npos);
  EXPECT_NE(refusal("multiprocessors = -4\n" + small).find("multiprocessors = '-4'"), std::string::npos);
  EXPECT_NE(refusal("multiprocessors = [4, 5]\n" + small).find("takes one value"), std::string::npos);
  EXPECT_NE(refusal("[memory]\nsize = \"2 apples\"").find("2 apples"), std::string::npos);
  std::string incomplete = small;
  incomplete.replace(incomplete.find("attention_forward = 1e11"), 24, "");
  EXPECT_NE(refusal(incomplete).find("reached_flops.f32.attention_forward is missing"), std::string::npos);
  incomplete = small;
  incomplete.replace(incomplete.find("store_bytes_per_s = 4e9"), 23, "");
  EXPECT_NE(refusal(incomplete).find("links.store_bytes_per_s is missing"), std::string::npos);
}

std::string change_refusal(const std::string& key, const std::string& value) {
  const auto card =
      changed(*find_card("rtx4090"), std::vector<std::pair<std::string, std::string>>{{key, value}});
  return card.ok() ? "" : card.message();
}

TEST(ChangedCard, HasWhatIsSaidAndTheRestAsBefore) {
  const auto before = find_card("rtx4090");
  const auto after = changed(*before, std::vector<std::pair<std::string, std::string>>{
                                          {"memory.size", "48GiB"}, {"links.load_bytes_per_s", "5e10"}});
  ASSERT_TRUE(after.ok()) << after.message();
  EXPECT_EQ(after->memory_bytes, 48 * kGiB);
  EXPECT_EQ(after->load_rate, 5e10);
  EXPECT_EQ(after->store_rate, before->store_rate);
  EXPECT_EQ(after->key, before->key);
  EXPECT_EQ(after->name, before->name + ", memory.size 48GiB, links.load_bytes_per_s 5e10");
  EXPECT_FALSE(after->compared) << "nobody compared this one with measured speeds";
}

TEST(ChangedCard, RefusalsNameTheKeyAndWhatIsAllowed) {
  EXPECT_EQ(
      change_refusal("memory", "48GiB").find("machine.memory: a machine has no such key; it has name, "), 0u);
  EXPECT_NE(change_refusal("memory", "48GiB").find("links.copy_slowdown"), std::string::npos);
  EXPECT_EQ(change_refusal("memory.size", "much").find("machine.memory.size = "), 0u);
  EXPECT_EQ(change_refusal("links.load_bytes_per_s", "-1").find("machine.links.load_bytes_per_s = '-1'"), 0u);
  EXPECT_NE(change_refusal("memory.size", "1GiB").find("above 1GiB"), std::string::npos);
}

TEST(ChangedCard, IsWhatIsPlannedForAndOnlyWhereAMachineIsNamed) {
  const auto config = load_config("", {"machine.memory.size=48GiB"});
  ASSERT_TRUE(config.ok()) << config.message();
  const auto machine = resolve_machine(*config, "rtx4090");
  ASSERT_TRUE(machine.ok()) << machine.message();
  EXPECT_EQ(machine->card->memory_bytes, 48 * kGiB);
  const auto here = resolve_machine(*config, "");
  ASSERT_FALSE(here.ok());
  EXPECT_EQ(here.message().find("machine.memory.size = 48GiB: only a machine that is planned for"), 0u);
}

// Two tasks of one op and one of an op that nobody measured.
TEST(ReachedRates, AreThoseOfTheOpsThatWereMeasured) {
  Program program;
  const auto object = [&](const char* name, DType dtype, int64_t elements) {
    return program.add({.name = name,
                        .role = name,
                        .kind = ObjectKind::Activation,
                        .format = dtype,
                        .bytes = NumberFormat(dtype).bytes(elements)});
  };
  const Cast cast{1 << 20, DType::F32, DType::BF16}, other{1 << 10, DType::F32, DType::BF16};
  const ObjectId x = object("x", DType::F32, 1 << 20), y = object("y", DType::BF16, 1 << 20);
  for (const char* name : {"first", "second"})
    program.add(name, cast, std::vector<ObjectId>{x, y}, Phase::Forward, 0, 0, 0);
  program.add("third", other,
              std::vector<ObjectId>{object("u", DType::F32, 1 << 10), object("v", DType::BF16, 1 << 10)},
              Phase::Forward, 0, 0, 0);
  Profile profile;
  profile.measured_ns[cost_key(cast)] = 1e6;
  const Rates rates = reached_rates(program, profile);
  EXPECT_DOUBLE_EQ(rates.memory_bytes, traffic(cast) * 1e3);
  EXPECT_EQ(rates.product_flops, 0);
  EXPECT_EQ(rates.attention_forward_flops, 0);
}

TEST(Rates, AreLowerForHeadsThatNoLibraryTakes) {
  const Profile p = *profile_of(*find_card("h100"), DType::BF16);
  const auto rate = [&](int64_t head_dim) {
    const AttnShape shape{1, 8192, 8192, 8, 2, head_dim, 0, false, DType::BF16};
    const Op op = AttnFwd{shape, DType::BF16, false};
    return flops(op) / p.cost(op).ns;
  };
  EXPECT_GT(rate(256), rate(128));
  EXPECT_NEAR(rate(512) / rate(256), p.rates.wide_forward_share, 0.05);
}

TEST(HostGrowth, WhatIsHeldBesideAnArenaFitsTheCapToTheByte) {
  const Profile p = *profile_of(*find_card("h100"), DType::BF16);
  ASSERT_GT(p.host_growth.per_arena_gib, 0);
  ASSERT_GT(p.host_growth.per_action, 0);
  for (const int64_t cap : {kGiB, 10 * kGiB + 1, 60 * kGiB, 110 * kGiB + 12345}) {
    for (const int64_t actions : {0, 1, 25'000, 100'000}) {
      const int64_t arena = p.arena_within(kHost, cap, actions);
      EXPECT_LE(arena + p.held_beside(kHost, arena, actions), cap) << cap << " " << actions;
      EXPECT_GT(arena + 1 + p.held_beside(kHost, arena + 1, actions), cap) << cap << " " << actions;
      EXPECT_EQ(p.arena_within(kHost, arena + p.held_beside(kHost, arena, actions), actions), arena);
    }
  }
  EXPECT_EQ(p.held_beside(kDevice, kGiB, 100'000), p.overhead_bytes[kDevice]);
  EXPECT_LT(p.arena_within(kHost, kMiB, 0), 0);
}

// By what a host cap allows, as plans are found under it.
TEST(Profile, ADeviceHasTheTablesOfThePinnedArena) {
  Profile p;
  p.overhead_bytes[kDevice] = 600 * kMiB;
  p.most_host_bytes = 60 * kGiB;
  EXPECT_EQ(p.held_beside(kDevice, 0, 0), 600 * kMiB);
  p.host_bytes_per_table_byte = 512;
  EXPECT_EQ(p.table_bytes(60 * kGiB), 120 * kMiB);
  EXPECT_EQ(p.held_beside(kDevice, 0, 0), 720 * kMiB);
  EXPECT_EQ(p.arena_within(kDevice, 24 * kGiB, 0), 24 * kGiB - 720 * kMiB);
  EXPECT_EQ(p.held_beside(kHost, 0, 0), 0);
  p.most_host_bytes = kUnlimited;
  EXPECT_EQ(p.held_beside(kDevice, 0, 0), 600 * kMiB);
}

}  // namespace
}  // namespace sluice::core
