// SPDX-License-Identifier: Apache-2.0
// What a network lane runs on: the other processes of a job.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/dtype.h"
#include "base/status.h"

namespace sluice::core {

// Host memory beside its arena through which a device that is not the host's exchanges, each of a process.
constexpr int64_t kNetworkStagingBytes = 16 << 20;

class Network {
 public:
  virtual ~Network() = default;

  virtual int processes() const = 0;
  virtual int rank() const = 0;  // of this process, from 0
  // The task that this process is at, for the others to know while they wait for it. Any thread.
  virtual void at(std::string_view /*task*/) {}
  // Makes `values`, f32 or bf16 by `dtype`, their sums over all processes, in an order that the number of
  // processes alone gives, with equal bits on all: as SumOverProcesses says. Every process makes the same
  // calls in the same order; one at a time, on any thread. Errors are of kind Device.
  virtual Status sum(std::span<std::byte> values, DType dtype) = 0;
  // Fills `all` with every process's `own`, in the order of ranks. REQUIRES: equal sizes on all.
  virtual Status gather(std::span<const std::byte> own, std::span<std::byte> all) = 0;
  // Gives every process what `root` has in `bytes`.
  virtual Status broadcast(std::span<std::byte> bytes, int root) = 0;
  // Sends `out` to one process and fills `in` from another; either may be empty, and is then not sent or not
  // awaited. Lengths match on both sides.
  virtual Status exchange(std::span<const std::byte> out, int to, std::span<std::byte> in, int from) = 0;
};

}  // namespace sluice::core
