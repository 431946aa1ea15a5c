// SPDX-License-Identifier: Apache-2.0
#include "comm/tcp/connections.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <fstream>
#include <thread>

#include "base/hash.h"
#include "host/unguessable.h"

namespace sluice::core {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// Of a host's addresses some may lead nowhere, and each is tried for so long.
constexpr milliseconds kForAddress{2'000};
constexpr milliseconds kPause{100};
// Processes that have met connect at once.
constexpr milliseconds kToConnect{30'000};

constexpr uint64_t kMagic = 0x736c756963653031;  // "sluice01": what else connects is not heard

// What a rank says of itself at the meeting point.
struct Arrival {
  uint64_t magic = kMagic;
  int32_t rank = 0, size = 0;
  uint64_t job = 0, host = 0;  // hashes of their names
  uint16_t port = 0;           // where it listens
  char addresses[1024] = "";   // with a space behind each
};
// What it is answered. Behind it, where there is no refusal, come all of these.
struct Answer {
  uint64_t magic = kMagic;
  uint64_t token = 0;  // of this meeting, for connections between those who came
  char refusal[1024] = "";
};
// The first words on a connection between two of them, both ways.
struct Greeting {
  uint64_t magic = kMagic, token = 0;
  int64_t rank = 0;
};

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}
template <class T>
std::span<std::byte> room_of(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

void put(std::string_view text, std::span<char> to) {
  text.copy(to.data(), to.size() - 1);
}

// A name of this host that no other has, and that its containers share only where they are one.
std::string name_of_host() {
  char name[HOST_NAME_MAX + 1] = "";
  (void)::gethostname(name, sizeof name - 1);
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return fmt::format("{} {}", name, boot);
}

std::string text_of(const MeetingPoint& at) {
  return fmt::format("{}:{}", at.host, at.port);
}

// "processes 1, 3 of 4 have", who have not done something.
std::string those(std::span<const int> ranks, int size) {
  return fmt::format("process{} {} of {} ha{}", ranks.size() > 1 ? "es" : "", fmt::join(ranks, ", "), size,
                     ranks.size() > 1 ? "ve" : "s");
}

Error missing(std::span<const int> ranks, int size, const MeetingPoint& at, milliseconds limit,
              const std::string& also) {
  return error(ErrorKind::Device, "{} not come to {} within {} s{}{}", those(ranks, size), text_of(at),
               double(limit.count()) / 1e3, also.empty() ? "" : "; ", also);
}

Status connect_one(int r, const Arrival& arrival, uint64_t token, Deadline soon, Connections& out) {
  for (const std::string& address : addresses_in(arrival.addresses)) {
    if (steady_clock::now() >= soon) break;
    Socket socket = connect_to(address, arrival.port, kForAddress);
    // Another host may have the address, and listen there.
    Greeting answer;
    if (!socket || !send_all(socket, bytes_of(Greeting{kMagic, token, out.rank}), soon) ||
        !receive_all(socket, room_of(answer), soon) || answer.token != token || answer.rank != r)
      continue;
    out.to[size_t(r)] = std::move(socket);
    return {};
  }
  return error(ErrorKind::Device, "process {} of {} cannot be reached by TCP at {}port {}", r, out.to.size(),
               arrival.addresses, arrival.port);
}

// Each connects to those from `lowest` on that are below it, and is connected to by those above.
Status connect_all(const Listener& listener, std::span<const Arrival> arrivals, uint64_t token, int lowest,
                   Connections& out) {
  const int size = int(out.to.size());
  if (out.rank < lowest) return {};
  const Deadline soon = steady_clock::now() + kToConnect;
  for (int r = lowest; r < out.rank; ++r) SLUICE_TRY(connect_one(r, arrivals[size_t(r)], token, soon, out));
  int awaited = size - 1 - out.rank;
  while (awaited > 0) {
    const auto left = std::chrono::duration_cast<milliseconds>(soon - steady_clock::now());
    if (left.count() <= 0 || !ready(listener.socket.fd(), POLLIN, left)) break;
    Socket socket = listener.accept();
    Greeting hello;
    // Strangers say nothing, or something else.
    if (!socket || !receive_all(socket, room_of(hello), std::min(soon, steady_clock::now() + kForAddress)))
      continue;
    if (hello.magic != kMagic || hello.token != token || hello.rank <= out.rank || hello.rank >= size)
      continue;
    if (!send_all(socket, bytes_of(Greeting{kMagic, token, out.rank}), soon)) continue;
    awaited -= out.to[size_t(hello.rank)] ? 0 : 1;
    out.to[size_t(hello.rank)] = std::move(socket);
  }
  for (int r = out.rank + 1; r < size; ++r) {
    if (!out.to[size_t(r)])
      return error(ErrorKind::Device, "process {} of {} did not connect to process {} within {} s", r, size,
                   out.rank, kToConnect / std::chrono::seconds(1));
  }
  return {};
}

class Meeting {
 public:
  Meeting(const ProcessLaunch& launch, const MeetingOptions& options)
      : rank_(launch.rank),
        size_(launch.size),
        at_(*launch.meeting),
        options_(options),
        end_(steady_clock::now() + options.limit) {}

  Result<Connections> hold() {
    auto listener = listen_on(0);
    if (!listener.ok()) return listener.error();
    Arrival own;
    own.rank = rank_, own.size = size_, own.port = listener->port;
    own.job = Hash().add(at_.job).value();
    own.host = Hash().add(options_.host.empty() ? name_of_host() : options_.host).value();
    put_own_addresses(own.addresses);
    out_.rank = rank_;
    out_.to.resize(size_t(size_));
    arrivals_.resize(size_t(size_));
    arrivals_[size_t(rank_)] = own;
    SLUICE_TRY(rank_ == 0 ? receive_all_arrivals() : arrive(own));
    SLUICE_TRY(connect_all(*listener, arrivals_, token_, 1, out_));  // to rank 0 all are connected
    for (int r = 0; r < size_; ++r) {
      int first = 0;
      while (arrivals_[size_t(first)].host != arrivals_[size_t(r)].host) ++first;
      out_.hosts.push_back(first);
    }
    return std::move(out_);
  }

 private:
  bool over() const { return steady_clock::now() >= end_; }

  // Somebody who has connected to rank 0 and has not said everything yet.
  struct Caller {
    Socket socket;
    Arrival arrival;
    size_t got = 0;
  };

  std::vector<int> those_missing() const {
    std::vector<int> out;
    for (int r = 1; r < size_; ++r) {
      if (!out_.to[size_t(r)]) out.push_back(r);
    }
    return out;
  }

  static void refuse(const Socket& socket, const std::string& why) {
    Answer answer;
    put(why, answer.refusal);
    (void)send_all(socket, bytes_of(answer), steady_clock::now() + kPause);
  }

  // Why an arrival is not one of this job's; empty: it is.
  std::string wrong_with(const Arrival& arrival) const {
    if (arrival.job != arrivals_[0].job)
      return fmt::format("a process of another job came to {}: TORCHELASTIC_RUN_ID differs", text_of(at_));
    if (arrival.size != size_)
      return fmt::format("a process came to {} with WORLD_SIZE = {}; that of process 0 is {}", text_of(at_),
                         arrival.size, size_);
    if (arrival.rank <= 0 || arrival.rank >= size_)
      return fmt::format("a second process came to {} with RANK = {}", text_of(at_), arrival.rank);
    const Socket& before = out_.to[size_t(arrival.rank)];
    char byte = 0;
    // Who has gone away meanwhile may come again.
    if (before && ::recv(before.fd(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) != 0)
      return fmt::format("a second process came to {} with RANK = {}", text_of(at_), arrival.rank);
    return {};
  }

  void hear(Caller& caller) {
    const ssize_t n = ::recv(caller.socket.fd(), reinterpret_cast<char*>(&caller.arrival) + caller.got,
                             sizeof caller.arrival - caller.got, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    caller.got += size_t(std::max<ssize_t>(n, 0));
    const bool stranger = caller.got >= sizeof caller.arrival.magic && caller.arrival.magic != kMagic;
    if (n <= 0 || stranger) {
      caller.socket = Socket();
      return;
    }
    if (caller.got < sizeof caller.arrival) return;
    const std::string wrong = wrong_with(caller.arrival);
    if (wrong.empty()) {
      caller.arrival.addresses[sizeof caller.arrival.addresses - 1] = '\0';
      const auto r = size_t(caller.arrival.rank);
      // As it came, others may find it, too.
      const std::string others = caller.arrival.addresses;
      put(peer_of(caller.socket) + " " + others, caller.arrival.addresses);
      arrivals_[r] = caller.arrival;
      out_.to[r] = std::move(caller.socket);
    } else {
      refuse(caller.socket, wrong);
      also_ = wrong;
    }
    caller.socket = Socket();
  }

  Status receive_all_arrivals() {
    const auto door = listen_on(at_.port);
    if (!door.ok())
      return error(ErrorKind::Device, "{} cannot be listened on by process 0: {}; name another {}",
                   text_of(at_), door.message(), at_.port_name);
    std::vector<Caller> callers;
    auto noted = steady_clock::now();
    while (!those_missing().empty()) {
      std::vector<pollfd> polled{{door->socket.fd(), POLLIN, 0}};
      for (const Caller& c : callers) polled.push_back({c.socket.fd(), POLLIN, 0});
      ::poll(polled.data(), polled.size(), int(kPause.count()));
      if (polled[0].revents != 0) {
        if (Socket socket = door->accept()) callers.push_back({std::move(socket), {}, 0});
      }
      for (Caller& c : callers) hear(c);
      std::erase_if(callers, [](const Caller& c) { return !c.socket; });
      const std::vector<int> absent = those_missing();
      if (absent.empty()) break;
      if (over()) {
        const Error why = missing(absent, size_, at_, options_.limit, also_);
        for (const Socket& socket : out_.to) {
          if (socket) refuse(socket, why.message);
        }
        return why;
      }
      if (steady_clock::now() - noted < options_.note_every) continue;
      noted = steady_clock::now();
      if (options_.waiting)
        options_.waiting(fmt::format("{} not come to {} yet", those(absent, size_), text_of(at_)));
    }
    Answer answer;
    answer.token = token_ = unguessable();
    const Deadline soon = steady_clock::now() + kToConnect;
    for (int r = 1; r < size_; ++r) {
      const Socket& to = out_.to[size_t(r)];
      if (!send_all(to, bytes_of(answer), soon) || !send_all(to, std::as_bytes(std::span(arrivals_)), soon))
        return error(ErrorKind::Device, "process {} of {} has gone away from {}", r, size_, text_of(at_));
    }
    return {};
  }

  Status arrive(const Arrival& own) {
    std::string why = "nobody listens there";
    while (!over()) {
      auto found = addresses_of(at_.host);
      if (!found.ok()) why = found.message();
      for (const std::string& address : found.ok() ? *found : std::vector<std::string>()) {
        Socket socket = connect_to(address, at_.port, kForAddress);
        if (!socket) {
          why = std::strerror(errno);
          continue;
        }
        Answer answer;
        // Process 0 answers those who came when all have, or its own time is over.
        const Deadline late = end_ + kToConnect;
        if (!send_all(socket, bytes_of(own), late) || !receive_all(socket, room_of(answer), late) ||
            answer.magic != kMagic) {
          why = "what listens there is no process 0 of Sluice";
          continue;
        }
        if (answer.refusal[0] != '\0') {
          answer.refusal[sizeof answer.refusal - 1] = '\0';
          return error(ErrorKind::Device, "{}", std::string_view(answer.refusal));
        }
        if (!receive_all(socket, std::as_writable_bytes(std::span(arrivals_)), late)) {
          why = "process 0 has gone away";
          continue;
        }
        token_ = answer.token;
        out_.to[0] = std::move(socket);
        return {};
      }
      std::this_thread::sleep_for(kPause);
    }
    return error(ErrorKind::Device, "process 0 of {} cannot be reached at {} within {} s: {}", size_,
                 text_of(at_), double(options_.limit.count()) / 1e3, why);
  }

  const int rank_, size_;
  const MeetingPoint at_;
  const MeetingOptions& options_;
  const Deadline end_;
  Connections out_;
  std::vector<Arrival> arrivals_;
  uint64_t token_ = 0;
  std::string also_;  // who came and was refused, last
};

}  // namespace

Result<Connections> connect(ProcessGroup& group) {
  auto listener = listen_on(0);
  Arrival own;
  own.rank = group.rank(), own.size = group.size();
  if (listener.ok()) own.port = listener->port;
  uint64_t token = unguessable();
  SLUICE_TRY(group.broadcast(room_of(token), 0));
  put_own_addresses(own.addresses);
  SLUICE_ASSIGN(const std::vector<Arrival> arrivals, gathered(group, own));
  SLUICE_ASSIGN(const std::vector<int> hosts, gathered(group, group.host()));
  Connections out{own.rank, std::vector<Socket>(arrivals.size()), hosts};
  const Status connected =
      listener.ok() ? connect_all(*listener, arrivals, token, 0, out) : Status(listener.error());
  SLUICE_ASSIGN(const bool failed, any(group, !connected.ok()));
  SLUICE_TRY(connected);
  if (failed) return error(ErrorKind::Device, "other processes cannot connect");
  return out;
}

Result<Connections> meet(const ProcessLaunch& launch, const MeetingOptions& options) {
  return Meeting(launch, options).hold();
}

}  // namespace sluice::core
