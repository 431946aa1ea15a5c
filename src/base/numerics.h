// SPDX-License-Identifier: Apache-2.0
// The number formats of a step.
#pragma once

#include "base/dtype.h"
#include "base/status.h"

namespace sluice::core {

struct Numerics {
  DType compute = DType::F32;  // parameters, activations and their gradients
  DType grad = DType::F32;     // accumulated parameter gradients
  DType state = DType::F32;    // the optimizer's state; I8: compact (ops/compact.h) where that pays
  bool master = false;         // f32 master weights beside bf16 parameters
  bool stochastic = false;     // stochastic rounding of bf16 parameters and state
};
Status validate(const Numerics& numerics);

}  // namespace sluice::core
