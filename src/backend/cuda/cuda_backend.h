// SPDX-License-Identifier: Apache-2.0
// The CUDA backend: NVIDIA GPUs of compute capability 8.0 and up. No CUDA header is needed to use it.
//
// Products run on cuBLASLt, attention on cuDNN or on own kernels, everything else on own kernels. Activations
// and parameters are bf16; gradients, optimizer state and master weights bf16 or f32. Ops of dense models'
// steps take f32, too, without TF32: for measurements, as no run is planned in it (BackendTraits::takes_f32).
//
// Order of calls: reserve(), prepare(), then uploads and steps. prepare() times library algorithms with the
// device arena as its scratch, so whatever the arena held before it is lost.
//
// upload(), download() and clear() take addresses in any arena. The caller's memory is pageable, so they
// are synchronous; within the host arena they are plain memory accesses. The host arena is being pinned while
// they and prepare() run; the first begin() waits for the rest.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/kind.h"
#include "base/compute_capability.h"
#include "base/network.h"
#include "ops/gpu_workspace.h"

namespace sluice::core {

struct CudaOptions {
  // The GPUs that share a step, of one kind. One named twice is two devices of its memory, to try things.
  std::vector<int> devices{0};
  // These before this process took memory of them; left out: as they are now.
  std::vector<DeviceUse> before = {};
  bool joined = true;  // neighbours in the ring copy to each other, where all of them can
  // Equal inputs give equal bits, whatever the plan and in every process on one kind of GPU. Costs a few per
  // cent of attention's backward and its workspace.
  bool deterministic = true;
  bool exact = false;  // see BackendOptions
  // Above 0: products in 8 bits make so many bytes of sums at a time, at most 28 MiB, and a pass scales them.
  // So it is on GPUs whose library does not scale.
  int64_t scaled_sums_bytes = 0;
  // Most workspace that attention's deterministic backward takes. It works on as many key heads at a time as
  // fit, on slower kernels when none does, and fastest on all at once. One takes 530 MB with four query heads
  // and blocks of 8,192, 2.1 GB with 16,384.
  int64_t attention_workspace_bytes = GpuLibraries{}.attention_cap_bytes;
  bool reads_disk = false;                  // every device has a lane from the disk
  Network* network = nullptr;               // every device has a lane to it; borrowed. Null: there is none
  DeviceNetwork* device_network = nullptr;  // that join_by_nccl() made; borrowed. Null: by way of the host
  // Commands in flight before submit() waits. It waits for the oldest one: a copy that is late by as long as
  // so many take would leave compute without work. Mixtures have four commands a ms.
  int run_ahead = 1024;
  // prepare() times several algorithms per product; otherwise cuBLASLt's first guess is taken.
  bool tune = true;
  // A file in which choices and compiled library plans are kept from one start to the next; empty: none.
  std::string cache;
  // Receives one line per product and attention shape that prepare() settles.
  std::function<void(std::string_view)> log;
};

// Fails when there is no driver, when it is too old, or when the device does not exist or is too old.
Result<std::unique_ptr<Backend>> make_cuda_backend(const CudaOptions& options);

const BackendKind& cuda_kind();

// Joins the GPU, as the driver counts, to one of each other process. Every process calls it.
Result<std::unique_ptr<DeviceNetwork>> join_by_nccl(int device, Network& network);
// The additions alone of a sum over so many processes, by the kernel that makes them: of `parts`, which lie
// behind one another in the order of ranks, that of `rank` becomes the sum of all, as on that rank. Seconds
// that each of the calls takes on the device; all but the first add what is there by then.
Result<double> add_parts(int device, std::span<std::byte> parts, int ranks, int rank, DType dtype,
                         int64_t calls);
// "2.28.9"; empty: there is no NCCL, and why.
std::string nccl_version();
std::string why_no_nccl();

// Whether the backend can run the op on GPUs of that compute capability; left out: on some. The error names
// the op and what is allowed.
Status cuda_supports(const Op& op, ComputeCapability capability = {});

struct CudaDevice {
  std::string name;
  std::string uuid;  // of this very device: 32 hexadecimal digits
  ComputeCapability capability;
  int multiprocessors = 0;
  int64_t total_bytes = 0, free_bytes = 0;
  DeviceUse now;                            // what is in use of it
  int pcie_generation = 0, pcie_width = 0;  // the most that the slot and the GPU do; 0: unknown
  std::string others;                       // "process 123 holds 4.2 GiB, ..."; empty if none is known
  std::string pci;                          // its address on the bus: "0000:1b:00.0"; empty: unknown
  std::vector<int> reaches;                 // GPUs whose memory it copies to without the host's
};
Result<std::vector<CudaDevice>> cuda_devices();

// Libraries of the build and of run time; versions as "13.0" or "9.14.0", empty if absent.
struct CudaReport {
  std::string driver;         // newest CUDA version the driver supports
  std::string kernel_driver;  // version of the driver itself, if NVML is there
  std::string runtime;        // CUDA runtime this program is linked with
  std::string cublaslt;
  std::string cudnn, cudnn_built;
  std::vector<CudaDevice> devices;
  std::string problem;  // why no device can be used, if so
};
CudaReport cuda_report();
// Lines for people: each GPU, where it is plugged in and which others it reaches; versions. `root` stands for
// / in tests.
std::string describe(const CudaReport& report, const std::filesystem::path& root = "/");

// Whether this program has the backend; without it the functions above fail.
bool cuda_is_built();

// Versions that speeds depend on: "driver 580.65, CUDA 13.0, cuBLASLt 13.0.2, cuDNN 9.14.0".
std::string cuda_versions();

}  // namespace sluice::core
