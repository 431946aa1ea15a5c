// SPDX-License-Identifier: Apache-2.0
// Order across lanes, arenas and errors of the CUDA backend.
#include <algorithm>
#include <cstdlib>

#include "backend/cuda/cuda_backend.h"
#include "base/bytes.h"
#include "conformance_cuda/gpu.h"
#include "cost/profile.h"
#include "ops/op.h"
#include "support/one_device.h"

namespace sluice::core::conformance {
namespace {

constexpr int64_t kElements = 1 << 20;
constexpr int64_t kBytes = kElements * int64_t{sizeof(float)};

class CudaLanes : public testing::Test {
 protected:
  void SetUp() override { SLUICE_SKIP_WITHOUT_GPU(); }

  void make(const CudaOptions& options, int64_t device_bytes, int64_t host_bytes) {
    auto made = make_cuda_backend(options);
    ASSERT_TRUE(made.ok()) << made.message();
    backend_ = std::move(*made);
    auto reserved = backend_->reserve({{kDevice, device_bytes}, {kHost, host_bytes}});
    ASSERT_TRUE(reserved.ok()) << reserved.message();
    arenas_ = *reserved;
  }
  void submit(Lane lane, std::vector<uint32_t> waits, std::variant<Launch, Copy> work) {
    const Status status = backend_->submit({next_++, lane, waits, work, 0});
    ASSERT_TRUE(status.ok()) << status.message();
  }

  std::unique_ptr<Backend> backend_;
  Arenas arenas_;
  uint32_t next_ = 0;
};

// Each round loads a vector, sums its squares and stores the result; one device buffer serves all rounds, so
// a missing wait would let a load overwrite what is still being read.
TEST_F(CudaLanes, WaitsOrderReuseOfABuffer) {
  constexpr uint32_t kRounds = 40;
  CudaOptions options = untuned();
  options.run_ahead = 7;
  const SharedOp op = SumSq{kElements, 0, 1, DType::F32, true};
  make(options, 64 * kMiB, kRounds * kBytes + kRounds * 256);
  ASSERT_TRUE(backend_->prepare({&op, 1}).ok());

  std::vector<float> values(kElements);
  for (uint32_t r = 0; r < kRounds; ++r) {
    std::fill(values.begin(), values.end(), float(r + 1));
    ASSERT_TRUE(
        backend_->upload({kHost, r * kBytes}, reinterpret_cast<std::byte*>(values.data()), kBytes).ok());
  }
  std::byte* sums = arenas_[kDevice] + kBytes;
  const Buffer operands[] = {{arenas_[kDevice], kBytes}, {sums, 8}};
  const Buffer workspace{sums + 256, backend_->workspace_bytes(op)};
  ASSERT_TRUE(backend_->begin(3 * kRounds, true).ok());
  for (uint32_t r = 0; r < kRounds; ++r) {
    const uint32_t load = 3 * r;
    submit(kLoad, r == 0 ? std::vector<uint32_t>{} : std::vector{load - 2},
           Copy{{kHost, r * kBytes}, {kDevice, 0}, kBytes});
    submit(kCompute, r == 0 ? std::vector{load} : std::vector{load, load - 1},
           Launch{&*op, operands, workspace});
    submit(kStore, {load + 1}, Copy{{kDevice, kBytes}, {kHost, kRounds * kBytes + r * 256}, 8});
  }
  std::vector<Interval> timeline;
  const auto fault = backend_->finish(&timeline);
  ASSERT_FALSE(fault) << fault->error.message;

  for (uint32_t r = 0; r < kRounds; ++r) {
    double sum = 0;
    ASSERT_TRUE(
        backend_->download(reinterpret_cast<std::byte*>(&sum), {kHost, kRounds * kBytes + r * 256}, 8).ok());
    EXPECT_EQ(sum, double(r + 1) * double(r + 1) * double(kElements)) << "round " << r;
  }
  ASSERT_EQ(timeline.size(), 3 * kRounds);
  constexpr double kClockNs = 2000;  // of the events
  for (uint32_t r = 0; r < kRounds; ++r) {
    EXPECT_LE(timeline[3 * r].end_ns, timeline[3 * r + 1].start_ns + kClockNs) << "round " << r;
    EXPECT_LE(timeline[3 * r + 1].end_ns, timeline[3 * r + 2].start_ns + kClockNs) << "round " << r;
  }
}

// The same rounds as a graph from the second step on, which reads what lies in memory then.
TEST_F(CudaLanes, ShortStepsGoOnAtOnce) {
  constexpr uint32_t kRounds = 8;
  constexpr int64_t kFew = 1 << 12, kFewBytes = kFew * int64_t{sizeof(float)};
  const SharedOp op = SumSq{kFew, 0, 1, DType::F32, true};
  make(untuned(), kMiB, kMiB);
  ASSERT_TRUE(backend_->prepare({&op, 1}).ok());
  std::byte* sums = arenas_[kDevice] + kFewBytes;
  const Buffer operands[] = {{arenas_[kDevice], kFewBytes}, {sums, 8}};
  const Buffer workspace{sums + 256, backend_->workspace_bytes(op)};
  std::vector<std::vector<uint32_t>> waits(size_t{3 * kRounds});
  std::vector<Command> commands;
  const auto add = [&](Lane lane, std::variant<Launch, Copy> work) {
    const auto id = uint32_t(commands.size());
    commands.push_back({.id = id, .lane = lane, .waits = waits[id], .work = work, .cost_ns = 0});
  };
  for (uint32_t r = 0; r < kRounds; ++r) {
    const uint32_t load = 3 * r;
    if (r > 0) waits[load] = {load - 2};
    waits[load + 1] = {load};
    if (r > 0) waits[load + 1].push_back(load - 1);
    waits[load + 2] = {load + 1};
    add(kLoad, Copy{{kHost, r * kFewBytes}, {kDevice, 0}, kFewBytes});
    add(kCompute, Launch{&*op, operands, workspace});
    add(kStore, Copy{{kDevice, kFewBytes}, {kHost, kRounds * kFewBytes + r * 256}, 8});
  }
  ASSERT_TRUE(backend_->begin(0, false).ok());
  ASSERT_FALSE(backend_->finish(nullptr));  // a short step
  std::unique_ptr<Recording> recording;
  int at_once = 0;
  for (int step = 0; step < 4; ++step) {
    std::vector<float> values(kFew);
    for (uint32_t r = 0; r < kRounds; ++r) {
      std::fill(values.begin(), values.end(), float(r + 1 + uint32_t(step)));
      ASSERT_TRUE(
          backend_->upload({kHost, r * kFewBytes}, reinterpret_cast<std::byte*>(values.data()), kFewBytes)
              .ok());
    }
    ASSERT_TRUE(backend_->begin(uint32_t(commands.size()), false).ok());
    const auto queued = backend_->submit_at_once(commands, recording);
    ASSERT_TRUE(queued.ok()) << queued.message();
    at_once += *queued ? 1 : 0;
    for (size_t i = *queued ? commands.size() : 0; i < commands.size(); ++i)
      ASSERT_TRUE(backend_->submit(commands[i]).ok());
    const auto fault = backend_->finish(nullptr);
    ASSERT_FALSE(fault) << fault->error.message;
    for (uint32_t r = 0; r < kRounds; ++r) {
      double sum = 0;
      const Location stored{kHost, kRounds * kFewBytes + r * 256};
      ASSERT_TRUE(backend_->download(reinterpret_cast<std::byte*>(&sum), stored, 8).ok());
      const double value = r + 1 + double(step);
      EXPECT_EQ(sum, value * value * double(kFew)) << "step " << step << ", round " << r;
    }
  }
  EXPECT_EQ(at_once, 3) << backend_->take_note();
  recording.reset();
}

// The host arena is pinned in pieces of a gigabyte; a copy may lie across two, and what was written while
// they were being pinned stays.
TEST_F(CudaLanes, CopiesCrossPiecesOfTheHostArena) {
  constexpr int64_t kEdge = kGiB, kPart = 3 * kMiB;
  make(untuned(), 2 * kPart, kEdge + 2 * kPart);
  std::vector<uint32_t> values(2 * kPart / 4), back(values.size());
  for (size_t i = 0; i < values.size(); ++i) values[i] = uint32_t(i) * 2654435761u;
  const Location host{kHost, kEdge - kPart}, half_a_part_on{kHost, kEdge - kPart / 2};
  ASSERT_TRUE(backend_->upload(host, reinterpret_cast<std::byte*>(values.data()), 2 * kPart).ok());
  ASSERT_TRUE(backend_->begin(2, true).ok());
  submit(kLoad, {}, Copy{host, {kDevice, 0}, 2 * kPart});
  submit(kStore, {0}, Copy{{kDevice, 0}, half_a_part_on, 2 * kPart});
  const auto fault = backend_->finish(nullptr);
  ASSERT_FALSE(fault) << fault->error.message;
  ASSERT_TRUE(backend_->download(reinterpret_cast<std::byte*>(back.data()), half_a_part_on, 2 * kPart).ok());
  EXPECT_EQ(values, back);
  ASSERT_TRUE(backend_->clear({kDevice, 0}, kPart).ok());
  ASSERT_TRUE(backend_->download(reinterpret_cast<std::byte*>(back.data()), {kDevice, 0}, 2 * kPart).ok());
  std::fill(values.begin(), values.begin() + kPart / 4, 0u);
  EXPECT_EQ(values, back);
}

// The second part lies across two pieces of the host arena.
TEST_F(CudaLanes, CopyPartsAlone) {
  constexpr int64_t kEdge = kGiB, kPart = 3 * kMiB;
  make(untuned(), 2 * kPart, kEdge + kPart);
  std::vector<uint32_t> values(2 * kPart / 4), back(values.size());
  for (size_t i = 0; i < values.size(); ++i) values[i] = uint32_t(i) * 2654435761u;
  const Location host{kHost, kEdge - kPart}, device{kDevice, 0};
  ASSERT_TRUE(backend_->upload(host, reinterpret_cast<std::byte*>(values.data()), 2 * kPart).ok());
  ASSERT_TRUE(backend_->clear(device, 2 * kPart).ok());
  const CopyPart parts[] = {{0, 1024}, {kPart - 4096, 8192}};
  ASSERT_TRUE(backend_->begin(2, true).ok());
  submit(kLoad, {}, Copy{host, device, 2 * kPart, true, parts});
  submit(kLoad, {}, Copy{host, device, 2 * kPart, true});
  const auto fault = backend_->finish(nullptr);
  ASSERT_FALSE(fault) << fault->error.message;
  ASSERT_TRUE(backend_->download(reinterpret_cast<std::byte*>(back.data()), device, 2 * kPart).ok());
  for (size_t i = 0; i < values.size(); ++i) {
    const auto byte = int64_t(i * 4);
    const bool copied = byte < 1024 || (byte >= kPart - 4096 && byte < kPart + 4096);
    ASSERT_EQ(back[i], copied ? values[i] : 0u) << i;
  }
}

TEST_F(CudaLanes, ReserveNamesWhatIsMissing) {
  auto made = make_cuda_backend(untuned());
  ASSERT_TRUE(made.ok()) << made.message();
  constexpr int64_t kTooMuch = int64_t{1} << 50;
  const auto reserved = (*made)->reserve({{kDevice, kTooMuch}});
  ASSERT_FALSE(reserved.ok());
  EXPECT_NE(reserved.message().find(format_bytes(kTooMuch)), std::string::npos) << reserved.message();
  EXPECT_NE(reserved.message().find("free of"), std::string::npos) << reserved.message();
}

TEST_F(CudaLanes, MemoryGrowsByTheArenas) {
  auto made = make_cuda_backend(untuned());
  ASSERT_TRUE(made.ok()) << made.message();
  const BytesByTier before = (*made)->memory();
  constexpr int64_t kArena = 512 * kMiB;
  ASSERT_TRUE((*made)->reserve({{kDevice, kArena}, {kHost, kArena}}).ok());
  // An empty step ends when the host arena is pinned.
  ASSERT_TRUE((*made)->begin(0, true).ok());
  ASSERT_FALSE((*made)->finish(nullptr));
  const BytesByTier after = (*made)->memory();
  EXPECT_NEAR(double(after[kDevice] - before[kDevice]), double(kArena), double(4 * kMiB));
  EXPECT_NEAR(double(after[kHost] - before[kHost]), double(kArena), double(16 * kMiB));
}

// The tables of its pages are memory of the device that the driver counts to no process.
TEST_F(CudaLanes, MemoryCountsWhatPinnedMemoryTakesOfTheDevice) {
  auto made = make_cuda_backend(untuned());
  ASSERT_TRUE(made.ok()) << made.message();
  const auto free_bytes = [] { return cuda_devices()->front().free_bytes; };
  const int64_t free_before = free_bytes();
  const BytesByTier before = (*made)->memory();
  constexpr int64_t kPinned = 8 * kGiB;
  ASSERT_TRUE((*made)->reserve({{kDevice, 2 * kMiB}, {kHost, kPinned}}).ok());
  ASSERT_TRUE((*made)->begin(0, true).ok());
  ASSERT_FALSE((*made)->finish(nullptr));
  const int64_t grown = (*made)->memory()[kDevice] - before[kDevice];
  EXPECT_NEAR(double(grown), double(free_before - free_bytes()), double(2 * kMiB));
  Profile profile;
  profile.host_bytes_per_table_byte = cuda_kind().traits.host_bytes_per_table_byte;
  EXPECT_LE(grown, 2 * kMiB + profile.table_bytes(kPinned));
}

TEST_F(CudaLanes, UnsupportedOpsAreNamed) {
  auto made = make_cuda_backend(untuned());
  ASSERT_TRUE(made.ok()) << made.message();
  const SharedOp op = Linear{8, 12, 16, DType::BF16};
  const Status status = (*made)->prepare({&op, 1});
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.message().find("in = 12"), std::string::npos) << status.message();
}

// The process of a failed kernel cannot use the GPU any more, so that one is another.
TEST_F(CudaLanes, AFailingKernelIsAmongThoseNamed) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  constexpr uint32_t kLaunches = 60, kBad = 40, kRunAhead = 20;
  const auto fail = [&] {
    CudaOptions options = untuned();
    options.run_ahead = kRunAhead;
    const SharedOp op = SumSq{kElements, 0, 1, DType::F32, true};
    make(options, 64 * kMiB, kMiB);
    if (!backend_->prepare({&op, 1}).ok() || !backend_->begin(kLaunches, false).ok()) std::exit(2);
    const Buffer sum{arenas_[kDevice] + kBytes, 8};
    const Buffer workspace{sum.data + 256, backend_->workspace_bytes(op)};
    for (uint32_t i = 0; i < kLaunches; ++i) {
      const Buffer vector{i == kBad ? reinterpret_cast<std::byte*>(256) : arenas_[kDevice], kBytes};
      const Buffer operands[] = {vector, sum};
      Command command{i, kCompute, {}, Launch{&*op, operands, workspace}, 0};
      command.awaited = false;
      if (!backend_->submit(command).ok()) break;
    }
    const auto fault = backend_->finish(nullptr);
    if (!fault || !fault->command) std::exit(1);
    fprintf(stderr, "%s\n", fault->error.message.c_str());
    const std::string& message = fault->error.message;
    const size_t last = message.rfind("command ", message.find(" at the latest"));
    if (last == std::string::npos) std::exit(4);
    const auto until = uint32_t(std::atoi(message.c_str() + last + 8));
    // What is queued is never more than kRunAhead ahead of what is known to have finished.
    std::exit(*fault->command <= kBad && until >= kBad && until - *fault->command <= kRunAhead ? 0 : 3);
  };
  EXPECT_EXIT(fail(), testing::ExitedWithCode(0),
              "sum_sq.* at the latest; CUDA_LAUNCH_BLOCKING=1 tells which");
}

}  // namespace
}  // namespace sluice::core::conformance
