// SPDX-License-Identifier: Apache-2.0
// What an op says of each of its operands: a name, how it is used, its format and size, and what values
// it has.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/format.h"

namespace sluice::core {

enum class Access : uint8_t {
  Read,
  Write,       // overwrites every byte; the old content does not matter
  Accumulate,  // reads the old content and writes the new one
};

// Properties of an operand's values, for code that makes some up: rehearsals and conformance tests. How long
// an op takes depends on them, and some it cannot take at all.
enum class Values : uint8_t {
  Activations,  // around zero, of about unit variance, as behind a norm; gradients, too
  Weights,      // around zero, small
  Squares,      // sums of squares or their means: positive
  LogSumExp,    // of scores over the keys
  Ids,          // of rows of a table: from 0, below the operand's limit
  Positions,    // of tokens within their documents; the limit says how long a row of them is, if it matters
  Spans,        // pairs: tokens held before, up to the limit, and new ones (ops/generation.h)
  Frequencies,  // of a rotation: from 1 downwards
  Clip,         // a norm, and the factor by which gradients are scaled
  StepScalars,  // one of ops/step_args.h
  Routing,      // of rows to experts, as many as the limit (ops/experts.h)
};

struct Operand {
  std::string_view name;
  Access access;
  NumberFormat format;
  int64_t elements;
  Values values;
  int64_t limit;

  // Without a default for the values: every operand says what it holds.
  Operand(std::string_view n, Access a, NumberFormat f, int64_t count, Values v, int64_t most = 0)
      : name(n), access(a), format(f), elements(count), values(v), limit(most) {}

  int64_t bytes() const { return format.bytes(elements); }
};
using Operands = std::vector<Operand>;

constexpr Access write_or(bool accumulate) {
  return accumulate ? Access::Accumulate : Access::Write;
}

// The operand of ops that read the step's scalars (ops/step_args.h).
Operand args_operand();

}  // namespace sluice::core
