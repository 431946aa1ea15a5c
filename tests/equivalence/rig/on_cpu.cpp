// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/cpu_backend.h"
#include "equivalence/rig/rig.h"

namespace sluice::core::rig {

std::unique_ptr<Backend> small_backend() {
  CpuOptions options;
  options.threads = 1;  // results do not depend on it
  return make_cpu_backend(options);
}

std::unique_ptr<Backend> small_devices(int count, bool joined, Network* network) {
  CpuOptions options;
  options.threads = 1;
  options.devices = count;
  options.network = network;
  options.joined = joined;
  return make_cpu_backend(options);
}

bool takes(const Numerics&) {
  return true;
}

}  // namespace sluice::core::rig
