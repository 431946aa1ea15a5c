// SPDX-License-Identifier: Apache-2.0
// Speeds of a step, by the formulas of model/flops.h.
#pragma once

#include "setup/prepared.h"

namespace sluice::core {

struct Speed {
  double tokens_per_s = 0;
  double model_tflops = 0;     // model FLOPs per second
  double hardware_tflops = 0;  // with recomputation, the plan's and attention's own
  double mfu = 0, hfu = 0;     // of peak; 0 when the peak is unknown
};
Speed speed_of(const Program& program, const Plan& plan, double step_ns, double peak_flops);

// The fastest matrix product of the profile, in 8 bits where products read them, FLOPs per second: what MFU
// is measured against.
double peak_flops(const Prepared& prepared);

}  // namespace sluice::core
