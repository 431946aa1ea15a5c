// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/exchange.h"

#include <algorithm>

#include "backend/cuda/check.h"
#include "ops/gpu_partials.h"

namespace sluice::core::cuda {

Result<std::unique_ptr<Exchange>> Exchange::create(Network* network, DirectNetwork* direct) {
  std::unique_ptr<Exchange> exchange(new Exchange(network, direct));
  if (network == nullptr) return exchange;
  SLUICE_TRY(exchange->partials());
  if (direct != nullptr) return exchange;
  SLUICE_CUDA_TRY(cudaHostAlloc(reinterpret_cast<void**>(exchange->staged_.receive()), kNetworkStagingBytes,
                                cudaHostAllocDefault));
  exchange->worker_ = std::thread([of = exchange.get()] { of->work(); });
  return exchange;
}

Exchange::~Exchange() {
  if (!worker_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  worker_.join();
}

Result<std::byte*> Exchange::partials() {
  if (!partials_)
    SLUICE_CUDA_TRY(
        cudaMalloc(reinterpret_cast<void**>(partials_.receive()), kSumSqPartials * size_of(DType::F64)));
  return partials_.get();
}

Status Exchange::check_processes(int64_t planned) const {
  const int processes = network_ == nullptr ? 1 : network_->size();
  if (processes == planned) return {};
  return error(ErrorKind::Internal, "an exchange of {} processes in a job of {}", planned, processes);
}

Status Exchange::sum(std::byte* values, int64_t bytes, DType dtype, cudaStream_t stream) {
  if (direct_ == nullptr) return exchange(values, bytes, {.dtype = dtype}, stream);
  SLUICE_TRY(enter(stream));
  SLUICE_TRY(direct_->sum(values, bytes, dtype, stream));
  return leave(stream);
}

Status Exchange::broadcast(std::byte* values, int64_t bytes, int root, cudaStream_t stream) {
  if (direct_ == nullptr) return exchange(values, bytes, {.root = root}, stream);
  SLUICE_TRY(enter(stream));
  SLUICE_TRY(direct_->broadcast(values, bytes, root, stream));
  return leave(stream);
}

Status Exchange::enter(cudaStream_t stream) {
  constexpr auto kEnter = [](void* of) {
    const auto& piece = *static_cast<const Piece*>(of);
    piece.exchange->network_->enter(piece.task);
  };
  Piece& piece = pieces_.emplace_back(Piece{this, 0, {}, command_, task_});
  SLUICE_CUDA_TRY(cudaLaunchHostFunc(stream, kEnter, &piece));
  return {};
}

Status Exchange::leave(cudaStream_t stream) {
  constexpr auto kLeave = [](void* network) { static_cast<Network*>(network)->leave(); };
  SLUICE_CUDA_TRY(cudaLaunchHostFunc(stream, kLeave, network_));
  return {};
}

Status Exchange::exchange(std::byte* values, int64_t bytes, Kind kind, cudaStream_t stream) {
  constexpr auto kRun = [](void* of) {
    const auto& piece = *static_cast<const Piece*>(of);
    piece.exchange->wait_for(piece);
  };
  for (int64_t at = 0; at < bytes; at += kNetworkStagingBytes) {
    const int64_t count = std::min(kNetworkStagingBytes, bytes - at);
    Piece& piece = pieces_.emplace_back(Piece{this, count, kind, command_, task_});
    SLUICE_CUDA_TRY(
        cudaMemcpyAsync(staged_.get(), values + at, size_t(count), cudaMemcpyDeviceToHost, stream));
    SLUICE_CUDA_TRY(cudaLaunchHostFunc(stream, kRun, &piece));
    SLUICE_CUDA_TRY(
        cudaMemcpyAsync(values + at, staged_.get(), size_t(count), cudaMemcpyHostToDevice, stream));
  }
  return {};
}

void Exchange::wait_for(const Piece& piece) {
  std::unique_lock lock(mutex_);
  given_ = &piece;
  changed_.notify_all();
  changed_.wait(lock, [&] { return given_ == nullptr; });
}

void Exchange::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return ends_ || given_ != nullptr; });
    if (given_ == nullptr) return;
    const Piece& piece = *given_;
    if (!failure_) {
      lock.unlock();
      network_->at(piece.task);
      const std::span<std::byte> values(staged_.get(), size_t(piece.bytes));
      const Status done = piece.kind.root < 0 ? network_->sum(values, piece.kind.dtype)
                                              : network_->broadcast(values, piece.kind.root);
      lock.lock();
      if (!done.ok()) failure_ = Fault{piece.command, done.error()};
    }
    given_ = nullptr;
    changed_.notify_all();
  }
}

std::optional<Fault> Exchange::failure() const {
  if (direct_ != nullptr) {
    const Status state = direct_->state();
    return state.ok() ? std::nullopt : std::optional(Fault{command_, state.error()});
  }
  const std::lock_guard lock(mutex_);
  return failure_;
}

}  // namespace sluice::core::cuda
