// SPDX-License-Identifier: Apache-2.0
// Owners of library objects.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>
#include <cudnn.h>

#include <utility>

namespace sluice::core::cuda {

// Owns one object of a C library, destroyed by kDestroy. Moves, does not copy.
template <class T, auto kDestroy>
class Handle {
 public:
  Handle() = default;
  explicit Handle(T value) : value_(value) {}
  Handle(Handle&& other) noexcept : value_(std::exchange(other.value_, T{})) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(value_, other.value_);
    return *this;
  }
  ~Handle() {
    if (value_) kDestroy(value_);
  }

  T get() const { return value_; }
  explicit operator bool() const { return value_ != T{}; }
  // Where a C function puts the object it creates. REQUIRES: empty.
  T* receive() { return &value_; }

 private:
  T value_{};
};

using Stream = Handle<cudaStream_t, cudaStreamDestroy>;
using Event = Handle<cudaEvent_t, cudaEventDestroy>;
using CublasLt = Handle<cublasLtHandle_t, cublasLtDestroy>;
using MatmulDesc = Handle<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using MatrixLayout = Handle<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using MatmulPreference = Handle<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;
using Cudnn = Handle<cudnnHandle_t, cudnnDestroy>;
using CudnnDescriptor = Handle<cudnnBackendDescriptor_t, cudnnBackendDestroyDescriptor>;

}  // namespace sluice::core::cuda
