// SPDX-License-Identifier: Apache-2.0
#include "report/browser.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "support/temp_dir.h"

namespace sluice::core {
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

namespace {

std::string dump(const std::string& browser, int width, const std::string& url) {
  const TempDir profile;
  // Virtual time runs as fast as the page lets it, so a slow machine changes nothing.
  return output_of(
      "timeout 120 " + browser +
      " --headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --disable-background-networking"
      " --no-first-run --window-size=" +
      std::to_string(width) + ",1000 --virtual-time-budget=5000 --user-data-dir='" + profile.path().string() +
      "' --dump-dom '" + url + "' 2>/dev/null");
}

}  // namespace

std::string open_in_browser(const std::string& browser, const std::string& path,
                            const std::string& fragment) {
  return dump(browser, 1280, "file://" + path + fragment);
}

std::string say_in_frame(const std::string& browser, const std::string& path, int width) {
  const TempDir dir;
  const std::string frame =
      "<!doctype html><body style=\"margin:0\"><script>onmessage = e => { document.body.dataset.said = "
      "e.data; };</script>"
      "<iframe src=\"file://" +
      path + "\" style=\"border:0;height:900px;width:" + std::to_string(width) + "px\"></iframe></body>";
  const std::string dom = dump(browser, width, "file://" + dir.add("frame.html", frame).string());
  const std::string mark = "data-said=\"";
  const size_t at = dom.find(mark);
  if (at == std::string::npos) return "the page said nothing";
  return dom.substr(at + mark.size(), dom.find('"', at + mark.size()) - at - mark.size());
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

}  // namespace sluice::core
