// SPDX-License-Identifier: Apache-2.0
// Waiting for another thread: awake for up to about 50 µs, since the next command of a step comes within
// microseconds, then asleep. Who waits for long every time stays awake for some 10 µs only, so that cores are
// left to those that work. With fewer a step of the quickstart took 1.2 % longer.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace sluice::core::cpu {

inline void pause_thread() {
#if defined(__x86_64__)
  _mm_pause();
#else
  std::atomic_signal_fence(std::memory_order_seq_cst);
#endif
}

// Returns once `value` differs from `old`. Writers call value.notify_all() after storing.
template <class T>
void wait_while_equal(const std::atomic<T>& value, T old) {
  constexpr int kMost = 1000, kLeast = 200;  // pauses, of 40 to 140 cycles each
  constexpr std::chrono::microseconds kSoon(50);
  thread_local int spins = kMost;  // twice what sufficed last
  for (int i = 0; i < spins; ++i) {
    if (value.load() != old) {
      spins = std::clamp(2 * i, kLeast, kMost);
      return;
    }
    pause_thread();
  }
  const auto begin = std::chrono::steady_clock::now();
  value.wait(old);
  const bool soon = std::chrono::steady_clock::now() - begin < kSoon;
  spins = soon ? kMost : std::max(kLeast, spins / 4);
}

}  // namespace sluice::core::cpu
