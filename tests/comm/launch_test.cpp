// SPDX-License-Identifier: Apache-2.0
#include "comm/launch.h"

#include <gtest/gtest.h>

#include <map>

namespace sluice::core {
namespace {

using Set = std::map<std::string, std::string>;

Result<std::optional<ProcessLaunch>> launched(const Set& set) {
  return launch_of([&](const char* name) {
    const auto it = set.find(name);
    return it == set.end() ? nullptr : it->second.c_str();
  });
}
std::string refusal(const Set& set) {
  const auto launch = launched(set);
  return launch.ok() ? "accepted" : launch.message();
}

TEST(ProcessLaunch, IsWhatLaunchersSay) {
  for (const Set& set : {Set{{"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "4"}},
                         Set{{"PMI_RANK", "2"}, {"PMI_SIZE", "4"}},
                         Set{{"SLURM_PROCID", "2"}, {"SLURM_STEP_NUM_TASKS", "4"}}}) {
    const auto launch = launched(set);
    ASSERT_TRUE(launch.ok()) << launch.message();
    ASSERT_TRUE(launch->has_value());
    EXPECT_EQ((*launch)->rank, 2);
    EXPECT_EQ((*launch)->size, 4);
  }
}

TEST(ProcessLaunch, IsNoneWhereNobodyLaunched) {
  EXPECT_FALSE(launched({})->has_value());
  // A shell that Slurm gave: tasks are counted, and none was started.
  EXPECT_FALSE(launched({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_STEP_ID", "0"}})->has_value());
}

// mpirun inside an allocation: Slurm's numbers are of the shell around it.
TEST(ProcessLaunch, IsThatOfMpiInsideAnAllocation) {
  const auto launch = launched({{"OMPI_COMM_WORLD_RANK", "3"},
                                {"OMPI_COMM_WORLD_SIZE", "4"},
                                {"SLURM_PROCID", "0"},
                                {"SLURM_STEP_NUM_TASKS", "1"}});
  ASSERT_TRUE(launch.ok()) << launch.message();
  EXPECT_EQ((*launch)->rank, 3);
}

TEST(ProcessLaunch, NamesWhatIsWrong) {
  EXPECT_EQ(refusal({{"OMPI_COMM_WORLD_RANK", "2"}}),
            "OMPI_COMM_WORLD_RANK is set and OMPI_COMM_WORLD_SIZE is not: a launcher sets both");
  EXPECT_EQ(refusal({{"PMI_RANK", "2x"}, {"PMI_SIZE", "4"}}),
            "PMI_RANK = 2x: allowed are whole numbers from 0");
  EXPECT_EQ(refusal({{"PMI_RANK", "4"}, {"PMI_SIZE", "4"}}),
            "PMI_RANK = 4: allowed are numbers below PMI_SIZE = 4");
  EXPECT_EQ(refusal({{"OMPI_COMM_WORLD_RANK", "1"},
                     {"OMPI_COMM_WORLD_SIZE", "4"},
                     {"PMI_RANK", "0"},
                     {"PMI_SIZE", "4"}}),
            "OMPI_COMM_WORLD_RANK = 1 of OMPI_COMM_WORLD_SIZE = 4, PMI_RANK = 0 of PMI_SIZE = 4: launchers "
            "disagree; unset one of them");
  EXPECT_EQ(refusal({{"RANK", "1"}, {"WORLD_SIZE", "2"}}),
            "RANK = 1 of WORLD_SIZE = 2: torchrun's way of launching is not for CPUs; type: mpirun -np 2 "
            "sluice ...");
  EXPECT_EQ(refusal({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}),
            "RANK = 0 of WORLD_SIZE = 2, PMI_RANK = 1 of PMI_SIZE = 2: launchers disagree; unset RANK and "
            "WORLD_SIZE");
}

}  // namespace
}  // namespace sluice::core
