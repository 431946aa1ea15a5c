// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/check.h"

#include <cudnn_graph.h>

#include <array>

namespace sluice::core::cuda {
namespace {

std::string_view function_of(std::string_view call) {
  return call.substr(0, call.find('('));
}

// Advice after an error's message; empty where the message suffices.
std::string_view advice(cudaError_t code) {
  switch (code) {
    case cudaErrorMemoryAllocation:
      return ": the device has no memory left beside the arena; lower the device cap";
    case cudaErrorInsufficientDriver:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorUnsupportedPtxVersion:
      return ": update the NVIDIA driver";
    case cudaErrorDevicesUnavailable:
      return ": another process holds the GPU for itself, or it has failed; nvidia-smi shows which";
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorMisalignedAddress:
    case cudaErrorAssert:
      return ": a kernel failed; this process cannot use the GPU any more";
    case cudaErrorECCUncorrectable:
    case cudaErrorHardwareStackError:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorNoDevice:
    case cudaErrorUnknown:
      return ": the GPU failed or is lost; nvidia-smi and the kernel's log (Xid) say more";
    default:
      return "";
  }
}

}  // namespace

Status check(cudaError_t code, std::string_view call) {
  if (code == cudaSuccess) return {};
  return error(ErrorKind::Device, "{}: {} ({}){}", function_of(call), cudaGetErrorString(code),
               cudaGetErrorName(code), advice(code));
}

Status check(cublasStatus_t code, std::string_view call) {
  if (code == CUBLAS_STATUS_SUCCESS) return {};
  return error(ErrorKind::Device, "{}: {} ({})", function_of(call), cublasLtGetStatusString(code),
               cublasLtGetStatusName(code));
}

Status check(cudnnStatus_t code, std::string_view call) {
  if (code == CUDNN_STATUS_SUCCESS) return {};
  std::array<char, 512> detail{};
  cudnnGetLastErrorString(detail.data(), detail.size());
  return error(ErrorKind::Device, "{}: {} {}", function_of(call), cudnnGetErrorString(code), detail.data());
}

}  // namespace sluice::core::cuda
