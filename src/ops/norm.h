// Normalization of rows, and its gradient.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/dtype.h"
#include "ops/operand.h"
#include "ops/work.h"

namespace sluice {

// y = x / sqrt(mean(x^2) + eps) * w, row by row, computed in fp32.
struct RmsNorm {
  static constexpr std::string_view kName = "rms_norm";
  enum { kX, kW, kY };
  int64_t tokens, dim;
  float eps;
  DType dtype;

  Operands operands() const;
  Work work() const { return {}; }
  void fields(auto&& f) const { f("tokens", tokens), f("dim", dim), f("eps", eps), f("dtype", dtype); }
};

// dx = d(loss)/dx through RmsNorm, plus `dres` (the gradient that came along the residual) when has_residual.
// dw (+)= sum over rows. The row statistics are computed again from x.
struct RmsNormBwd {
  static constexpr std::string_view kName = "rms_norm_bwd";
  enum { kX, kW, kDy, kDx, kDw, kDres };
  int64_t tokens, dim;
  float eps;
  DType dtype, grad_dtype;
  bool accumulate;    // dw
  bool has_residual;  // kDres is there

  Operands operands() const;
  Work work() const { return {}; }
  void fields(auto&& f) const {
    f("tokens", tokens), f("dim", dim), f("eps", eps), f("dtype", dtype), f("grad", grad_dtype),
        f("acc", accumulate), f("res", has_residual);
  }
};

}  // namespace sluice
