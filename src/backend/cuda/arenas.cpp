// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/arenas.h"

#include <cuda_runtime.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
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
// some 3 GB/s together: one thread registers what others gave pages. Several would stand in line there, and
// with them whoever copies to the device meanwhile: behind 16 of them uploads of 512 KiB came at 10 MiB/s. A
// thread that waits there cannot be ended: a signal is obeyed once it has its piece.
constexpr int64_t kPiece = 64 * kMiB;
constexpr int64_t kMostThreads = 16;
// Between two pieces others get in.
constexpr std::chrono::microseconds kPause{300};

// Addresses for an arena that grows: they cost nothing, unless they are limited (ulimit -v).
int64_t addresses_bytes() {
  rlimit limit{};
  const int64_t all = host_limit().bytes;
  const bool free = getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur == RLIM_INFINITY;
  return free && all != kUnlimited ? align_up(all, kHugePage) : 0;
}

// The system would promise more main memory than it has, and end a process that takes it at its word.
Status is_available(int64_t bytes) {
  if (const int64_t available = available_bytes(); bytes > available) {
    return error(ErrorKind::Device,
                 "the host arena needs {}, but only {} of main memory are available: lower the host cap",
                 format_bytes(bytes), format_bytes(available));
  }
  return {};
}

}  // namespace

// The memory and the threads that register it. Lives in one place, as they refer to it.
struct HostArena::Mapping {
  std::byte* data = nullptr;
  int64_t bytes = 0, most_bytes = 0;  // in use, and of addresses
  int device = 0;
  struct Piece {
    int64_t begin, bytes;
    bool has_pages = false;  // guarded by `mutex`
    bool registered = false;
  };
  std::vector<Piece> pieces;   // ascending; as they are while threads run
  std::atomic<size_t> next{};  // piece that gets pages
  std::mutex mutex;
  std::condition_variable changed;  // pages, or that all end
  bool ended = false;               // guarded by `mutex`
  Status status;
  std::vector<std::jthread> threads;

  // Calls f(piece) for every piece from `first` on, on threads of its own.
  template <class F>
  void start(size_t first, F f) {
    next = first;
    const size_t most =
        std::min<size_t>(size_t(kMostThreads), std::max(1u, std::thread::hardware_concurrency()));
    for (size_t t = 0; t < std::min(pieces.size() - first, most); ++t) {
      threads.emplace_back([this, f] {
        for (size_t piece = next++; piece < pieces.size(); piece = next++) f(pieces[piece]);
      });
    }
  }

  // Lets `to` bytes be touched.
  Status open(int64_t to) {
    if (mprotect(data + bytes, size_t(to - bytes), PROT_READ | PROT_WRITE) != 0) {
      return error(ErrorKind::Device,
                   "the host arena needs {}, but the system does not give it: mprotect: {}", format_bytes(to),
                   std::strerror(errno));
    }
    madvise(data, size_t(to), MADV_HUGEPAGE);  // a wish; plain pages work too
    return {};
  }

  // Has it hold `to` bytes, and begins to register those that are new.
  void extend(int64_t to) {
    const size_t first = pieces.size();
    for (; bytes < to; bytes += pieces.back().bytes) pieces.push_back({bytes, std::min(kPiece, to - bytes)});
    ended = false;
    start(first, [this](Piece& piece) {
      populate(data + piece.begin, piece.bytes);
      {
        const std::lock_guard lock(mutex);
        piece.has_pages = true;
      }
      changed.notify_all();
    });
    threads.emplace_back([this, first] { register_from(first); });
  }

  // Gives back what came by a call of extend() that failed. REQUIRES: no thread runs.
  void shrink(int64_t to) {
    for (; !pieces.empty() && pieces.back().begin >= to; pieces.pop_back()) {
      if (pieces.back().registered) cudaHostUnregister(data + pieces.back().begin);
    }
    madvise(data + to, size_t(bytes - to), MADV_DONTNEED);
    bytes = to;
    status = {};
  }

  void register_from(size_t first) {
    cudaSetDevice(device);  // else this thread would open a context on the first GPU
    for (size_t i = first; i < pieces.size(); ++i) {
      Piece& piece = pieces[i];
      {
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return piece.has_pages || ended; });
        if (ended) return;
      }
      const Status done =
          check(cudaHostRegister(data + piece.begin, size_t(piece.bytes), cudaHostRegisterPortable),
                "cudaHostRegister");
      if (!done.ok()) {
        cudaGetLastError();  // of this thread
        status =
            error(ErrorKind::Device,
                  "the host arena of {} cannot be pinned: {}; see the limit on locked memory (ulimit -l)",
                  format_bytes(bytes), done.message());
        next = pieces.size();  // the others need not go on
        return;
      }
      piece.registered = true;
      std::this_thread::sleep_for(kPause);
    }
  }

  ~Mapping() {
    next = pieces.size();
    {
      const std::lock_guard lock(mutex);
      ended = true;
    }
    changed.notify_all();
    threads.clear();
    start(0, [this](const Piece& piece) {
      cudaSetDevice(device);
      if (piece.registered) cudaHostUnregister(data + piece.begin);
    });
    threads.clear();
    if (data != nullptr) munmap(data, size_t(most_bytes));
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
  const auto& pieces = mapping_->pieces;
  const auto behind = std::ranges::upper_bound(pieces, offset, {}, &Mapping::Piece::begin);
  return std::min(bytes, std::prev(behind)->begin + std::prev(behind)->bytes - offset);
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
  SLUICE_TRY(is_available(mapped));
  const int64_t most = std::max(mapped, addresses_bytes());
  void* data = mmap(nullptr, size_t(most), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    return error(ErrorKind::Device, "the host arena needs {}, but the system does not give it: mmap: {}",
                 format_bytes(bytes), std::strerror(errno));
  }
  arena.mapping_ = std::make_unique<Mapping>();
  Mapping& mapping = *arena.mapping_;
  mapping.data = static_cast<std::byte*>(data);
  mapping.most_bytes = most;
  mapping.device = device;
  SLUICE_TRY(mapping.open(mapped));
  // Now, as the owner may be the first to touch pages as soon as this returns.
  populate_near(mapping.data, parts);
  mapping.extend(mapped);
  return arena;
}

Status HostArena::grow(int64_t bytes, std::span<const NearPart> parts) {
  const int64_t mapped = align_up(bytes, kHugePage);
  if (mapped <= this->bytes()) return {};
  if (!mapping_ || mapped > mapping_->most_bytes) {
    return error(ErrorKind::Device, "the host arena of {} cannot grow to {}: there are addresses for {}",
                 format_bytes(this->bytes()), format_bytes(mapped),
                 format_bytes(mapping_ ? mapping_->most_bytes : 0));
  }
  SLUICE_TRY(is_available(mapped - this->bytes()));
  SLUICE_TRY(mapping_->open(mapped));
  std::vector<NearPart> added;
  for (NearPart part : parts) {
    part.begin = std::max(part.begin, this->bytes());
    if (part.begin < part.end) added.push_back(std::move(part));
  }
  populate_near(mapping_->data, added);
  const int64_t before = this->bytes();
  mapping_->extend(mapped);
  const Status pinned = wait();
  if (!pinned.ok()) mapping_->shrink(before);
  return pinned;
}

Status HostArena::wait() {
  if (!mapping_) return {};
  mapping_->threads.clear();
  return mapping_->status;
}

}  // namespace sluice::core::cuda
