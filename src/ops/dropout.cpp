// SPDX-License-Identifier: Apache-2.0
#include "ops/dropout.h"

#include "ops/step_args.h"

namespace sluice::core {
using enum Access;
using enum Values;

Operands Dropout::operands() const {
  return {{"x", Read, dtype, tokens * width, Activations},
          {"args", Read, DType::U8, int64_t{sizeof(DropoutArgs)}, Values::StepScalars},
          {"y", write_or(accumulate), dtype, tokens * width, Activations}};
}

}  // namespace sluice::core
