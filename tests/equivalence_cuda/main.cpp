// SPDX-License-Identifier: Apache-2.0
// Caps and random plans on the GPU: the same bits, whatever the plan.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "backend/cuda/cuda_backend.h"
#include "equivalence/rig/rig.h"

namespace sluice::core::rig {

std::unique_ptr<Backend> small_backend() {
  CudaOptions options;
  options.tune = false;  // every choice of algorithm must do, and timing them takes most of the time
  return must(make_cuda_backend(options));
}

// On one GPU two devices are two parts of its memory with streams of their own.
std::unique_ptr<Backend> small_devices(int count, bool joined, Network* network) {
  CudaOptions options;
  options.tune = false;
  const int gpus = int(must(cuda_devices()).size());
  options.devices.clear();
  const int first = network == nullptr ? 0 : network->rank() * count;
  for (int d = 0; d < count; ++d) options.devices.push_back((first + d) % gpus);
  options.joined = joined;
  options.network = network;
  return must(make_cuda_backend(options));
}

bool takes(const Numerics& numerics) {
  return numerics.compute == DType::BF16;
}

}  // namespace sluice::core::rig

int main(int argc, char** argv) {
  constexpr int kSkipped = 77;  // as CMakeLists.txt says
  if (const std::string problem = sluice::core::cuda_report().problem; !problem.empty()) {
    std::puts(problem.c_str());
    return kSkipped;
  }
  ::setenv("SLUICE_SWEEP", "1", 0);  // all random cases: equivalence/small_runs.h
  // Without its waits a plan reads token ids that are not there yet, and a GPU does not survive that.
  GTEST_FLAG_SET(filter, "-*.ShowMissingWaits");
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
