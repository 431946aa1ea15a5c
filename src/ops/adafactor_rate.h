// SPDX-License-Identifier: Apache-2.0
// What of Adafactor depends on the number of updates alone (ops/tensor_update.h). Usable from device code.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/philox.h"

namespace sluice::core {

// b, in f64: of the first update exactly 0.
SLUICE_HOST_DEVICE inline double adafactor_decay(double decay_rate, int64_t updates) {
  return 1.0 - pow(double(updates), decay_rate);
}

// The factor of the learning rate.
SLUICE_HOST_DEVICE inline double adafactor_step(bool relative_step, bool warmup_init, int64_t updates) {
  if (!relative_step) return 1;
  const double most = warmup_init ? 1e-6 * double(updates) : 1e-2, usual = 1.0 / sqrt(double(updates));
  return most < usual ? most : usual;
}

}  // namespace sluice::core
