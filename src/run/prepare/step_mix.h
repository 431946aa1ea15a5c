// SPDX-License-Identifier: Apache-2.0
// What a step is made of, as measuring its costs wants to know before there is a plan.
#pragma once

#include "measure/rehearsal.h"
#include "setup/stages.h"

namespace sluice::core {

// Ops and copies of a training step by a quick plan under the request's caps: ops with what is computed
// again, and copies. Where nothing fits, the program's ops.
StepMix estimate_mix(const Program& program, const Question& question, const Profile& profile);

}  // namespace sluice::core
