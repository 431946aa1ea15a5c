// SPDX-License-Identifier: Apache-2.0
// What an op asks of a device beside moving its operands, from which times and rates are computed.
#pragma once

#include <cstdint>

namespace sluice::core {

// The limit of an op, which decides its rate. StateProduct: products one after the other with a state.
enum class Unit : uint8_t {
  Memory,
  Product,
  GroupedProduct,
  AttentionForward,
  AttentionBackward,
  StateProduct,
  NarrowProduct  // of operands in 8 bits
};

struct Work {
  Unit unit = Unit::Memory;
  double flops = 0;        // of products: multiply-adds count two; elementwise work counts nothing
  double again_flops = 0;  // computed a second time within the op
  double idle_flops = 0;   // of grouped products: those of tiles that no row fills, which take as long
  double pass_bytes = 0;   // moved between products, while none runs
  int64_t head_dim = 0;    // of attention: how many columns of products share the softmax of a score

  static constexpr Work product(double flops, bool narrow = false) {
    return {.unit = narrow ? Unit::NarrowProduct : Unit::Product, .flops = flops};
  }
  double hardware_flops() const { return flops + again_flops; }
};

// Decides the workspaces of GPU libraries: ops/gpu_workspace.h.
struct GpuLibraries;

// Passed after the value of a field that does not change how long the op takes.
struct NoCost {};
constexpr NoCost kNoCost;
// Marks an attribute in fields() of which a step may have another value than was planned
// (optimizer/values.h): neither operands nor workspace nor what backends prepare follow from it.
struct OfStep {};
constexpr OfStep kOfStep;

}  // namespace sluice::core
