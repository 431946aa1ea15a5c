// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <utility>

#include "comm/group.h"

namespace sluice::core {

// The calls of another group: for groups that change some of them.
class ForwardingGroup : public ProcessGroup {
 public:
  explicit ForwardingGroup(std::unique_ptr<ProcessGroup> group) : group_(std::move(group)) {}

  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }
  int here() const override { return group_->here(); }
  int host() const override { return group_->host(); }
  void at(std::string_view task) override { group_->at(task); }
  void enter(std::string_view task) override { group_->enter(task); }
  void leave() override { group_->leave(); }
  Status exchange(std::span<const std::byte> out, int to, std::span<std::byte> in, int from) override {
    return group_->exchange(out, to, in, from);
  }
  Status barrier() override { return group_->barrier(); }
  Status broadcast(std::span<std::byte> bytes, int root) override { return group_->broadcast(bytes, root); }
  Status all_gather(std::span<const std::byte> own, std::span<std::byte> all) override {
    return group_->all_gather(own, all);
  }
  Status sum_in_any_order(std::span<float> values) override { return group_->sum_in_any_order(values); }
  void watched() override { group_->watched(); }
  void abandon() override { group_->abandon(); }
  Result<std::unique_ptr<ProcessGroup>> first(int ranks) override { return group_->first(ranks); }

 protected:
  std::unique_ptr<ProcessGroup> group_;
};

}  // namespace sluice::core
