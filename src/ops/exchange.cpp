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

namespace {

double there_and_back(int64_t processes, int64_t bytes) {
  return 2 * double(processes - 1) / double(processes) * double(bytes);
}

}  // namespace

double SumOverProcesses::network_bytes() const {
  return there_and_back(processes, elements * size_of(apart ? F32 : dtype));
}

Operands ShareWeight::operands() const {
  return {{"p", Accumulate, dtype, elements, Activations}};
}

double ShareWeight::network_bytes() const {
  return there_and_back(processes, elements * size_of(dtype));
}

}  // namespace sluice::core
