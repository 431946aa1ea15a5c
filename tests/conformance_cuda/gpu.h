// SPDX-License-Identifier: Apache-2.0
// A CUDA backend for tests, or the reason to skip them.
#pragma once

#include <gtest/gtest.h>

#include "backend/cuda/cuda_backend.h"

namespace sluice::core::conformance {

// Why no GPU can be used; empty if one can.
inline std::string gpu_problem() {
  return cuda_report().problem;
}

// Tests put other operands through the same few products, so choosing algorithms by time would only cost
// time.
inline CudaOptions untuned() {
  CudaOptions options;
  options.tune = false;
  return options;
}

}  // namespace sluice::core::conformance

#define SLUICE_SKIP_WITHOUT_GPU()                                                                 \
  do {                                                                                            \
    if (const std::string problem = ::sluice::core::conformance::gpu_problem(); !problem.empty()) \
      GTEST_SKIP() << problem;                                                                    \
  } while (false)
