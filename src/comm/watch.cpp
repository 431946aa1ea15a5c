// SPDX-License-Identifier: Apache-2.0
#include "comm/watch.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "host/unguessable.h"

namespace sluice::core {

using std::chrono::nanoseconds;
using std::chrono::seconds;

void Activity::stage(std::string_view text) {
  const std::lock_guard lock(mutex_);
  stage_ = text;
  task_.clear();
}
void Activity::task(std::string_view name) {
  const std::lock_guard lock(mutex_);
  task_ = name;
}
void Activity::enter() {
  const std::lock_guard lock(mutex_);
  ++calls_;
  waiting_ = true;
}
void Activity::leave() {
  const std::lock_guard lock(mutex_);
  waiting_ = false;
}
Activity::Now Activity::now() const {
  const std::lock_guard lock(mutex_);
  return {calls_, waiting_, task_.empty() ? stage_ : fmt::format("{}, {}", stage_, task_)};
}

namespace {

// Waits until `fd` can be read or written; false: not within `limit`.
bool ready(int fd, short events, std::chrono::milliseconds limit) {
  pollfd p{fd, events, 0};
  return ::poll(&p, 1, int(limit.count())) == 1;
}

struct Address {
  sockaddr_storage at{};
  socklen_t bytes = 0;
};

std::optional<Address> address_of(const std::string& text, uint16_t port) {
  Address out;
  auto* const v4 = reinterpret_cast<sockaddr_in*>(&out.at);
  auto* const v6 = reinterpret_cast<sockaddr_in6*>(&out.at);
  if (::inet_pton(AF_INET, text.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET, v4->sin_port = htons(port), out.bytes = sizeof *v4;
  } else if (::inet_pton(AF_INET6, text.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6, v6->sin6_port = htons(port), out.bytes = sizeof *v6;
  } else {
    return {};
  }
  return out;
}

// The addresses of this host that others may reach, then those that only it does. Addresses that are valid on
// one link alone are left out: they need the name of the link.
std::vector<std::string> addresses() {
  std::vector<std::string> far, near;
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return {"127.0.0.1"};
  for (const ifaddrs* a = all; a != nullptr; a = a->ifa_next) {
    if (a->ifa_addr == nullptr || (a->ifa_flags & IFF_UP) == 0) continue;
    char text[INET6_ADDRSTRLEN] = "";
    if (a->ifa_addr->sa_family == AF_INET) {
      ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(a->ifa_addr)->sin_addr, text, sizeof text);
    } else if (a->ifa_addr->sa_family == AF_INET6) {
      const in6_addr& v6 = reinterpret_cast<const sockaddr_in6*>(a->ifa_addr)->sin6_addr;
      if (!IN6_IS_ADDR_LINKLOCAL(&v6)) ::inet_ntop(AF_INET6, &v6, text, sizeof text);
    }
    if (*text != '\0') ((a->ifa_flags & IFF_LOOPBACK) != 0 ? near : far).emplace_back(text);
  }
  ::freeifaddrs(all);
  far.insert(far.end(), near.begin(), near.end());
  return far;
}

// One that takes IPv4 and IPv6 on a free port, or IPv4 where there is no IPv6.
Result<std::pair<int, uint16_t>> listen_anywhere() {
  for (const char* any : {"::", "0.0.0.0"}) {
    const Address a = *address_of(any, 0);
    const int fd = ::socket(a.at.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) continue;
    const int off = 0;
    if (a.at.ss_family == AF_INET6) ::setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    sockaddr_storage bound{};
    socklen_t bytes = sizeof bound;
    if (::bind(fd, reinterpret_cast<const sockaddr*>(&a.at), a.bytes) == 0 && ::listen(fd, SOMAXCONN) == 0 &&
        ::getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &bytes) == 0) {
      // The port lies at the same place in both.
      return std::pair(fd, ntohs(reinterpret_cast<const sockaddr_in*>(&bound)->sin_port));
    }
    ::close(fd);
  }
  return error(ErrorKind::Device, "no TCP port can be opened: {}", std::strerror(errno));
}

// A connection within `limit`, or -1.
int connect_to(const Address& a, std::chrono::milliseconds limit) {
  const int fd = ::socket(a.at.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  int failure = 0;
  socklen_t bytes = sizeof failure;
  if ((::connect(fd, reinterpret_cast<const sockaddr*>(&a.at), a.bytes) == 0 || errno == EINPROGRESS) &&
      ready(fd, POLLOUT, limit) && ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &failure, &bytes) == 0 &&
      failure == 0)
    return fd;
  ::close(fd);
  return -1;
}

}  // namespace

// What a rank sends: all that the others know of it.
struct Watch::Beat {
  enum class Kind : uint32_t { Hello, Alive, Farewell, Lost };
  Kind kind = Kind::Alive;
  int32_t rank = 0;
  uint64_t token = 0;  // of the job: who connects from elsewhere is not heard
  uint64_t calls = 0;
  uint32_t waiting = 0;
  char doing[100] = "";
};

// A connection that carries beats.
class Watch::Line {
 public:
  explicit Line(int fd = -1) : fd_(fd) {
    if (fd < 0) return;
    ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
    const int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  Line(Line&& other) noexcept { *this = std::move(other); }
  Line& operator=(Line&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(got_, other.got_);
    std::swap(part_, other.part_);
    return *this;
  }
  ~Line() {
    if (fd_ >= 0) ::close(fd_);
  }

  int fd() const { return fd_; }
  // A beat that finds no room is left out: the next one says more. Half of one would be read as another.
  void send(const Beat& beat) {
    const ssize_t sent = ::send(fd_, &beat, sizeof beat, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0 && sent < ssize_t(sizeof beat)) ::shutdown(fd_, SHUT_RDWR);
  }
  // The beats that have come go to `take`. False: the connection has ended.
  template <class Take>
  bool receive(const Take& take) {
    for (;;) {
      auto* const to = reinterpret_cast<char*>(&part_) + got_;
      const ssize_t n = ::recv(fd_, to, sizeof part_ - got_, MSG_DONTWAIT);
      if (n == 0) return false;
      if (n < 0) return errno == EAGAIN || errno == EINTR;
      got_ += size_t(n);
      if (got_ < sizeof part_) continue;
      got_ = 0;
      part_.doing[sizeof part_.doing - 1] = '\0';
      take(part_);
    }
  }

 private:
  int fd_ = -1;
  size_t got_ = 0;
  Beat part_;
};

// Another rank, as this one hears it.
struct Watch::Rank {
  int rank = 0;
  std::string name;  // of its machine
  Line line;
  Beat last;
  nanoseconds silent{0};
  bool left = false;   // with a farewell
  bool ended = false;  // without
};

Watch::Watch(ProcessGroup& group, const Activity& activity, const WatchOptions& options, Callbacks callbacks)
    : rank_(group.rank()),
      size_(group.size()),
      activity_(activity),
      options_(options),
      callbacks_(std::move(callbacks)) {}

Result<std::unique_ptr<Watch>> Watch::start(ProcessGroup& group, const Activity& activity,
                                            const WatchOptions& options, Callbacks callbacks) {
  std::unique_ptr<Watch> out(new Watch(group, activity, options, std::move(callbacks)));
  const bool piped = ::pipe2(out->wake_, O_CLOEXEC) == 0;
  Status own = piped ? Status() : Status(error(ErrorKind::Device, "no pipe: {}", std::strerror(errno)));
  if (const Status connected = out->connect(group); own.ok()) own = connected;
  SLUICE_ASSIGN(const bool failed, any(group, !own.ok()));
  if (!own.ok()) return own.error();
  if (failed) return Error{"another process has none", ErrorKind::Device, {{std::string(kElsewhere), "yes"}}};
  out->thread_ = std::thread([watch = out.get()] { watch->run(); });
  return out;
}

Status Watch::connect(ProcessGroup& group) {
  // Names of machines, and where rank 0 listens, in lines of one length.
  struct Card {
    char name[96] = "";
    char addresses[1024] = "";  // of rank 0, one after the other with spaces between
    uint16_t port = 0;
    uint64_t token = 0;
  } own;
  options_.name.copy(own.name, sizeof own.name - 1);
  Status listening;
  int listener = -1;
  if (rank_ == 0) {
    auto opened = listen_anywhere();
    if (opened.ok()) {
      std::tie(listener, own.port) = *opened;
      own.token = unguessable();
      std::string all;
      for (const std::string& a : addresses())
        if (all.size() + a.size() + 1 < sizeof own.addresses) all += a + " ";
      all.copy(own.addresses, sizeof own.addresses - 1);
    } else {
      listening = opened.error();
    }
  }
  const auto closed = [&](Status s) {
    if (listener >= 0) ::close(listener);
    return s;
  };
  const auto cards = gathered(group, own);
  if (!cards.ok()) return closed(cards.error());
  const Card& first = cards->front();
  if (first.port == 0) {
    return closed(rank_ == 0 ? listening : Status(error(ErrorKind::Device, "process 0 has no port")));
  }
  // Of a host's addresses some may lead nowhere, and each is tried for so long.
  constexpr std::chrono::milliseconds kLimit{2'000}, kForAll{30'000};
  if (rank_ == 0) {
    auto lines = std::vector<Line>(static_cast<size_t>(size_));
    int missing = size_ - 1;
    // Strangers may connect, too: nothing waits for what they send.
    std::vector<Line> callers;
    const auto begin = std::chrono::steady_clock::now();
    while (missing > 0 && std::chrono::steady_clock::now() - begin < kForAll) {
      if (ready(listener, POLLIN, std::chrono::milliseconds(20))) {
        const int fd = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
        if (fd >= 0) callers.emplace_back(fd);
      }
      for (Line& caller : callers) {
        int from = -1;
        if (caller.fd() < 0) continue;
        (void)caller.receive([&](const Beat& b) {
          if (b.kind == Beat::Kind::Hello && b.token == own.token && b.rank > 0 && b.rank < size_)
            from = b.rank;
        });
        if (from < 0) continue;
        // Who was answered too late calls again.
        missing -= lines[size_t(from)].fd() < 0 ? 1 : 0;
        lines[size_t(from)] = std::move(caller);
        caller = Line();
        lines[size_t(from)].send({Beat::Kind::Hello, 0, own.token, 0, 0, ""});
      }
    }
    for (int r = 1; r < size_; ++r) {
      if (lines[size_t(r)].fd() < 0)
        return closed(
            error(ErrorKind::Device, "process {} ({}) did not connect", r, (*cards)[size_t(r)].name));
      ranks_.push_back(
          {r, (*cards)[size_t(r)].name, std::move(lines[size_t(r)]), {}, nanoseconds(0), false, false});
    }
    return closed({});
  }
  const std::string_view all = first.addresses;
  for (size_t at = 0; at < all.size();) {
    const std::string text(all.substr(at, all.find(' ', at) - at));
    at += text.size() + 1;
    const auto address = address_of(text, first.port);
    if (!address) continue;
    Line line(connect_to(*address, kLimit));
    if (line.fd() < 0) continue;
    line.send({Beat::Kind::Hello, rank_, first.token, 0, 0, ""});
    bool known = false;
    while (!known && ready(line.fd(), POLLIN, kLimit)) {
      if (!line.receive([&](const Beat& b) { known = b.token == first.token; })) break;
    }
    if (!known) continue;
    ranks_.push_back({0, first.name, std::move(line), {}, nanoseconds(0), false, false});
    return {};
  }
  return error(ErrorKind::Device, "process 0 ({}) cannot be reached by TCP at {}port {}", first.name,
               first.addresses, first.port);
}

Watch::~Watch() {
  if (wake_[1] >= 0) ::close(wake_[1]);
  if (thread_.joinable()) thread_.join();
  if (wake_[0] >= 0) ::close(wake_[0]);
}

std::string Watch::name_of(int rank, std::string_view machine) const {
  return fmt::format("process {} of {} ({})", rank, size_, machine);
}

void Watch::run() {
  auto before = std::chrono::steady_clock::now();
  std::vector<pollfd> polled;
  bool absent = false;
  for (bool ends = false; !ends;) {
    polled.assign(1, {wake_[0], POLLIN, 0});
    for (const Rank& r : ranks_) {
      if (!r.left) polled.push_back({r.line.fd(), POLLIN, 0});
    }
    const auto since =
        std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - before);
    ::poll(polled.data(), polled.size(), int(std::max<int64_t>(0, (options_.beat - since).count())));
    ends = polled[0].revents != 0;
    bool others_lost = false, heard = false;
    for (Rank& r : ranks_) {
      if (r.left) continue;
      const bool open = r.line.receive([&](const Beat& b) {
        heard = true;
        r.last = b;
        r.silent = nanoseconds(0);
        r.left = r.left || b.kind == Beat::Kind::Farewell;
        others_lost = others_lost || b.kind == Beat::Kind::Lost;
      });
      r.ended = !open && !r.left;
    }
    if (others_lost) return callbacks_.lost("");
    const auto now = std::chrono::steady_clock::now();
    const nanoseconds passed = now - before;
    const bool due = passed >= options_.beat;
    if (due || ends) {
      const Activity::Now own = activity_.now();
      Beat beat{ends ? Beat::Kind::Farewell : Beat::Kind::Alive, rank_, 0, own.calls, own.waiting, ""};
      own.doing.copy(beat.doing, sizeof beat.doing - 1);
      for (Rank& r : ranks_) {
        if (!r.left) r.line.send(beat);
      }
    }
    if (ends) return;
    if (due) before = now;
    // Who was stopped does not take its own absence for another's, until it hears them again.
    absent = passed >= options_.lost_after / 2 || (absent && !heard);
    if (!check(due ? std::min<nanoseconds>(passed, 2 * options_.beat) : nanoseconds(0), absent)) return;
  }
}

bool Watch::check(nanoseconds passed, bool absent) {
  for (Rank& r : ranks_) {
    if (r.left) continue;
    r.silent += passed;
    if (!r.ended && r.silent < options_.lost_after) continue;
    // Those whom rank 0 tells end with it, without a word.
    for (Rank& other : ranks_) {
      if (rank_ == 0 && &other != &r && !other.left) other.line.send({Beat::Kind::Lost, 0, 0, 0, 0, ""});
    }
    callbacks_.lost(absent ? std::string()
                           : fmt::format("{} {}; it was at: {}", name_of(r.rank, r.name),
                                         r.ended ? std::string("has ended without a word")
                                                 : fmt::format("gave no heartbeat for {} s",
                                                               options_.lost_after / seconds(1)),
                                         r.last.doing[0] == '\0' ? "its start" : r.last.doing));
    return false;
  }
  return check_who_is_late(passed);
}

bool Watch::check_who_is_late(nanoseconds passed) {
  const Activity::Now own = activity_.now();
  uint64_t awaited = own.waiting ? own.calls : 0;
  for (const Rank& r : ranks_) {
    if (!r.left && r.last.waiting != 0) awaited = std::max(awaited, r.last.calls);
  }
  if (awaited != awaited_) waited_ = nanoseconds(0);
  awaited_ = awaited;
  waited_ += passed;
  const auto period = options_.lost_after;
  // Once in every period.
  if (awaited == 0 || waited_ < period || waited_ % period >= passed) return true;
  // Who left between calls, as after an error of its own, comes no more.
  for (const Rank& r : ranks_) {
    if (!r.left || r.last.calls >= awaited) continue;
    callbacks_.lost(
        fmt::format("{} has left, and is waited for; it was at: {}", name_of(r.rank, r.name), r.last.doing));
    return false;
  }
  if (rank_ != 0) return true;
  const auto late = [&](const std::string& name, uint64_t calls, std::string_view doing) {
    if (calls >= awaited) return;
    callbacks_.late(fmt::format("{} is late: the others have waited {} s for it; it is at: {}", name,
                                waited_ / seconds(1), doing));
  };
  late(name_of(0, options_.name), own.calls, own.doing);
  for (const Rank& r : ranks_) {
    if (!r.left) late(name_of(r.rank, r.name), r.last.calls, r.last.doing);
  }
  return true;
}

namespace {

class CountedGroup final : public ProcessGroup {
 public:
  CountedGroup(Activity& activity, std::unique_ptr<ProcessGroup> group)
      : activity_(activity), group_(std::move(group)) {}

  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }
  int here() const override { return group_->here(); }
  int host() const override { return group_->host(); }
  Status exchange(std::span<const std::byte> out, int to, std::span<std::byte> in, int from) override {
    const Inside inside(activity_);
    return group_->exchange(out, to, in, from);
  }
  Status barrier() override {
    const Inside inside(activity_);
    return group_->barrier();
  }
  Status broadcast(std::span<std::byte> bytes, int root) override {
    const Inside inside(activity_);
    return group_->broadcast(bytes, root);
  }
  Status all_gather(std::span<const std::byte> own, std::span<std::byte> all) override {
    const Inside inside(activity_);
    return group_->all_gather(own, all);
  }
  Status sum_in_any_order(std::span<float> values) override {
    const Inside inside(activity_);
    return group_->sum_in_any_order(values);
  }
  void abandon() override { group_->abandon(); }
  Result<std::unique_ptr<ProcessGroup>> first(int ranks) override { return group_->first(ranks); }

 private:
  struct Inside {
    explicit Inside(Activity& a) : activity(a) { a.enter(); }
    ~Inside() { activity.leave(); }
    Activity& activity;
  };
  Activity& activity_;
  std::unique_ptr<ProcessGroup> group_;
};

}  // namespace

std::unique_ptr<ProcessGroup> counted_by(Activity& activity, std::unique_ptr<ProcessGroup> group) {
  return std::make_unique<CountedGroup>(activity, std::move(group));
}

}  // namespace sluice::core
