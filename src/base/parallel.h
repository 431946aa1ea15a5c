// SPDX-License-Identifier: Apache-2.0
// Independent pieces of work on several threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

namespace sluice::core {

// Calls fn(0) ... fn(count - 1), `threads` at a time, beginning in order; stops beginning more once `stop` is
// true. Returns when all that began have returned.
void for_each_parallel(int64_t count, int threads, const std::atomic<bool>& stop,
                       const std::function<void(int64_t)>& fn);
void for_each_parallel(int64_t count, int threads, const std::function<void(int64_t)>& fn);

// As many as the machine runs at once, at most 32: what a search can use, and other work beside ops.
int search_threads();

}  // namespace sluice::core
