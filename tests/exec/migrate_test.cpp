// SPDX-License-Identifier: Apache-2.0
// Copies within the host, which no lane makes.
#include "exec/migrate.h"

#include <gtest/gtest.h>

#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "backend/sim/sim_backend.h"
#include "backend/testing/forwarding.h"
#include "base/bytes.h"

namespace sluice::core {
namespace {

// A host's arena behind simulated lanes. It notes what is copied into it.
class HostArena final : public ForwardingBackend {
 public:
  explicit HostArena(const LaneTable& lanes, int64_t bytes)
      : ForwardingBackend(std::make_unique<SimBackend>(SimOptions(), lanes)), bytes_(size_t(bytes)) {
    for (size_t i = 0; i < bytes_.size(); ++i) bytes_[i] = std::byte(i % 251);
  }

  Arenas arenas() {
    Arenas out;
    out[kHost] = bytes_.data();
    return out;
  }
  Status upload(Location to, const std::byte* from, int64_t bytes) override {
    const std::lock_guard lock(mutex_);
    std::memcpy(bytes_.data() + to.offset, from, size_t(bytes));
    copied_.emplace_back(to.offset, bytes);
    return {};
  }
  const std::vector<std::byte>& bytes() const { return bytes_; }
  const std::vector<std::pair<int64_t, int64_t>>& copied() const { return copied_; }  // where, and how much

 private:
  std::mutex mutex_;
  std::vector<std::byte> bytes_;
  std::vector<std::pair<int64_t, int64_t>> copied_;
};

// One that others wait for has several threads all the same.
TEST(MigrationRuns, ShareACopyWithinTheHost) {
  const int64_t all = 5 * kMiB + 192;
  Migration m;
  m.lanes = migration_lanes(LaneTable());
  const auto add = [&](int64_t from, int64_t to) {
    m.copies.push_back(
        {.bytes = all, .from = {kHost, from}, .to = {kHost, to}, .lane = m.lanes.copy(kHost, kHost)});
  };
  add(0, all);
  add(all, 2 * all);
  HostArena backend(m.lanes, 3 * all);
  const std::vector<std::byte> before = backend.bytes();
  const auto times = run_migration(m, backend, backend.arenas(), 4);
  ASSERT_TRUE(times.ok()) << times.message();
  EXPECT_EQ(times->bytes[m.lanes.copy(kHost, kHost)], 2 * all);
  EXPECT_EQ(times->bytes_per_s(m.lanes.copy(kHost, kHost)), 0) << "so little does not tell";
  for (int64_t i = 0; i < 3 * all; ++i) ASSERT_EQ(backend.bytes()[size_t(i)], before[size_t(i % all)]) << i;
  std::vector<int64_t> parts(2);
  for (const auto& [to, bytes] : backend.copied()) {
    EXPECT_LE(bytes, 2 * kMiB);
    ++parts[size_t(to / all - 1)];
  }
  EXPECT_EQ(parts, (std::vector<int64_t>{3, 3}));
}

TEST(MigrationRuns, TellHowFastManyBytesAre) {
  const LaneTable lanes = migration_lanes(LaneTable());
  const Lane host = lanes.copy(kHost, kHost);
  MigrationTimes times(lanes);
  EXPECT_EQ(times.bytes_per_s(host), 0);
  times.bytes[host] = 1 << 10;
  times.ns[host] = 1e5;
  EXPECT_EQ(times.bytes_per_s(host), 0);
  times.bytes[host] = 4 * kGiB;
  times.ns[host] = 2e9;
  EXPECT_EQ(times.bytes_per_s(host), 2.0 * kGiB);
}

}  // namespace
}  // namespace sluice::core
