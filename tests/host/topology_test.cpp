// SPDX-License-Identifier: Apache-2.0
// Hosts as systems lay them out, in a directory that stands for /.
#include "host/topology.h"

#include <gtest/gtest.h>

#include "support/temp_dir.h"

namespace sluice::core {
namespace {

TEST(Topology, NodesHaveCoresAndMemory) {
  const TempDir dir;
  dir.add("sys/devices/system/node/node10/cpulist", "\n");
  dir.add("sys/devices/system/node/node1/cpulist", "32-63\n");
  dir.add("sys/devices/system/node/node1/meminfo",
          "Node 1 MemFree:   5 kB\nNode 1 MemTotal:        2048 kB\n");
  dir.add("sys/devices/system/node/node0/cpulist", "0-31\n");
  dir.add("sys/devices/system/node/nodes", "none\n");
  dir.add("sys/devices/system/node/possible", "0-1\n");
  const std::vector<NumaNode> nodes = numa_nodes(dir.path());
  ASSERT_EQ(nodes.size(), 3u);
  EXPECT_EQ(nodes[0].number, 0);
  EXPECT_EQ(nodes[0].cores, "0-31");
  EXPECT_EQ(nodes[0].bytes, 0);
  EXPECT_EQ(nodes[1].number, 1);
  EXPECT_EQ(nodes[1].bytes, 2048 * 1024);
  EXPECT_EQ(nodes[2].number, 10);
  EXPECT_EQ(nodes[2].cores, "");
}

TEST(Topology, DevicesHaveNodesAndLinks) {
  const TempDir dir;
  const std::string bus = "sys/bus/pci/devices/0000:1b:00.0/";
  dir.add(bus + "numa_node", "1\n");
  dir.add(bus + "current_link_width", "8\n");
  dir.add(bus + "max_link_width", "16\n");
  dir.add(bus + "max_link_speed", "32.0 GT/s PCIe\n");
  const PciPlace place = pci_place("0000:1b:00.0", dir.path());
  EXPECT_EQ(place.node, 1);
  EXPECT_EQ(place.width, 8);
  EXPECT_EQ(place.most_width, 16);
  EXPECT_EQ(place.most_speed, "32.0 GT/s PCIe");
}

TEST(Topology, ListsOfCoresAreRanges) {
  EXPECT_EQ(cores_in("0-2,8"), (std::vector<int>{0, 1, 2, 8}));
  EXPECT_EQ(cores_in("5"), std::vector<int>{5});
  for (const std::string_view none : {"", "-", "a", "1-", "1,,2", "3-1"})
    EXPECT_TRUE(cores_in(none).empty()) << none;
}

TEST(Topology, WhatTheSystemDoesNotSayIsUnknown) {
  const TempDir dir;
  EXPECT_TRUE(numa_nodes(dir.path()).empty());
  dir.add("sys/bus/pci/devices/0000:1b:00.0/numa_node", "-1\n");
  dir.add("sys/bus/pci/devices/0000:1b:00.0/max_link_width", "wide\n");
  const PciPlace place = pci_place("0000:1b:00.0", dir.path());
  EXPECT_FALSE(place.node);
  EXPECT_EQ(place.most_width, 0);
  EXPECT_FALSE(pci_place("0000:2c:00.0", dir.path()).node);
}

}  // namespace
}  // namespace sluice::core
