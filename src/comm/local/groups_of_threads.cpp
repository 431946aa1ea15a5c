// SPDX-License-Identifier: Apache-2.0
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <utility>

#include "base/check.h"
#include "comm/group.h"

namespace sluice::core {
namespace {

// What is under way between the threads of one group.
class Post {
 public:
  void put(int from, int to, std::span<const std::byte> bytes) {
    const std::lock_guard lock(mutex_);
    boxes_[{from, to}].emplace_back(bytes.begin(), bytes.end());
    arrived_.notify_all();
  }
  void take(int from, int to, std::span<std::byte> bytes) {
    std::unique_lock lock(mutex_);
    auto& box = boxes_[{from, to}];
    arrived_.wait(lock, [&] { return !box.empty(); });
    SLUICE_CHECK(box.front().size() == bytes.size(), "sent {} bytes, awaited {}", box.front().size(),
                 bytes.size());
    std::memcpy(bytes.data(), box.front().data(), bytes.size());
    box.pop_front();
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::map<std::pair<int, int>, std::deque<std::vector<std::byte>>> boxes_;  // from, to
};

class ThreadGroup final : public ProcessGroup {
 public:
  ThreadGroup(int rank, int size, std::shared_ptr<Post> post)
      : rank_(rank), size_(size), post_(std::move(post)) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int here() const override { return size_; }
  int host() const override { return 0; }
  void abandon() override { std::abort(); }
  Status exchange(std::span<const std::byte> out, int to, std::span<std::byte> in, int from) override {
    if (!out.empty()) post_->put(rank_, to, out);
    if (!in.empty()) post_->take(from, rank_, in);
    return {};
  }
  Status barrier() override {
    std::byte token{};
    std::vector<std::byte> all(static_cast<size_t>(size_));
    return all_gather({&token, 1}, all);
  }
  Status broadcast(std::span<std::byte> bytes, int root) override {
    if (rank_ != root) {
      post_->take(root, rank_, bytes);
      return {};
    }
    for (int r = 0; r < size_; ++r) {
      if (r != root) post_->put(root, r, bytes);
    }
    return {};
  }
  Status all_gather(std::span<const std::byte> own, std::span<std::byte> all) override {
    for (int r = 0; r < size_; ++r) {
      if (r != rank_) post_->put(rank_, r, own);
    }
    for (int r = 0; r < size_; ++r) {
      const auto to = all.subspan(own.size() * size_t(r), own.size());
      if (r == rank_) {
        std::memcpy(to.data(), own.data(), own.size());
      } else {
        post_->take(r, rank_, to);
      }
    }
    return {};
  }
  Status sum_in_any_order(std::span<float> values) override {
    std::vector<float> all(values.size() * size_t(size_));
    SLUICE_TRY(all_gather(std::as_bytes(values), std::as_writable_bytes(std::span(all))));
    std::memset(values.data(), 0, values.size_bytes());
    for (size_t i = 0; i < all.size(); ++i) values[i % values.size()] += all[i];
    return {};
  }
  Result<std::unique_ptr<ProcessGroup>> first(int ranks) override {
    std::unique_ptr<ProcessGroup> out;
    if (rank_ < ranks) out = std::make_unique<ThreadGroup>(rank_, ranks, post_);
    return out;
  }

 private:
  int rank_, size_;
  std::shared_ptr<Post> post_;
};

}  // namespace

std::vector<std::unique_ptr<ProcessGroup>> groups_of_threads(int ranks) {
  const auto post = std::make_shared<Post>();
  std::vector<std::unique_ptr<ProcessGroup>> out;
  for (int r = 0; r < ranks; ++r) out.push_back(std::make_unique<ThreadGroup>(r, ranks, post));
  return out;
}

}  // namespace sluice::core
