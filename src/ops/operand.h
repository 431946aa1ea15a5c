// What an op says of each of its operands: a name, how it is used, its element type and size.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/dtype.h"

namespace sluice {

enum class Access : uint8_t {
  Read,
  Write,       // overwrites every byte; the old content does not matter
  Accumulate,  // reads the old content and writes the new one
};

struct Operand {
  std::string_view name;
  Access access;
  DType dtype;
  int64_t elements;

  int64_t bytes() const { return elements * size_of(dtype); }
};
using Operands = std::vector<Operand>;

constexpr Access write_or(bool accumulate) {
  return accumulate ? Access::Accumulate : Access::Write;
}

// The operand of ops that read the step's scalars (ops/step_args.h).
Operand args_operand();

}  // namespace sluice
