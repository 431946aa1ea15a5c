// SPDX-License-Identifier: Apache-2.0
// Which memory node the pages of the host's arena come from. On a host with several, a device copies slower
// from and to those that it is not plugged in at.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/host_part.h"

namespace sluice::core {

// Bytes [begin, end) of an arena, and the cores of the node that they shall lie on.
struct NearPart {
  int64_t begin = 0, end = 0;
  std::vector<int> cores;

  bool operator==(const NearPart&) const = default;
};

// Where the parts shall lie; `addresses` are those of the devices on the PCI bus, "0000:1b:00.0", in order.
// Parts of devices whose node is unknown or has no cores are left out, and all of them where the host has one
// node. `root` stands for / in tests.
std::vector<NearPart> near_parts(std::span<const HostPart> parts, std::span<const std::string> addresses,
                                 const std::filesystem::path& root = "/");

// Has the system hand out the pages of a range now, without changing what others may be writing there.
void populate(std::byte* data, int64_t bytes);

// The same for parts of an arena that nothing has touched yet, by threads on the cores of each. A page comes
// from the node of the thread that touches it first, or from another one where that is full. Cores that this
// process may not use are ignored. Returns when all is there.
void populate_near(std::byte* arena, std::span<const NearPart> parts);

// Keeps the calling thread on some cores as long as the object lives, if the system allows it.
class OnCores {
 public:
  explicit OnCores(std::span<const int> cores);
  ~OnCores();
  OnCores(const OnCores&) = delete;
  OnCores& operator=(const OnCores&) = delete;

 private:
  std::vector<int> before_;  // empty: nothing was changed
};

}  // namespace sluice::core
