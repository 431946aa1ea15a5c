// SPDX-License-Identifier: Apache-2.0
#include "base/numerics.h"

namespace sluice::core {

std::string_view name_of(MasterWeights master) {
  switch (master) {
    case MasterWeights::Off:
      return "off";
    case MasterWeights::F32:
      return "f32";
    case MasterWeights::I8:
      return "i8";
  }
  return "?";
}

Status validate(const Numerics& n) {
  const auto is_float = [](DType t) { return t == DType::F32 || t == DType::BF16; };
  for (const auto& [key, dtype] : {std::pair{"compute", n.compute}, {"grad", n.grad}}) {
    if (!is_float(dtype)) return error("numerics: {} is {}; allowed are f32, bf16", key, name_of(dtype));
  }
  if (!is_float(n.state) && n.state != DType::I8)
    return error("numerics: state is {}; allowed are f32, bf16, i8", name_of(n.state));
  if (n.compute == DType::F32 &&
      (n.grad != DType::F32 || n.state == DType::BF16 || n.master != MasterWeights::Off || n.stochastic)) {
    return error(
        "numerics: with compute f32, grad is f32, state is f32 or i8, and master and stochastic are off");
  }
  if (n.master != MasterWeights::Off && n.state == DType::BF16)
    return error("numerics: master weights need state f32 or i8");
  if (n.master == MasterWeights::I8 && n.stochastic)
    return error("numerics: with master weights of 24 bits nothing is rounded by random numbers");
  return {};
}

}  // namespace sluice::core
