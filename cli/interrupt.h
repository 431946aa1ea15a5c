// SPDX-License-Identifier: Apache-2.0
// Signals that end a run.
#pragma once

#include <atomic>

// From now on the first SIGINT or SIGTERM raises the flag it returns, for the run to end in order; the next
// one of either kind ends the process at once.
const std::atomic<bool>& watch_interrupts();
