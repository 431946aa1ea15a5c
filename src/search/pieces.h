// SPDX-License-Identifier: Apache-2.0
// The pieces of a program's layers that may run on different devices.
#pragma once

#include <cstdint>
#include <vector>

#include "program/program.h"

namespace sluice::core {

// A layer comes in two pieces or more where something between its tasks is as narrow as what goes into it. In
// a transformer's layer that is between attention and feed-forward, where only the residual stream goes on.
// What belongs to a weight (gradient, update, state) is of the piece that uses it in the forward pass.
struct Pieces {
  std::vector<int32_t> of;     // by task; kNone: it belongs to no layer
  std::vector<int32_t> layer;  // by piece, in the order of the forward pass
  static constexpr int32_t kNone = -1;

  int layers() const { return layer.empty() ? 0 : layer.back() + 1; }
};
Pieces pieces_of(const Program& program);

}  // namespace sluice::core
