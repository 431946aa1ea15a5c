// SPDX-License-Identifier: Apache-2.0
#include "host/cores.h"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>

namespace sluice::core {

int all_cores() {
  return std::max(1, int(sysconf(_SC_NPROCESSORS_ONLN)));
}

int allowed_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  // Hosts with more cores than a set has room for say so with an error.
  if (sched_getaffinity(0, sizeof set, &set) != 0) return all_cores();
  return std::max(1, CPU_COUNT(&set));
}

void yield_to_others() {
  constexpr int kLast = 19;
  // Linux means the thread; where it does not let it, the thread runs beside the others.
  (void)setpriority(PRIO_PROCESS, id_t(gettid()), kLast);
}

}  // namespace sluice::core
