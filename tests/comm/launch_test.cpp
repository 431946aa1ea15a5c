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
  const Set met{{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "29500"}};
  const auto with = [&](const std::string& name, const char* value) {
    Set out = met;
    out.erase(name);
    if (value != nullptr) out[name] = value;
    return refusal(out);
  };
  EXPECT_EQ(with("MASTER_ADDR", nullptr),
            "RANK = 1 of WORLD_SIZE = 2, and MASTER_ADDR is not set: processes with GPUs meet at MASTER_ADDR "
            "and MASTER_PORT, as torchrun sets them; those on CPUs are launched by: mpirun -np 2 sluice ...");
  EXPECT_NE(with("MASTER_PORT", nullptr).find("and MASTER_PORT is not set"), std::string::npos);
  EXPECT_EQ(with("MASTER_PORT", "http"), "MASTER_PORT = http: allowed are whole numbers from 0");
  EXPECT_EQ(with("MASTER_PORT", "65535"), "MASTER_PORT = 65535: allowed are numbers from 1 to 65534");
  EXPECT_EQ(with("WORLD_SIZE", "1"), "RANK = 1: allowed are numbers below WORLD_SIZE = 1");
  EXPECT_EQ(with("WORLD_SIZE", nullptr), "RANK is set and WORLD_SIZE is not: a launcher sets both");
  EXPECT_EQ(refusal({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}),
            "RANK = 0 of WORLD_SIZE = 2, PMI_RANK = 1 of PMI_SIZE = 2: launchers disagree; unset RANK and "
            "WORLD_SIZE");
  EXPECT_NE(
      refusal({{"RANK", "0"}, {"WORLD_SIZE", "4"}, {"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "2"}})
          .find("launchers disagree"),
      std::string::npos);
}

TEST(ProcessLaunch, HasTheMeetingPointOfTorchrun) {
  Set set{{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "node-a"}, {"MASTER_PORT", "29500"}};
  auto launch = launched(set);
  ASSERT_TRUE(launch.ok()) << launch.message();
  ASSERT_TRUE(launch->has_value());
  EXPECT_EQ((*launch)->rank, 1);
  EXPECT_EQ((*launch)->size, 2);
  EXPECT_EQ((*launch)->by, "torchrun");
  ASSERT_TRUE((*launch)->meeting.has_value());
  EXPECT_EQ((*launch)->meeting->host, "node-a");
  EXPECT_EQ((*launch)->meeting->port, 29500);
  // There torchrun's own store listens.
  set["TORCHELASTIC_USE_AGENT_STORE"] = "True", set["TORCHELASTIC_RUN_ID"] = "job 7";
  launch = launched(set);
  EXPECT_EQ((*launch)->meeting->port, 29501);
  EXPECT_EQ((*launch)->meeting->job, "job 7");
  EXPECT_EQ((*launch)->meeting->secret, "");
  // Slurm has launched torchrun, which has launched this.
  set["SLURM_PROCID"] = "0", set["SLURM_STEP_NUM_TASKS"] = "1";
  EXPECT_EQ((*launched(set))->by, "torchrun");
}

// Where torchrun's variables say what a launcher of MPI does, MPI connects.
TEST(ProcessLaunch, IsThatOfMpiWhereAllAgree) {
  const auto launch = launched({{"RANK", "1"},
                                {"WORLD_SIZE", "2"},
                                {"MASTER_ADDR", "a"},
                                {"MASTER_PORT", "29500"},
                                {"OMPI_COMM_WORLD_RANK", "1"},
                                {"OMPI_COMM_WORLD_SIZE", "2"}});
  ASSERT_TRUE(launch.ok()) << launch.message();
  EXPECT_EQ((*launch)->by, "mpirun");
  EXPECT_FALSE((*launch)->meeting.has_value());
}

}  // namespace
}  // namespace sluice::core
