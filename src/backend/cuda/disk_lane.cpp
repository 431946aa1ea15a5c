// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/disk_lane.h"

#include <algorithm>

#include "backend/cuda/check.h"

namespace sluice::core::cuda {

Result<std::unique_ptr<DiskLane>> DiskLane::create() {
  std::unique_ptr<DiskLane> lane(new DiskLane());
  SLUICE_CUDA_TRY(
      cudaHostAlloc(reinterpret_cast<void**>(lane->ring_.receive()), 2 * kHalfBytes, cudaHostAllocDefault));
  SLUICE_CUDA_TRY(cudaStreamCreateWithFlags(lane->copies_.receive(), cudaStreamNonBlocking));
  for (Half& half : lane->halves_) {
    for (Event* event : {&half.filled, &half.freed})
      SLUICE_CUDA_TRY(cudaEventCreateWithFlags(event->receive(), cudaEventDisableTiming));
  }
  return lane;
}

Status DiskLane::copy(uint32_t command, DiskReaders& disk, int64_t offset, std::byte* to, int64_t bytes,
                      cudaStream_t stream) {
  constexpr auto kRead = [](void* of) {
    const auto& piece = *static_cast<const Piece*>(of);
    piece.lane->read(piece);
  };
  const Half* last = nullptr;
  for (int64_t at = 0; at < bytes; at += kHalfBytes) {
    const size_t number = queued_++ % 2;
    Half& half = halves_[number];
    last = &half;
    const std::span<std::byte> ring(ring_.get() + int64_t(number) * kHalfBytes,
                                    size_t(std::min(kHalfBytes, bytes - at)));
    Piece& piece = pieces_.emplace_back(Piece{this, &disk, offset + at, ring, command});
    SLUICE_CUDA_TRY(cudaStreamWaitEvent(stream, half.freed.get(), 0));
    SLUICE_CUDA_TRY(cudaLaunchHostFunc(stream, kRead, &piece));
    SLUICE_CUDA_TRY(cudaEventRecord(half.filled.get(), stream));
    SLUICE_CUDA_TRY(cudaStreamWaitEvent(copies_.get(), half.filled.get(), 0));
    SLUICE_CUDA_TRY(
        cudaMemcpyAsync(to + at, ring.data(), ring.size(), cudaMemcpyHostToDevice, copies_.get()));
    SLUICE_CUDA_TRY(cudaEventRecord(half.freed.get(), copies_.get()));
  }
  if (last != nullptr) SLUICE_CUDA_TRY(cudaStreamWaitEvent(stream, last->freed.get(), 0));
  return {};
}

void DiskLane::read(const Piece& piece) {
  if (failure()) return;
  const Status done = piece.disk->read(piece.offset, piece.to);
  const std::lock_guard lock(mutex_);
  if (!done.ok() && !failure_) failure_ = Fault{piece.command, done.error()};
}

std::optional<Fault> DiskLane::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

}  // namespace sluice::core::cuda
