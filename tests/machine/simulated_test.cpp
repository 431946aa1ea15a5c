// SPDX-License-Identifier: Apache-2.0
// Machines that are not here, of several devices.
#include <gtest/gtest.h>

#include "config/files/load_config.h"
#include "machine/machine.h"

namespace sluice::core {
namespace {

const Tier kLast = Tier::device(3);

Profile profile_of(double host_rate) {
  Card card = *find_card("h100");
  card.load_rate = 50e9, card.store_rate = 20e9, card.peer_rate = 300e9;
  card.host_rate = host_rate;
  const auto config = load_config("", {"run.devices=4"});
  EXPECT_TRUE(config.ok()) << config.message();
  const auto machine = simulated_machine(*config, card);
  EXPECT_TRUE(machine.ok()) << machine.message();
  return machine->profile;
}

TEST(SimulatedMachines, SayHowManyDevicesTheyAre) {
  EXPECT_EQ(profile_of(0).name, "4 x h100");
}

TEST(SimulatedMachines, EveryDeviceHasLinksOfItsOwnUnlessTheHostHasLess) {
  const Profile own = profile_of(0);
  EXPECT_EQ(own.bytes_per_s(kHost, kLast), 50e9);
  EXPECT_EQ(own.bytes_per_s(kLast, kHost), 20e9);
  // 100 GB/s over four: 25 each, which stores do not reach anyway.
  const Profile shared = profile_of(100e9);
  EXPECT_EQ(shared.bytes_per_s(kHost, kDevice), 25e9);
  EXPECT_EQ(shared.bytes_per_s(kHost, kLast), 25e9);
  EXPECT_EQ(shared.bytes_per_s(kLast, kHost), 20e9);
  EXPECT_EQ(shared.peer_bytes_per_s(), 300e9);
}

}  // namespace
}  // namespace sluice::core
