// SPDX-License-Identifier: Apache-2.0
// A machine as one of several processes that share a step.
#pragma once

#include <memory>

#include "comm/group.h"
#include "setup/machine.h"

namespace sluice::core {

// Has the machine exchange over `group`, which outlives it, or from device to device where these can be
// joined. The rate is the one that a few sums are found to take, rounded. What sums take of memory is set
// aside. Every process has to call it. What joins the devices, which the machine borrows, or why what they
// exchange passes through the host; neither, where there is nothing else. After an error the others may wait
// for ever.
Result<JoinedDevices> share_steps(Machine& machine, ProcessGroup& group);
// A network of so many bits, told in bytes, with as many both ways, between machines like this one.
NetworkCost network_of_rate(const Machine& machine, double bytes_per_s);
// The machine as one of so many that only plan for it, with that network between them.
void plan_to_share(Machine& machine, int processes, const NetworkCost& network);

}  // namespace sluice::core
