// SPDX-License-Identifier: Apache-2.0
// The additions of a sum over processes without the processes.
#include "backend/cuda/check.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/handle.h"
#include "backend/cuda/kernels/kernels.h"
#include "base/bytes.h"

namespace sluice::core {

Result<double> add_parts(int device, std::span<std::byte> parts, int ranks, int rank, DType dtype,
                         int64_t calls) {
  using namespace cuda;
  const int64_t bytes = int64_t(parts.size()) / ranks, elements = bytes / size_of(dtype);
  constexpr int64_t kGrain = 256;
  const int64_t apart = align_up(bytes, kGrain);
  SLUICE_CUDA_TRY(cudaSetDevice(device));
  Handle<std::byte*, &cudaFree> data;
  SLUICE_CUDA_TRY(cudaMalloc(reinterpret_cast<void**>(data.receive()), size_t(apart * ranks)));
  // As on that rank: what others have lies behind one another.
  std::byte* const own = data.get() + apart * (ranks - 1);
  const auto place = [&](int r) { return r == rank ? own : data.get() + apart * (r < rank ? r : r - 1); };
  for (int r = 0; r < ranks; ++r)
    SLUICE_CUDA_TRY(cudaMemcpy(place(r), parts.data() + bytes * r, size_t(bytes), cudaMemcpyHostToDevice));
  SLUICE_CUDA_TRY(cudaStreamSynchronize(cudaStreamLegacy));
  Stream stream;
  Event begin, end;
  SLUICE_CUDA_TRY(cudaStreamCreateWithFlags(stream.receive(), cudaStreamNonBlocking));
  SLUICE_CUDA_TRY(cudaEventCreate(begin.receive()));
  SLUICE_CUDA_TRY(cudaEventCreate(end.receive()));
  const TreeParts tree{.rank = rank, .ranks = ranks, .stride = apart / size_of(dtype)};
  const auto run = [&]<class T>(T) {
    return add_by_tree(reinterpret_cast<T*>(own), reinterpret_cast<const T*>(data.get()), tree, elements,
                       stream.get());
  };
  SLUICE_CUDA_TRY(cudaEventRecord(begin.get(), stream.get()));
  for (int64_t i = 0; i < calls; ++i) SLUICE_CUDA_TRY(dtype == DType::F32 ? run(float{}) : run(bf16{}));
  SLUICE_CUDA_TRY(cudaEventRecord(end.get(), stream.get()));
  SLUICE_CUDA_TRY(cudaStreamSynchronize(stream.get()));
  SLUICE_CUDA_TRY(cudaMemcpy(parts.data() + bytes * rank, own, size_t(bytes), cudaMemcpyDeviceToHost));
  float ms = 0;
  SLUICE_CUDA_TRY(cudaEventElapsedTime(&ms, begin.get(), end.get()));
  return double(ms) / 1e3 / double(calls);
}

}  // namespace sluice::core
