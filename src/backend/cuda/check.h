// SPDX-License-Identifier: Apache-2.0
// Return codes of the CUDA libraries as errors that name the failing call.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>
#include <cudnn.h>

#include <string_view>

#include "base/status.h"

namespace sluice::core::cuda {

// `call` is the call's source text; the message carries it up to its arguments.
Status check(cudaError_t code, std::string_view call);
Status check(cublasStatus_t code, std::string_view call);
Status check(cudnnStatus_t code, std::string_view call);

}  // namespace sluice::core::cuda

// Makes a call of a CUDA library, and returns its error to the caller.
#define SLUICE_CUDA_TRY(...) SLUICE_TRY(::sluice::core::cuda::check((__VA_ARGS__), #__VA_ARGS__))
