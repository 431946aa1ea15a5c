// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/cuda_backend.h"

namespace sluice::core {
namespace {

Error absent() {
  return error(ErrorKind::Device,
               "this build has no CUDA backend; configure with the cuda preset (cmake --preset cuda), or use "
               "run.backend = cpu");
}

}  // namespace

Result<std::unique_ptr<Backend>> make_cuda_backend(const CudaOptions&) {
  return absent();
}
Result<std::vector<CudaDevice>> cuda_devices() {
  return absent();
}
CudaReport cuda_report() {
  CudaReport report;
  report.problem = absent().message;
  return report;
}

bool cuda_is_built() {
  return false;
}

Result<double> add_parts(int, std::span<std::byte>, int, int, DType, int64_t) {
  return absent();
}
std::string cuda_versions() {
  return {};
}

}  // namespace sluice::core
