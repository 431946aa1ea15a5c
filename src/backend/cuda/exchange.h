// SPDX-License-Identifier: Apache-2.0
// What processes exchange on a GPU's network lane: from GPU to GPU where they are joined, or else by way of
// the host.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>

#include "backend/backend.h"
#include "backend/cuda/direct.h"
#include "backend/cuda/handle.h"
#include "base/network.h"
#include "base/status.h"

namespace sluice::core::cuda {

class Exchange {
 public:
  // The device is current. Borrows the network, and what joins the GPUs; null: there are no other processes,
  // or GPUs are not joined.
  static Result<std::unique_ptr<Exchange>> create(Network* network, DirectNetwork* direct);
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  // An error where an op was planned for another number of processes.
  Status check_processes(int64_t planned) const;
  // Device memory for the partial sums of one SumSq: the workspace in the arena is that of the compute lane.
  // With a network it is there from the start.
  Result<std::byte*> partials();

  // Names the next exchange.
  void at(uint32_t command, std::string_view task) { command_ = command, task_ = task; }
  // Queues: `values`, f32 or bf16 of the device by `dtype`, become their sums over all processes. By way of
  // the host the stream's work waits meanwhile, and the driver's thread that runs it; other streams go on.
  Status sum(std::byte* values, int64_t bytes, DType dtype, cudaStream_t stream);
  // The same: they become what process `root` has.
  Status broadcast(std::byte* values, int64_t bytes, int root, cudaStream_t stream);

  // The first failure: after an error nothing more is exchanged. Any thread.
  std::optional<Fault> failure() const;
  // Forgets the exchanges of the step before, all of which have run.
  void begin_step() { pieces_.clear(); }

 private:
  struct Kind {
    DType dtype = DType::F32;  // of a sum
    int root = -1;             // of a broadcast
  };
  // A piece of work for the driver's thread.
  struct Piece {
    Exchange* exchange;
    int64_t bytes;
    Kind kind;
    uint32_t command;
    std::string_view task;
  };

  Exchange(Network* network, DirectNetwork* direct) : network_(network), direct_(direct) {}
  // Queues around what GPUs exchange: the others are told what this process waits in.
  Status enter(cudaStream_t stream);
  Status leave(cudaStream_t stream);
  Status exchange(std::byte* values, int64_t bytes, Kind kind, cudaStream_t stream);
  // On the driver's thread, which may not call CUDA, as libraries of networks do: waits until work() has run
  // it.
  void wait_for(const Piece& piece);
  void work();

  Network* network_;
  DirectNetwork* direct_;
  Handle<std::byte*, &cudaFreeHost> staged_;  // pinned, kNetworkStagingBytes, where GPUs are not joined
  Handle<std::byte*, &cudaFree> partials_;
  uint32_t command_ = 0;
  std::string_view task_;
  std::deque<Piece> pieces_;  // of this step

  mutable std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  const Piece* given_ = nullptr;  // to the worker, until it has run
  bool ends_ = false;
  std::optional<Fault> failure_;
  std::thread worker_;  // by way of the host
};

}  // namespace sluice::core::cuda
