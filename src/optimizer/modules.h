// SPDX-License-Identifier: Apache-2.0
// The optimizers there are, each in a source of its own; optimizer.cpp lists them.
#pragma once

#include "ops/op.h"
#include "optimizer/optimizer.h"

namespace sluice::core {

// An update, or one of the state alone, with all that follows from its part; hyperparameters are left to the
// optimizer. `weight_decay` is that of weights which have one; without `state` that is only read.
template <class Update>
Update update_of(const UpdatePart& part, double weight_decay = 0, bool state = true) {
  const Numerics& n = part.numerics;
  Update op{};
  if constexpr (requires { op.elements = 0; }) {
    op.elements = part.elements();
  } else {
    op.rows = part.rows, op.cols = part.cols;
  }
  op.first = part.first, op.object = part.key;
  if constexpr (requires { op.weight_decay; }) {
    op.weight_decay = part.decay ? float(weight_decay) : 0;
    op.dtype = n.compute, op.master = n.master;
  }
  op.grad_dtype = n.grad, op.stochastic = n.stochastic;
  if constexpr (requires { op.state_dtype; }) op.state_dtype = n.state;
  if constexpr (requires { op.moments; }) op.moments = state;
  return op;
}

const Optimizer& adamw();
const Optimizer& sgd();
const Optimizer& lion();
const Optimizer& adafactor();
const Optimizer& muon();

}  // namespace sluice::core
