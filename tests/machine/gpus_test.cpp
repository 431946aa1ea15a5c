// SPDX-License-Identifier: Apache-2.0
// What `doctor` says of GPUs, in builds with and without CUDA.
#include <gtest/gtest.h>

#include "backend/cuda/cuda_backend.h"
#include "support/temp_dir.h"

namespace sluice::core {
namespace {

CudaDevice gpu(const std::string& pci, std::vector<int> reaches) {
  CudaDevice d;
  d.name = "NVIDIA H100";
  d.capability = {9, 0};
  d.multiprocessors = 132;
  d.total_bytes = d.free_bytes = 80 * kGiB;
  d.pcie_generation = 5, d.pcie_width = 16;
  d.pci = pci;
  d.reaches = std::move(reaches);
  return d;
}

std::string said_of(std::vector<CudaDevice> devices, const TempDir& root) {
  CudaReport report;
  report.devices = std::move(devices);
  return describe(report, root.path());
}

TEST(Gpus, AreSaidWithLinkNodeAndWhatTheyReach) {
  const TempDir root;
  root.add("sys/bus/pci/devices/0000:1b:00.0/numa_node", "1\n");
  root.add("sys/bus/pci/devices/0000:1b:00.0/current_link_width", "8\n");
  EXPECT_EQ(said_of({gpu("0000:1b:00.0", {1}), gpu("0000:2c:00.0", {0, 2}), gpu("", {})}, root),
            "GPU 0    NVIDIA H100, compute capability 9.0, 132 multiprocessors, 80.0 GiB free of 80.0 GiB\n"
            "         PCIe 5 x16, of which x8 is in use, at 0000:1b:00.0, NUMA node 1\n"
            "         copies to GPU 1 directly, to GPU 2 by way of the host\n"
            "GPU 1    NVIDIA H100, compute capability 9.0, 132 multiprocessors, 80.0 GiB free of 80.0 GiB\n"
            "         PCIe 5 x16, at 0000:2c:00.0\n"
            "         copies to GPU 0, 2 directly\n"
            "GPU 2    NVIDIA H100, compute capability 9.0, 132 multiprocessors, 80.0 GiB free of 80.0 GiB\n"
            "         PCIe 5 x16\n"
            "         copies to GPU 0, 1 by way of the host\n");
}

TEST(Gpus, OneHasNoNumberAndWithoutNvmlTheSystemKnowsItsLink) {
  const TempDir root;
  root.add("sys/bus/pci/devices/0000:1b:00.0/max_link_width", "16\n");
  root.add("sys/bus/pci/devices/0000:1b:00.0/max_link_speed", "32.0 GT/s PCIe\n");
  CudaDevice d = gpu("0000:1b:00.0", {});
  d.pcie_generation = d.pcie_width = 0;
  EXPECT_EQ(said_of({d}, root),
            "GPU      NVIDIA H100, compute capability 9.0, 132 multiprocessors, 80.0 GiB free of 80.0 GiB\n"
            "         32.0 GT/s PCIe x16, at 0000:1b:00.0\n");
}

}  // namespace
}  // namespace sluice::core
