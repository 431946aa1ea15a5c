// SPDX-License-Identifier: Apache-2.0
// Whether this process is one of several that a launcher started together.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/status.h"

namespace sluice::core {

// Where processes find one another that no MPI connects: process 0 listens there.
struct MeetingPoint {
  std::string host;
  uint16_t port = 0;
  std::string port_name;  // the variable that it comes from
  std::string job;        // equal in all processes of a job
  std::string secret;     // the same, and known to nobody else; empty: there is none
};

struct ProcessLaunch {
  int rank = 0, size = 1;
  std::string by;                       // "mpirun", "srun", "torchrun": for people
  std::optional<MeetingPoint> meeting;  // none: MPI connects them
};

// The value of a variable of the environment; null: it is not set.
using Variables = std::function<const char*(const char* name)>;

// What Open MPI (OMPI_COMM_WORLD_*), MPICH and its kin (PMI_*), Slurm (SLURM_PROCID, SLURM_STEP_NUM_TASKS) or
// torchrun (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT) say; none where nobody launched. Slurm counts where
// no MPI says anything, and only with the tasks of a step: a shell inside an allocation is no launch. MPI
// connects processes where it or Slurm launched them, and torchrun's variables then have to say the same; but
// a torchrun that is itself a task of Slurm has launched what it started. Errors name the variable and its
// value: what is no number, a rank that is not below the size, what is missing, and sources that disagree.
Result<std::optional<ProcessLaunch>> launch_of(const Variables& variables);

// Of this process's environment.
Result<std::optional<ProcessLaunch>> launch_of_this_process();

// That processes which torchrun launched have no GPUs, with the line to type for CPUs.
Error refused_on_cpus(const ProcessLaunch& launch);

}  // namespace sluice::core
