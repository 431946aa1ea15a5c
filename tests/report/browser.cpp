#include "report/browser.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "support/temp_dir.h"

namespace sluice {
namespace {

std::string output_of(const std::string& command) {
  std::string out;
  FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return out;
  char buffer[65536];
  for (size_t n; (n = ::fread(buffer, 1, sizeof(buffer), pipe)) > 0;) out.append(buffer, n);
  ::pclose(pipe);
  return out;
}

}  // namespace

std::optional<std::string> find_browser() {
  for (const char* name : {"chromium", "google-chrome", "chrome"}) {
    if (!output_of(std::string("command -v ") + name + " 2>/dev/null").empty()) return name;
  }
  return std::nullopt;
}

std::string open_in_browser(const std::string& browser, const std::string& path,
                            const std::string& fragment) {
  const TempDir profile;
  // Virtual time runs as fast as the page lets it, so a slow machine changes nothing.
  return output_of(
      "timeout 120 " + browser +
      " --headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --disable-background-networking"
      " --no-first-run --window-size=1280,1000 --virtual-time-budget=5000 --user-data-dir='" +
      profile.path().string() + "' --dump-dom 'file://" + path + fragment + "' 2>/dev/null");
}

Listener::Listener() : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  EXPECT_EQ(::bind(socket_, reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(::listen(socket_, 16), 0);
  EXPECT_EQ(::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size), 0);
  port_ = ntohs(address.sin_port);
  thread_ = std::thread([this] {
    for (int peer; (peer = ::accept(socket_, nullptr, nullptr)) >= 0; ++count_) ::close(peer);
  });
}

Listener::~Listener() {
  ::shutdown(socket_, SHUT_RDWR);  // ends accept()
  thread_.join();
  ::close(socket_);
}

}  // namespace sluice
