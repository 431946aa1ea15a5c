// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/staging.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "backend/cuda/check.h"

namespace sluice::core::cuda {
namespace {

Status download_through(std::byte* pinned, cudaStream_t stream, std::byte* to, const std::byte* from,
                        int64_t bytes) {
  for (int64_t done = 0; done < bytes; done += Staging::kPieceBytes) {
    const auto now = size_t(std::min(Staging::kPieceBytes, bytes - done));
    SLUICE_CUDA_TRY(cudaMemcpyAsync(pinned, from + done, now, cudaMemcpyDeviceToHost, stream));
    SLUICE_CUDA_TRY(cudaStreamSynchronize(stream));
    std::memcpy(to + done, pinned, now);
  }
  return {};
}

}  // namespace

Status Staging::download(std::byte* to, const std::byte* from, int64_t bytes) {
  SLUICE_ASSIGN(Piece piece, take());
  const Status status =
      download_through(static_cast<std::byte*>(piece.pinned.get()), piece.stream.get(), to, from, bytes);
  give_back(std::move(piece));
  return status;
}

Result<Staging::Piece> Staging::take() {
  {
    std::unique_lock lock(mutex_);
    freed_.wait(lock, [&] { return !free_.empty() || made_ < kPieces; });
    if (!free_.empty()) {
      Piece piece = std::move(free_.back());
      free_.pop_back();
      return piece;
    }
    ++made_;
  }
  Piece piece;
  const auto make = [&]() -> Status {
    SLUICE_CUDA_TRY(cudaStreamCreateWithFlags(piece.stream.receive(), cudaStreamNonBlocking));
    SLUICE_CUDA_TRY(cudaMallocHost(piece.pinned.receive(), size_t(kPieceBytes)));
    return {};
  };
  if (const Status made = make(); !made.ok()) {
    const std::lock_guard lock(mutex_);
    --made_;
    freed_.notify_one();
    return made.error();
  }
  return piece;
}

void Staging::give_back(Piece piece) {
  const std::lock_guard lock(mutex_);
  free_.push_back(std::move(piece));
  freed_.notify_one();
}

}  // namespace sluice::core::cuda
