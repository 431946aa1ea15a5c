// SPDX-License-Identifier: Apache-2.0
#include "base/parallel.h"

#include <algorithm>
#include <thread>
#include <vector>

namespace sluice::core {

void for_each_parallel(int64_t count, int threads, const std::atomic<bool>& stop,
                       const std::function<void(int64_t)>& fn) {
  std::atomic<int64_t> next = 0;
  const auto work = [&] {
    while (!stop) {
      const int64_t i = next.fetch_add(1);
      if (i >= count) return;
      fn(i);
    }
  };
  std::vector<std::thread> others;
  for (int i = 1; i < std::min<int64_t>(threads, count); ++i) others.emplace_back(work);
  work();
  for (std::thread& t : others) t.join();
}

void for_each_parallel(int64_t count, int threads, const std::function<void(int64_t)>& fn) {
  const std::atomic<bool> never = false;
  for_each_parallel(count, threads, never, fn);
}

int search_threads() {
  return int(std::clamp(std::thread::hardware_concurrency(), 1u, 32u));
}

}  // namespace sluice::core
