// SPDX-License-Identifier: Apache-2.0
#include "comm/group.h"

#include <algorithm>

namespace sluice::core {

Result<bool> any(ProcessGroup& group, bool own) {
  SLUICE_ASSIGN(const std::vector<char> all, gathered(group, char(own ? 1 : 0)));
  return std::ranges::max(all) != 0;
}

Result<int> place_here(ProcessGroup& group) {
  SLUICE_ASSIGN(const auto hosts, gathered(group, group.host()));
  return int(std::count(hosts.begin(), hosts.begin() + group.rank(), group.host()));
}

}  // namespace sluice::core
