// SPDX-License-Identifier: Apache-2.0
// The formats of compact state (ops/compact.h).
#pragma once

#include <cstdint>

#include "base/format.h"
#include "ops/compact.h"

namespace sluice::core {

// How a slot of state is stored where Numerics::state is I8.
constexpr Format compact_format(bool squares) {
  return {squares ? DType::U8 : DType::I8, uint16_t{kCompactGroup}, DType::F32};
}
// Of `state`: I8 stands for the compact format.
constexpr Format state_format(DType state, bool squares) {
  return state == DType::I8 ? compact_format(squares) : Format(state);
}

}  // namespace sluice::core
