// SPDX-License-Identifier: Apache-2.0
// Whether this process is one of several that a launcher started together.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/status.h"

namespace sluice::core {

struct ProcessLaunch {
  int rank = 0, size = 1;
  std::string by;  // "mpirun", "srun": for people
};

// The value of a variable of the environment; null: it is not set.
using Variables = std::function<const char*(const char* name)>;

// What Open MPI (OMPI_COMM_WORLD_*), MPICH and its kin (PMI_*) or Slurm (SLURM_PROCID, SLURM_STEP_NUM_TASKS)
// say; none where nobody launched. Slurm counts where no MPI says anything, and only with the tasks of a
// step: a shell inside an allocation is no launch. Errors name the variable and its value: what is no number,
// a rank that is not below the size, sources that disagree, and torchrun's RANK and WORLD_SIZE, for which
// processes on CPUs are launched by mpirun.
Result<std::optional<ProcessLaunch>> launch_of(const Variables& variables);

// Of this process's environment.
Result<std::optional<ProcessLaunch>> launch_of_this_process();

}  // namespace sluice::core
