// SPDX-License-Identifier: Apache-2.0
// Pinned memory through which bytes come from the device to memory that is not pinned.
//
// The driver's own copies to such memory wait for one another. Most of one is the filling of memory that is
// new to the process, at some 4 GB/s. Here each thread has a piece, and the link works for one while others
// fill.
#pragma once

#include <condition_variable>
#include <mutex>
#include <vector>

#include "backend/cuda/handle.h"
#include "base/status.h"

namespace sluice::core::cuda {

class Staging {
 public:
  static constexpr int64_t kPieceBytes = 2 << 20;
  static constexpr int kPieces = 16;  // at most: 32 MiB of the host's margin

  // Copies from the current device, on any thread, several at once. Does not wait for other work of the
  // device.
  Status download(std::byte* to, const std::byte* from, int64_t bytes);

 private:
  struct Piece {
    Stream stream;
    Handle<void*, cudaFreeHost> pinned;
  };
  // Made when it is first needed; waits while all are in use.
  Result<Piece> take();
  void give_back(Piece piece);

  std::mutex mutex_;
  std::condition_variable freed_;
  std::vector<Piece> free_;
  int made_ = 0;
};

}  // namespace sluice::core::cuda
