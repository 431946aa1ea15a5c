// SPDX-License-Identifier: Apache-2.0
#include "interrupt.h"

#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <ctime>
#include <string_view>

namespace {

// Signal handlers reach nothing but globals.
sluice::core::Requests requests;
bool watching = false;
std::atomic<int> first_signal{0};
std::atomic<int64_t> first_ns{0};
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int64_t>::is_always_lock_free);

constexpr int64_t kTogetherNs = 250'000'000;

int64_t now_ns() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

// With the handler gone, and the signal let through should it be the one that is being handled.
void end_by(int signal) {
  std::signal(signal, SIG_DFL);
  sigset_t mask;
  sigemptyset(&mask);
  sigaddset(&mask, signal);
  pthread_sigmask(SIG_UNBLOCK, &mask, nullptr);
  raise(signal);
}

void write_words(std::string_view text) {
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
}

void on_stop(int signal) {
  if (!requests.stop_is_handled) {
    if (watching)
      write_words("\nsluice: stopped before the first step: there is nothing to save; giving memory back\n");
    return end_by(signal);
  }
  int none = 0;
  if (first_signal.compare_exchange_strong(none, signal)) {
    first_ns = now_ns();
    requests.stop = true;
  } else if (signal != SIGHUP && now_ns() - first_ns > kTogetherNs) {
    end_by(signal);
  }
}

void on_save(int) {
  requests.save = true;
}

void on_replan(int) {
  requests.replan = true;
}

void handle(int signal, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;  // no call of ours fails because of a signal
  sigaction(signal, &action, nullptr);
}

}  // namespace

sluice::core::Requests& watch_signals() {
  watching = true;
  struct sigaction hangup {};
  sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler != SIG_IGN) handle(SIGHUP, on_stop);
  handle(SIGINT, on_stop);
  handle(SIGTERM, on_stop);
  handle(SIGUSR1, on_save);
  handle(SIGUSR2, on_replan);
  handle(SIGPIPE, SIG_IGN);
  return requests;
}

sluice::core::Requests& watch_stops() {
  handle(SIGINT, on_stop);
  handle(SIGTERM, on_stop);
  return requests;
}

bool watches_signals() {
  return watching;
}

void end_by_signal() {
  if (const int signal = first_signal) end_by(signal);
}
