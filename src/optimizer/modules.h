// SPDX-License-Identifier: Apache-2.0
// The optimizers there are, each in a source of its own; optimizer.cpp lists them.
#pragma once

#include "optimizer/optimizer.h"

namespace sluice::core {

const Optimizer& adamw();
const Optimizer& sgd();
const Optimizer& lion();
const Optimizer& adafactor();
const Optimizer& muon();

}  // namespace sluice::core
