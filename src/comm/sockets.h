// SPDX-License-Identifier: Apache-2.0
// TCP between processes of a job: sockets that do not block, and waiting for them.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace sluice::core {

// Owns a file descriptor, or none.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Socket();

  int fd() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// Waits until `fd` can be read or written (POLLIN, POLLOUT); false: not within `limit`.
bool ready(int fd, short events, std::chrono::milliseconds limit);

// The addresses of this host that others may reach, then those that only it does. Addresses that are valid on
// one link alone are left out: they need the name of the link.
std::vector<std::string> own_addresses();
// Addresses as plain data, each with a space behind it: as many as there is room for, and a zero.
void put_addresses(const std::vector<std::string>& addresses, std::span<char> to);
// Those of such a list, which may be another's: what is no address is left out.
std::vector<std::string> addresses_in(std::span<const char> list);
// Those of a name; an error says what the resolver does.
Result<std::vector<std::string>> addresses_of(const std::string& host);
// Whether only this host reaches it.
bool is_loopback(std::string_view address);

// A listener and its port; 0 asks for a free one. What it accepts does not block.
struct Listener {
  Socket socket;
  uint16_t port = 0;
  // Who has connected by now; none: nobody.
  Socket accept() const;
};
// At one of this host's addresses; empty: at all of IPv4 and IPv6, or of IPv4 where there is no IPv6.
Result<Listener> listen_on(uint16_t port, const std::string& address = {});
// A connection to an address as own_addresses() gives it, within `limit`; none, with errno: there is none.
Socket connect_to(const std::string& address, uint16_t port, std::chrono::milliseconds limit);
// The addresses at the other end and at this one; empty: unknown.
std::string peer_of(const Socket& socket);
std::string local_of(const Socket& socket);

// Sends or receives all of it before `end`. False: the connection has ended or it is late.
using Deadline = std::chrono::steady_clock::time_point;
bool send_all(const Socket& socket, std::span<const std::byte> bytes, Deadline end);
bool receive_all(const Socket& socket, std::span<std::byte> bytes, Deadline end);

}  // namespace sluice::core
