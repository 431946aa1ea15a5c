// SPDX-License-Identifier: Apache-2.0
// A backend that hands every call on to another one: what the testing backends are made of.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "backend/backend.h"

namespace sluice::core {

class ForwardingBackend : public Backend {
 public:
  // Borrows `inner`, which outlives this.
  explicit ForwardingBackend(Backend& inner) : inner_(&inner) {}
  explicit ForwardingBackend(std::unique_ptr<Backend> inner)
      : owned_(std::move(inner)), inner_(owned_.get()) {}

  std::string_view name() const override { return inner_->name(); }
  const LaneTable& lanes() const override { return inner_->lanes(); }
  int device_number(Tier device) const override { return inner_->device_number(device); }
  int64_t alignment() const override { return inner_->alignment(); }
  int64_t workspace_bytes(const Op& op) const override { return inner_->workspace_bytes(op); }
  void set_host_parts(std::vector<HostPart> parts) override { inner_->set_host_parts(std::move(parts)); }
  void set_disk(std::shared_ptr<const DiskSource> disk) override { inner_->set_disk(std::move(disk)); }
  Result<Arenas> reserve(const BytesByTier& bytes) override { return inner_->reserve(bytes); }
  Result<Arenas> grow(const BytesByTier& bytes) override { return inner_->grow(bytes); }
  Status prepare(std::span<const SharedOp> ops) override { return inner_->prepare(ops); }
  Status begin(uint32_t commands, bool timed) override { return inner_->begin(commands, timed); }
  Status submit(const Command& command) override { return inner_->submit(command); }
  Status wait(uint32_t command) override { return inner_->wait(command); }
  std::optional<Fault> finish(std::vector<Interval>* timeline) override { return inner_->finish(timeline); }
  Status upload(Location to, const std::byte* from, int64_t bytes) override {
    SLUICE_TRY(reach(to.tier));
    return inner_->upload(to, from, bytes);
  }
  Status download(std::byte* to, Location from, int64_t bytes) override {
    SLUICE_TRY(reach(from.tier));
    return inner_->download(to, from, bytes);
  }
  Status clear(Location to, int64_t bytes) override {
    SLUICE_TRY(reach(to.tier));
    return inner_->clear(to, bytes);
  }
  BytesByTier memory() const override { return inner_->memory(); }
  std::string take_note() override { return inner_->take_note(); }

 protected:
  Backend& inner() { return *inner_; }
  // Asked before bytes of a tier are touched between steps: its error is the call's.
  virtual Status reach(Tier) { return {}; }

 private:
  std::unique_ptr<Backend> owned_;
  Backend* inner_;
};

}  // namespace sluice::core
