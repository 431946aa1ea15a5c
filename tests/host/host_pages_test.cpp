// SPDX-License-Identifier: Apache-2.0
// Pages near the devices that copy them, on a host of one node and on directories that stand for others.
#include "host/host_pages.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include "support/temp_dir.h"

namespace sluice::core {
namespace {

const Tier kSecond = Tier::device(1), kThird = Tier::device(2);

// Two nodes with cores and one without; the third device's node is unknown.
class TwoNodes : public testing::Test {
 protected:
  TwoNodes() {
    dir_.add("sys/devices/system/node/node0/cpulist", "0-1,4\n");
    dir_.add("sys/devices/system/node/node1/cpulist", "2-3\n");
    dir_.add("sys/devices/system/node/node2/cpulist", "\n");
    dir_.add("sys/bus/pci/devices/0000:1b:00.0/numa_node", "1\n");
    dir_.add("sys/bus/pci/devices/0000:2c:00.0/numa_node", "0\n");
    dir_.add("sys/bus/pci/devices/0000:3d:00.0/numa_node", "-1\n");
    dir_.add("sys/bus/pci/devices/0000:4e:00.0/numa_node", "2\n");
  }

  const TempDir dir_;
  const std::vector<HostPart> parts_{{0, 10, kDevice}, {10, 14, kSecond}, {20, 30, kThird}};
};

TEST_F(TwoNodes, PartsLieNearTheirDevices) {
  const std::vector<std::string> addresses = {"0000:1b:00.0", "0000:2c:00.0", "0000:1b:00.0"};
  EXPECT_EQ(near_parts(parts_, addresses, dir_.path()),
            (std::vector<NearPart>{{0, 10, {2, 3}}, {10, 14, {0, 1, 4}}, {20, 30, {2, 3}}}));
}

TEST_F(TwoNodes, PartsOfDevicesWithoutKnownCoresMayLieAnywhere) {
  const std::vector<std::string> addresses = {"0000:3d:00.0", "", "0000:4e:00.0"};
  EXPECT_EQ(near_parts(parts_, addresses, dir_.path()), std::vector<NearPart>());
}

TEST(HostPages, OneNodeIsNearEverything) {
  const TempDir dir;
  dir.add("sys/devices/system/node/node0/cpulist", "0-3\n");
  dir.add("sys/bus/pci/devices/0000:1b:00.0/numa_node", "0\n");
  const std::vector<HostPart> parts = {{0, 10, kDevice}};
  const std::vector<std::string> addresses = {"0000:1b:00.0"};
  EXPECT_TRUE(near_parts(parts, addresses, dir.path()).empty());
}

// The cores that the calling thread may use.
std::vector<int> allowed() {
  cpu_set_t set;
  EXPECT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
  std::vector<int> out;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &set)) out.push_back(core);
  return out;
}

TEST(OnCores, AThreadStaysThereAndComesBack) {
  const std::vector<int> before = allowed();
  {
    const OnCores on(std::vector<int>{before.back()});
    EXPECT_EQ(allowed(), std::vector<int>{before.back()});
    EXPECT_EQ(sched_getcpu(), before.back());
  }
  EXPECT_EQ(allowed(), before);
}

TEST(OnCores, CoresThatAreNotThereChangeNothing) {
  const std::vector<int> before = allowed();
  for (const std::vector<int>& none : {std::vector<int>{CPU_SETSIZE - 1}, {CPU_SETSIZE + 5}, {}}) {
    const OnCores on(none);
    EXPECT_EQ(allowed(), before);
  }
  EXPECT_EQ(allowed(), before);
}

TEST(HostPages, PagesOfThePartsAreThereAndKeepWhatIsWrittenThere) {
  const int64_t page = sysconf(_SC_PAGESIZE), pages = 64;
  void* const memory = mmap(nullptr, size_t(pages * page), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  madvise(memory, size_t(pages * page), MADV_NOHUGEPAGE);
  auto* const arena = static_cast<std::byte*>(memory);
  arena[3 * page] = std::byte{7};
  const std::vector<NearPart> parts = {{0, 10 * page, {0}}, {20 * page, 33 * page, {CPU_SETSIZE - 1}}};
  populate_near(arena, parts);
  std::vector<unsigned char> resident(static_cast<size_t>(pages));
  ASSERT_EQ(mincore(memory, size_t(pages * page), resident.data()), 0);
  for (int64_t i = 0; i < pages; ++i) {
    EXPECT_EQ((resident[size_t(i)] & 1) != 0, i < 10 || (i >= 20 && i < 33)) << "page " << i;
  }
  EXPECT_EQ(arena[3 * page], std::byte{7});
  munmap(memory, size_t(pages * page));
}

}  // namespace
}  // namespace sluice::core
