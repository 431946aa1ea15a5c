// SPDX-License-Identifier: Apache-2.0
#include "interrupt.h"

#include <csignal>

namespace {

// Signal handlers reach nothing but globals.
std::atomic<bool> interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free);

void on_signal(int) {
  // Back to the default before anything else: the next signal finds no handler.
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
  interrupted = true;
}

}  // namespace

const std::atomic<bool>& watch_interrupts() {
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
  return interrupted;
}
