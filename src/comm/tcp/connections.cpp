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
#include "comm/tcp/keyed_hash.h"
#include "host/unguessable.h"

namespace sluice::core {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// Some addresses of a host may lead nowhere, so each is tried for so long.
constexpr milliseconds kForAddress{2'000};
constexpr milliseconds kPause{100};
// Processes that have met connect at once.
constexpr milliseconds kToConnect{30'000};
// Who has connected says who it is within the first. Where so many have not yet, the one that has been silent
// for longest goes after the second, so that those who say nothing keep nobody out.
constexpr milliseconds kToSpeak{10'000}, kPatience{1'000};
constexpr size_t kMostCallers = 32;

constexpr uint64_t kMagic = 0x736c756963653032;  // "sluice02": what else connects is not heard

// The first words at the meeting point are those of rank 0.
struct Challenge {
  uint64_t magic = kMagic;
  uint64_t number = 0;
};
// What a rank says of itself there.
struct Arrival {
  uint64_t magic = kMagic;
  uint64_t proof = 0;   // that it knows the job, of the challenge and of what follows
  uint64_t number = 0;  // its own challenge
  int32_t rank = 0, size = 0;
  uint64_t host = 0;          // hash of its name
  uint64_t port = 0;          // where it listens
  char addresses[1024] = "";  // with a space behind each
};
// What it is answered. Behind it, where there is no refusal, come all of these.
struct Answer {
  uint64_t magic = kMagic;
  uint64_t proof = 0;  // that rank 0 knows the job
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

// What proves, to whoever sent the number, that an Arrival or Answer comes from one who knows the key.
template <class T>
uint64_t proof_of(const KeyedHash& key, uint64_t number, T said) {
  static_assert(std::has_unique_object_representations_v<T>);
  said.proof = number;
  return key(bytes_of(said));
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
    Socket socket = connect_to(address, uint16_t(arrival.port), kForAddress);
    // Another host may have the address, and listen there.
    Greeting answer;
    if (!socket || !send_all(socket, bytes_of(Greeting{kMagic, token, out.rank}), soon) ||
        !receive_all(socket, room_of(answer), soon) || answer.token != token || answer.rank != r)
      continue;
    out.to[size_t(r)] = std::move(socket);
    return {};
  }
  return error(ErrorKind::Device, "process {} of {} cannot be reached by TCP at {} port {}", r, out.to.size(),
               fmt::join(addresses_in(arrival.addresses), " "), arrival.port);
}

// Whether all who meet there are on this host. Other names may be taken for the loopback by this host alone.
bool is_near(const MeetingPoint& at) {
  return at.host == "localhost" || is_loopback(at.host);
}

// Where rank 0 listens: at the addresses of the meeting point that are this host's; at all, where it has
// none.
std::vector<std::string> doors_of(const MeetingPoint& at) {
  const auto found = addresses_of(at.host);
  const std::vector<std::string> own = own_addresses();
  std::vector<std::string> out;
  for (const std::string& address : found.ok() ? *found : std::vector<std::string>()) {
    if (is_loopback(address) ? is_near(at) : std::ranges::count(own, address) > 0) out.push_back(address);
  }
  return out.empty() ? std::vector<std::string>{""} : out;
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
        end_(steady_clock::now() + options.limit),
        key_(KeyedHash::of_secret(fmt::format("{}\n{}", at_.job, at_.secret))) {}

  Result<Connections> hold() {
    Arrival own;
    own.rank = rank_, own.size = size_;
    own.host = Hash().add(options_.host.empty() ? name_of_host() : options_.host).value();
    out_.rank = rank_;
    out_.to.resize(size_t(size_));
    arrivals_.resize(size_t(size_));
    arrivals_[size_t(rank_)] = own;
    SLUICE_TRY(rank_ == 0 ? receive_all_arrivals() : arrive(own));
    SLUICE_TRY(connect_all(listener_, arrivals_, token_, 1, out_));  // to rank 0 all are connected
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
    uint64_t number = 0;  // that it was challenged with
    Deadline came;
    Arrival arrival = {};
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
  std::string wrong_with(const Caller& caller) const {
    const Arrival& arrival = caller.arrival;
    if (arrival.proof != proof_of(key_, caller.number, arrival))
      return fmt::format("a process of another job came to {}: TORCHELASTIC_RUN_ID or SLUICE_TOKEN differs",
                         text_of(at_));
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
    const std::string wrong = wrong_with(caller);
    if (wrong.empty()) {
      const auto r = size_t(caller.arrival.rank);
      // As it came, others may find it, too.
      std::vector<std::string> all = addresses_in(caller.arrival.addresses);
      all.insert(all.begin(), peer_of(caller.socket));
      put_addresses(all, caller.arrival.addresses);
      arrivals_[r] = caller.arrival;
      out_.to[r] = std::move(caller.socket);
    } else {
      refuse(caller.socket, wrong);
      also_ = wrong;
    }
    caller.socket = Socket();
  }

  Result<std::vector<Listener>> open_doors() const {
    std::vector<Listener> out;
    std::string why;
    for (const std::string& address : doors_of(at_)) {
      auto door = listen_on(at_.port, address);
      if (door.ok()) {
        out.push_back(std::move(*door));
      } else {
        why = door.message();
      }
    }
    if (!out.empty()) return out;
    return error(ErrorKind::Device, "{} cannot be listened on by process 0: {}; name another {}",
                 text_of(at_), why, at_.port_name);
  }

  static void let_in(const Listener& door, std::vector<Caller>& callers) {
    if (callers.size() >= kMostCallers) callers.erase(callers.begin());
    const auto now = steady_clock::now();
    Caller caller{door.accept(), unguessable(), now};
    if (caller.socket && send_all(caller.socket, bytes_of(Challenge{kMagic, caller.number}), now))
      callers.push_back(std::move(caller));
  }

  Status receive_all_arrivals() {
    SLUICE_ASSIGN(const std::vector<Listener> doors, open_doors());
    std::vector<Caller> callers;
    auto noted = steady_clock::now();
    while (!those_missing().empty()) {
      std::vector<pollfd> polled;
      const bool full =
          callers.size() >= kMostCallers && steady_clock::now() - callers.front().came < kPatience;
      for (const Listener& door : doors) polled.push_back({full ? -1 : door.socket.fd(), POLLIN, 0});
      for (const Caller& c : callers) polled.push_back({c.socket.fd(), POLLIN, 0});
      ::poll(polled.data(), polled.size(), int(kPause.count()));
      for (size_t d = 0; d < doors.size(); ++d) {
        if (polled[d].revents != 0) let_in(doors[d], callers);
      }
      for (Caller& c : callers) hear(c);
      std::erase_if(callers,
                    [](const Caller& c) { return !c.socket || steady_clock::now() - c.came > kToSpeak; });
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
      answer.proof = proof_of(key_, arrivals_[size_t(r)].number, answer);
      if (!send_all(to, bytes_of(answer), soon) || !send_all(to, std::as_bytes(std::span(arrivals_)), soon))
        return error(ErrorKind::Device, "process {} of {} has gone away from {}", r, size_, text_of(at_));
    }
    return {};
  }

  // Where others reach this rank: at the address by which it reaches rank 0.
  Status listen(const Socket& to_first, Arrival& own) {
    const std::string local = local_of(to_first);
    const std::string address = is_loopback(local) && !is_near(at_) ? "" : local;
    SLUICE_ASSIGN(listener_, listen_on(0, address));
    own.port = listener_.port;
    put_addresses(address.empty() ? own_addresses() : std::vector{address}, own.addresses);
    return {};
  }

  Status arrive(Arrival own) {
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
        const Deadline soon = steady_clock::now() + kToSpeak;
        Challenge challenge;
        Answer answer;
        if (!receive_all(socket, room_of(challenge), soon) || challenge.magic != kMagic) {
          why = "what listens there is no process 0 of Sluice";
          continue;
        }
        SLUICE_TRY(listen(socket, own));
        own.number = unguessable();
        own.proof = proof_of(key_, challenge.number, own);
        // Process 0 answers those who came when all have, or its own time is over.
        const Deadline late = end_ + kToConnect;
        if (!send_all(socket, bytes_of(own), soon) || !receive_all(socket, room_of(answer), late)) {
          why = "process 0 has gone away";
          continue;
        }
        if (answer.refusal[0] != '\0') {
          answer.refusal[sizeof answer.refusal - 1] = '\0';
          return error(ErrorKind::Device, "{}", std::string_view(answer.refusal));
        }
        if (answer.proof != proof_of(key_, own.number, answer)) {
          why = "who listens there does not know TORCHELASTIC_RUN_ID and SLUICE_TOKEN";
          continue;
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
  const KeyedHash key_;
  Listener listener_;  // for those who connect to this rank; rank 0 has none
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
  put_addresses(own_addresses(), own.addresses);
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
