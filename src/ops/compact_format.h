// SPDX-License-Identifier: Apache-2.0
// The formats of compact state (ops/compact.h) and master weights (ops/master.h).
#pragma once

#include <cstdint>

#include "base/format.h"
#include "base/numerics.h"
#include "ops/compact.h"

namespace sluice::core {

// How a slot of state is stored where Numerics::state is I8.
constexpr NumberFormat compact_format(bool squares) {
  return {squares ? DType::U8 : DType::I8, uint16_t{kCompactGroup}, DType::F32};
}
// The format of `state`: I8 stands for the compact format.
constexpr NumberFormat state_format(DType state, bool squares) {
  return state == DType::I8 ? compact_format(squares) : NumberFormat(state);
}

// The format of the master weights' own object. REQUIRES: there is one.
constexpr NumberFormat format_of(MasterWeights master) {
  return master == MasterWeights::I8 ? DType::I8 : DType::F32;
}

}  // namespace sluice::core
