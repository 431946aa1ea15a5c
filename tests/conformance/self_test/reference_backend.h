// A backend that runs every op by the reference, rounded as a perfect backend would: what the harness must
// pass. Subclasses go wrong in one way each: what it must not pass.
#pragma once

#include <cstring>
#include <vector>

#include "backend/backend.h"
#include "conformance/reference.h"

namespace sluice::conformance {

class ReferenceBackend : public Backend {
 public:
  std::string_view name() const override { return "reference"; }
  int64_t alignment() const override { return 64; }
  int64_t workspace_bytes(const Op&) const override { return 100; }

  Result<Arenas> reserve(int64_t device_bytes, int64_t host_bytes) override {
    // Vectors of doubles, for their alignment.
    device_.resize(static_cast<size_t>(device_bytes) / sizeof(double) + 1);
    host_.resize(static_cast<size_t>(host_bytes) / sizeof(double) + 1);
    return Arenas{reinterpret_cast<std::byte*>(device_.data()), reinterpret_cast<std::byte*>(host_.data())};
  }
  Status prepare(std::span<const Op>) override { return {}; }
  Status begin(uint32_t, bool) override { return {}; }
  Status submit(const Command& command) override {
    if (const auto* launch = std::get_if<Launch>(&command.work)) {
      run(*launch);
    } else {
      const auto& copy = std::get<Copy>(command.work);
      std::memcpy(copy.to, copy.from, static_cast<size_t>(copy.bytes));
    }
    return {};
  }
  std::optional<Fault> finish(std::vector<Interval>*) override { return {}; }
  Status upload(std::byte* to, const std::byte* from, int64_t bytes) override {
    std::memcpy(to, from, static_cast<size_t>(bytes));
    return {};
  }
  Status download(std::byte* to, const std::byte* from, int64_t bytes) override {
    std::memcpy(to, from, static_cast<size_t>(bytes));
    return {};
  }
  MemoryUse memory() const override { return {}; }

  // The operands' content as it is now, what an op makes of it, and the way back.
  static std::vector<Tensor> read(const Launch& launch);
  static std::vector<Tensor> results(const Op& op, std::vector<Tensor> operands);
  static void write(const Launch& launch, const std::vector<Tensor>& operands);

 protected:
  virtual void run(const Launch& launch);

 private:
  std::vector<double> device_, host_;
};

}  // namespace sluice::conformance
