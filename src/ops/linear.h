// SPDX-License-Identifier: Apache-2.0
// Products with weights, and their gradients.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/dtype.h"
#include "ops/attention.h"
#include "ops/operand.h"
#include "ops/work.h"

namespace sluice::core {

// Products take operands in the op's dtype, or in a format that is named for them. Where both operands have
// scales, their rows run along the product's sum, as tensor cores for 8 bits read them. LinearDgrad has w as
// [in, out] then, and LinearWgrad dy as [out, tokens] and x as [in, tokens]. Elements are multiplied with the
// scale of their block; results and sums are as of other products.

// y = x w^T (+ bias) (+ residual). A bias and a residual may be added to each other and rounded to dtype
// before the product is. With rope_heads > 0 the first rope_heads * head_dim columns of y are rotated as Rope
// (ops/attention.h) does it. This is for programs that decode, where a kernel for a few rows does both at
// once. It has no gradient, and never comes with a residual.
struct Linear {
  static constexpr std::string_view kName = "linear";
  enum { kX, kW, kY };
  int64_t tokens, in, out;
  DType dtype;
  bool has_residual = false;
  int64_t rope_heads = 0, head_dim = 0;
  bool has_bias = false;
  float rope_scale = 1;                            // as Rope's
  std::optional<NumberFormat> weight_format = {};  // of w; nothing: dtype
  float still_scale = 0;                           // as Rope's, and what follows
  Temperature temperature = {};
  bool f32_result = false;  // y is f32, and then neither rotated nor added to a residual
  std::optional<NumberFormat> x_format = {};

  DType result_type() const { return f32_result ? DType::F32 : dtype; }
  // Operands that not every Linear has come after the others, in this order. One that is absent takes no
  // position, and its position must not be used.
  size_t residual_operand() const { return kY + 1; }
  size_t pos_operand() const { return residual_operand() + (has_residual ? 1 : 0); }
  size_t inv_freq_operand() const { return pos_operand() + 1; }
  size_t bias_operand() const { return pos_operand() + (rope_heads > 0 ? 2 : 0); }

  Operands operands() const;
  Work work() const {
    return Work::product(2.0 * double(tokens) * double(in) * double(out), x_format.has_value());
  }
  int64_t workspace_bytes(const GpuLibraries& libraries) const;
  constexpr void fields(auto&& f) const {
    f("tokens", tokens), f("in", in), f("out", out), f("dtype", dtype), f("res", has_residual),
        f("rope", rope_heads), f("hd", head_dim), f("bias", has_bias);
    if (rope_scale != 1) f("rope_scale", rope_scale, kNoCost);
    if (weight_format) f("w", *weight_format);
    if (still_scale != 0) f("still_scale", still_scale, kNoCost);
    temperature.fields(f);
    if (f32_result) f("f32_result", f32_result);
    if (x_format) f("x", *x_format);
  }
};

// dx (+)= dy w (+ dres). Accumulating, a backend may round the product to dx's type before it is added:
// libraries do so in some of their kernels. The sum itself is fp32 either way, rounded once more as it is
// stored.
struct LinearDgrad {
  static constexpr std::string_view kName = "linear_dgrad";
  enum { kDy, kW, kDx, kDres };
  int64_t tokens, in, out;
  DType dtype;
  bool accumulate;
  std::optional<NumberFormat> weight_format = {};  // as Linear's
  bool has_residual = false;                       // kDres is there; never with `accumulate`
  std::optional<NumberFormat> dy_format = {};      // with it w is turned, see above

  Operands operands() const;
  Work work() const {
    return Work::product(2.0 * double(tokens) * double(in) * double(out), dy_format.has_value());
  }
  int64_t workspace_bytes(const GpuLibraries& libraries) const;
  constexpr void fields(auto&& f) const {
    f("tokens", tokens), f("in", in), f("out", out), f("dtype", dtype), f("acc", accumulate);
    if (weight_format) f("w", *weight_format);
    if (has_residual) f("res", has_residual);
    if (dy_format) f("dy", *dy_format);
  }
};

// dw (+)= dy^T x, accumulated as in LinearDgrad.
struct LinearWgrad {
  static constexpr std::string_view kName = "linear_wgrad";
  enum { kDy, kX, kDw };
  int64_t tokens, in, out;
  DType dtype, grad_dtype;
  bool accumulate;
  std::optional<NumberFormat> dy_format = {}, x_format = {};  // both or none; turned, see above

  Operands operands() const;
  Work work() const {
    return Work::product(2.0 * double(tokens) * double(in) * double(out), dy_format.has_value());
  }
  int64_t workspace_bytes(const GpuLibraries& libraries) const;
  constexpr void fields(auto&& f) const {
    f("tokens", tokens), f("in", in), f("out", out), f("dtype", dtype), f("grad", grad_dtype),
        f("acc", accumulate);
    if (dy_format) f("dy", *dy_format);
    if (x_format) f("x", *x_format);
  }
};

// dbias (+)= sum over the rows of dy, in fp32: the gradient of Linear's bias.
struct BiasGrad {
  static constexpr std::string_view kName = "bias_grad";
  enum { kDy, kDbias };
  int64_t tokens, out;
  DType dtype, grad_dtype;
  bool accumulate;

  Operands operands() const;
  int64_t workspace_bytes(const GpuLibraries& libraries) const;
  constexpr void fields(auto&& f) const {
    f("tokens", tokens), f("out", out), f("dtype", dtype), f("grad", grad_dtype), f("acc", accumulate);
  }
};

}  // namespace sluice::core
