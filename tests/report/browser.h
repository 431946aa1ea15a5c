// SPDX-License-Identifier: Apache-2.0
// A real browser without a window, for tests of the page.
#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <thread>

namespace sluice::core {

// The browser's command, or nothing where there is none.
std::optional<std::string> find_browser();

// Opens a file in a fresh profile, lets its scripts run, and returns the document as it is then. `fragment`
// begins with # or is empty.
std::string open_in_browser(const std::string& browser, const std::string& path, const std::string& fragment);

// The same as on a screen of that width, in pixels: the file is opened in a frame, as windows have a least
// width. Returns what the file sent by parent.postMessage(TEXT, '*'), which has no quotes in it.
std::string say_in_frame(const std::string& browser, const std::string& path, int width);

// A port of this machine that counts who connects to it, and hangs up.
class Listener {
 public:
  Listener();
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  int port() const { return port_; }
  // Connections so far.
  int connections() const { return count_; }

 private:
  int socket_, port_ = 0;
  std::atomic<int> count_ = 0;
  std::thread thread_;
};

}  // namespace sluice::core
