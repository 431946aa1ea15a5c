// SPDX-License-Identifier: Apache-2.0
// Where the bytes of a checkpoint come from. It is the arenas, piece by piece while the run waits. Or it is a
// copy of them in memory of its own, from which another thread writes while the run goes on.
#pragma once

#include <functional>
#include <span>
#include <utility>

#include "checkpoint/layout.h"
#include "exec/executor.h"

namespace sluice::core {

// Bytes [offset, offset + bytes) of a part; they hold until the next call.
using PartReader =
    std::function<Result<std::span<const std::byte>>(const StoredPart&, int64_t offset, int64_t bytes)>;

// Those bytes, from an arena.
Status read_part(const Executor& executor, const StoredPart& part, int64_t offset, std::span<std::byte> to);

// From the arenas, through memory of one piece. Borrows the executor, between steps.
PartReader reader_of(const Executor& executor);

// A copy of all parts of a layout. It takes layout.part_bytes of host memory, which go back to the operating
// system when it is destroyed, and sooner piece by piece behind a reader.
class StateCopy {
 public:
  // On all cores, between steps. An error if the memory cannot be had.
  static Result<StateCopy> take(const CheckpointLayout& layout, const Executor& executor);

  StateCopy(StateCopy&& other) noexcept : memory_(std::exchange(other.memory_, {})) {}
  StateCopy& operator=(StateCopy&&) = delete;
  ~StateCopy();

  // Reads every part once, in the layout's order: what lies before a piece that is read is gone. Borrows the
  // copy.
  PartReader reader();

 private:
  explicit StateCopy(std::span<std::byte> memory) : memory_(memory) {}

  std::span<std::byte> memory_;
  int64_t released_bytes_ = 0;
};

}  // namespace sluice::core
