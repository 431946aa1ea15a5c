// SPDX-License-Identifier: Apache-2.0
// The weights that an update changes.
#pragma once

#include <cstdint>

#include "backend/cpu/kernels/kernels.h"
#include "base/numerics.h"
#include "ops/rounding.h"

namespace sluice::core::cpu {

// Values of every update, the same for all elements.
struct Update {
  float clip;
  uint64_t key;
  int64_t step;
  bool stochastic;
};

// Weights; p is rounded to its type.
template <class P>
struct Weights {
  P* p;
  float* master;      // null: none in f32
  uint8_t* residual;  // null: none of 8 bits (ops/master.h). Without any w is p itself

  Weights from(int64_t element) const {
    return {p + element, master ? master + element : nullptr, residual ? residual + element : nullptr};
  }
};

template <class P, class AnyUpdate>
Weights<P> weights_of(const AnyUpdate& op, const Args& args) {
  return {args.out<P>(AnyUpdate::kP),
          op.master == MasterWeights::F32 ? args.out<float>(AnyUpdate::kMaster) : nullptr,
          op.master == MasterWeights::I8 ? args.out<uint8_t>(AnyUpdate::kMaster) : nullptr};
}

}  // namespace sluice::core::cpu
