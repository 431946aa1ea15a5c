// SPDX-License-Identifier: Apache-2.0
// The time of a link, handed out to the transfers of a step.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

namespace sluice::core {

// The time of one link over a step, handed out to transfers. A transfer may be spread over free time here and
// there: links work through queues, so only totals matter.
class LinkTime {
 public:
  explicit LinkTime(const std::vector<double>& start_ns)
      : start_ns_(start_ns),
        n_(static_cast<uint32_t>(start_ns.size() - 1)),
        free_(n_),
        later_(n_ + 1),
        earlier_(n_ + 1) {
    for (uint32_t p = 0; p < n_; ++p) free_[p] = start_ns[p + 1] - start_ns[p];
    std::iota(later_.begin(), later_.end(), 0u);
    std::iota(earlier_.begin(), earlier_.end(), 0u);
  }

  // When `ns` of transfer end that can begin at position p; never, if not within the step.
  double end_of(uint32_t p, double ns) {
    for (p = find(later_, p); p < n_; p = find(later_, p + 1)) {
      if (free_[p] >= ns) return start_ns_[p + 1] - free_[p] + ns;
      ns -= free_[p];
    }
    return std::numeric_limits<double>::infinity();
  }
  // When `ns` of transfer must begin to end before position p; minus infinity, if not within the step.
  double begin_of(uint32_t p, double ns) {
    for (uint32_t q = find(earlier_, p); q > 0; q = find(earlier_, q - 1)) {
      if (free_[q - 1] >= ns) return start_ns_[q - 1] + free_[q - 1] - ns;
      ns -= free_[q - 1];
    }
    return -std::numeric_limits<double>::infinity();
  }
  // Take the time; what does not fit into the step is taken from its other end, in the step after or before.
  void take_after(uint32_t p, double ns) {
    const double left = forward(p, n_, ns);
    if (left > 0) forward(0, p, left);
  }
  void take_before(uint32_t p, double ns) {
    const double left = backward(p, 0, ns);
    if (left > 0) backward(n_, p, left);
  }
  // Time taken before each position.
  std::vector<double> taken() const {
    std::vector<double> out(n_ + 1, 0);
    for (uint32_t p = 0; p < n_; ++p) out[p + 1] = out[p] + start_ns_[p + 1] - start_ns_[p] - free_[p];
    return out;
  }

 private:
  static uint32_t find(std::vector<uint32_t>& link, uint32_t p) {
    while (link[p] != p) p = link[p] = link[link[p]];
    return p;
  }
  void use_up(uint32_t p) {
    free_[p] = 0;
    later_[p] = p + 1;
    earlier_[p + 1] = p;
  }
  double forward(uint32_t p, uint32_t end, double ns) {
    for (p = find(later_, p); p < end && ns > 0; p = find(later_, p + 1)) {
      const double part = std::min(ns, free_[p]);
      ns -= part;
      free_[p] -= part;
      if (free_[p] <= 0) use_up(p);
    }
    return ns;
  }
  double backward(uint32_t p, uint32_t begin, double ns) {
    for (p = find(earlier_, p); p > begin && ns > 0; p = find(earlier_, p - 1)) {
      const double part = std::min(ns, free_[p - 1]);
      ns -= part;
      free_[p - 1] -= part;
      if (free_[p - 1] <= 0) use_up(p - 1);
    }
    return ns;
  }

  const std::vector<double>& start_ns_;
  const uint32_t n_;
  std::vector<double> free_;  // ns, by position
  std::vector<uint32_t> later_,
      earlier_;  // towards the next position with free time: from p on, and before p
};

}  // namespace sluice::core
