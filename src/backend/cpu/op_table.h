// SPDX-License-Identifier: Apache-2.0
// What was prepared, by op: a launch checks its buffers against it and finds its sizes without computing
// them.
#pragma once

#include <array>
#include <cstdint>
#include <unordered_map>

#include "backend/backend.h"
#include "base/status.h"
#include "ops/op.h"

namespace sluice::core::cpu {

class OpTable {
 public:
  // Notes the op's operand sizes and its workspace.
  void add(const Op& op, int64_t workspace_bytes);

  // Whether `launch` is of a known op and brings buffers of its sizes.
  Status check(const Launch& launch) const;

 private:
  static constexpr size_t kMaxFields = 16, kMaxOperands = 14;

  struct Key {
    size_t kind = 0, count = 0;
    std::array<uint64_t, kMaxFields> fields{};
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    size_t operator()(const Key& key) const;
  };
  struct Sizes {
    size_t operands = 0;
    std::array<int64_t, kMaxOperands> bytes{};
    int64_t workspace = 0;
  };

  static Key key_of(const Op& op);

  std::unordered_map<Key, Sizes, KeyHash> table_;
};

}  // namespace sluice::core::cpu
