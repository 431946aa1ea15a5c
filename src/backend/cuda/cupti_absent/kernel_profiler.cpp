// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/kernel_profiler.h"

namespace sluice::core::cuda {

Result<std::unique_ptr<KernelProfiler>> KernelProfiler::open() {
  return error(
      ErrorKind::Device,
      "this build has no CUPTI: cupti.h was not found when it was configured. Install it with the CUDA "
      "toolkit "
      "(apt-get install cuda-cupti-dev-13-0, or your CUDA's version), or pip install nvidia-cuda-cupti and "
      "set "
      "SLUICE_CUPTI_INCLUDE to its include folder, and configure again");
}

}  // namespace sluice::core::cuda
