// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/thread_pool.h"

#include "backend/cpu/spin.h"
#include "base/check.h"

namespace sluice::core::cpu {

ThreadPool::ThreadPool(int threads) {
  SLUICE_CHECK(threads >= 1, "a pool of {} threads", threads);
  for (int worker = 1; worker < threads; ++worker) {
    workers_.emplace_back([this, worker] { serve(worker); });
  }
}

ThreadPool::~ThreadPool() {
  stop_.store(true);
  open_.store(++jobs_);
  open_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run(int64_t count, Call call, void* fn) {
  if (workers_.empty() || count <= 1) {
    for (int64_t task = 0; task < count; ++task) call(fn, task, 0);
    return;
  }
  call_ = call;
  fn_ = fn;
  count_ = count;
  next_.store(0, std::memory_order_relaxed);
  if (++jobs_ == 0) ++jobs_;
  open_.store(jobs_);
  open_.notify_all();
  work(0);
  // Close, then wait for who is inside. A worker enters before it looks whether the job is open, so either it
  // sees the job closed or it is seen here. A worker still asleep is not waited for.
  open_.store(0);
  for (;;) {
    const uint32_t inside = inside_.load();
    if (inside == 0) break;
    wait_while_equal(inside_, inside);
  }
}

void ThreadPool::work(int worker) {
  for (;;) {
    const int64_t task = next_.fetch_add(1, std::memory_order_relaxed);
    if (task >= count_) return;
    call_(fn_, task, worker);
  }
}

void ThreadPool::serve(int worker) {
  uint32_t seen = 0;
  for (;;) {
    wait_while_equal(open_, seen);
    if (stop_.load()) return;
    seen = open_.load();
    if (seen == 0) continue;
    inside_.fetch_add(1);
    if (open_.load() == seen) work(worker);
    if (inside_.fetch_sub(1) == 1) inside_.notify_one();
  }
}

}  // namespace sluice::core::cpu
