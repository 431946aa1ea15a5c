// SPDX-License-Identifier: Apache-2.0
// Every op that the CUDA backend takes, on the GPU.
#include <gtest/gtest.h>

#include "base/bytes.h"
#include "conformance/suite.h"
#include "conformance_cuda/gpu.h"

int main(int argc, char** argv) {
  using namespace sluice::core;
  testing::InitGoogleTest(&argc, argv);
  if (conformance::gpu_problem().empty()) {
    const ComputeCapability capability = cuda_devices()->front().capability;
    conformance::register_suite({
        .name = "cuda",
        .make = [] { return make_cuda_backend(conformance::untuned()); },
        .device_bytes = 128 * kMiB,
        .demands = {.same_bits_when_shifted = true},
        .takes = [capability](const Op& op) { return cuda_supports(op, capability).ok(); },
    });
    if (scales_products(capability)) {
      conformance::register_suite({
          .name = "cuda_that_scales_after",
          .make =
              [] {
                CudaOptions options = conformance::untuned();
                options.scaled_sums_bytes = 4 * kKiB;  // several parts of most
                return make_cuda_backend(options);
              },
          .device_bytes = 128 * kMiB,
          .demands = {.same_bits_when_shifted = true},
          .takes =
              [capability](const Op& op) {
                return work(op).unit == Unit::NarrowProduct && cuda_supports(op, capability).ok();
              },
      });
    }
  }
  return RUN_ALL_TESTS();
}
