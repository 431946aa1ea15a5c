// SPDX-License-Identifier: Apache-2.0
// Gates of the feed-forward part, and their gradients.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/dtype.h"
#include "ops/gate_activation.h"
#include "ops/operand.h"
#include "ops/work.h"

namespace sluice::core {

// y = activation(gate) * up, with gate = gu[:, :dim] and up = gu[:, dim:]: SwiGLU, or GeGLU. If `plain`, gu
// is [tokens, dim] and all gate: y = activation(gu). If `apart`, gu is the gates alone and up an operand of
// its own. With a `limit` gates are at most that, and in place of up stands 1 + up, held between -limit and
// limit; what is cut off has no gradient. REQUIRES: then !plain.
struct Swiglu {
  static constexpr std::string_view kName = "swiglu";
  enum { kGu, kY, kUp };  // the last if `apart`
  int64_t tokens, dim;
  DType dtype;
  GateActivation activation = GateActivation::Silu;
  bool plain = false;
  float limit = 0;     // 0: none
  bool apart = false;  // REQUIRES: then !plain

  int64_t columns() const { return plain || apart ? dim : 2 * dim; }  // of gu

  Operands operands() const;
  Work work() const { return {}; }
  int64_t workspace_bytes(const GpuLibraries&) const { return 0; }
  constexpr void fields(auto&& f) const {
    f("tokens", tokens), f("dim", dim), f("dtype", dtype);
    if (activation != GateActivation::Silu) f("activation", activation);
    if (plain) f("plain", plain);
    if (limit > 0) f("limit", limit, kNoCost);
    if (apart) f("apart", apart);
  }
};

// dgu = gradient of Swiglu; y = its output again (bit-identical), which the down projection's weight gradient
// needs: reading gu once serves both.
struct SwigluBwd {
  static constexpr std::string_view kName = "swiglu_bwd";
  enum { kGu, kDy, kDgu, kY, kUp, kDup };  // the last two if `apart`
  int64_t tokens, dim;
  DType dtype;
  GateActivation activation = GateActivation::Silu;
  bool plain = false;
  float limit = 0;  // 0: none
  bool apart = false;

  int64_t columns() const { return plain || apart ? dim : 2 * dim; }  // of gu

  Operands operands() const;
  Work work() const { return {}; }
  int64_t workspace_bytes(const GpuLibraries&) const { return 0; }
  constexpr void fields(auto&& f) const {
    f("tokens", tokens), f("dim", dim), f("dtype", dtype);
    if (activation != GateActivation::Silu) f("activation", activation);
    if (plain) f("plain", plain);
    if (limit > 0) f("limit", limit, kNoCost);
    if (apart) f("apart", apart);
  }
};

}  // namespace sluice::core
