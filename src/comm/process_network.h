// SPDX-License-Identifier: Apache-2.0
// The processes of a job as the network of a backend.
#pragma once

#include "base/network.h"
#include "comm/group.h"
#include "comm/sum_in_order.h"

namespace sluice::core {

// Sums are OrderedSum's. Borrows the group, whose threads' contract holds: one call at a time.
class ProcessNetwork final : public Network {
 public:
  explicit ProcessNetwork(ProcessGroup& group) : group_(group), sum_(group) {}

  int processes() const override { return group_.size(); }
  int rank() const override { return group_.rank(); }
  Status sum(std::span<std::byte> values, DType dtype) override { return sum_(values, dtype); }
  Status gather(std::span<const std::byte> own, std::span<std::byte> all) override {
    return group_.all_gather(own, all);
  }

 private:
  ProcessGroup& group_;
  OrderedSum sum_;
};

}  // namespace sluice::core
