// SPDX-License-Identifier: Apache-2.0
// Normalization of rows around their mean, and its gradient.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/dtype.h"
#include "ops/operand.h"
#include "ops/work.h"

namespace sluice::core {

// y = ((x - mean(x)) / sqrt(var(x) + eps) (* w) (+ bias)) * scale, row by row, computed in fp32; the variance
// is the mean of squares around the mean. There is no bias without a weight.
struct LayerNorm {
  static constexpr std::string_view kName = "layer_norm";
  enum { kX, kY, kW, kBias };
  int64_t tokens, dim;
  float eps;
  DType dtype;
  bool has_weight, has_bias;
  float scale = 1;

  Operands operands() const;
  constexpr void fields(auto&& f) const {
    f("tokens", tokens), f("dim", dim), f("eps", eps), f("dtype", dtype), f("w", has_weight),
        f("bias", has_bias), f("scale", scale, kNoCost);
  }
};

// dx = d(loss)/dx through LayerNorm, plus `dres` (the gradient that came along the residual) when
// has_residual. dw (+)= and dbias (+)= sums over rows. The row statistics are computed again from x.
struct LayerNormBwd {
  static constexpr std::string_view kName = "layer_norm_bwd";
  enum { kX, kDy, kDx };
  int64_t tokens, dim;
  float eps;
  DType dtype, grad_dtype;
  bool has_weight, has_bias;
  bool accumulate_dw, accumulate_dbias, has_residual;
  float scale = 1;

  // Operands that not every one has come behind, in this order.
  int w_operand() const { return kDx + 1; }
  int dw_operand() const { return kDx + 2; }
  int dbias_operand() const { return kDx + 3; }
  int dres_operand() const { return kDx + 1 + (has_weight ? 2 : 0) + (has_bias ? 1 : 0); }

  Operands operands() const;
  int64_t workspace_bytes(const GpuLibraries& libraries) const;
  constexpr void fields(auto&& f) const {
    f("tokens", tokens), f("dim", dim), f("eps", eps), f("dtype", dtype), f("grad", grad_dtype),
        f("w", has_weight), f("bias", has_bias), f("acc_dw", accumulate_dw), f("acc_dbias", accumulate_dbias),
        f("res", has_residual), f("scale", scale, kNoCost);
  }
};

}  // namespace sluice::core
