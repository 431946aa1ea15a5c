// SPDX-License-Identifier: Apache-2.0
// Normalization of rows and of heads, and their gradients.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/dtype.h"
#include "ops/behind_heads.h"
#include "ops/cast.h"
#include "ops/operand.h"
#include "ops/work.h"

namespace sluice::core {

// y = x / sqrt(mean(x^2) + eps) * (offset + w) * scale (+ residual), row by row, computed in fp32. If
// `narrow`, y is rounded once more, to kFloat8 (ops/cast.h): by row, and turned as kTurned. REQUIRES: then
// !has_residual.
struct RmsNorm {
  static constexpr std::string_view kName = "rms_norm";
  enum { kX, kW, kY, kResidual, kTurned = kResidual };
  int64_t tokens, dim;
  float eps;
  DType dtype;
  float offset = 0, scale = 1;
  bool has_residual = false;  // kResidual is there
  bool narrow = false;

  NarrowResults narrow_results() const;  // none: it cannot be `narrow`
  Operands operands() const;
  Work work() const;
  int64_t workspace_bytes(const GpuLibraries&) const;
  constexpr void fields(auto&& f) const {
    f("tokens", tokens), f("dim", dim), f("eps", eps), f("dtype", dtype);
    if (offset != 0) f("offset", offset, kNoCost);
    if (scale != 1) f("scale", scale, kNoCost);
    if (has_residual) f("res", has_residual);
    if (narrow) f("narrow", narrow);
  }
};

// dx = d(loss)/dx through RmsNorm, plus `dres` (the gradient that came along the residual) when has_residual.
// dw (+)= sum over rows. The row statistics are computed again from x.
struct RmsNormBwd {
  static constexpr std::string_view kName = "rms_norm_bwd";
  enum { kX, kW, kDy, kDx, kDw, kDres };
  int64_t tokens, dim;
  float eps;
  DType dtype, grad_dtype;
  bool accumulate;              // dw
  bool has_residual;            // kDres is there
  float offset = 0, scale = 1;  // as RmsNorm's

  Operands operands() const;
  int64_t workspace_bytes(const GpuLibraries& libraries) const;
  constexpr void fields(auto&& f) const {
    f("tokens", tokens), f("dim", dim), f("eps", eps), f("dtype", dtype), f("grad", grad_dtype),
        f("acc", accumulate), f("res", has_residual);
    if (offset != 0) f("offset", offset, kNoCost);
    if (scale != 1) f("scale", scale, kNoCost);
  }
};

// Sizes of heads that are normalised and rotated and of their gradient, and what is computed.
struct HeadNorm {
  int64_t tokens, heads, head_dim, rest;
  float eps;
  float rope_scale = 1;  // as Rope's
  float offset = 0;      // as RmsNorm's
  bool whole = false;
  BehindHeads behind = BehindHeads::Copied;

  int64_t columns() const { return heads * head_dim + rest; }
  int64_t x_columns() const { return columns() - (behind == BehindHeads::Again ? rest : 0); }
  int64_t weights() const { return whole ? heads * head_dim : head_dim; }
  constexpr void sizes(auto&& f) const {
    f("tokens", tokens), f("heads", heads), f("hd", head_dim), f("rest", rest), f("eps", eps);
  }
  constexpr void form(auto&& f) const {
    if (rope_scale != 1) f("rope_scale", rope_scale, kNoCost);
    if (offset != 0) f("offset", offset, kNoCost);
    if (whole) f("whole", whole);
    if (behind != BehindHeads::Copied) f("behind", behind);
  }
};

// Rows of y are heads * head_dim + rest columns, and so are those of x unless the rest is made of the heads.
// Each of the heads is normalised as a row of RmsNorm is, with the weight w[head_dim] that all share, and
// then rotated as Linear rotates. The rest is as `behind` says. If `whole`, all of them together are one row
// of RmsNorm's, with a weight of their own for every element. REQUIRES: a rest that is normalised is whole
// heads, and one of the heads themselves as many.
struct HeadNormRope : HeadNorm {
  static constexpr std::string_view kName = "head_norm_rope";
  enum { kX, kW, kPos, kInvFreq, kY };
  DType dtype;

  Operands operands() const;
  constexpr void fields(auto&& f) const { sizes(f), f("dtype", dtype), form(f); }
};

// dx = d(loss)/dx through HeadNormRope, given that of its rotated y. A rest that is copied is converted to
// dtype, and what comes to heads from a rest of their own is rounded to it before it is added. dw (+)= sum
// over rows and heads. The statistics are computed again from x.
struct HeadNormRopeBwd : HeadNorm {
  static constexpr std::string_view kName = "head_norm_rope_bwd";
  enum { kDy, kX, kW, kPos, kInvFreq, kDx, kDw };
  DType in_dtype, dtype, grad_dtype;  // of dy, of x and dx, of dw
  bool accumulate;                    // dw

  Operands operands() const;
  int64_t workspace_bytes(const GpuLibraries& libraries) const;
  constexpr void fields(auto&& f) const {
    sizes(f), f("in", in_dtype), f("dtype", dtype), f("grad", grad_dtype), f("acc", accumulate), form(f);
  }
};

}  // namespace sluice::core
