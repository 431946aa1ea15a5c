// SPDX-License-Identifier: Apache-2.0
// Updates of whole tensors, as a checkpoint has them: what becomes of an element depends on others.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/dtype.h"
#include "base/numerics.h"
#include "ops/gpu_workspace.h"
#include "ops/operand.h"
#include "ops/work.h"

namespace sluice::core {

// Adafactor (Shazeer and Stern 2018) on a matrix that begins with element `first` of a parameter, as
// transformers' without a first moment; what is no matrix is one row. With t = args.updates:
//   g' = clip[1] * g;  b = 1 - t^decay_rate
//   row = b row + (1-b) (mean of g'^2 over the row + eps);  col = b col + (1-b) (that over the column + eps)
//   u = g' / (sqrt(row / mean(row)) * sqrt(col));  u = u / max(1, rms(u) / clip_threshold)
//   rate = lr * (scale_parameter ? max(eps_scale, rms(w)) : 1)
//             * (relative_step ? min(warmup_init ? 1e-6 t : 1e-2, 1 / sqrt(t)) : 1)
//   w -= rate * (u + weight_decay * w)
// w, and how it is kept and rounded, is as in AdamW; row and col are f32.
struct Adafactor {
  static constexpr std::string_view kName = "adafactor";
  enum { kP, kG, kRow, kCol, kClip, kArgs, kMaster };
  int64_t rows, cols, first;
  uint64_t object;  // as AdamW's
  double decay_rate;
  float eps, eps_scale, clip_threshold, weight_decay;
  bool scale_parameter, relative_step, warmup_init;
  DType dtype, grad_dtype;
  MasterWeights master;
  bool stochastic;

  int64_t elements() const { return rows * cols; }
  Operands operands() const;
  Work work() const;
  int64_t workspace_bytes(const GpuLibraries& libraries) const;
  constexpr void fields(auto&& f) const {
    f("rows", rows), f("cols", cols), f("first", first, kNoCost), f("object", object, kNoCost),
        f("decay", decay_rate, kOfStep), f("eps", eps, kOfStep), f("eps_scale", eps_scale, kOfStep),
        f("threshold", clip_threshold, kOfStep), f("wd", weight_decay, kOfStep),
        f("scaled", scale_parameter, kOfStep), f("relative", relative_step, kOfStep),
        f("warmup", warmup_init, kOfStep), f("dtype", dtype), f("grad", grad_dtype), f("master", master),
        f("sr", stochastic);
  }
};

// Muon (Jordan et al. 2024) on a matrix that begins with element `first` of a parameter, as torch.optim.Muon:
//   g' = clip[1] * g;  m = momentum m + (1-momentum) g'
//   u = nesterov ? (1-momentum) g' + momentum m : m, with m before it is rounded
//   x = u / max(|u|, 1e-7), and kSteps times, of the smaller side:
//     a = x x^T;  x = (3.4445 + -4.775 a + 2.0315 a a) x
//   w -= lr * (scale * x + weight_decay * w)
// x, a, a a and the sum of both are in dtype, products are summed in fp32. w and m, and how they are kept and
// rounded, are as in AdamW.
struct Muon {
  static constexpr std::string_view kName = "muon";
  enum { kP, kG, kM, kClip, kArgs, kMaster };
  static constexpr int kSteps = 5;
  static constexpr float kLinear = 3.4445f, kCubic = -4.7750f, kQuintic = 2.0315f, kEps = 1e-7f;
  int64_t rows, cols, first;
  uint64_t object;  // as AdamW's
  float momentum, scale, weight_decay;
  bool nesterov;
  DType dtype, grad_dtype, state_dtype;
  MasterWeights master;
  bool stochastic;

  int64_t elements() const { return rows * cols; }
  bool tall() const { return rows > cols; }
  int64_t side() const { return tall() ? cols : rows; }  // of the products' squares
  Operands operands() const;
  Work work() const;
  int64_t workspace_bytes(const GpuLibraries& libraries) const;
  constexpr void fields(auto&& f) const {
    f("rows", rows), f("cols", cols), f("first", first, kNoCost), f("object", object, kNoCost),
        f("momentum", momentum, kOfStep), f("scale", scale, kOfStep), f("wd", weight_decay, kOfStep),
        f("nesterov", nesterov, kOfStep), f("dtype", dtype), f("grad", grad_dtype), f("state", state_dtype),
        f("master", master), f("sr", stochastic);
  }
};

}  // namespace sluice::core
