// SPDX-License-Identifier: Apache-2.0
// Operands of which an op reads some parts only, and which these are, another operand says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "ops/ops.h"

namespace sluice::core {

// An object that can arrive in parts: they have equal sizes and lie one behind the other. The op reads those
// that its chooser names, and no byte of the others.
struct ChosenParts {
  size_t object, chooser;  // the op's operands
  int64_t count;           // parts of the object
  double expected;         // how many of them the op reads, in the mean
  int64_t told_bytes;      // from the start of the chooser: all that reads() looks at
  int64_t first;           // the first part's number in the chooser

  // The expected part of an object of so many bytes.
  int64_t expected_bytes(int64_t bytes) const;
  // Whether the op reads part `part` of `count`. `told`: told_bytes, aligned as i32.
  bool reads(std::span<const std::byte> told, int64_t part) const;
};
// Nothing: it reads all of its operands.
std::optional<ChosenParts> chosen_parts(const Op& op);

}  // namespace sluice::core
