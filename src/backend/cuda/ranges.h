// SPDX-License-Identifier: Apache-2.0
// NVTX ranges around the commands as they are queued: step, round, layer, chunk, task. Profilers project them
// to the GPU.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace sluice::core::cuda {

// A stack of open ranges on the thread that queues commands. A path names ranges from the outermost in,
// separated by slashes; those that two commands in a row share stay open. Without a profiler a command costs
// some tens of nanoseconds.
class Ranges {
 public:
  void begin_step();
  // The command of `path` is about to be queued. The path outlives the step. A copy's range lies in those
  // that are open: it ends no layer.
  void enter(std::string_view path, bool copy);
  void end_step();

 private:
  static constexpr size_t kDepth = 8;  // deeper parts of a path stay one

  void close_to(size_t depth);

  std::array<std::string_view, kDepth> open_;
  size_t depth_ = 0;
  size_t outer_ = 0;  // of them, those that are no command's own
};

}  // namespace sluice::core::cuda
