// SPDX-License-Identifier: Apache-2.0
// How a host is laid out, as its system says it: memory nodes, and where devices are plugged in. `root`
// stands for / in tests.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::core {

// Main memory that is near to some cores.
struct NumaNode {
  int number = 0;
  std::string cores;  // "0-31,64-95"; empty: none
  int64_t bytes = 0;  // 0: unknown
};
// Ascending; none where the system does not say.
std::vector<NumaNode> numa_nodes(const std::filesystem::path& root = "/");
// The numbers in a list such as "0-3,8". Text that is no list has none.
std::vector<int> cores_in(std::string_view list);

// Facts of a device on the PCI bus, by its address "0000:1b:00.0". The link is that of its own slot: bridges
// above it may be narrower.
struct PciPlace {
  std::optional<int> node;  // the memory that it is near to
  int width = 0;            // lanes in use now; 0: unknown
  int most_width = 0;       // of device and slot
  std::string most_speed;   // of one lane: "32.0 GT/s PCIe"; empty: unknown
};
PciPlace pci_place(const std::string& address, const std::filesystem::path& root = "/");

}  // namespace sluice::core
