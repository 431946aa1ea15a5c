// SPDX-License-Identifier: Apache-2.0
#include "ops/exchange.h"

namespace sluice::core {
using enum Access;
using enum DType;
using enum Values;

Operands AddGradients::operands() const {
  return {{"left", Read, left, elements, Activations},
          {"right", Read, right, elements, Activations},
          {"sum", Write, dtype, elements, Activations}};
}

Operands SumOverProcesses::operands() const {
  Operands o{{"g", write_or(!apart), dtype, elements, Activations},
             {"sums", first ? Write : Accumulate, F64, slots, Squares}};
  if (apart) o.push_back({"own", Accumulate, F32, elements, Activations});
  return o;
}

double SumOverProcesses::network_bytes() const {
  const double others = double(processes - 1) / double(processes);
  return 2 * others * double(elements * size_of(apart ? F32 : dtype));
}

}  // namespace sluice::core
