// SPDX-License-Identifier: Apache-2.0
// Waiting for another thread: awake for about 50 µs, since the next command of a step comes within
// microseconds, then asleep.
#pragma once

#include <atomic>

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
  constexpr int kSpins = 1000;  // of 40 to 140 cycles each
  for (int i = 0; i < kSpins; ++i) {
    if (value.load() != old) return;
    pause_thread();
  }
  value.wait(old);
}

}  // namespace sluice::core::cpu
