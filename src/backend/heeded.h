// SPDX-License-Identifier: Apache-2.0
// Which attributes of ops a backend's kernels heed, and which formats their operands may have. An op with
// another one is refused before anything runs: an attribute that is new, or that one backend alone knows,
// passes nowhere for nothing.
#pragma once

#include <span>
#include <string_view>

#include "base/format.h"
#include "base/status.h"
#include "ops/ops.h"

namespace sluice::core {

struct Heeded {
  std::string_view op;
  std::string_view attributes;  // as the op's fields() names them, with a space between
  // Formats of its operands beside plain numbers and compact state (ops/compact.h); by row: of any block.
  std::span<const Format> packed = {};
};

bool heeds(const Heeded& row, std::string_view attribute);

// An error names the first attribute that the op has and its row has not, or the first such operand.
Status check_heeded(std::span<const Heeded> table, std::string_view backend, const Op& op);

}  // namespace sluice::core
