// SPDX-License-Identifier: Apache-2.0
// A backend that runs every op by the reference, rounded as a perfect backend would: what the harness must
// pass. Subclasses go wrong in one way each: what it must not pass.
#pragma once

#include <cstring>
#include <vector>

#include "backend/backend.h"
#include "conformance/reference.h"

namespace sluice::core::conformance {

class ReferenceBackend : public Backend {
 public:
  std::string_view name() const override { return "reference"; }
  int64_t alignment() const override { return 64; }
  int64_t workspace_bytes(const Op&) const override { return 100; }

  Result<Arenas> reserve(const BytesByTier& bytes) override {
    for (const Tier tier : lanes().tiers()) {
      // Vectors of doubles, for their alignment.
      arenas_[tier].resize(static_cast<size_t>(bytes[tier]) / sizeof(double) + 1);
      bases_[tier] = reinterpret_cast<std::byte*>(arenas_[tier].data());
    }
    return bases_;
  }
  Status prepare(std::span<const SharedOp>) override { return {}; }
  Status begin(uint32_t, bool) override { return {}; }
  Status submit(const Command& command) override {
    if (const auto* launch = std::get_if<Launch>(&command.work)) {
      run(*launch);
    } else {
      const auto& copy = std::get<Copy>(command.work);
      std::memcpy(at(copy.to), at(copy.from), static_cast<size_t>(copy.bytes));
    }
    return {};
  }
  Status wait(uint32_t) override { return {}; }
  std::optional<Fault> finish(std::vector<Interval>*) override { return {}; }
  Status upload(Location to, const std::byte* from, int64_t bytes) override {
    std::memcpy(at(to), from, static_cast<size_t>(bytes));
    return {};
  }
  Status download(std::byte* to, Location from, int64_t bytes) override {
    std::memcpy(to, at(from), static_cast<size_t>(bytes));
    return {};
  }
  BytesByTier memory() const override { return {}; }

  // The operands' content as it is now, what an op makes of it, and the way back.
  static std::vector<Tensor> read(const Launch& launch);
  static std::vector<Tensor> results(const Op& op, std::vector<Tensor> operands);
  static void write(const Launch& launch, const std::vector<Tensor>& operands);

 protected:
  virtual void run(const Launch& launch);

 private:
  std::byte* at(Location place) const { return bases_[place.tier] + place.offset; }

  ByTier<std::vector<double>> arenas_;
  Arenas bases_;
};

}  // namespace sluice::core::conformance
