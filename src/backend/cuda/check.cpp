#include "backend/cuda/check.h"

#include <cudnn_graph.h>

#include <array>

namespace sluice::cuda {
namespace {

std::string_view function_of(std::string_view call) {
  return call.substr(0, call.find('('));
}

}  // namespace

Status check(cudaError_t code, std::string_view call) {
  if (code == cudaSuccess) return {};
  return error("{}: {} ({})", function_of(call), cudaGetErrorString(code), cudaGetErrorName(code));
}

Status check(cublasStatus_t code, std::string_view call) {
  if (code == CUBLAS_STATUS_SUCCESS) return {};
  return error("{}: {} ({})", function_of(call), cublasLtGetStatusString(code), cublasLtGetStatusName(code));
}

Status check(cudnnStatus_t code, std::string_view call) {
  if (code == CUDNN_STATUS_SUCCESS) return {};
  std::array<char, 512> detail{};
  cudnnGetLastErrorString(detail.data(), detail.size());
  return error("{}: {} {}", function_of(call), cudnnGetErrorString(code), detail.data());
}

}  // namespace sluice::cuda
