// SPDX-License-Identifier: Apache-2.0
#include "comm/sockets.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

namespace sluice::core {
namespace {

using std::chrono::milliseconds;

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

// Empty: it needs the name of a link, or is of another kind.
std::string text_of(const sockaddr* at) {
  char text[INET6_ADDRSTRLEN] = "";
  if (at->sa_family == AF_INET) {
    ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(at)->sin_addr, text, sizeof text);
  } else if (at->sa_family == AF_INET6) {
    const in6_addr& v6 = reinterpret_cast<const sockaddr_in6*>(at)->sin6_addr;
    if (IN6_IS_ADDR_V4MAPPED(&v6)) {
      ::inet_ntop(AF_INET, &v6.s6_addr[12], text, sizeof text);
    } else if (!IN6_IS_ADDR_LINKLOCAL(&v6)) {
      ::inet_ntop(AF_INET6, &v6, text, sizeof text);
    }
  }
  return text;
}

Socket tuned(int fd) {
  if (fd < 0) return Socket();
  ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return Socket(fd);
}

std::string end_of(const Socket& socket, decltype(&::getpeername) which) {
  sockaddr_storage at{};
  socklen_t bytes = sizeof at;
  if (which(socket.fd(), reinterpret_cast<sockaddr*>(&at), &bytes) != 0) return {};
  return text_of(reinterpret_cast<const sockaddr*>(&at));
}

milliseconds until(Deadline end) {
  return std::max(milliseconds(0), std::chrono::ceil<milliseconds>(end - std::chrono::steady_clock::now()));
}

}  // namespace

Socket::~Socket() {
  if (fd_ >= 0) ::close(fd_);
}

bool ready(int fd, short events, milliseconds limit) {
  pollfd p{fd, events, 0};
  return ::poll(&p, 1, int(limit.count())) == 1;
}

std::vector<std::string> own_addresses() {
  std::vector<std::string> far, near;
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return {"127.0.0.1"};
  for (const ifaddrs* a = all; a != nullptr; a = a->ifa_next) {
    if (a->ifa_addr == nullptr || (a->ifa_flags & IFF_UP) == 0) continue;
    const std::string text = text_of(a->ifa_addr);
    if (!text.empty()) ((a->ifa_flags & IFF_LOOPBACK) != 0 ? near : far).push_back(text);
  }
  ::freeifaddrs(all);
  far.insert(far.end(), near.begin(), near.end());
  return far;
}

void put_addresses(const std::vector<std::string>& addresses, std::span<char> to) {
  std::string all;
  for (const std::string& a : addresses)
    if (all.size() + a.size() + 1 < to.size()) all += a + " ";
  to[all.copy(to.data(), to.size() - 1)] = '\0';
}

std::vector<std::string> addresses_in(std::span<const char> list) {
  std::string_view rest(list.data(), ::strnlen(list.data(), list.size()));
  std::vector<std::string> out;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find(' '), rest.size());
    std::string one(rest.substr(0, end));
    if (address_of(one, 0)) out.push_back(std::move(one));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return out;
}

bool is_loopback(std::string_view address) {
  return address.starts_with("127.") || address == "::1";
}

Result<std::vector<std::string>> addresses_of(const std::string& host) {
  addrinfo hints{}, *all = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (const int code = ::getaddrinfo(host.c_str(), nullptr, &hints, &all); code != 0)
    return error(ErrorKind::Device, "{}: {}", host, ::gai_strerror(code));
  std::vector<std::string> out;
  for (const addrinfo* a = all; a != nullptr; a = a->ai_next) {
    const std::string text = text_of(a->ai_addr);
    if (!text.empty() && std::ranges::find(out, text) == out.end()) out.push_back(text);
  }
  ::freeaddrinfo(all);
  return out;
}

Socket Listener::accept() const {
  return tuned(::accept4(socket.fd(), nullptr, nullptr, SOCK_CLOEXEC));
}

Result<Listener> listen_on(uint16_t port, const std::string& address) {
  int failure = EADDRNOTAVAIL;
  const std::vector<std::string> places =
      address.empty() ? std::vector<std::string>{"::", "0.0.0.0"} : std::vector{address};
  for (const std::string& place : places) {
    const std::optional<Address> found = address_of(place, port);
    if (!found) continue;
    const Address& a = *found;
    Socket out(::socket(a.at.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!out) continue;
    const int off = 0, on = 1;
    if (a.at.ss_family == AF_INET6) ::setsockopt(out.fd(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    // A port that is asked for may still be that of connections of a job before this one.
    if (port != 0) ::setsockopt(out.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    sockaddr_storage bound{};
    socklen_t bytes = sizeof bound;
    if (::bind(out.fd(), reinterpret_cast<const sockaddr*>(&a.at), a.bytes) == 0 &&
        ::listen(out.fd(), SOMAXCONN) == 0 &&
        ::getsockname(out.fd(), reinterpret_cast<sockaddr*>(&bound), &bytes) == 0) {
      // The port lies at the same place in both.
      return Listener{std::move(out), ntohs(reinterpret_cast<const sockaddr_in*>(&bound)->sin_port)};
    }
    failure = errno;
    if (failure == EADDRINUSE || failure == EACCES) break;
  }
  return error(ErrorKind::Device, "no TCP port can be opened: {}", std::strerror(failure));
}

Socket connect_to(const std::string& address, uint16_t port, milliseconds limit) {
  const std::optional<Address> a = address_of(address, port);
  if (!a) {
    errno = EADDRNOTAVAIL;
    return Socket();
  }
  Socket out = tuned(::socket(a->at.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!out) return out;
  if (::connect(out.fd(), reinterpret_cast<const sockaddr*>(&a->at), a->bytes) == 0) return out;
  int failure = errno;
  if (failure == EINPROGRESS) {
    failure = ETIMEDOUT;
    socklen_t bytes = sizeof failure;
    if (ready(out.fd(), POLLOUT, limit)) ::getsockopt(out.fd(), SOL_SOCKET, SO_ERROR, &failure, &bytes);
  }
  if (failure == 0) return out;
  out = Socket();
  errno = failure;
  return out;
}

std::string peer_of(const Socket& socket) {
  return end_of(socket, ::getpeername);
}
std::string local_of(const Socket& socket) {
  return end_of(socket, ::getsockname);
}

bool send_all(const Socket& socket, std::span<const std::byte> bytes, Deadline end) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(socket.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) bytes = bytes.subspan(size_t(n));
    if (n >= 0 || errno == EINTR) continue;
    if (errno != EAGAIN || !ready(socket.fd(), POLLOUT, until(end))) return false;
  }
  return true;
}

bool receive_all(const Socket& socket, std::span<std::byte> bytes, Deadline end) {
  while (!bytes.empty()) {
    const ssize_t n = ::recv(socket.fd(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (n == 0) return false;
    if (n > 0) bytes = bytes.subspan(size_t(n));
    if (n > 0 || errno == EINTR) continue;
    if (errno != EAGAIN || !ready(socket.fd(), POLLIN, until(end))) return false;
  }
  return true;
}

}  // namespace sluice::core
