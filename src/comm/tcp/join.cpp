// SPDX-License-Identifier: Apache-2.0
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#include "base/stopwatch.h"
#include "comm/forwarding_group.h"
#include "comm/tcp/connections.h"

namespace sluice::core {
namespace {

// A message on its way: its length, then itself.
class Sending {
 public:
  explicit Sending(std::span<const std::byte> bytes) : length_(bytes.size()), bytes_(bytes) {}
  bool done() const { return at_ == sizeof length_ + bytes_.size(); }
  // As much as the connection takes. False: it has ended.
  bool go_on(int fd) {
    while (!done()) {
      const bool head = at_ < sizeof length_;
      const auto from =
          head ? std::as_bytes(std::span(&length_, 1)).subspan(at_) : bytes_.subspan(at_ - sizeof length_);
      const ssize_t n = ::send(fd, from.data(), from.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n < 0 && errno == EAGAIN) return true;
      if (n < 0 && errno != EINTR) return false;
      at_ += size_t(std::max<ssize_t>(n, 0));
    }
    return true;
  }

 private:
  uint64_t length_;
  std::span<const std::byte> bytes_;
  size_t at_ = 0;
};

class Receiving {
 public:
  explicit Receiving(std::span<std::byte> bytes) : bytes_(bytes) {}
  bool done() const { return at_ == sizeof length_ + bytes_.size(); }
  // What has come. False: the connection has ended, or brings another length.
  bool go_on(int fd) {
    while (!done()) {
      const bool head = at_ < sizeof length_;
      const auto to = head ? std::as_writable_bytes(std::span(&length_, 1)).subspan(at_)
                           : bytes_.subspan(at_ - sizeof length_);
      const ssize_t n = ::recv(fd, to.data(), to.size(), MSG_DONTWAIT);
      if (n < 0 && errno == EAGAIN) return true;
      if (n == 0 || (n < 0 && errno != EINTR)) return false;
      at_ += size_t(std::max<ssize_t>(n, 0));
      if (at_ == sizeof length_ && length_ != bytes_.size()) return false;
    }
    return true;
  }
  size_t left() const { return sizeof length_ + bytes_.size() - at_; }
  std::string why(int from) const {
    if (at_ == sizeof length_ && length_ != bytes_.size())
      return fmt::format("process {} sent {} bytes, awaited are {}", from, length_, bytes_.size());
    return fmt::format("the connection to process {} has ended", from);
  }

 private:
  uint64_t length_ = 0;
  std::span<std::byte> bytes_;
  size_t at_ = 0;
};

class TcpGroup final : public ProcessGroup {
 public:
  TcpGroup(std::shared_ptr<const Connections> connections, int size, int limit)
      : connections_(std::move(connections)), size_(size), limit_(limit) {}

  int rank() const override { return connections_->rank; }
  int size() const override { return size_; }
  int here() const override {
    return int(std::count(connections_->hosts.begin(), connections_->hosts.begin() + size_, host()));
  }
  int host() const override { return connections_->hosts[size_t(rank())]; }
  void watched() override { limit_ = -1; }
  // The others learn it from heartbeats, or when they next call.
  void abandon() override { std::_Exit(1); }

  Status exchange(std::span<const std::byte> out, int to, std::span<std::byte> in, int from) override {
    Sending sending(out);
    Receiving receiving(in);
    const bool sends = !out.empty(), receives = !in.empty();
    bool wakes_late = receives && in.size() >= 2 * size_t(kWakeBytes);
    if (wakes_late) SLUICE_TRY(wake_after(kWakeBytes, from));
    while ((sends && !sending.done()) || (receives && !receiving.done())) {
      const bool send_on = sends && !sending.done(), receive_on = receives && !receiving.done();
      pollfd polled[2] = {{send_on ? fd_of(to) : -1, POLLOUT, 0}, {receive_on ? fd_of(from) : -1, POLLIN, 0}};
      const int heard = ::poll(polled, 2, limit_);
      if (heard == 0) {
        return error(ErrorKind::Device, "process {} of {} has said nothing for {} s", receive_on ? from : to,
                     size_, limit_ / 1000);
      }
      if (heard < 0 && errno != EINTR) return error(ErrorKind::Device, "poll: {}", std::strerror(errno));
      if (polled[0].revents != 0 && !sending.go_on(fd_of(to)))
        return error(ErrorKind::Device, "the connection to process {} has ended", to);
      if (polled[1].revents != 0 && !receiving.go_on(fd_of(from)))
        return error(ErrorKind::Device, "{}", receiving.why(from));
      if (!wakes_late || receiving.left() >= size_t(kWakeBytes)) continue;
      wakes_late = false;
      SLUICE_TRY(wake_after(1, from));
    }
    return {};
  }
  Status barrier() override {
    const std::byte token{};
    std::vector<std::byte> all(static_cast<size_t>(size_));
    return all_gather({&token, 1}, all);
  }
  Status broadcast(std::span<std::byte> bytes, int root) override {
    if (size_ == 2 || bytes.size() < size_t(kWakeBytes)) {
      if (rank() != root) return exchange({}, root, bytes, root);
      for (int r = 0; r < size_; ++r) {
        if (r != root) SLUICE_TRY(exchange(bytes, r, {}, r));
      }
      return {};
    }
    // Each gets a part from the root and passes it on to the others, so that the root sends no more than
    // twice the bytes, however many there are.
    const auto part = [&](int r) {
      const size_t begin = bytes.size() * size_t(r) / size_t(size_),
                   end = bytes.size() * size_t(r + 1) / size_t(size_);
      return bytes.subspan(begin, end - begin);
    };
    for (int r = 0; r < size_; ++r) {
      if (r == root) continue;
      if (rank() == root) SLUICE_TRY(exchange(part(r), r, {}, r));
      if (rank() == r) SLUICE_TRY(exchange({}, root, part(r), root));
    }
    for (int away = 1; away < size_; ++away) {
      const int to = (rank() + away) % size_, from = (rank() - away + size_) % size_;
      // The root has everything.
      SLUICE_TRY(exchange(to == root ? std::span<std::byte>() : part(rank()), to,
                          rank() == root ? std::span<std::byte>() : part(from), from));
    }
    return {};
  }
  Status all_gather(std::span<const std::byte> own, std::span<std::byte> all) override {
    const auto part = [&](int r) { return all.subspan(own.size() * size_t(r), own.size()); };
    std::ranges::copy(own, part(rank()).begin());
    for (int away = 1; away < size_; ++away) {
      const int to = (rank() + away) % size_, from = (rank() - away + size_) % size_;
      SLUICE_TRY(exchange(own, to, part(from), from));
    }
    return {};
  }
  Status sum_in_any_order(std::span<float> values) override {
    constexpr size_t kAtOnce = 1 << 18;
    for (size_t at = 0; at < values.size(); at += kAtOnce) {
      const auto piece = values.subspan(at, std::min(kAtOnce, values.size() - at));
      std::vector<float> all(piece.size() * size_t(size_));
      SLUICE_TRY(all_gather(std::as_bytes(piece), std::as_writable_bytes(std::span(all))));
      std::ranges::fill(piece, 0.0f);
      for (size_t i = 0; i < all.size(); ++i) piece[i % piece.size()] += all[i];
    }
    return {};
  }
  Result<std::unique_ptr<ProcessGroup>> first(int ranks) override {
    std::unique_ptr<ProcessGroup> out;
    if (rank() < ranks) out = std::make_unique<TcpGroup>(connections_, ranks, limit_);
    return out;
  }

 private:
  // Of a long message this thread is not woken for less: it may share its core with what computes, and each
  // time takes some of that.
  static constexpr int kWakeBytes = 256 << 10;
  Status wake_after(int bytes, int from) const {
    if (::setsockopt(fd_of(from), SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof bytes) == 0) return {};
    return error(ErrorKind::Device, "SO_RCVLOWAT: {}", std::strerror(errno));
  }
  int fd_of(int rank) const { return connections_->to[size_t(rank)].fd(); }

  std::shared_ptr<const Connections> connections_;
  int size_;
  int limit_;  // milliseconds that a call waits for more of another rank; -1: as long as it takes
};

// What it takes to send 4 MiB to the next rank while as much comes from the one before: the fastest of some
// tries, each by the slowest rank; the same on all.
Result<double> seconds_of_exchange(ProcessGroup& group) {
  constexpr int kTries = 3;
  constexpr size_t kBytes = 4 << 20;
  const std::vector<std::byte> out(kBytes);
  std::vector<std::byte> in(kBytes);
  const int ranks = group.size(), to = (group.rank() + 1) % ranks, from = (group.rank() - 1 + ranks) % ranks;
  double best = 1e9;
  for (int i = 0; i < kTries; ++i) {
    SLUICE_TRY(group.barrier());
    const Stopwatch watch;
    SLUICE_TRY(group.exchange(out, to, in, from));
    SLUICE_ASSIGN(const std::vector<double> all, gathered(group, watch.seconds()));
    best = std::min(best, std::ranges::max(all));
  }
  return best;
}

// Launched by a library, which ends it and whose own sums are measured; all else goes over TCP.
class LaunchedGroup final : public ForwardingGroup {
 public:
  LaunchedGroup(std::unique_ptr<ProcessGroup> launched, std::unique_ptr<ProcessGroup> tcp)
      : ForwardingGroup(std::move(launched)), tcp_(std::move(tcp)) {}

  Status exchange(std::span<const std::byte> out, int to, std::span<std::byte> in, int from) override {
    return tcp_->exchange(out, to, in, from);
  }
  Status barrier() override { return tcp_->barrier(); }
  Status broadcast(std::span<std::byte> bytes, int root) override { return tcp_->broadcast(bytes, root); }
  Status all_gather(std::span<const std::byte> own, std::span<std::byte> all) override {
    return tcp_->all_gather(own, all);
  }
  void watched() override {
    ForwardingGroup::watched();
    tcp_->watched();
  }
  Result<std::unique_ptr<ProcessGroup>> first(int ranks) override {
    SLUICE_ASSIGN(auto launched, group_->first(ranks));
    SLUICE_ASSIGN(auto tcp, tcp_->first(ranks));
    std::unique_ptr<ProcessGroup> out;
    if (launched) out = std::make_unique<LaunchedGroup>(std::move(launched), std::move(tcp));
    return out;
  }

 private:
  std::unique_ptr<ProcessGroup> tcp_;
};

}  // namespace

Result<std::string> exchange_by_tcp(std::unique_ptr<ProcessGroup>& group) {
  auto connections = connect(*group);
  if (!connections.ok()) return connections.message();
  auto tcp = group_over(std::move(*connections));
  SLUICE_ASSIGN(const double of_library, seconds_of_exchange(*group));
  SLUICE_ASSIGN(const double of_tcp, seconds_of_exchange(*tcp));
  // TCP takes less of the cores that compute, so that as much counts for it.
  constexpr double kMuchFaster = 1.5;
  if (of_tcp > kMuchFaster * of_library)
    return fmt::format("4 MiB take {:.1f} ms, by TCP {:.1f} ms", 1e3 * of_library, 1e3 * of_tcp);
  group = std::make_unique<LaunchedGroup>(std::move(group), std::move(tcp));
  return std::string();
}

Result<std::unique_ptr<ProcessGroup>> join_by_tcp(const ProcessLaunch& launch,
                                                  const std::function<void(const std::string&)>& waiting) {
  MeetingOptions options;
  options.waiting = waiting;
  SLUICE_ASSIGN(Connections connections, meet(launch, options));
  return group_over(std::move(connections));
}

std::unique_ptr<ProcessGroup> group_over(Connections connections, std::chrono::milliseconds limit) {
  const int size = int(connections.to.size());
  return std::make_unique<TcpGroup>(std::make_shared<const Connections>(std::move(connections)), size,
                                    int(limit.count()));
}

}  // namespace sluice::core
