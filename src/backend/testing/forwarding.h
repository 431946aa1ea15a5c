// SPDX-License-Identifier: Apache-2.0
// A backend that hands every call on to another one: what the testing backends are made of.
#pragma once

#include <concepts>
#include <memory>
#include <utility>
#include <vector>

#include "backend/backend.h"

namespace sluice::core {

// The backend behind another one: borrowed, and then it outlives that one, or owned.
class InnerBackend {
 public:
  InnerBackend(Backend& backend) : backend_(&backend) {}  // NOLINT: it is one
  template <std::derived_from<Backend> B>
  InnerBackend(std::unique_ptr<B> backend)  // NOLINT: it is one
      : owned_(std::move(backend)), backend_(owned_.get()) {}

  Backend* operator->() const { return backend_; }
  Backend& operator*() const { return *backend_; }

 private:
  std::unique_ptr<Backend> owned_;
  Backend* backend_;
};

class ForwardingBackend : public Backend {
 public:
  explicit ForwardingBackend(InnerBackend inner) : inner_(std::move(inner)) {}

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
  InnerBackend inner_;
};

}  // namespace sluice::core
