// SPDX-License-Identifier: Apache-2.0
// Gates of the feed-forward part, and their gradients.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/dtype.h"
#include "ops/cast.h"
#include "ops/gate_activation.h"
#include "ops/operand.h"
#include "ops/work.h"

namespace sluice::core {

// Sizes of a gate and of its gradient, and what it computes.
struct GateSizes {
  int64_t tokens, dim;
  DType dtype;
  GateActivation activation = GateActivation::Silu;
  bool plain = false;
  float limit = 0;     // 0: none
  bool apart = false;  // REQUIRES: then !plain
  bool narrow = false;

  int64_t columns() const { return plain || apart ? dim : 2 * dim; }  // of gu
  constexpr void fields(auto&& f) const {
    f("tokens", tokens), f("dim", dim), f("dtype", dtype);
    if (activation != GateActivation::Silu) f("activation", activation);
    if (plain) f("plain", plain);
    if (limit > 0) f("limit", limit, kNoCost);
    if (apart) f("apart", apart);
    if (narrow) f("narrow", narrow);
  }
};

// y = activation(gate) * up, with gate = gu[:, :dim] and up = gu[:, dim:]: SwiGLU, or GeGLU. If `plain`, gu
// is [tokens, dim] and all gate: y = activation(gu). If `apart`, gu is the gates alone and up an operand of
// its own. With a `limit` gates are at most that, and in place of up stands 1 + up, held between -limit and
// limit; what is cut off has no gradient. REQUIRES: then !plain. If `narrow`, y is rounded once more, to
// kFloat8 by row (ops/cast.h). REQUIRES: then !apart.
struct Swiglu : GateSizes {
  static constexpr std::string_view kName = "swiglu";
  enum { kGu, kY, kUp };  // the last if `apart`

  NarrowResults narrow_results() const;  // none: it cannot be `narrow`
  Operands operands() const;
};

// dgu = gradient of Swiglu; y = its output again (bit-identical), which the down projection's weight gradient
// needs: reading gu once serves both. If `narrow`, both are rounded once more, to kFloat8 (ops/cast.h): dgu
// by row, and turned as kTurned; y turned. REQUIRES: then !apart.
struct SwigluBwd : GateSizes {
  static constexpr std::string_view kName = "swiglu_bwd";
  enum { kGu, kDy, kDgu, kY, kUp, kDup, kTurned = kUp };  // up to kY, and two if `apart`, or one if `narrow`

  NarrowResults narrow_results() const;  // as Swiglu's
  Operands operands() const;
  Work work() const;
  int64_t workspace_bytes(const GpuLibraries&) const;
};

}  // namespace sluice::core
