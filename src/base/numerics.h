// SPDX-License-Identifier: Apache-2.0
// The number formats of a step.
#pragma once

#include <string_view>

#include "base/dtype.h"
#include "base/status.h"

namespace sluice::core {

// Weights that keep the precision that bf16 parameters lack.
enum class MasterWeights : uint8_t {
  Off,
  F32,  // copies, of which the parameters are the rounding
  I8,   // what that rounding took off, in 8 bits: 24 bits together (ops/master.h)
};
std::string_view name_of(MasterWeights master);  // "off", "f32", "i8"

struct Numerics {
  DType compute = DType::F32;  // parameters, activations and their gradients
  DType grad = DType::F32;     // accumulated parameter gradients
  DType state = DType::F32;    // the optimizer's state; I8: compact (ops/compact.h) where that pays
  MasterWeights master = MasterWeights::Off;
  bool stochastic = false;  // stochastic rounding of bf16 parameters and state
};
Status validate(const Numerics& numerics);

}  // namespace sluice::core
