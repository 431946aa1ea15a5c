// SPDX-License-Identifier: Apache-2.0
#include "host/mapped_ranges.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <string>

#include "base/printable.h"

namespace sluice::core {
namespace {

// A handler of signals finds nothing that is not global, and may not wait for a lock: slots are taken and
// read by atomic operations alone.
struct Slot {
  std::atomic<uintptr_t> begin = 0, end = 0;  // begin 0: free; end 0: not complete
  std::array<char, 240> path{};               // its end, where it is longer
};
std::array<Slot, 4096> slots;
struct sigaction before;

void say(const char* text, size_t size) {
  while (size > 0) {
    const ssize_t n = ::write(STDERR_FILENO, text, size);
    if (n <= 0) return;
    text += n;
    size -= static_cast<size_t>(n);
  }
}

void on_bus_error(int, siginfo_t* info, void*) {
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  for (const Slot& slot : slots) {
    const uintptr_t end = slot.end.load(std::memory_order_acquire);
    if (end == 0 || address < slot.begin.load(std::memory_order_relaxed) || address >= end) continue;
    constexpr char kBegin[] = "sluice: ", kEnd[] = " was cut short, or its disk failed, while it was read\n";
    say(kBegin, sizeof kBegin - 1);
    say(slot.path.data(), ::strnlen(slot.path.data(), slot.path.size()));
    say(kEnd, sizeof kEnd - 1);
    ::_exit(1);
  }
  // The access is made again, and does what it would have done.
  ::sigaction(SIGBUS, &before, nullptr);
}

}  // namespace

void note_mapping(std::span<const std::byte> bytes, std::string_view path) {
  const auto begin = reinterpret_cast<uintptr_t>(bytes.data());
  for (Slot& slot : slots) {
    uintptr_t free = 0;
    if (!slot.begin.compare_exchange_strong(free, begin)) continue;
    // It is said from a handler of signals, which makes no text.
    const std::string shown = printable(path);
    slot.path.fill(0);
    std::copy(shown.end() - long(std::min(shown.size(), slot.path.size())), shown.end(), slot.path.begin());
    slot.end.store(begin + bytes.size(), std::memory_order_release);
    return;
  }
}

void forget_mapping(std::span<const std::byte> bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(bytes.data());
  for (Slot& slot : slots) {
    if (slot.begin.load() != begin) continue;
    slot.end.store(0);
    slot.begin.store(0);
    return;
  }
}

void name_files_that_shrink() {
  struct sigaction action {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGBUS, &action, &before);
}

}  // namespace sluice::core
