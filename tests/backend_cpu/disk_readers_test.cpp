// SPDX-License-Identifier: Apache-2.0
// The threads that read from a source: every byte comes from its place, whoever asks; the first error ends
// the rest, and the next read begins anew.
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <set>
#include <thread>

#include "backend/disk_source.h"

namespace sluice::core {
namespace {

// A byte says where it lies.
std::byte at(int64_t place) {
  return std::byte(uint64_t(place) * 2654435761u >> 13);
}

class Counting final : public DiskSource {
 public:
  Status read(int64_t offset, std::span<std::byte> to) const override {
    {
      const std::lock_guard lock(mutex_);
      threads_.insert(std::this_thread::get_id());
    }
    ++pieces_;
    if (offset <= fails_at_ && fails_at_ < offset + int64_t(to.size())) return error("byte {}", fails_at_);
    for (size_t i = 0; i < to.size(); ++i) to[i] = at(offset + int64_t(i));
    return {};
  }

  int64_t fails_at_ = -1;
  mutable std::atomic<int> pieces_ = 0;
  mutable std::mutex mutex_;
  mutable std::set<std::thread::id> threads_;
};

bool has_bytes_of(std::span<const std::byte> bytes, int64_t offset) {
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] != at(offset + int64_t(i))) return false;
  }
  return true;
}

TEST(DiskReaders, AnyNumberOfCallersGetTheirBytesFromOneSetOfThreads) {
  const auto disk = std::make_shared<Counting>();
  DiskReaders readers(disk);
  constexpr int kCallers = 3, kReads = 4;
  std::atomic<int> good = 0;
  std::vector<std::thread> callers;
  for (int c = 0; c < kCallers; ++c) {
    callers.emplace_back([&, c] {
      std::vector<std::byte> bytes(size_t(3 * kDiskPieceBytes + 17 + c));
      for (int r = 0; r < kReads; ++r) {
        const int64_t offset = 1000 * c + r;
        const bool read = readers.read(offset, bytes).ok();
        good += read && has_bytes_of(bytes, offset);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(good, kCallers * kReads);
  EXPECT_EQ(disk->pieces_, kCallers * kReads * 4);
  EXPECT_LE(disk->threads_.size(), size_t(kCallers + kDiskReaders - 1));
}

TEST(DiskReaders, OnePieceIsReadByItsCaller) {
  const auto disk = std::make_shared<Counting>();
  DiskReaders readers(disk);
  std::vector<std::byte> bytes(kDiskPieceBytes);
  EXPECT_TRUE(readers.read(5, bytes).ok());
  EXPECT_TRUE(has_bytes_of(bytes, 5));
  EXPECT_EQ(disk->threads_, std::set{std::this_thread::get_id()});
  EXPECT_TRUE(readers.read(0, {}).ok());
}

TEST(DiskReaders, AnErrorEndsARead) {
  const auto disk = std::make_shared<Counting>();
  disk->fails_at_ = 3;
  DiskReaders readers(disk);
  std::vector<std::byte> bytes(size_t(64 * kDiskPieceBytes));
  const Status failed = readers.read(0, bytes);
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().message, "byte 3");
  EXPECT_LT(disk->pieces_, 64);
  EXPECT_TRUE(readers.read(4, std::span(bytes).first(2 * kDiskPieceBytes)).ok());
  EXPECT_TRUE(has_bytes_of(std::span(bytes).first(2 * kDiskPieceBytes), 4));
}

}  // namespace
}  // namespace sluice::core
