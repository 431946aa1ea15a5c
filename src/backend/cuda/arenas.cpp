#include "backend/cuda/arenas.h"

#include <cuda_runtime.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

#include "backend/cuda/check.h"
#include "base/bytes.h"

namespace sluice::cuda {
namespace {

constexpr int64_t kHugePage = 2 * kMiB;

// Writes to every page, so that the system hands them out now, and in parallel.
void touch(std::byte* data, int64_t bytes) {
  const int64_t page = sysconf(_SC_PAGESIZE);
  const int64_t workers = std::max<int64_t>(1, std::thread::hardware_concurrency());
  const int64_t share = align_up((bytes + workers - 1) / workers, kHugePage);
  std::vector<std::jthread> threads;
  for (int64_t begin = 0; begin < bytes; begin += share) {
    threads.emplace_back([=, end = std::min(begin + share, bytes)] {
      for (int64_t at = begin; at < end; at += page) data[at] = std::byte{0};
    });
  }
}

}  // namespace

Result<DeviceArena> DeviceArena::reserve(int64_t bytes, const CudaDevice& device, const Nvml& nvml) {
  DeviceArena arena;
  if (bytes == 0) return arena;
  void* data = nullptr;
  const cudaError_t code = cudaMalloc(&data, size_t(bytes));
  if (code == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // an allocation that failed is no lasting error
    size_t free = 0, total = 0;
    SLUICE_CUDA_TRY(cudaMemGetInfo(&free, &total));
    const std::string others = nvml.others();
    return error("the device arena needs {}, but {} has {} free of {}{}{}: lower the device cap",
                 format_bytes(bytes), device.name, format_bytes(int64_t(free)), format_bytes(int64_t(total)),
                 others.empty() ? "" : "; ", others);
  }
  SLUICE_TRY(check(code, "cudaMalloc"));
  arena.data_.reset(static_cast<std::byte*>(data));
  arena.bytes_ = bytes;
  return arena;
}

void DeviceArena::Free::operator()(std::byte* p) const {
  cudaFree(p);
}

Result<HostArena> HostArena::reserve(int64_t bytes) {
  HostArena arena;
  if (bytes == 0) return arena;
  const int64_t mapped = align_up(bytes, kHugePage);
  void* data = mmap(nullptr, size_t(mapped), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    return error("the host arena needs {}, but the system does not give it: mmap: {}", format_bytes(bytes),
                 std::strerror(errno));
  }
  arena.mapping_ = {static_cast<std::byte*>(data), Unmap{mapped, false}};
  madvise(data, size_t(mapped), MADV_HUGEPAGE);  // a wish; plain pages work too
  touch(arena.data(), mapped);
  if (const Status status =
          check(cudaHostRegister(data, size_t(mapped), cudaHostRegisterPortable), "cudaHostRegister");
      !status.ok()) {
    cudaGetLastError();
    return error("the host arena of {} cannot be pinned: {}; see the limit on locked memory (ulimit -l)",
                 format_bytes(bytes), status.message());
  }
  arena.mapping_.get_deleter().registered = true;
  return arena;
}

void HostArena::Unmap::operator()(std::byte* p) const {
  if (registered) cudaHostUnregister(p);
  munmap(p, size_t(bytes));
}

int64_t resident_bytes() {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen("/proc/self/statm", "r"),
                                                             std::fclose);
  long long size = 0, resident = 0;
  if (!file || std::fscanf(file.get(), "%lld %lld", &size, &resident) != 2) return 0;
  return int64_t{resident} * sysconf(_SC_PAGESIZE);
}

}  // namespace sluice::cuda
