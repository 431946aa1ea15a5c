// SPDX-License-Identifier: Apache-2.0
#include "comm/watch.h"

#include <fcntl.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "comm/forwarding_group.h"
#include "comm/sockets.h"
#include "host/unguessable.h"

namespace sluice::core {

using std::chrono::nanoseconds;
using std::chrono::seconds;

constexpr const char* kLoopback = "127.0.0.1";
constexpr size_t kMostCall = 43;  // characters that a beat has of a call's name

void Activity::stage(std::string_view text) {
  const std::lock_guard lock(mutex_);
  stage_ = text;
  task_.clear();
}
void Activity::task(std::string_view name) {
  const std::lock_guard lock(mutex_);
  task_ = name;
}
void Activity::enter(std::string_view call) {
  const std::lock_guard lock(mutex_);
  call_ = call.substr(0, kMostCall);
  ++calls_;
  waiting_ = true;
}
void Activity::leave() {
  const std::lock_guard lock(mutex_);
  waiting_ = false;
}
Activity::Now Activity::now() const {
  const std::lock_guard lock(mutex_);
  return {calls_, waiting_, call_, task_.empty() ? stage_ : fmt::format("{}, {}", stage_, task_)};
}

// What a rank sends: all that the others know of it.
struct Watch::Beat {
  enum class Kind : uint32_t { Hello, Alive, Leaving, Farewell, Lost };
  Kind kind = Kind::Alive;
  int32_t rank = 0;
  uint64_t token = 0;  // of the job: who connects from elsewhere is not heard
  uint64_t calls = 0;
  uint32_t waiting = 0;
  char call[kMostCall + 1] = "";
  char doing[100] = "";
};

// A connection that carries beats.
class Watch::Line {
 public:
  explicit Line(Socket socket = {}) : socket_(std::move(socket)) {}

  int fd() const { return socket_.fd(); }
  // A beat that finds no room is left out: the next one says more. Half of one would be read as another.
  void send(const Beat& beat) {
    const ssize_t sent = ::send(fd(), &beat, sizeof beat, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0 && sent < ssize_t(sizeof beat)) ::shutdown(fd(), SHUT_RDWR);
  }
  // The beats that have come go to `take`, no more of them than one would send. False: the connection has
  // ended.
  template <class Take>
  bool receive(const Take& take) {
    for (int beats = 0; beats < 16;) {
      auto* const to = reinterpret_cast<char*>(&part_) + got_;
      const ssize_t n = ::recv(fd(), to, sizeof part_ - got_, MSG_DONTWAIT);
      if (n == 0) return false;
      if (n < 0) return errno == EAGAIN || errno == EINTR;
      got_ += size_t(n);
      if (got_ < sizeof part_) continue;
      got_ = 0;
      part_.call[sizeof part_.call - 1] = '\0';
      part_.doing[sizeof part_.doing - 1] = '\0';
      take(part_);
      ++beats;
    }
    return true;
  }

 private:
  Socket socket_;
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
  bool leaving = false;
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
  Listener listener;
  if (rank_ == 0) {
    // Where all are on this host, nobody else need reach it.
    const bool near = group.here() == size_;
    auto opened = listen_on(0, near ? kLoopback : "");
    if (opened.ok()) {
      listener = std::move(*opened);
      own.port = listener.port;
      own.token = unguessable();
      put_addresses(near ? std::vector<std::string>{kLoopback} : own_addresses(), own.addresses);
    } else {
      listening = opened.error();
    }
  }
  SLUICE_ASSIGN(const auto cards, gathered(group, own));
  const Card& first = cards.front();
  if (first.port == 0)
    return rank_ == 0 ? listening : Status(error(ErrorKind::Device, "process 0 has no port"));
  // Some addresses of a host may lead nowhere, so each is tried for so long. A caller says at once who it is;
  // where too many are silent, the first of them is closed.
  constexpr std::chrono::milliseconds kLimit{2'000}, kForAll{30'000};
  constexpr size_t kMostCallers = 32;
  if (rank_ == 0) {
    auto lines = std::vector<Line>(static_cast<size_t>(size_));
    int missing = size_ - 1;
    // Strangers may connect, too: nothing waits for what they send, and who says something else goes.
    std::vector<Line> callers;
    const auto begin = std::chrono::steady_clock::now();
    while (missing > 0 && std::chrono::steady_clock::now() - begin < kForAll) {
      std::vector<pollfd> polled{{listener.socket.fd(), POLLIN, 0}};
      for (const Line& caller : callers) polled.push_back({caller.fd(), POLLIN, 0});
      ::poll(polled.data(), polled.size(), 20);
      while (Socket caller = listener.accept()) {
        if (callers.size() == kMostCallers) callers.erase(callers.begin());
        callers.emplace_back(std::move(caller));
        if (callers.size() == kMostCallers) break;
      }
      std::erase_if(callers, [&](Line& caller) {
        int from = -1;
        bool stranger = false;
        const bool open = caller.receive([&](const Beat& b) {
          stranger = b.kind != Beat::Kind::Hello || b.token != own.token || b.rank <= 0 || b.rank >= size_;
          from = b.rank;
        });
        if (from < 0 || stranger) return !open || stranger;
        // Who was answered too late calls again.
        missing -= lines[size_t(from)].fd() < 0 ? 1 : 0;
        lines[size_t(from)] = std::move(caller);
        lines[size_t(from)].send({.kind = Beat::Kind::Hello, .token = own.token});
        return true;
      });
    }
    for (int r = 1; r < size_; ++r) {
      if (lines[size_t(r)].fd() < 0)
        return error(ErrorKind::Device, "process {} ({}) did not connect", r, cards[size_t(r)].name);
      ranks_.push_back({r, cards[size_t(r)].name, std::move(lines[size_t(r)]), {}, nanoseconds(0)});
    }
    return {};
  }
  // A call may be closed for those of strangers, and is made again for as long as rank 0 listens.
  const auto begin = std::chrono::steady_clock::now();
  do {
    for (const std::string& address : addresses_in(first.addresses)) {
      Line line(connect_to(address, first.port, kLimit));
      if (line.fd() < 0) continue;
      line.send({.kind = Beat::Kind::Hello, .rank = rank_, .token = first.token});
      bool known = false;
      while (!known && ready(line.fd(), POLLIN, kLimit)) {
        if (!line.receive([&](const Beat& b) { known = b.token == first.token; })) break;
      }
      if (!known) continue;
      ranks_.push_back({0, first.name, std::move(line), {}, nanoseconds(0)});
      return {};
    }
    ::poll(nullptr, 0, 20);
  } while (std::chrono::steady_clock::now() - begin < kForAll);
  return error(ErrorKind::Device, "process 0 ({}) cannot be reached by TCP at {} port {}", first.name,
               fmt::join(addresses_in(first.addresses), " "), first.port);
}

void Watch::abandon() {
  abandons_ = true;
  end();
}

void Watch::end() {
  if (wake_[1] >= 0) ::close(std::exchange(wake_[1], -1));
  if (thread_.joinable()) thread_.join();
}

Watch::~Watch() {
  end();
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
        r.leaving = r.leaving || b.kind == Beat::Kind::Leaving;
        r.left = r.left || b.kind == Beat::Kind::Farewell;
        others_lost = others_lost || b.kind == Beat::Kind::Lost;
      });
      r.ended = !open && !r.left;
    }
    if (others_lost) {
      tell_lost(nullptr);
      return callbacks_.lost("");
    }
    const auto now = std::chrono::steady_clock::now();
    const nanoseconds passed = now - before;
    const bool due = passed >= options_.beat;
    if (due || ends) {
      const Activity::Now own = activity_.now();
      const auto kind = abandons_ ? Beat::Kind::Lost
                        : ends    ? Beat::Kind::Farewell
                        : leaves_ ? Beat::Kind::Leaving
                                  : Beat::Kind::Alive;
      Beat beat{.kind = kind, .rank = rank_, .calls = own.calls, .waiting = own.waiting};
      own.call.copy(beat.call, sizeof beat.call - 1);
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

// Those whom rank 0 tells end with it, without a word.
void Watch::tell_lost(const Rank* who) {
  for (Rank& other : ranks_) {
    if (rank_ == 0 && &other != who && !other.left) other.line.send({.kind = Beat::Kind::Lost});
  }
}

bool Watch::check(nanoseconds passed, bool absent) {
  for (Rank& r : ranks_) {
    if (r.left) continue;
    r.silent += passed;
    if (!r.ended && r.silent < options_.lost_after) continue;
    tell_lost(&r);
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
    if (!(r.left || r.leaving) || r.last.calls >= awaited) continue;
    callbacks_.lost(
        fmt::format("{} has left, and is waited for; it was at: {}", name_of(r.rank, r.name), r.last.doing));
    return false;
  }
  if (rank_ != 0) return true;
  if (!check_calls(own)) return false;
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

// On rank 0, of ranks that have waited in one call for long enough.
bool Watch::check_calls(const Activity::Now& own) {
  if (!own.waiting || own.calls != awaited_) return true;
  for (const Rank& r : ranks_) {
    if (r.left || r.last.waiting == 0 || r.last.calls != awaited_ || own.call == r.last.call) continue;
    tell_lost(nullptr);
    callbacks_.lost(fmt::format("{} waits in {}, at: {}; {} waits in {}, at: {}: they wait for each other",
                                name_of(0, options_.name), own.call, own.doing, name_of(r.rank, r.name),
                                r.last.call, r.last.doing));
    return false;
  }
  return true;
}

namespace {

class CountedGroup final : public ForwardingGroup {
 public:
  CountedGroup(Activity& activity, std::unique_ptr<ProcessGroup> group)
      : ForwardingGroup(std::move(group)), activity_(activity) {}

  void at(std::string_view task) override { activity_.task(task); }
  void enter(std::string_view task) override {
    at(task);
    activity_.enter("a sum between devices");
  }
  void leave() override { activity_.leave(); }
  Status exchange(std::span<const std::byte> out, int to, std::span<std::byte> in, int from) override {
    const Inside inside(activity_, "an exchange");
    return group_->exchange(out, to, in, from);
  }
  Status barrier() override {
    const Inside inside(activity_, "a barrier");
    return group_->barrier();
  }
  Status broadcast(std::span<std::byte> bytes, int root) override {
    const Inside inside(activity_, fmt::format("a broadcast of {} bytes", bytes.size()));
    return group_->broadcast(bytes, root);
  }
  Status all_gather(std::span<const std::byte> own, std::span<std::byte> all) override {
    const Inside inside(activity_, fmt::format("a gathering of {} bytes each", own.size()));
    return group_->all_gather(own, all);
  }
  Status sum_in_any_order(std::span<float> values) override {
    const Inside inside(activity_, fmt::format("a sum of {} numbers", values.size()));
    return group_->sum_in_any_order(values);
  }

 private:
  struct Inside {
    Inside(Activity& a, std::string_view call) : activity(a) { a.enter(call); }
    ~Inside() { activity.leave(); }
    Activity& activity;
  };
  Activity& activity_;
};

}  // namespace

std::unique_ptr<ProcessGroup> counted_by(Activity& activity, std::unique_ptr<ProcessGroup> group) {
  return std::make_unique<CountedGroup>(activity, std::move(group));
}

}  // namespace sluice::core
