// SPDX-License-Identifier: Apache-2.0
// Clipping by the global norm and the update of parameters. Elementwise: an op takes any part of a parameter.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/dtype.h"
#include "base/numerics.h"
#include "ops/operand.h"
#include "ops/work.h"

namespace sluice::core {

// sums[slot] = sum of squares of g, f64; with `first`, every other element of sums becomes 0.
struct SumSq {
  static constexpr std::string_view kName = "sum_sq";
  enum { kG, kSums };
  int64_t elements, slot, slots;
  DType dtype;
  bool first;

  Operands operands() const;
  int64_t workspace_bytes(const GpuLibraries& libraries) const;
  constexpr void fields(auto&& f) const {
    f("n", elements), f("slot", slot, kNoCost), f("slots", slots, kNoCost), f("dtype", dtype),
        f("first", first, kNoCost);
  }
};

// clip[0] = norm = sqrt(sum of sums, in slot order); clip[1] = min(1, max_norm / (norm + 1e-6)), or 1 when
// max_norm is 0. A norm that is not finite gives clip[1] = 0, which every update takes as "skip this one",
// and a NaN in clip[0] that names a slot (ops/clip_norm.h).
struct ClipScale {
  static constexpr std::string_view kName = "clip_scale";
  enum { kSums, kClip };
  int64_t slots;
  float max_norm;

  Operands operands() const;
  constexpr void fields(auto&& f) const { f("slots", slots), f("max", max_norm, kOfStep); }
};

// AdamW (Loshchilov and Hutter) on `elements` consecutive elements of one parameter, element `first` onwards:
//   g' = clip[1] * g;  m = b1 m + (1-b1) g';  v = b2 v + (1-b2) g'^2
//   w -= lr * ((m / bias1) / (sqrt(v / bias2) + eps) + weight_decay * w)
// with bias = 1 - b^args.updates in f64, rounded to fp32 (ops/adam_bias.h). The rest is computed in fp32.
// With masters in f32, w is the copy and p its rounding to dtype (nearest). With masters of 8 bits, p and
// they are w (ops/master.h). Without, w is p itself; bf16 p, m and v are then rounded stochastically when
// `stochastic`, by random bits keyed by (args.seed, args.step, object, element), else to nearest. State of I8
// is compact (ops/compact.h), in whole groups: the op begins with a group.
struct AdamW {
  static constexpr std::string_view kName = "adamw";
  enum { kP, kG, kM, kV, kClip, kArgs, kMaster };
  int64_t elements, first;
  uint64_t object;  // the parameter's key for random numbers
  double beta1, beta2;
  float eps, weight_decay;
  DType dtype, grad_dtype, state_dtype;
  MasterWeights master;
  bool stochastic;
  bool moments = true;  // false: m and v are only read; the same new weights

  Operands operands() const;
  constexpr void fields(auto&& f) const {
    f("n", elements), f("first", first, kNoCost), f("object", object, kNoCost), f("b1", beta1, kOfStep),
        f("b2", beta2, kOfStep), f("eps", eps, kOfStep), f("wd", weight_decay, kOfStep), f("dtype", dtype),
        f("grad", grad_dtype), f("state", state_dtype), f("master", master), f("sr", stochastic),
        f("moments", moments);
  }
};

// The part that AdamW without `moments` left out: m and v become what AdamW makes of them, bit for bit.
struct AdamWMoments {
  static constexpr std::string_view kName = "adamw_moments";
  enum { kG, kM, kV, kClip, kArgs };
  int64_t elements, first;
  uint64_t object;  // as AdamW's
  double beta1, beta2;
  DType grad_dtype, state_dtype;
  bool stochastic;

  Operands operands() const;
  constexpr void fields(auto&& f) const {
    f("n", elements), f("first", first, kNoCost), f("object", object, kNoCost), f("b1", beta1, kOfStep),
        f("b2", beta2, kOfStep), f("grad", grad_dtype), f("state", state_dtype), f("sr", stochastic);
  }
};

// SGD with momentum, as PyTorch's without dampening, on elements as AdamW's:
//   g' = clip[1] * g + weight_decay * w;  m = momentum m + g'
//   w -= lr * (nesterov ? g' + momentum m : m)
// computed, kept and rounded as in AdamW; m draws what AdamW's does.
struct SgdMomentum {
  static constexpr std::string_view kName = "sgd_momentum";
  enum { kP, kG, kM, kClip, kArgs, kMaster };
  int64_t elements, first;
  uint64_t object;  // as AdamW's
  float momentum, weight_decay;
  bool nesterov;
  DType dtype, grad_dtype, state_dtype;
  MasterWeights master;
  bool stochastic;
  bool moments = true;  // false: m is only read; the same new weights

  Operands operands() const;
  constexpr void fields(auto&& f) const {
    f("n", elements), f("first", first, kNoCost), f("object", object, kNoCost),
        f("momentum", momentum, kOfStep), f("wd", weight_decay, kOfStep), f("nesterov", nesterov, kOfStep),
        f("dtype", dtype), f("grad", grad_dtype), f("state", state_dtype), f("master", master),
        f("sr", stochastic), f("moments", moments);
  }
};

// The part that SgdMomentum without `moments` left out, when its weight_decay is 0: m becomes what
// SgdMomentum makes of it, bit for bit. With weight decay m follows from the weights as they were before,
// which are gone by then.
struct SgdMomentumState {
  static constexpr std::string_view kName = "sgd_momentum_state";
  enum { kG, kM, kClip, kArgs };
  int64_t elements, first;
  uint64_t object;  // as AdamW's
  float momentum;
  DType grad_dtype, state_dtype;
  bool stochastic;

  Operands operands() const;
  constexpr void fields(auto&& f) const {
    f("n", elements), f("first", first, kNoCost), f("object", object, kNoCost),
        f("momentum", momentum, kOfStep), f("grad", grad_dtype), f("state", state_dtype), f("sr", stochastic);
  }
};

// Lion (Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms") on elements as AdamW's:
//   g' = clip[1] * g;  c = b1 m + (1-b1) g';  w -= lr * (sign(c) + weight_decay * w)
//   m = b2 m + (1-b2) g'
// with sign(0) = 0; computed, kept and rounded as in AdamW; m draws what AdamW's does.
struct Lion {
  static constexpr std::string_view kName = "lion";
  enum { kP, kG, kM, kClip, kArgs, kMaster };
  int64_t elements, first;
  uint64_t object;  // as AdamW's
  float beta1, beta2, weight_decay;
  DType dtype, grad_dtype, state_dtype;
  MasterWeights master;
  bool stochastic;
  bool moments = true;  // false: m is only read; the same new weights

  Operands operands() const;
  constexpr void fields(auto&& f) const {
    f("n", elements), f("first", first, kNoCost), f("object", object, kNoCost), f("b1", beta1, kOfStep),
        f("b2", beta2, kOfStep), f("wd", weight_decay, kOfStep), f("dtype", dtype), f("grad", grad_dtype),
        f("state", state_dtype), f("master", master), f("sr", stochastic), f("moments", moments);
  }
};

// The part that Lion without `moments` left out: m becomes what Lion makes of it, bit for bit.
struct LionState {
  static constexpr std::string_view kName = "lion_state";
  enum { kG, kM, kClip, kArgs };
  int64_t elements, first;
  uint64_t object;  // as AdamW's
  float beta2;
  DType grad_dtype, state_dtype;
  bool stochastic;

  Operands operands() const;
  constexpr void fields(auto&& f) const {
    f("n", elements), f("first", first, kNoCost), f("object", object, kNoCost), f("b2", beta2, kOfStep),
        f("grad", grad_dtype), f("state", state_dtype), f("sr", stochastic);
  }
};

}  // namespace sluice::core
