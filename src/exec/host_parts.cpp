// SPDX-License-Identifier: Apache-2.0
#include "exec/host_parts.h"

#include <algorithm>

namespace sluice::core {

std::vector<HostPart> host_parts(const Plan& plan) {
  const int64_t arena = plan.arenas[kHost].bytes;
  const size_t devices = plan.devices();
  const auto pages = size_t((arena + kHugePage - 1) / kHugePage);
  std::vector<int64_t> copied(pages * devices);  // by page and device
  const auto add = [&](const Action& a, const Location& host, Tier device) {
    const int64_t end = host.offset + a.bytes;
    for (int64_t page = host.offset / kHugePage; page * kHugePage < end; ++page) {
      const int64_t bytes = std::min(end, (page + 1) * kHugePage) - std::max(host.offset, page * kHugePage);
      copied[size_t(page) * devices + device.index()] += bytes;
    }
  };
  for (const Action& a : plan.actions) {
    if (a.from.tier == kHost && a.to.tier.is_device()) add(a, a.from, a.to.tier);
    if (a.to.tier == kHost && a.from.tier.is_device()) add(a, a.to, a.from.tier);
  }
  std::vector<HostPart> out;
  for (size_t page = 0; page < pages; ++page) {
    const auto of_page = copied.begin() + long(page * devices);
    const auto most = std::max_element(of_page, of_page + long(devices));
    if (*most == 0) continue;
    const HostPart part{int64_t(page) * kHugePage, std::min(arena, int64_t(page + 1) * kHugePage),
                        Tier::device(size_t(most - of_page))};
    if (!out.empty() && out.back().end == part.begin && out.back().device == part.device) {
      out.back().end = part.end;
    } else {
      out.push_back(part);
    }
  }
  return out;
}

}  // namespace sluice::core
