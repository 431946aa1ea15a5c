// SPDX-License-Identifier: Apache-2.0
// Devices of processes that are joined, here threads whose devices are main memory: what is measured of them,
// and what a machine that shares steps takes from it.
#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "backend/cuda/cuda_backend.h"
#include "bench/collectives.h"
#include "comm/group.h"
#include "host/cores.h"
#include "run/processes/processes.h"

namespace sluice::core {
namespace {

constexpr int64_t kHeldBytes = 300 * kMiB;

class MemoryNetwork final : public DeviceNetwork {
 public:
  // `spoils`: the last value that it makes is another one.
  explicit MemoryNetwork(Network& network, bool spoils) : network_(network), spoils_(spoils) {}
  std::string_view name() const override { return "memory 1.0"; }
  int64_t held_bytes() const override { return kHeldBytes; }
  Status make(Call call, std::span<std::byte> values, DType dtype) override {
    if (call == Call::PassOn) {
      const int ranks = network_.size(), rank = network_.rank();
      const std::vector<std::byte> own(values.begin(), values.end());
      SLUICE_TRY(network_.exchange(own, (rank + 1) % ranks, values, (rank - 1 + ranks) % ranks));
    } else {
      SLUICE_TRY(network_.sum(values, dtype));
    }
    if (spoils_) values.back() ^= std::byte{1};
    return {};
  }
  Result<double> time(Call call, int64_t bytes, DType, int64_t calls) override {
    return double(calls) * (call == Call::LibrarySum ? 2e-9 : 1e-9) * double(bytes);
  }

 private:
  Network& network_;
  bool spoils_;
};

std::vector<CollectiveBench> measured(const CollectiveOptions& options, int ranks) {
  const auto groups = groups_of_threads(ranks);
  std::vector<CollectiveBench> out(static_cast<size_t>(ranks));
  std::vector<std::jthread> threads;
  for (const auto& group : groups) {
    threads.emplace_back([&] {
      const std::atomic<bool> interrupted = false;
      auto found = run_collectives(*group, options, interrupted, [](const std::string&) {});
      ASSERT_TRUE(found.ok()) << found.message();
      out[size_t(group->rank())] = std::move(*found);
    });
  }
  threads.clear();
  return out;
}

TEST(JoinedDevicesBench, SaysWhatCallsTakeAndWhatIsWrong) {
  for (const bool sums : {true, false}) {
    for (const bool spoils : {false, true}) {
      CollectiveOptions options;
      options.sums = sums, options.bytes = {4096}, options.dtypes = {DType::F32, DType::BF16};
      options.join = [&](Network& network) -> Result<JoinedDevices> {
        return JoinedDevices{std::make_unique<MemoryNetwork>(network, spoils), {}};
      };
      for (const CollectiveBench& bench : measured(options, 3)) {
        EXPECT_EQ(bench.joined_by, "memory 1.0");
        ASSERT_EQ(bench.results.size(), 4u);  // of two and three ranks
        for (const CollectiveResult& r : bench.results) {
          EXPECT_EQ(r.wrong == 0, !spoils);
          EXPECT_NEAR(r.ours.seconds, 4096e-9, 1e-12);
          EXPECT_EQ(r.library.calls > 0, sums);  // of both types
          EXPECT_NEAR(r.library.seconds, sums ? 2 * 4096e-9 : 0, 1e-12);
        }
        const Page page = collectives_page(bench);
        EXPECT_TRUE(std::ranges::any_of(page.legend, [](const std::string& line) {
          return line.find("From device to device by memory 1.0") != line.npos;
        }));
      }
    }
  }
}

TEST(JoinedDevicesBench, IsAnErrorWhereTheyCannotBeJoined) {
  const auto groups = groups_of_threads(2);
  std::vector<std::jthread> threads;
  for (const auto& group : groups) {
    threads.emplace_back([&] {
      CollectiveOptions options;
      options.bytes = {4096}, options.dtypes = {DType::F32};
      options.join = [](Network&) -> Result<JoinedDevices> { return JoinedDevices{nullptr, "no wires"}; };
      const std::atomic<bool> interrupted = false;
      const auto found = run_collectives(*group, options, interrupted, [](const std::string&) {});
      ASSERT_FALSE(found.ok());
      EXPECT_NE(found.message().find("no wires"), std::string::npos) << found.message();
    });
  }
}

// What the note says of sums that pass through the host, and the error of whoever joins all the same.
TEST(BuildsWithoutNccl, SayWhatItNeeds) {
  if (!nccl_version().empty()) GTEST_SKIP() << "this build has NCCL " << nccl_version();
  EXPECT_NE(why_no_nccl().find("NCCL"), std::string::npos) << why_no_nccl();
  if (!cuda_is_built()) {
    EXPECT_EQ(why_no_nccl(), "this build has no NCCL: -DSLUICE_NCCL=on says what it needs");
    const auto alone = groups_of_threads(1);
    const auto joined = join_by_nccl(0, *alone.front());
    ASSERT_FALSE(joined.ok());
    EXPECT_EQ(joined.message(), why_no_nccl());
  }
}

Result<JoinedDevices> join_memory(const BackendOptions& options) {
  if (!options.joined) return JoinedDevices{nullptr, "kept apart"};
  return JoinedDevices{std::make_unique<MemoryNetwork>(*options.network, false), {}};
}

TEST(MachinesThatShareSteps, TakeWhatJoinsTheirDevices) {
  static constexpr BackendKind kKind{.name = "memory", .join = join_memory};
  for (const bool joined : {true, false}) {
    const auto groups = groups_of_threads(2);
    std::vector<std::jthread> threads;
    for (const auto& group : groups) {
      threads.emplace_back([&] {
        Machine machine;
        machine.backend = &kKind;
        machine.options.joined = joined;
        machine.device_total_bytes = kGiB;
        machine.profile.name = "a card";
        const auto found = share_steps(machine, *group);
        ASSERT_TRUE(found.ok()) << found.message();
        EXPECT_EQ(machine.options.network, group.get());
        EXPECT_EQ(machine.options.device_network, found->network.get());
        EXPECT_EQ(found->network != nullptr, joined);
        EXPECT_EQ(found->why_not, joined ? "" : "kept apart");
        EXPECT_EQ(machine.processes, 2);
        EXPECT_EQ(machine.process, group->rank());
        EXPECT_EQ(machine.device_total_bytes, joined ? kGiB - kHeldBytes : kGiB);
        // Costs beside it, and what it holds, are not those of a process alone.
        EXPECT_EQ(machine.profile.name, joined ? "a card, memory 1.0 of 2 processes" : "a card");
        EXPECT_GT(machine.profile.overhead_bytes[kHost], 0);
        EXPECT_GT(machine.profile.network.bytes_per_s, 0);
        if (joined) {  // half of the bytes go out and come twice
          EXPECT_NEAR(machine.profile.network.bytes_per_s, 1e9, 1e8);
        }
      });
    }
  }
}

// What exchanges is measured to take a core, unless more are free than compute.
TEST(MachinesThatShareSteps, SayWhatCarryingTakesOfCores) {
  static constexpr BackendKind kKind{.name = "cores", .traits = {.shares_cores = true}};
  for (const int threads : {1, 1 << 10}) {
    const auto groups = groups_of_threads(2);
    std::vector<std::jthread> each;
    for (const auto& group : groups) {
      each.emplace_back([&] {
        Machine machine;
        machine.backend = &kKind;
        machine.options.threads = threads;
        ASSERT_TRUE(share_steps(machine, *group).ok());
        const bool spare = threads < allowed_cores() / 2;
        EXPECT_EQ(machine.profile.network.core_ns_per_byte > 0, !spare);
        EXPECT_LE(machine.profile.network.core_share(), 0.5 + 1e-12);
      });
    }
  }
}

TEST(NetworkCosts, TakeHalfACoreAtMost) {
  const NetworkCost slow{.bytes_per_s = 1e8, .core_ns_per_byte = 1.5};
  EXPECT_EQ(slow.bytes_per_s_beside_compute(), 1e8);
  EXPECT_DOUBLE_EQ(slow.core_share(), 0.15);
  const NetworkCost fast{.bytes_per_s = 1e9, .core_ns_per_byte = 1.25};
  EXPECT_DOUBLE_EQ(fast.bytes_per_s_beside_compute(), 4e8);
  EXPECT_DOUBLE_EQ(fast.core_share(), 0.5);
  const NetworkCost others{.bytes_per_s = 1e9};
  EXPECT_EQ(others.bytes_per_s_beside_compute(), 1e9);
  EXPECT_EQ(others.core_share(), 0);
}

}  // namespace
}  // namespace sluice::core
