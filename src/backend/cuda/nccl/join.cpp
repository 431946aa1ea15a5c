// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <nccl.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "backend/cuda/check.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/direct.h"
#include "backend/cuda/handle.h"
#include "backend/cuda/kernels/kernels.h"
#include "base/bytes.h"
#include "base/check.h"

namespace sluice::core {
namespace cuda {
namespace {

// The piece that a rank receives at once, while it sends sums of the pieces before. NVLink takes some 0.1 ms
// for it, several times what two more launches take.
constexpr int64_t kPieceBytes = 32 << 20;
// Slices begin on so many elements: whole vectors of the adding kernel, and of NCCL's copies.
constexpr int64_t kSliceGrain = 64;

// The library is opened by whoever trains with others: a program that does not needs none. The functions
// used, by name.
struct Library {
  decltype(&ncclGetVersion) GetVersion = nullptr;
  decltype(&ncclGetErrorString) GetErrorString = nullptr;
  decltype(&ncclGetLastError) GetLastError = nullptr;
  decltype(&ncclGetUniqueId) GetUniqueId = nullptr;
  decltype(&ncclCommInitRank) CommInitRank = nullptr;
  decltype(&ncclCommDestroy) CommDestroy = nullptr;
  decltype(&ncclCommGetAsyncError) CommGetAsyncError = nullptr;
  decltype(&ncclGroupStart) GroupStart = nullptr;
  decltype(&ncclGroupEnd) GroupEnd = nullptr;
  decltype(&ncclSend) Send = nullptr;
  decltype(&ncclRecv) Recv = nullptr;
  decltype(&ncclBroadcast) Broadcast = nullptr;
  decltype(&ncclAllReduce) AllReduce = nullptr;
  std::string missing;  // empty: all are there

  Library() {
    void* library = nullptr;
    for (const char* dir : std::array{SLUICE_NCCL_DIRS}) {
      const std::string path = *dir == '\0' ? "libnccl.so.2" : std::string(dir) + "/libnccl.so.2";
      if (library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL); library != nullptr) break;
      missing = dlerror();
    }
    if (library == nullptr) return;
    missing.clear();
    const auto find = [&](const char* name, auto*& function) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      if (function == nullptr && missing.empty()) missing = fmt::format("libnccl.so.2 has no {}", name);
    };
    find("ncclGetVersion", GetVersion);
    find("ncclGetErrorString", GetErrorString);
    find("ncclGetLastError", GetLastError);
    find("ncclGetUniqueId", GetUniqueId);
    find("ncclCommInitRank", CommInitRank);
    find("ncclCommDestroy", CommDestroy);
    find("ncclCommGetAsyncError", CommGetAsyncError);
    find("ncclGroupStart", GroupStart);
    find("ncclGroupEnd", GroupEnd);
    find("ncclSend", Send);
    find("ncclRecv", Recv);
    find("ncclBroadcast", Broadcast);
    find("ncclAllReduce", AllReduce);
  }
};
const Library& nccl() {
  static const Library library;
  return library;
}

Status check(ncclResult_t code, ncclComm_t comm, std::string_view call) {
  if (code == ncclSuccess) return {};
  const char* const last = nccl().GetLastError(comm);
  return error(ErrorKind::Device, "{}: {}{}{}", call.substr(0, call.find('(')), nccl().GetErrorString(code),
               last != nullptr && *last != '\0' ? ": " : "", last == nullptr ? "" : last);
}

#define SLUICE_NCCL_TRY(comm, call, ...) SLUICE_TRY(check(nccl().call(__VA_ARGS__), comm, "nccl" #call))

ncclDataType_t type_of(DType dtype) {
  SLUICE_CHECK(dtype == DType::F32 || dtype == DType::BF16, "exchanged are {}", core::name_of(dtype));
  return dtype == DType::F32 ? ncclFloat32 : ncclBfloat16;
}

using DeviceBytes = Handle<std::byte*, &cudaFree>;

// A part of a tensor: how it is cut, and where it lies.
struct Piece {
  std::byte* data = nullptr;
  int64_t elements = 0;
};

class Nccl final : public DirectNetwork {
 public:
  static Result<std::unique_ptr<DeviceNetwork>> join(int device, Network& network) {
    std::unique_ptr<Nccl> out(new Nccl(device, network.rank(), network.size()));
    SLUICE_TRY(out->connect(network));
    return std::unique_ptr<DeviceNetwork>(std::move(out));
  }
  ~Nccl() override {
    if (comm_ != nullptr && cudaSetDevice(device_) == cudaSuccess) nccl().CommDestroy(comm_);
  }
  Nccl(const Nccl&) = delete;
  Nccl& operator=(const Nccl&) = delete;

  std::string_view name() const override { return name_; }
  int64_t held_bytes() const override { return held_bytes_; }

  // The sums of a piece are sent together with the values of the next one, in one launch.
  Status sum(std::byte* values, int64_t bytes, DType dtype, cudaStream_t stream) override {
    const int64_t width = size_of(dtype), all = bytes / width, at_once = kPieceBytes / width;
    Piece last;
    for (int64_t at = 0; at < all || last.elements > 0;) {
      const Piece next{values + at * width, std::max<int64_t>(0, std::min(at_once, all - at))};
      SLUICE_NCCL_TRY(comm_, GroupStart);
      const Status queued = send_sums(last, dtype, stream);
      const Status scattered = queued.ok() ? scatter(next, dtype, stream) : queued;
      SLUICE_NCCL_TRY(comm_, GroupEnd);
      SLUICE_TRY(scattered);
      SLUICE_TRY(add(next, dtype, stream));
      last = next;
      at += next.elements;
    }
    return {};
  }
  Status broadcast(std::byte* values, int64_t bytes, int root, cudaStream_t stream) override {
    SLUICE_NCCL_TRY(comm_, Broadcast, values, values, size_t(bytes), ncclUint8, root, comm_, stream);
    return {};
  }
  Status state() const override {
    ncclResult_t failed = ncclSuccess;
    SLUICE_NCCL_TRY(comm_, CommGetAsyncError, comm_, &failed);
    return failed == ncclInProgress ? Status() : check(failed, comm_, "NCCL");
  }

  Status make(Call call, std::span<std::byte> values, DType dtype) override {
    SLUICE_CUDA_TRY(cudaSetDevice(device_));
    DeviceBytes data;
    SLUICE_CUDA_TRY(
        cudaMalloc(reinterpret_cast<void**>(data.receive()), scratch_bytes(call, int64_t(values.size()))));
    Stream stream;
    SLUICE_CUDA_TRY(cudaStreamCreateWithFlags(stream.receive(), cudaStreamNonBlocking));
    SLUICE_CUDA_TRY(cudaMemcpy(data.get(), values.data(), values.size(), cudaMemcpyHostToDevice));
    SLUICE_CUDA_TRY(cudaStreamSynchronize(cudaStreamLegacy));
    SLUICE_TRY(queue(call, data.get(), int64_t(values.size()), dtype, stream.get()));
    SLUICE_CUDA_TRY(cudaStreamSynchronize(stream.get()));
    SLUICE_CUDA_TRY(cudaMemcpy(values.data(), data.get(), values.size(), cudaMemcpyDeviceToHost));
    return state();
  }
  Result<double> time(Call call, int64_t bytes, DType dtype, int64_t calls) override {
    SLUICE_CUDA_TRY(cudaSetDevice(device_));
    DeviceBytes data;
    SLUICE_CUDA_TRY(cudaMalloc(reinterpret_cast<void**>(data.receive()), scratch_bytes(call, bytes)));
    Stream stream;
    SLUICE_CUDA_TRY(cudaStreamCreateWithFlags(stream.receive(), cudaStreamNonBlocking));
    SLUICE_CUDA_TRY(cudaMemsetAsync(data.get(), 0, scratch_bytes(call, bytes), stream.get()));
    // After one call nobody waits for another's memory.
    Event begin, end;
    SLUICE_CUDA_TRY(cudaEventCreate(begin.receive()));
    SLUICE_CUDA_TRY(cudaEventCreate(end.receive()));
    SLUICE_TRY(queue(call, data.get(), bytes, dtype, stream.get()));
    SLUICE_CUDA_TRY(cudaEventRecord(begin.get(), stream.get()));
    for (int64_t i = 0; i < calls; ++i) SLUICE_TRY(queue(call, data.get(), bytes, dtype, stream.get()));
    SLUICE_CUDA_TRY(cudaEventRecord(end.get(), stream.get()));
    SLUICE_CUDA_TRY(cudaStreamSynchronize(stream.get()));
    SLUICE_TRY(state());
    float ms = 0;
    SLUICE_CUDA_TRY(cudaEventElapsedTime(&ms, begin.get(), end.get()));
    return double(ms) / 1e3;
  }

 private:
  Nccl(int device, int rank, int ranks) : device_(device), rank_(rank), ranks_(ranks) {}

  Status connect(Network& network) {
    SLUICE_CUDA_TRY(cudaSetDevice(device_));
    size_t before = 0, after = 0, total = 0;
    SLUICE_CUDA_TRY(cudaMemGetInfo(&before, &total));
    struct {
      ncclResult_t made = ncclSuccess;
      ncclUniqueId id{};
    } first;
    if (rank_ == 0) first.made = nccl().GetUniqueId(&first.id);
    SLUICE_TRY(network.broadcast(std::as_writable_bytes(std::span(&first, 1)), 0));
    SLUICE_TRY(check(first.made, nullptr, "ncclGetUniqueId"));
    SLUICE_NCCL_TRY(nullptr, CommInitRank, &comm_, ranks_, first.id, rank_);
    const int64_t room = kPieceBytes + ranks_ * kSliceGrain * size_of(DType::F32);
    SLUICE_CUDA_TRY(cudaMalloc(reinterpret_cast<void**>(received_.receive()), size_t(room)));
    name_ = "NCCL " + nccl_version();
    // It takes its buffers when they are first needed, for large messages more than for small ones.
    SLUICE_TRY(time(Call::Sum, 2 * kPieceBytes, DType::F32, 1));
    DeviceBytes some;
    SLUICE_CUDA_TRY(cudaMalloc(reinterpret_cast<void**>(some.receive()), size_t(kPieceBytes)));
    SLUICE_TRY(broadcast(some.get(), kPieceBytes, 0, cudaStreamPerThread));
    SLUICE_CUDA_TRY(cudaStreamSynchronize(cudaStreamPerThread));
    some = DeviceBytes();
    SLUICE_CUDA_TRY(cudaMemGetInfo(&after, &total));
    held_bytes_ = int64_t(before) - std::min(int64_t(before), int64_t(after));
    return state();
  }

  size_t scratch_bytes(Call call, int64_t bytes) const {
    return size_t(align_up(bytes, 256) * (call == Call::PassOn ? 2 : 1));
  }
  Status queue(Call call, std::byte* data, int64_t bytes, DType dtype, cudaStream_t stream) {
    const auto elements = size_t(bytes / size_of(dtype));
    switch (call) {
      case Call::Sum:
        return sum(data, bytes, dtype, stream);
      case Call::LibrarySum:
        SLUICE_NCCL_TRY(comm_, AllReduce, data, data, elements, type_of(dtype), ncclSum, comm_, stream);
        return {};
      case Call::PassOn: {
        std::byte* const came = data + align_up(bytes, 256);
        const int next = (rank_ + 1) % ranks_, before = (rank_ - 1 + ranks_) % ranks_;
        SLUICE_NCCL_TRY(comm_, GroupStart);
        const Status sent = send(data, int64_t(elements), dtype, next, stream);
        const Status received = receive(came, int64_t(elements), dtype, before, stream);
        SLUICE_NCCL_TRY(comm_, GroupEnd);
        SLUICE_TRY(sent);
        SLUICE_TRY(received);
        SLUICE_CUDA_TRY(cudaMemcpyAsync(data, came, size_t(bytes), cudaMemcpyDeviceToDevice, stream));
        return {};
      }
    }
    return {};
  }

  // The elements of a rank's slice of a piece; those at the end may have none.
  struct Slice {
    int64_t begin, count;
  };
  Slice slice_of(const Piece& piece, int r) const {
    const int64_t most = align_up((piece.elements + ranks_ - 1) / ranks_, kSliceGrain);
    const int64_t begin = std::min(piece.elements, most * r);
    return {begin, std::min(piece.elements, begin + most) - begin};
  }
  std::byte* at(const Piece& piece, int64_t element, DType dtype) const {
    return piece.data + element * size_of(dtype);
  }
  // Where rank r's values of this one's slice come to: those of the others lie behind one another.
  std::byte* received_from(int r, int64_t count, DType dtype) const {
    return received_.get() + (r < rank_ ? r : r - 1) * align_up(count, kSliceGrain) * size_of(dtype);
  }

  // A piece without elements sends nothing; one with fewer elements than ranks has empty slices.
  Status send(const std::byte* from, int64_t count, DType dtype, int to, cudaStream_t stream) {
    if (count > 0) SLUICE_NCCL_TRY(comm_, Send, from, size_t(count), type_of(dtype), to, comm_, stream);
    return {};
  }
  Status receive(std::byte* to, int64_t count, DType dtype, int from, cudaStream_t stream) {
    if (count > 0) SLUICE_NCCL_TRY(comm_, Recv, to, size_t(count), type_of(dtype), from, comm_, stream);
    return {};
  }
  // Calls exchange(to, from): in each round everybody sends to one rank and receives from another.
  template <class F>
  Status for_each_round(const F& exchange) {
    for (int away = 1; away < ranks_; ++away)
      SLUICE_TRY(exchange((rank_ + away) % ranks_, (rank_ - away + ranks_) % ranks_));
    return {};
  }

  Status scatter(const Piece& piece, DType dtype, cudaStream_t stream) {
    const Slice own = slice_of(piece, rank_);
    return for_each_round([&](int to, int from) -> Status {
      const Slice theirs = slice_of(piece, to);
      SLUICE_TRY(send(at(piece, theirs.begin, dtype), theirs.count, dtype, to, stream));
      return receive(received_from(from, own.count, dtype), own.count, dtype, from, stream);
    });
  }
  Status add(const Piece& piece, DType dtype, cudaStream_t stream) {
    const Slice own = slice_of(piece, rank_);
    if (own.count == 0 || ranks_ == 1) return {};
    const TreeParts parts{.rank = rank_, .ranks = ranks_, .stride = align_up(own.count, kSliceGrain)};
    std::byte* const values = at(piece, own.begin, dtype);
    const auto run = [&]<class T>(T) {
      return add_by_tree(reinterpret_cast<T*>(values), reinterpret_cast<const T*>(received_.get()), parts,
                         own.count, stream);
    };
    SLUICE_CUDA_TRY(dtype == DType::F32 ? run(float{}) : run(bf16{}));
    return {};
  }
  Status send_sums(const Piece& piece, DType dtype, cudaStream_t stream) {
    const Slice own = slice_of(piece, rank_);
    return for_each_round([&](int to, int from) -> Status {
      const Slice theirs = slice_of(piece, from);
      SLUICE_TRY(send(at(piece, own.begin, dtype), own.count, dtype, to, stream));
      return receive(at(piece, theirs.begin, dtype), theirs.count, dtype, from, stream);
    });
  }

  const int device_, rank_, ranks_;
  ncclComm_t comm_ = nullptr;
  DeviceBytes received_;  // slices of a piece, of all ranks but this one
  int64_t held_bytes_ = 0;
  std::string name_;
};

}  // namespace
}  // namespace cuda

std::string nccl_version() {
  int version = 0;
  if (!cuda::nccl().missing.empty() || cuda::nccl().GetVersion(&version) != ncclSuccess) return {};
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

Result<std::unique_ptr<DeviceNetwork>> join_by_nccl(int device, Network& network) {
  return cuda::Nccl::join(device, network);
}
std::string why_no_nccl() {
  return cuda::nccl().missing;
}

}  // namespace sluice::core
