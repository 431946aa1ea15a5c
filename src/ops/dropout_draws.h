// SPDX-License-Identifier: Apache-2.0
// The draws of Dropout, the one definition for every backend. Usable from device code.
#pragma once

#include <cstdint>

#include "base/philox.h"
#include "ops/step_args.h"

namespace sluice::core {

// Draws of an op in a step: four values of a token by one, of which those below `dropped` go.
struct DropoutDraws {
  uint64_t key, step, counter;  // the counter of the first token's first four values
  uint32_t dropped;
  float scale;  // of what stays

  SLUICE_HOST_DEVICE DropoutDraws(const DropoutArgs& args, int64_t seq_len, int64_t first, int64_t width,
                                  uint64_t target, float rate)
      : key(args.step.seed ^ target),
        step(uint64_t(args.forward_step)),
        counter(uint64_t(args.first_row * seq_len + first) * uint64_t((width + 3) / 4)),
        dropped(uint32_t(double(rate) * 4294967296.0)),
        scale(1 / (1 - rate)) {}
};

}  // namespace sluice::core
