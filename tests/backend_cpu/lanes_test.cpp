// SPDX-License-Identifier: Apache-2.0
// The lanes of the CPU backend: order, waits, faults, the timeline, and that nothing is left behind.
#include <dirent.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <thread>

#include "run_op.h"
#include "support/one_device.h"

namespace sluice::core::testing {
namespace {

constexpr int64_t kCells = 64;        // cells per arena
constexpr int64_t kCell = 16 * kKiB;  // bytes

// Cells of both arenas; commands move whole cells, or copy one by a Cast on the compute lane.
class Step {
 public:
  Step() : backend_(make_cpu_backend({.threads = 2})) {
    auto arenas = backend_->reserve({{kDevice, kCells * kCell}, {kHost, kCells * kCell}});
    EXPECT_TRUE(arenas.ok());
    arenas_ = *arenas;
    EXPECT_TRUE(backend_->prepare({&ops_[0], 2}).ok());
  }

  Backend& backend() { return *backend_; }
  std::byte* device(int64_t cell) const { return arenas_[kDevice] + cell * kCell; }
  std::byte* host(int64_t cell) const { return arenas_[kHost] + cell * kCell; }

  Status load(uint32_t id, int64_t to, int64_t from, std::vector<uint32_t> waits = {}) {
    return backend_->submit({id, kLoad, waits, Copy{{kHost, from * kCell}, {kDevice, to * kCell}, kCell}, 0});
  }
  Status store(uint32_t id, int64_t to, int64_t from, std::vector<uint32_t> waits = {}) {
    return backend_->submit(
        {id, kStore, waits, Copy{{kDevice, from * kCell}, {kHost, to * kCell}, kCell}, 0});
  }
  Status cast(uint32_t id, int64_t to, int64_t from, std::vector<uint32_t> waits = {}) {
    const std::array buffers{Buffer{device(from), kCell}, Buffer{device(to), kCell}};
    return backend_->submit({id, kCompute, waits, Launch{&*ops_[0], buffers, {}}, 0});
  }
  // Fails when it runs: its operands do not have the op's sizes.
  Status fail(uint32_t id, std::vector<uint32_t> waits = {}) {
    return backend_->submit({id, kCompute, waits, Launch{&*ops_[1], {}, {}}, 0});
  }

 private:
  std::vector<SharedOp> ops_{Cast{kCell / 4, DType::F32, DType::F32}, Cast{1, DType::F32, DType::F32}};
  std::unique_ptr<Backend> backend_;
  Arenas arenas_;
};

// Random commands on random cells, each waiting for exactly the earlier commands of other lanes that it
// conflicts with, leave what they leave in program order.
TEST(Lanes, RandomStepsEqualProgramOrder) {
  Step step;
  std::mt19937 random(7);
  struct Use {
    std::byte *to, *from;
    Lane lane;
  };
  for (int round = 0; round < 30; ++round) {
    std::vector<std::byte> device(kCells * kCell), host(kCells * kCell);
    for (std::byte& b : host) b = std::byte(random() & 15);
    std::memcpy(step.host(0), host.data(), host.size());
    std::memcpy(step.device(0), device.data(), device.size());
    constexpr uint32_t kCommands = 150;
    std::vector<Use> uses;
    ASSERT_TRUE(step.backend().begin(kCommands, true).ok());
    for (uint32_t id = 0; id < kCommands; ++id) {
      const int64_t a = random() % 6, b = random() % 6;
      const Lane lane(random() % step.backend().lanes().size());
      const Use use{lane == kStore ? step.host(a) : step.device(a),
                    lane == kLoad ? step.host(b) : step.device(b), lane};
      std::vector<uint32_t> waits;
      for (uint32_t w = 0; w < id; ++w) {
        const Use& earlier = uses[w];
        if (earlier.lane != lane &&
            (earlier.to == use.to || earlier.to == use.from || earlier.from == use.to)) {
          waits.push_back(w);
        }
      }
      uses.push_back(use);
      if (lane == kLoad) {
        ASSERT_TRUE(step.load(id, a, b, waits).ok());
        std::memcpy(&device[size_t(a * kCell)], &host[size_t(b * kCell)], kCell);
      } else if (lane == kStore) {
        ASSERT_TRUE(step.store(id, a, b, waits).ok());
        std::memcpy(&host[size_t(a * kCell)], &device[size_t(b * kCell)], kCell);
      } else {
        ASSERT_TRUE(step.cast(id, a, b, waits).ok());
        std::memmove(&device[size_t(a * kCell)], &device[size_t(b * kCell)], kCell);
      }
    }
    ASSERT_FALSE(step.backend().finish(nullptr).has_value());
    EXPECT_EQ(std::memcmp(step.device(0), device.data(), device.size()), 0) << "round " << round;
    EXPECT_EQ(std::memcmp(step.host(0), host.data(), host.size()), 0) << "round " << round;
  }
}

TEST(Lanes, CopyPartsAlone) {
  Step step;
  std::memset(step.host(0), 1, kCell);
  std::memset(step.device(0), 2, kCell);
  const CopyPart parts[] = {{0, 8}, {64, 16}};
  const Copy copy{{kHost, 0}, {kDevice, 0}, kCell, true, parts}, none{{kHost, 0}, {kDevice, 0}, kCell, true};
  ASSERT_TRUE(step.backend().begin(2, true).ok());
  ASSERT_TRUE(step.backend().submit({0, kLoad, {}, copy, 0}).ok());
  ASSERT_TRUE(step.backend().submit({1, kLoad, {}, none, 0}).ok());
  ASSERT_FALSE(step.backend().finish(nullptr).has_value());
  for (int64_t i = 0; i < kCell; ++i) {
    const bool copied = i < 8 || (i >= 64 && i < 80);
    ASSERT_EQ(step.device(0)[i], std::byte(copied ? 1 : 2)) << i;
  }
}

TEST(Lanes, FirstFailureStopsTheStep) {
  Step step;
  std::memset(step.host(0), 1, kCell);
  std::memset(step.host(1), 2, kCell);
  ASSERT_TRUE(step.backend().begin(4, true).ok());
  ASSERT_TRUE(step.load(0, 0, 0).ok());
  ASSERT_TRUE(step.fail(1, {0}).ok());
  // These may be refused, if the failure is already known, but never run.
  (void)step.load(2, 0, 1, {1});
  const std::optional<Fault> fault = step.backend().finish(nullptr);
  ASSERT_TRUE(fault.has_value());
  EXPECT_EQ(fault->command, 1u);
  EXPECT_NE(fault->error.message.find("cast n=1"), std::string::npos) << fault->error.message;
  EXPECT_EQ(*step.device(0), std::byte{1});
}

TEST(Lanes, SubmitAfterAFailureReturnsIt) {
  Step step;
  ASSERT_TRUE(step.backend().begin(2, true).ok());
  ASSERT_TRUE(step.fail(0).ok());
  ASSERT_TRUE(step.backend().finish(nullptr).has_value());
  const Status status = step.load(1, 0, 0);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.message().find("cast n=1"), std::string::npos);
}

TEST(Lanes, NextStepRunsAfterAFailure) {
  Step step;
  ASSERT_TRUE(step.backend().begin(1, true).ok());
  ASSERT_TRUE(step.fail(0).ok());
  ASSERT_TRUE(step.backend().finish(nullptr).has_value());
  std::memset(step.host(3), 5, kCell);
  ASSERT_TRUE(step.backend().begin(1, true).ok());
  ASSERT_TRUE(step.load(0, 0, 3).ok());
  EXPECT_FALSE(step.backend().finish(nullptr).has_value());
  EXPECT_EQ(*step.device(0), std::byte{5});
}

TEST(Lanes, TimelineKeepsOrderAndWaits) {
  Step step;
  ASSERT_TRUE(step.backend().begin(4, true).ok());
  ASSERT_TRUE(step.load(0, 0, 0).ok());
  ASSERT_TRUE(step.cast(1, 1, 0, {0}).ok());
  ASSERT_TRUE(step.store(2, 1, 1, {1}).ok());
  ASSERT_TRUE(step.load(3, 2, 2).ok());
  std::vector<Interval> timeline;
  ASSERT_FALSE(step.backend().finish(&timeline).has_value());
  ASSERT_EQ(timeline.size(), 4u);
  for (const Interval& i : timeline) EXPECT_TRUE(0 <= i.start_ns && i.start_ns <= i.end_ns);
  EXPECT_LE(timeline[0].end_ns, timeline[1].start_ns);
  EXPECT_LE(timeline[1].end_ns, timeline[2].start_ns);
  EXPECT_LE(timeline[0].end_ns, timeline[3].start_ns);
}

TEST(Lanes, FaultForAnOpThatWasNotPrepared) {
  Step step;
  const Op op = Cast{3, DType::F32, DType::BF16};
  ASSERT_TRUE(step.backend().begin(1, true).ok());
  ASSERT_TRUE(step.backend().submit({0, kCompute, {}, Launch{&op, {}, {}}, 0}).ok());
  const std::optional<Fault> fault = step.backend().finish(nullptr);
  ASSERT_TRUE(fault.has_value());
  EXPECT_EQ(fault->error.message, "cast n=3 in=f32 dtype=bf16 was not prepared");
}

int64_t thread_count() {
  int64_t count = 0;
  DIR* tasks = opendir("/proc/self/task");
  while (const dirent* entry = readdir(tasks)) count += entry->d_name[0] != '.';
  closedir(tasks);
  return count;
}

TEST(Lanes, NoThreadIsLeft) {
  std::thread([] {}).join();  // ThreadSanitizer begins one of its own with the first
  const int64_t before = thread_count();
  {
    Step step;
    EXPECT_GT(thread_count(), before);
    ASSERT_TRUE(step.backend().begin(1, true).ok());
    ASSERT_TRUE(step.load(0, 0, 0).ok());
  }
  EXPECT_EQ(thread_count(), before);
}

TEST(Reserve, MoreThanTheMachineHasIsAnError) {
  const auto backend = make_cpu_backend({.threads = 1});
  const auto arenas = backend->reserve({{kDevice, int64_t{1} << 50}});
  ASSERT_FALSE(arenas.ok());
  EXPECT_NE(arenas.message().find("the arenas need 1024 TiB of main memory, device 1024 TiB"),
            std::string::npos)
      << arenas.message();
}

TEST(Memory, ArenaCountsAsDeviceOnly) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "shadow memory is resident, too";
#endif
  const auto backend = make_cpu_backend({.threads = 1});
  const int64_t before = backend->memory()[kHost];
  ASSERT_TRUE(backend->reserve({{kDevice, 64 * kMiB}, {kHost, 32 * kMiB}}).ok());
  EXPECT_EQ(backend->memory()[kDevice], 64 * kMiB);
  EXPECT_NEAR(double(backend->memory()[kHost] - before), double(32 * kMiB), double(4 * kMiB));
}

}  // namespace
}  // namespace sluice::core::testing
