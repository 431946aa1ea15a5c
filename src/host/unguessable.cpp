// SPDX-License-Identifier: Apache-2.0
#include "host/unguessable.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/check.h"

namespace sluice::core {

uint64_t unguessable() {
  uint64_t number = 0;
  // It fails only where the kernel has no such source: none since 3.17.
  SLUICE_CHECK(::getentropy(&number, sizeof(number)) == 0, "the system gives no random numbers: {}",
               std::strerror(errno));
  return number;
}

}  // namespace sluice::core
