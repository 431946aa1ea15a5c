// SPDX-License-Identifier: Apache-2.0
// The lane from the disk to a GPU: the driver's thread reads into one half of a pinned ring while the GPU
// copies from the other.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <optional>

#include "backend/backend.h"
#include "backend/cuda/handle.h"

namespace sluice::core::cuda {

class DiskLane {
 public:
  // The device is current.
  static Result<std::unique_ptr<DiskLane>> create();

  // Queues: bytes of the disk from `offset` on come to the device. The stream's work behind waits for them.
  Status copy(uint32_t command, DiskReaders& disk, int64_t offset, std::byte* to, int64_t bytes,
              cudaStream_t stream);

  // The first failure: after one nothing more is read. Any thread.
  std::optional<Fault> failure() const;
  // Forgets the reads of the step before, all of which have run.
  void begin_step() { pieces_.clear(); }

 private:
  static constexpr int64_t kHalfBytes = (kDiskRingBytes - kDiskReaders * kDiskPieceBytes) / 2;
  struct Piece {
    DiskLane* lane;
    DiskReaders* disk;
    int64_t offset;
    std::span<std::byte> to;
    uint32_t command;
  };
  struct Half {
    Event filled, freed;
  };

  DiskLane() = default;
  // On the driver's thread, which may not call CUDA.
  void read(const Piece& piece);

  Handle<std::byte*, &cudaFreeHost> ring_;
  Half halves_[2];
  Stream copies_;
  size_t queued_ = 0;         // pieces, of all steps
  std::deque<Piece> pieces_;  // of this step

  mutable std::mutex mutex_;
  std::optional<Fault> failure_;  // under the mutex
};

}  // namespace sluice::core::cuda
