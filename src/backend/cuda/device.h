// SPDX-License-Identifier: Apache-2.0
// The GPU: finding it, and who uses how much of its memory.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "backend/cuda/cuda_backend.h"
#include "base/status.h"

namespace sluice::core::cuda {

// Makes the device current, which creates this process's context on it, and returns its description. The
// error says what is missing: a driver, a newer driver, the device, or compute capability 8.0.
Result<CudaDevice> open_device(int index);

// The driver's management library (NVML), loaded when it is there: the only source that tells this process's
// device memory from that of others.
class Nvml {
 public:
  // Watches a GPU. Without NVML every question has no answer.
  static std::shared_ptr<const Nvml> open(int device);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  // Bytes of the device, and those in use by anyone.
  struct Memory {
    int64_t total, used;
  };
  std::optional<Memory> memory() const;
  // Bytes that this process holds, its context included; unknown in most containers. The tables of what it
  // has pinned are no process's.
  std::optional<int64_t> own_bytes() const;
  // That processes hold which the driver names.
  int64_t named_bytes() const;
  // Generation and width of the link to the host at its best, if known.
  struct Pcie {
    unsigned generation, width;
  };
  std::optional<Pcie> pcie() const;
  // The version of the kernel driver, such as "580.65.06"; empty if unknown.
  std::string driver_version() const;
  // "process 123 holds 4.2 GiB, ..." for all others; empty if none is known.
  std::string others() const;

 private:
  struct Functions;
  Nvml() = default;

  std::unique_ptr<Functions> functions_;
};

}  // namespace sluice::core::cuda
