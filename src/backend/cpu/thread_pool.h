// SPDX-License-Identifier: Apache-2.0
// The threads that run one op together: the caller of parallel_for() and `threads - 1` workers.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <vector>

namespace sluice::core::cpu {

// One thread at a time calls parallel_for(). Workers wait for work awake for a moment, then asleep.
class ThreadPool {
 public:
  // REQUIRES: threads >= 1
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls fn(task, worker) for every task in [0, count) and returns when all are done. Tasks start in
  // increasing order; which worker (in [0, threads())) gets one depends on timing, so a task's result must
  // not depend on it.
  template <class F>
  void parallel_for(int64_t count, F&& fn) {
    using Fn = std::remove_reference_t<F>;
    run(
        count, [](void* f, int64_t task, int worker) { (*static_cast<Fn*>(f))(task, worker); },
        const_cast<void*>(static_cast<const void*>(&fn)));
  }

 private:
  using Call = void (*)(void* fn, int64_t task, int worker);

  void run(int64_t count, Call call, void* fn);
  void work(int worker);
  void serve(int worker);

  // The job of the current call; written only while no worker is inside.
  Call call_ = nullptr;
  void* fn_ = nullptr;
  int64_t count_ = 0;

  std::atomic<int64_t> next_{0};     // first task that nobody took
  std::atomic<uint32_t> open_{0};    // number of the job that workers may enter, 0 between jobs
  std::atomic<uint32_t> inside_{0};  // workers that are looking at the job
  std::atomic<bool> stop_{false};
  uint32_t jobs_ = 0;
  std::vector<std::thread> workers_;
};

}  // namespace sluice::core::cpu
