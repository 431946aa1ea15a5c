// SPDX-License-Identifier: Apache-2.0
// The processes of a job as the network of a backend.
#pragma once

#include "base/network.h"
#include "comm/group.h"
#include "comm/sum_in_order.h"
#include "comm/watch.h"

namespace sluice::core {

// Sums are OrderedSum's. Borrows the group, whose threads' contract holds: one call at a time. What the
// process is at goes to `activity`, if there is one.
class ProcessNetwork final : public Network {
 public:
  explicit ProcessNetwork(ProcessGroup& group, Activity* activity = nullptr)
      : group_(group), sum_(group), activity_(activity) {}

  int processes() const override { return group_.size(); }
  int rank() const override { return group_.rank(); }
  void at(std::string_view task) override {
    if (activity_ != nullptr) activity_->task(task);
  }
  void enter(std::string_view task) override {
    at(task);
    if (activity_ != nullptr) activity_->enter("a sum between devices");
  }
  void leave() override {
    if (activity_ != nullptr) activity_->leave();
  }
  Status sum(std::span<std::byte> values, DType dtype) override { return sum_(values, dtype); }
  Status gather(std::span<const std::byte> own, std::span<std::byte> all) override {
    return group_.all_gather(own, all);
  }
  Status broadcast(std::span<std::byte> bytes, int root) override { return group_.broadcast(bytes, root); }
  Status exchange(std::span<const std::byte> out, int to, std::span<std::byte> in, int from) override {
    return group_.exchange(out, to, in, from);
  }

 private:
  ProcessGroup& group_;
  OrderedSum sum_;
  Activity* activity_;
};

}  // namespace sluice::core
