// SPDX-License-Identifier: Apache-2.0
// Signals, as requests to the command that runs.
#pragma once

#include "commands/commands.h"

// From now on signals of this process are requests to the command that gets them:
//
// - SIGINT, SIGTERM and SIGHUP ask it to stop. Where it does not heed that yet, the process says so and ends
//   by the signal. The second such signal ends it at once. SIGHUP does not, which a terminal that closes
//   sends twice. Nor does one within a quarter of a second: `timeout` and batch systems send it to a process
//   and again to its group. SIGHUP stays ignored where it was (nohup).
// - SIGUSR1 asks it to save and go on.
// - SIGUSR2 asks it to plan again and go on.
// - SIGPIPE is ignored: who reads what a run says may leave before it ends.
sluice::core::Requests& watch_signals();
// The same for a command that has nothing to save: before it looks at requests a signal ends it without
// words, and what cannot be printed is its failure.
sluice::core::Requests& watch_stops();
// Whether that was called.
bool watches_signals();

// Ends the process by the signal that asked it to stop, as if it had never been watched. Returns if there was
// none.
void end_by_signal();
