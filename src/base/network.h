// SPDX-License-Identifier: Apache-2.0
// The processes of a job, for what they send one another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/status.h"

namespace sluice::core {

// Host memory beside its arena through which a device that is not the host's exchanges, each of a process.
constexpr int64_t kNetworkStagingBytes = 16 << 20;

// Joins the devices of processes, one of each, without the host between them. Every process makes the same
// calls in the same order, from one thread at a time, while nothing else is exchanged. Errors are of kind
// Device. Each kind of backend decides what it exchanges.
class DeviceNetwork {
 public:
  virtual ~DeviceNetwork() = default;
  // As `doctor` would say it: "NCCL 2.28.9".
  virtual std::string_view name() const = 0;
  virtual int64_t held_bytes() const = 0;  // of the device's memory, all of it from the start

  enum class Call {
    Sum,         // values become their sums over all processes, as SumOverProcesses says
    LibrarySum,  // the same in an order that the library chooses: to compare with, and not reproducible
    PassOn       // values become those of the process before; the first takes the last one's
  };
  // Makes the call on values of the host, f32 or bf16, by way of memory that it takes for that.
  virtual Status make(Call call, std::span<std::byte> values, DType dtype) = 0;
  // Seconds that `calls` of them take one after the other, on so many bytes of zeros of the device, by the
  // clock of this process.
  virtual Result<double> time(Call call, int64_t bytes, DType dtype, int64_t calls) = 0;
};

// Every process makes the same calls in the same order; one at a time, on any thread. Errors are of kind
// Device.
class Network {
 public:
  virtual ~Network() = default;

  virtual int rank() const = 0;  // of this process, from 0
  virtual int size() const = 0;  // processes, at least 1
  // The task that this process is at, for the others to know while they wait for it. Any thread.
  virtual void at(std::string_view /*task*/) {}
  // Around what devices exchange by other ways, for the others to know who waits for whom. Any thread.
  virtual void enter(std::string_view /*task*/) {}
  virtual void leave() {}
  // Makes `values`, f32 or bf16 by `dtype`, their sums over all processes, in an order that the number of
  // processes alone gives, with equal bits on all: as SumOverProcesses says.
  virtual Status sum(std::span<std::byte> values, DType dtype) = 0;
  // Fills `all` with every process's `own`, in the order of ranks. REQUIRES: all.size() == size() *
  // own.size(), and equal sizes on all.
  virtual Status all_gather(std::span<const std::byte> own, std::span<std::byte> all) = 0;
  // Gives every process what `root` has in `bytes`.
  virtual Status broadcast(std::span<std::byte> bytes, int root) = 0;
  // Sends `out` to one process and fills `in` from another; either may be empty, and is then not sent or not
  // awaited. Lengths match on both sides.
  virtual Status exchange(std::span<const std::byte> out, int to, std::span<std::byte> in, int from) = 0;
};

// Every process's `own`, in the order of ranks; T is plain data.
template <class T>
Result<std::vector<T>> gathered(Network& network, T own) {
  std::vector<T> all(size_t(network.size()));
  SLUICE_TRY(network.all_gather(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(all))));
  return all;
}

}  // namespace sluice::core
