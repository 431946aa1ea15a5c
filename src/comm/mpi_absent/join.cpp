// SPDX-License-Identifier: Apache-2.0
#include "comm/group.h"

namespace sluice::core {

Result<std::unique_ptr<ProcessGroup>> join_by_mpi(const ProcessLaunch& launch) {
  return error(
      "{} launched {} processes, and this sluice was built without MPI: apt-get install libopenmpi-dev "
      "openmpi-bin, then configure (cmake --preset cpu) and build again",
      launch.by, launch.size);
}

}  // namespace sluice::core
