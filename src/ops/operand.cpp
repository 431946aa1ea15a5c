// SPDX-License-Identifier: Apache-2.0
#include "ops/operand.h"

#include "ops/step_args.h"

namespace sluice::core {

Operand args_operand() {
  return {"args", Access::Read, DType::U8, int64_t{sizeof(StepArgs)}, Values::StepScalars};
}

}  // namespace sluice::core
