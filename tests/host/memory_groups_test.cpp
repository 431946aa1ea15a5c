// SPDX-License-Identifier: Apache-2.0
// Control groups as machines lay them out, in a directory that stands for /.
#include "host/memory_groups.h"

#include <gtest/gtest.h>

#include "support/temp_dir.h"

namespace sluice::core {

void PrintTo(const MemoryGroup& g, std::ostream* out) {
  *out << g.name << " " << g.used_bytes << " of " << g.limit_bytes;
}
bool operator==(const MemoryGroup& a, const MemoryGroup& b) {
  return a.name == b.name && a.limit_bytes == b.limit_bytes && a.used_bytes == b.used_bytes;
}

namespace {

using Groups = std::vector<MemoryGroup>;

constexpr const char* kSecondMount =
    "22 1 0:20 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
    "23 1 0:21 / /proc rw shared:5 master:2 - proc proc rw\n";

TEST(MemoryGroups, AreTheOwnOneAndThoseAbove) {
  const TempDir dir;
  dir.add("proc/self/mountinfo", kSecondMount);
  dir.add("proc/self/cgroup", "0::/user.slice/job.scope\n");
  dir.add("sys/fs/cgroup/user.slice/job.scope/memory.max", "1000000\n");
  dir.add("sys/fs/cgroup/user.slice/job.scope/memory.current", "700000\n");
  dir.add("sys/fs/cgroup/user.slice/job.scope/memory.stat",
          "anon 300000\nfile 400000\nactive_file 100000\ninactive_file 250000\n");
  dir.add("sys/fs/cgroup/user.slice/memory.max", "max\n");
  dir.add("sys/fs/cgroup/memory.max", "900000\n");
  dir.add("sys/fs/cgroup/user.slice/other.scope/memory.max", "5\n");
  EXPECT_EQ(memory_groups(dir.path()),
            (Groups{{"/user.slice/job.scope", 1000000, 350000}, {"/", 900000, 0}}));
}

TEST(MemoryGroups, OfTheFirstVersionAreFoundByTheirController) {
  const TempDir dir;
  dir.add("proc/self/mountinfo",
          "31 2 0:1 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
          "32 2 0:2 / /sys/fs/cgroup/mem\\040ory rw shared:9 - cgroup cgroup rw,memory\n"
          "33 2 0:3 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
  dir.add("proc/self/cgroup", "5:cpu,cpuacct:/wrong\n4:memory:/slurm/job_7/step_0\n0::/\n");
  const std::string at = "sys/fs/cgroup/mem ory/slurm/job_7/";
  dir.add(at + "step_0/memory.limit_in_bytes", "9223372036854771712\n");  // none
  dir.add(at + "memory.limit_in_bytes", "4194304\n");
  dir.add(at + "memory.usage_in_bytes", "3000000\n");
  dir.add(at + "memory.stat",
          "cache 5\nactive_file 7\ntotal_active_file 1000000\ntotal_inactive_file 500000\n");
  EXPECT_EQ(memory_groups(dir.path()), (Groups{{"/slurm/job_7", 4194304, 1500000}}));
}

// A container sees its own group as the top of the hierarchy, under its own name or as /.
TEST(MemoryGroups, OfAContainerAreWhatItSees) {
  for (const char* own : {"/docker/abc", "/docker/abc/inner", "/", "/../other"}) {
    const TempDir dir;
    dir.add("proc/self/mountinfo",
            "40 2 0:4 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n");
    dir.add("proc/self/cgroup", std::string("4:memory:") + own + "\n");
    dir.add("sys/fs/cgroup/memory/memory.limit_in_bytes", "1048576\n");
    EXPECT_EQ(memory_groups(dir.path()), (Groups{{"/docker/abc", 1048576, 0}})) << own;
  }
}

TEST(MemoryGroups, AreNoneWhereNothingSaysSo) {
  const TempDir dir;
  EXPECT_TRUE(memory_groups(dir.path()).empty());
  dir.add("proc/self/mountinfo", "nonsense\n\n1 2 3\n- - -\n40 2 0:4 / /c rw - cgroup2 c rw\n");
  dir.add("proc/self/cgroup", "nonsense\n:\n::\n4:memory\n");
  EXPECT_TRUE(memory_groups(dir.path()).empty());
}

}  // namespace
}  // namespace sluice::core
