// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/arenas.h"

#include <cuda_runtime.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

#include "backend/cuda/check.h"
#include "base/bytes.h"
#include "host/host_memory.h"

namespace sluice::core::cuda {
namespace {

// Registered at a time; also the unit that a thread works on. The driver lets one thread in after the other,
// some 3 GB/s together, and a thread that waits there cannot be ended: a signal is obeyed once all of them
// have their piece, within a second.
constexpr int64_t kPiece = 128 * kMiB;
constexpr int64_t kMostThreads = 16;

}  // namespace

// The memory and the threads that register it. Lives in one place, as they refer to it.
struct HostArena::Mapping {
  std::byte* data = nullptr;
  int64_t bytes = 0;
  int device = 0;
  std::atomic<int64_t> next = 0;  // piece to register
  std::vector<char> registered;   // by piece
  std::mutex mutex;
  Status status;  // the first error
  std::vector<std::jthread> threads;

  int64_t pieces() const { return (bytes + kPiece - 1) / kPiece; }
  int64_t piece_bytes(int64_t piece) const { return std::min(kPiece, bytes - piece * kPiece); }

  // Calls f(piece) for every piece, on threads of its own.
  template <class F>
  void start(F f) {
    next = 0;
    const int64_t most = std::min<int64_t>(kMostThreads, std::max(1u, std::thread::hardware_concurrency()));
    for (int64_t t = 0; t < std::min(pieces(), most); ++t) {
      threads.emplace_back([this, f] {
        cudaSetDevice(device);  // else a thread would open a context on the first GPU
        for (int64_t piece = next++; piece < pieces(); piece = next++) f(piece);
      });
    }
  }

  void register_piece(int64_t piece) {
    std::byte* begin = data + piece * kPiece;
    populate(begin, piece_bytes(piece));
    const Status done = check(cudaHostRegister(begin, size_t(piece_bytes(piece)), cudaHostRegisterPortable),
                              "cudaHostRegister");
    if (done.ok()) {
      registered[size_t(piece)] = 1;
      return;
    }
    cudaGetLastError();  // of this thread
    const std::lock_guard lock(mutex);
    if (status.ok()) {
      status = error(ErrorKind::Device,
                     "the host arena of {} cannot be pinned: {}; see the limit on locked memory (ulimit -l)",
                     format_bytes(bytes), done.message());
    }
    next = pieces();  // the others need not go on
  }

  ~Mapping() {
    next = pieces();
    threads.clear();
    start([this](int64_t piece) {
      if (registered[size_t(piece)]) cudaHostUnregister(data + piece * kPiece);
    });
    threads.clear();
    if (data != nullptr) munmap(data, size_t(bytes));
  }
};

HostArena::HostArena() = default;
HostArena::~HostArena() = default;
HostArena::HostArena(HostArena&&) noexcept = default;
HostArena& HostArena::operator=(HostArena&&) noexcept = default;

std::byte* HostArena::data() const {
  return mapping_ ? mapping_->data : nullptr;
}
int64_t HostArena::bytes() const {
  return mapping_ ? mapping_->bytes : 0;
}

int64_t HostArena::in_one_piece(const void* p, int64_t bytes) const {
  const int64_t offset = static_cast<const std::byte*>(p) - data();
  return std::min(bytes, kPiece - offset % kPiece);
}

Result<DeviceArena> DeviceArena::reserve(int64_t bytes, const CudaDevice& device, const Nvml& nvml,
                                         int64_t others_bytes) {
  DeviceArena arena;
  if (bytes == 0) return arena;
  void* data = nullptr;
  const cudaError_t code = cudaMalloc(&data, size_t(bytes));
  if (code == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // an allocation that failed is no lasting error
    size_t free = 0, total = 0;
    SLUICE_CUDA_TRY(cudaMemGetInfo(&free, &total));
    std::string others = nvml.others();
    if (others.empty() && others_bytes > kGiB) {
      others = fmt::format("{} were in use before this process came (nvidia-smi shows by whom)",
                           format_bytes(others_bytes));
    }
    return error(ErrorKind::Device,
                 "the device arena needs {}, but {} has {} free of {}{}{}: lower the device cap",
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

Result<HostArena> HostArena::reserve(int64_t bytes, int device, std::span<const NearPart> parts) {
  HostArena arena;
  if (bytes == 0) return arena;
  const int64_t mapped = align_up(bytes, kHugePage);
  // The system would promise more than it has, and end a process that takes it at its word.
  if (const int64_t available = available_bytes(); mapped > available) {
    return error(ErrorKind::Device,
                 "the host arena needs {}, but only {} of main memory are available: lower the host cap",
                 format_bytes(mapped), format_bytes(available));
  }
  void* data = mmap(nullptr, size_t(mapped), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    return error(ErrorKind::Device, "the host arena needs {}, but the system does not give it: mmap: {}",
                 format_bytes(bytes), std::strerror(errno));
  }
  madvise(data, size_t(mapped), MADV_HUGEPAGE);  // a wish; plain pages work too
  arena.mapping_ = std::make_unique<Mapping>();
  Mapping& mapping = *arena.mapping_;
  mapping.data = static_cast<std::byte*>(data);
  mapping.bytes = mapped;
  mapping.device = device;
  // Now, as the owner may be the first to touch pages as soon as this returns.
  populate_near(mapping.data, parts);
  mapping.registered.resize(size_t(mapping.pieces()));
  mapping.start([&mapping](int64_t piece) { mapping.register_piece(piece); });
  return arena;
}

Status HostArena::wait() {
  if (!mapping_) return {};
  mapping_->threads.clear();
  return mapping_->status;
}

}  // namespace sluice::core::cuda
