// SPDX-License-Identifier: Apache-2.0
#include "host/topology.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>

#include "base/order.h"

namespace sluice::core {
namespace fs = std::filesystem;
namespace {

// The first line; empty where there is no such file.
std::string line_of(const fs::path& path) {
  std::string line;
  std::getline(std::ifstream(path), line);
  return line;
}

std::optional<int> whole_number(std::string_view text) {
  int value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// "Node 0 MemTotal:  16083148 kB"
int64_t memory_of(const fs::path& node) {
  std::ifstream file(node / "meminfo");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string text, number, key;
    int64_t kib = 0;
    if (words >> text >> number >> key >> kib && key == "MemTotal:") return kib * 1024;
  }
  return 0;
}

}  // namespace

std::vector<NumaNode> numa_nodes(const fs::path& root) {
  std::vector<NumaNode> out;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(root / "sys/devices/system/node", none)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("node")) continue;
    const auto number = whole_number(std::string_view(name).substr(4));
    if (number) out.push_back({*number, line_of(entry.path() / "cpulist"), memory_of(entry.path())});
  }
  sort_by(out, [](const NumaNode& node) { return node.number; });
  return out;
}

std::vector<int> cores_in(std::string_view list) {
  std::vector<int> out;
  for (size_t begin = 0; begin < list.size();) {
    const size_t comma = std::min(list.find(',', begin), list.size());
    const std::string_view range = list.substr(begin, comma - begin);
    const size_t dash = std::min(range.find('-'), range.size());
    const auto first = whole_number(range.substr(0, dash));
    const auto last = dash < range.size() ? whole_number(range.substr(dash + 1)) : first;
    if (!first || !last) return {};
    for (int core = *first; core <= *last; ++core) out.push_back(core);
    begin = comma + 1;
  }
  return out;
}

PciPlace pci_place(const std::string& address, const fs::path& root) {
  const fs::path device = root / "sys/bus/pci/devices" / address;
  PciPlace out;
  out.node = whole_number(line_of(device / "numa_node"));
  if (out.node && *out.node < 0) out.node.reset();  // -1: the system does not know
  out.width = whole_number(line_of(device / "current_link_width")).value_or(0);
  out.most_width = whole_number(line_of(device / "max_link_width")).value_or(0);
  out.most_speed = line_of(device / "max_link_speed");
  return out;
}

}  // namespace sluice::core
