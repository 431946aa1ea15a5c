// SPDX-License-Identifier: Apache-2.0
// Tiers and lanes: names, tables, and that nothing is assumed about how many there are.
#include "base/lane.h"

#include <gtest/gtest.h>

#include <set>

namespace sluice::core {
namespace {

TEST(Tier, NamesAreFoundAgain) {
  std::set<std::string_view> names;
  for (const Tier tier : kTiers) {
    names.insert(name_of(tier));
    EXPECT_EQ(find_tier(name_of(tier)), tier);
  }
  EXPECT_EQ(names.size(), kTiers.size());
  EXPECT_EQ(find_tier("tape"), std::nullopt);
}

TEST(ByTier, HoldsWhatIsGivenAndNothingElse) {
  const BytesByTier some{{kHost, 3}, {Tier::device(1), 2}};
  for (const Tier tier : kTiers) {
    EXPECT_EQ(some[tier], tier == kHost ? 3 : tier == Tier::device(1) ? 2 : 0);
    EXPECT_EQ(BytesByTier(7)[tier], 7);
    EXPECT_EQ(BytesByTier()[tier], 0);
  }
}

TEST(ByTier, IsAsLongAsItHasToBe) {
  BytesByTier bytes(7);
  EXPECT_EQ(bytes.tiers().size(), Tier::kFar) << "those behind devices";
  bytes[kHost] = 1;
  bytes[Tier::device(2)] = 3;
  std::vector<Tier> tiers;
  for (const Tier tier : bytes.tiers()) tiers.push_back(tier);
  ASSERT_EQ(tiers.size(), 3 + Tier::kFar);
  for (size_t i = 0; i < tiers.size(); ++i)
    EXPECT_EQ(tiers[i], i < 3 ? Tier::device(i) : kTiers[kTiers.size() - tiers.size() + i]);
  for (const Tier tier : kTiers) EXPECT_EQ(bytes[tier], tier == kHost ? 1 : tier == Tier::device(2) ? 3 : 7);
  bytes.set_devices(9);
  EXPECT_EQ(bytes.tiers().size(), Tier::kFar);
  for (const Tier tier : kTiers) EXPECT_EQ(bytes[tier], tier == kHost ? 1 : tier.is_device() ? 9 : 7);
}

TEST(ByTier, AreComparedTierByTierHoweverLongTheyAre) {
  BytesByTier some(7), longer(7);
  longer[Tier::device(3)] = 7;
  EXPECT_EQ(some, longer);
  EXPECT_EQ(longer, some);
  longer[Tier::device(1)] = 6;
  EXPECT_NE(some, longer);
  EXPECT_TRUE(within(longer, some));
  EXPECT_FALSE(within(some, longer));
  EXPECT_FALSE(within(BytesByTier(7), BytesByTier({{kHost, 9}, {kDevice, 9}})))
      << "other devices have 7 and 0";
  some.set_devices(8);
  EXPECT_FALSE(within(some, BytesByTier(7)));
}

TEST(ByTier, IsRaisedToAnother) {
  BytesByTier values{{kHost, 5}, {kDevice, 2}};
  raise_to({{kHost, 4}, {kDevice, 3}, {Tier::device(1), 1}}, values);
  EXPECT_EQ(values, (BytesByTier{{kHost, 5}, {kDevice, 3}, {Tier::device(1), 1}}));
  EXPECT_EQ(sum(values), 9);
  EXPECT_EQ(fullest_device(values), 3);
}

TEST(LaneTable, StartsWithThoseOfOneDevice) {
  const LaneTable lanes;
  std::vector<std::string> names;
  for (const Lane lane : lanes) names.push_back(name_of(lanes[lane]));
  EXPECT_EQ(names, (std::vector<std::string>{"compute", "load", "store"}));
  EXPECT_EQ(lanes.tiers(), (std::vector<Tier>{kDevice, kHost}));
  EXPECT_TRUE(lanes[lanes.compute()].computes());
  EXPECT_TRUE(lanes[lanes.copy(kHost, kDevice)].loads());
  EXPECT_TRUE(lanes[lanes.copy(kDevice, kHost)].stores());
}

TEST(LaneTable, FindsLanesByWhatTheyJoin) {
  LaneTable lanes;
  const Tier second = Tier::device(1);
  EXPECT_EQ(lanes.find(kDevice, second), std::nullopt);
  const Lane peer = lanes.add(kDevice, second), compute = lanes.add_compute(second);
  EXPECT_EQ(lanes.copy(kDevice, second), peer);
  EXPECT_EQ(lanes.compute(second), compute);
  EXPECT_EQ(name_of(lanes[peer]), "device>device1");
  EXPECT_EQ(name_of(lanes[compute]), "compute1");
  EXPECT_TRUE(lanes[peer].hands_over());
  EXPECT_EQ(lanes.tiers(), (std::vector<Tier>{kDevice, second, kHost}));
}

TEST(LaneTable, HasANetworkForEveryDeviceWhereThereAreOtherProcesses) {
  LaneTable lanes = LaneTable::of_devices(2, false);
  EXPECT_EQ(lanes.find({kDevice, kDevice, true}), std::nullopt);
  lanes.add_networks();
  const Lane second = lanes.running(LaneKind::Network, Tier::device(1));
  EXPECT_NE(second, lanes.compute(Tier::device(1)));
  EXPECT_EQ(lanes[second].kind(), LaneKind::Network);
  EXPECT_FALSE(lanes[second].computes() || lanes[second].copies() || lanes[second].loads());
  EXPECT_EQ(lanes.devices(), 2u);
  for (const Lane lane : lanes) EXPECT_EQ(find_lane_ends(name_of(lanes[lane])), lanes[lane]);
  EXPECT_EQ(name_of(lanes[second]), "network1");
  EXPECT_EQ(find_lane_ends("network0"), std::nullopt);
}

TEST(LaneTable, JoinsEachDeviceToItsNeighboursInTheRing) {
  EXPECT_EQ(LaneTable::of_devices(1, true), LaneTable());
  const auto names = [](size_t devices, bool joined) {
    std::string out;
    const LaneTable lanes = LaneTable::of_devices(devices, joined);
    for (const Lane lane : lanes) out += name_of(lanes[lane]) + " ";
    return out;
  };
  EXPECT_EQ(names(2, false), "compute compute1 load store load1 store1 ");
  EXPECT_EQ(names(2, true), "compute compute1 load store load1 store1 device>device1 device1>device ");
  const LaneTable four = LaneTable::of_devices(4, true);
  EXPECT_TRUE(four.find(Tier::device(3), kDevice));
  EXPECT_FALSE(four.find(kDevice, Tier::device(2)));
}

TEST(LaneTable, NamesAreFoundAgain) {
  std::set<std::string> names;
  for (const Tier from : kTiers) {
    for (const Tier to : kTiers) {
      const LaneEnds ends{from, to};
      EXPECT_EQ(find_lane_ends(name_of(ends)), ends);
      names.insert(name_of(ends));
    }
  }
  EXPECT_EQ(names.size(), kTiers.size() * kTiers.size());
}

TEST(LaneEnds, ACopyLoadsOrStoresOrHandsOver) {
  for (const Tier from : kTiers) {
    for (const Tier to : kTiers) {
      const LaneEnds ends{from, to};
      EXPECT_EQ(ends.loads() + ends.stores() + ends.hands_over(), int(from != to)) << name_of(ends);
      EXPECT_EQ(ends.loads(), (LaneEnds{to, from}).stores()) << name_of(ends);
    }
  }
}

TEST(TierDeathTest, ATierThatThereIsNotIsNotTakenForAnother) {
  EXPECT_DEATH(Tier::device(Tier::kMostDevices), "device 64 of 64");
  EXPECT_DEATH(Tier::of_index(Tier::kCount), "tier [0-9]+ of [0-9]+");
}

TEST(LaneTable, RefusesTwoOfAKind) {
  const auto table = LaneTable::of({{kDevice, kDevice}, {kHost, kDevice}, {kHost, kDevice}});
  ASSERT_FALSE(table.ok());
  EXPECT_NE(table.message().find("load"), std::string::npos) << table.message();
}

}  // namespace
}  // namespace sluice::core
