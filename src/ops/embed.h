// SPDX-License-Identifier: Apache-2.0
// Looking up rows of the embedding table, and the gradient of that.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/dtype.h"
#include "ops/operand.h"
#include "ops/work.h"

namespace sluice::core {

// y[t, :] = table[ids[t], :] * scale (+ residual[t, :])
struct Embed {
  static constexpr std::string_view kName = "embed";
  enum { kIds, kTable, kY, kResidual };  // the last if has_residual
  int64_t tokens, vocab, dim;
  DType dtype;
  float scale = 1;
  bool has_residual = false;

  Operands operands() const;
  double traffic() const;
  constexpr void fields(auto&& f) const {
    f("tokens", tokens), f("vocab", vocab), f("dim", dim), f("dtype", dtype);
    if (scale != 1) f("scale", scale, kNoCost);
    if (has_residual) f("res", has_residual);
  }
};

// dtable[v, :] (+)= sum over t with ids[t] == v of dy[t, :] * scale, in token order, summed in fp32.
struct EmbedBwd {
  static constexpr std::string_view kName = "embed_bwd";
  enum { kIds, kDy, kDTable };
  int64_t tokens, vocab, dim;
  DType dtype, grad_dtype;
  bool accumulate;
  float scale = 1;

  Operands operands() const;
  int64_t workspace_bytes(const GpuLibraries& libraries) const;
  constexpr void fields(auto&& f) const {
    f("tokens", tokens), f("vocab", vocab), f("dim", dim), f("dtype", dtype), f("grad", grad_dtype),
        f("acc", accumulate);
    if (scale != 1) f("scale", scale, kNoCost);
  }
};

}  // namespace sluice::core
