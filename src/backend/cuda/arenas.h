// The two arenas of the CUDA backend and what they cost.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "backend/backend.h"
#include "backend/cuda/device.h"
#include "base/status.h"

namespace sluice::cuda {

// Memory on the device, freed with the object.
class DeviceArena {
 public:
  DeviceArena() = default;
  // The error names the bytes asked for, what is free, and who holds the rest if that is known.
  static Result<DeviceArena> reserve(int64_t bytes, const CudaDevice& device, const Nvml& nvml);

  std::byte* data() const { return data_.get(); }
  int64_t bytes() const { return bytes_; }

 private:
  struct Free {
    void operator()(std::byte* p) const;
  };
  std::unique_ptr<std::byte, Free> data_;
  int64_t bytes_ = 0;
};

// Main memory that the GPU can copy from and to at full speed: touched by all processors, on huge pages where
// the system grants them, then registered with CUDA in one piece.
class HostArena {
 public:
  HostArena() : mapping_(nullptr, Unmap{0, false}) {}
  static Result<HostArena> reserve(int64_t bytes);

  std::byte* data() const { return mapping_.get(); }
  int64_t bytes() const { return mapping_.get_deleter().bytes; }
  bool contains(const void* p) const {
    const auto* byte = static_cast<const std::byte*>(p);
    return data() != nullptr && byte >= data() && byte < data() + bytes();
  }

 private:
  struct Unmap {
    int64_t bytes;
    bool registered;
    void operator()(std::byte* p) const;
  };
  std::unique_ptr<std::byte, Unmap> mapping_;
};

// Resident bytes of this process; registered memory is resident like any other.
int64_t resident_bytes();

}  // namespace sluice::cuda
