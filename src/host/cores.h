// SPDX-License-Identifier: Apache-2.0
// The cores of this host, and those that this process may use.
#pragma once

namespace sluice::core {

int all_cores();
// Launchers bind processes to some; at least 1.
int allowed_cores();

// Has the calling thread, and those that it starts from here on, run where others leave cores idle.
void yield_to_others();

// Cores of each of `processes` processes on a host with `all` cores. The allowed cores are divided, but cores
// that a launcher bound a process to stay whole.
constexpr int cores_of_each(int allowed, int all, int processes) {
  const int cores = allowed < all ? allowed : all / processes;
  return cores < 1 ? 1 : cores;
}

}  // namespace sluice::core
