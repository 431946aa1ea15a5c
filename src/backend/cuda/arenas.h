// SPDX-License-Identifier: Apache-2.0
// The two arenas of the CUDA backend and what they cost.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "backend/backend.h"
#include "backend/cuda/device.h"
#include "base/status.h"
#include "host/host_pages.h"

namespace sluice::core::cuda {

// Memory on the device, freed with the object.
class DeviceArena {
 public:
  DeviceArena() = default;
  // The error names the bytes asked for, what is free, and who holds the rest as far as that is known.
  // `others_bytes`: in use before this process came.
  static Result<DeviceArena> reserve(int64_t bytes, const CudaDevice& device, const Nvml& nvml,
                                     int64_t others_bytes);

  std::byte* data() const { return data_.get(); }
  int64_t bytes() const { return bytes_; }

 private:
  struct Free {
    void operator()(std::byte* p) const;
  };
  std::unique_ptr<std::byte, Free> data_;
  int64_t bytes_ = 0;
};

// Main memory that the GPU can copy from and to at full speed: on huge pages where the system grants them,
// and registered with CUDA. A hundred gigabytes take the better part of a minute, so it happens in pieces, on
// threads of its own, while the owner already writes to the memory. It is readable, writable and zero from
// the start.
class HostArena {
 public:
  HostArena();
  ~HostArena();
  HostArena(HostArena&&) noexcept;
  HostArena& operator=(HostArena&&) noexcept;

  // Maps the memory, with pages for `parts` where they shall lie, and begins to register it with `device`.
  // The error names what is available.
  static Result<HostArena> reserve(int64_t bytes, int device, std::span<const NearPart> parts);
  // Has the arena hold so many bytes and registers those that are new; `parts` are of all of it. What it
  // holds stays, and where: there are addresses for as much as the machine has. After an error it is as it
  // was. REQUIRES: wait() was called.
  Status grow(int64_t bytes, std::span<const NearPart> parts);
  // Waits until all of it is registered. Copies of the GPU need that; plain access does not.
  Status wait();

  std::byte* data() const;
  int64_t bytes() const;
  // How many of `bytes` bytes from p on lie in one registered piece: a copy of the GPU may not leave it.
  // REQUIRES: p lies in the arena.
  int64_t in_one_piece(const void* p, int64_t bytes) const;

 private:
  struct Mapping;
  std::unique_ptr<Mapping> mapping_;
};

}  // namespace sluice::core::cuda
