// SPDX-License-Identifier: Apache-2.0
#include "base/numerics.h"

namespace sluice::core {

Status validate(const Numerics& n) {
  for (const auto& [key, dtype] : {std::pair{"compute", n.compute}, {"grad", n.grad}, {"state", n.state}}) {
    if (dtype != DType::F32 && dtype != DType::BF16) {
      return error("numerics: {} is {}; allowed are f32, bf16", key, name_of(dtype));
    }
  }
  if (n.compute == DType::F32 &&
      (n.grad != DType::F32 || n.state != DType::F32 || n.master || n.stochastic)) {
    return error("numerics: with compute f32, grad and state are f32, and master and stochastic are off");
  }
  if (n.master && n.state != DType::F32) return error("numerics: master weights need state f32");
  return {};
}

}  // namespace sluice::core
