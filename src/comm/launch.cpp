// SPDX-License-Identifier: Apache-2.0
#include "comm/launch.h"

#include <charconv>
#include <cstdlib>
#include <string_view>

namespace sluice::core {
namespace {

struct Source {
  const char* by;
  const char* rank;
  const char* size;
};
constexpr Source kSources[] = {{"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                               {"mpirun", "PMI_RANK", "PMI_SIZE"},
                               {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"}};
constexpr Source kTorch{"torchrun", "RANK", "WORLD_SIZE"};

Result<int> number_of(const char* name, const char* value) {
  int out = 0;
  const std::string_view text = value;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (failed != std::errc() || end != text.data() + text.size() || out < 0)
    return error("{} = {}: allowed are whole numbers from 0", name, text);
  return out;
}

Result<std::optional<ProcessLaunch>> launch_by(const Source& source, const Variables& variables) {
  const char *const rank = variables(source.rank), *const size = variables(source.size);
  if (rank == nullptr && size == nullptr) return std::optional<ProcessLaunch>();
  if (rank == nullptr || size == nullptr)
    return error("{} is set and {} is not: a launcher sets both", rank != nullptr ? source.rank : source.size,
                 rank != nullptr ? source.size : source.rank);
  SLUICE_ASSIGN(const int r, number_of(source.rank, rank));
  SLUICE_ASSIGN(const int n, number_of(source.size, size));
  if (r >= n) return error("{} = {}: allowed are numbers below {} = {}", source.rank, r, source.size, n);
  return std::optional(ProcessLaunch{r, n, source.by, {}});
}

Result<MeetingPoint> meeting_of(const ProcessLaunch& launch, const Variables& variables) {
  const char *const host = variables("MASTER_ADDR"), *const port = variables("MASTER_PORT");
  if (host == nullptr || port == nullptr)
    return error(
        "RANK = {} of WORLD_SIZE = {}, and {} is not set: processes with GPUs meet at MASTER_ADDR and "
        "MASTER_PORT, as torchrun sets them; those on CPUs are launched by: mpirun -np {} sluice ...",
        launch.rank, launch.size, host == nullptr ? "MASTER_ADDR" : "MASTER_PORT", launch.size);
  SLUICE_ASSIGN(int number, number_of("MASTER_PORT", port));
  constexpr int kMost = 65534;  // with one behind it
  if (number < 1 || number > kMost)
    return error("MASTER_PORT = {}: allowed are numbers from 1 to {}", number, kMost);
  // There torchrun keeps a store of its own: the port behind it is free for us.
  const char* const store = variables("TORCHELASTIC_USE_AGENT_STORE");
  const bool taken = store != nullptr && std::string_view(store) == "True";
  const char* const job = variables("TORCHELASTIC_RUN_ID");
  const char* const secret = variables("SLUICE_TOKEN");
  return MeetingPoint{host, uint16_t(number + (taken ? 1 : 0)), "MASTER_PORT", job == nullptr ? "" : job,
                      secret == nullptr ? "" : secret};
}

}  // namespace

Result<std::optional<ProcessLaunch>> launch_of(const Variables& variables) {
  std::optional<ProcessLaunch> found;
  const Source* by = nullptr;
  for (const Source& source : kSources) {
    const bool slurm = std::string_view(source.by) == "srun";
    if (slurm && (by != nullptr || variables("SLURM_STEP_NUM_TASKS") == nullptr)) continue;
    SLUICE_ASSIGN(const auto launch, launch_by(source, variables));
    if (!launch) continue;
    if (found && (found->rank != launch->rank || found->size != launch->size))
      return error("{} = {} of {} = {}, {} = {} of {} = {}: launchers disagree; unset one of them", by->rank,
                   found->rank, by->size, found->size, source.rank, launch->rank, source.size, launch->size);
    found = launch, by = &source;
  }
  SLUICE_ASSIGN(const auto torch, launch_by(kTorch, variables));
  if (!torch) return found;
  // What Slurm started is torchrun, which started this.
  if (found && found->by == "srun" && variables("TORCHELASTIC_RUN_ID") != nullptr) found.reset();
  if (!found) {
    found = torch;
    if (found->size < 2) return found;
    SLUICE_ASSIGN(found->meeting, meeting_of(*found, variables));
    return found;
  }
  if (found->rank != torch->rank || found->size != torch->size)
    return error(
        "RANK = {} of WORLD_SIZE = {}, {} = {} of {} = {}: launchers disagree; unset RANK and WORLD_SIZE",
        torch->rank, torch->size, by->rank, found->rank, by->size, found->size);
  return found;
}

Error refused_on_cpus(const ProcessLaunch& launch) {
  return error(
      "RANK = {} of WORLD_SIZE = {}: torchrun's way of launching is for GPUs; on CPUs type: mpirun -np {} "
      "sluice ...",
      launch.rank, launch.size, launch.size);
}

Result<std::optional<ProcessLaunch>> launch_of_this_process() {
  return launch_of([](const char* name) { return std::getenv(name); });
}

}  // namespace sluice::core
