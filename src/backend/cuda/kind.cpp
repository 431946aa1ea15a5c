// SPDX-License-Identifier: Apache-2.0
// Part of builds with and without CUDA: what is said of the backend there, the functions that it calls know.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <numeric>

#include "backend/cuda/cuda_backend.h"
#include "host/topology.h"

namespace sluice::core {
namespace {

// A device that is not there stays what it is, for the error.
std::vector<int> chosen_of(const BackendOptions& options, size_t found) {
  if (!options.devices.empty()) return options.devices;
  if (options.place_here == 0 || options.device >= int(found)) return {options.device};
  return {int((size_t(options.device) + size_t(options.place_here)) % found)};
}

Result<FoundMachine> find(const BackendOptions& options) {
  SLUICE_ASSIGN(const std::vector<CudaDevice> devices, cuda_devices());
  if (devices.empty()) return error(ErrorKind::Device, "there is no NVIDIA GPU");
  std::vector<int> chosen = chosen_of(options, devices.size());
  if (options.all_devices) {
    chosen.resize(std::min(devices.size(), Tier::kMostDevices));
    std::iota(chosen.begin(), chosen.end(), 0);
  }
  for (const int index : chosen) {
    if (index >= 0 && index < int(devices.size())) continue;
    return error(ErrorKind::NotFound, "run.device{} = {}: there are {} GPUs, numbered from 0",
                 chosen.size() > 1 ? "s" : "", fmt::join(chosen, ","), devices.size());
  }
  const CudaDevice& gpu = devices[size_t(chosen.front())];
  FoundMachine found;
  // Other versions have other speeds, and so have deterministic and exact kernels.
  found.name = fmt::format("{} ({}{}{})", gpu.name, cuda_versions(),
                           options.deterministic ? ", deterministic" : "", options.exact ? ", exact" : "");
  found.description =
      fmt::format("{}, {} of {} free", gpu.name, format_bytes(gpu.free_bytes), format_bytes(gpu.total_bytes));
  found.model = gpu.name;
  found.uuid = gpu.uuid;
  found.fast_bf16 = true;
  // Kernels and library handles come on top of the context that the free bytes already count. Of several GPUs
  // the one with the least to give decides.
  found.device_total_bytes = gpu.free_bytes - kGiB;
  for (const int index : chosen) {
    const CudaDevice& one = devices[size_t(index)];
    found.device_total_bytes = std::min(found.device_total_bytes, one.free_bytes - kGiB);
    found.before.push_back(one.now);
  }
  if (chosen.size() > 1) found.devices = chosen;
  found.joined = options.joined;
  found.host_margin_bytes = kHostMarginOnGpu;
  found.host_growth = kHostGrowthOnGpu;
  return found;
}

Result<std::unique_ptr<Backend>> make(const BackendOptions& options) {
  CudaOptions cuda;
  size_t found = 0;
  if (options.place_here > 0) {
    SLUICE_ASSIGN(const std::vector<CudaDevice> devices, cuda_devices());
    found = devices.size();
  }
  cuda.devices = chosen_of(options, found);
  cuda.before = options.before;
  cuda.joined = options.joined;
  cuda.deterministic = options.deterministic;
  cuda.exact = options.exact;
  cuda.reads_disk = options.reads_disk;
  cuda.network = options.network;
  cuda.device_network = options.device_network;
  if (!options.cache.empty()) cuda.cache = (std::filesystem::path(options.cache) / "cuda-libraries").string();
  return make_cuda_backend(cuda);
}

// Why this process cannot be joined to others from GPU to GPU; empty: it can.
std::string why_apart(const BackendOptions& options, size_t devices) {
  if (!options.joined) return "run.peer = off";
  if (devices > 1) return fmt::format("each of its {} GPUs exchanges what it has", devices);
  return why_no_nccl();
}

Result<JoinedDevices> join(const BackendOptions& options) {
  SLUICE_ASSIGN(const std::vector<CudaDevice> devices, cuda_devices());
  const std::vector<int> chosen = chosen_of(options, devices.size());
  struct Own {
    char why[200] = "", uuid[40] = "";
  } own;
  why_apart(options, chosen.size()).copy(own.why, sizeof own.why - 1);
  devices.at(size_t(chosen.front())).uuid.copy(own.uuid, sizeof own.uuid - 1);
  SLUICE_ASSIGN(const std::vector<Own> all, gathered(*options.network, own));
  for (size_t r = 0; r < all.size(); ++r) {
    if (all[r].why[0] != '\0') return JoinedDevices{nullptr, fmt::format("process {}: {}", r, all[r].why)};
    for (size_t other = 0; other < r; ++other) {
      if (std::string_view(all[r].uuid) == all[other].uuid)
        return JoinedDevices{nullptr, fmt::format("processes {} and {} share a GPU", other, r)};
    }
  }
  SLUICE_ASSIGN(auto joined, join_by_nccl(chosen.front(), *options.network));
  return JoinedDevices{std::move(joined), {}};
}

// "PCIe 5 x16, of which x8 is in use, at 0000:1b:00.0, NUMA node 1"; empty where nothing is known.
std::string link_text(const CudaDevice& d, const PciPlace& place) {
  const int width = d.pcie_width > 0 ? d.pcie_width : place.most_width;
  std::string out;
  if (d.pcie_generation > 0) {
    out = fmt::format("PCIe {} x{}", d.pcie_generation, width);
  } else if (!place.most_speed.empty() && width > 0) {
    out = fmt::format("{} x{}", place.most_speed, width);
  }
  if (!out.empty() && place.width > 0 && place.width < width)
    out += fmt::format(", of which x{} is in use", place.width);
  if (!d.pci.empty()) out += fmt::format("{}at {}", out.empty() ? "" : ", ", d.pci);
  if (place.node) out += fmt::format("{}NUMA node {}", out.empty() ? "" : ", ", *place.node);
  return out;
}

// "copies to GPU 1 directly, to GPU 2, 3 by way of the host"; empty of a GPU alone.
std::string reach_text(const CudaDevice& d, size_t number, size_t devices) {
  std::vector<int> by_host;
  for (int other = 0; other < int(devices); ++other) {
    if (other != int(number) && std::ranges::count(d.reaches, other) == 0) by_host.push_back(other);
  }
  const std::string direct =
      d.reaches.empty() ? "" : fmt::format("copies to GPU {} directly", fmt::join(d.reaches, ", "));
  if (by_host.empty()) return direct;
  return fmt::format("{}{} GPU {} by way of the host", direct, direct.empty() ? "copies to" : ", to",
                     fmt::join(by_host, ", "));
}

}  // namespace

std::string describe(const CudaReport& cuda, const std::filesystem::path& root) {
  std::string out;
  if (!cuda.problem.empty()) out += fmt::format("GPU      none usable: {}\n", cuda.problem);
  const size_t devices = cuda.devices.size();
  for (size_t i = 0; i < devices; ++i) {
    const CudaDevice& d = cuda.devices[i];
    out += fmt::format("{:<9}{}, compute capability {}, {} multiprocessors, {} free of {}\n",
                       devices == 1 ? "GPU" : fmt::format("GPU {}", i), d.name, d.capability.to_text(),
                       d.multiprocessors, format_bytes(d.free_bytes), format_bytes(d.total_bytes));
    const PciPlace place = d.pci.empty() ? PciPlace() : pci_place(d.pci, root);
    for (const std::string& line : {link_text(d, place), reach_text(d, i, devices), d.others})
      if (!line.empty()) out += fmt::format("         {}\n", line);
  }
  if (cuda.driver.empty()) return out;
  out += fmt::format("CUDA     driver {} (CUDA {}), runtime {}, cuBLASLt {}, cuDNN {} (built for {})\n",
                     cuda.kernel_driver.empty() ? "of unknown version" : cuda.kernel_driver, cuda.driver,
                     cuda.runtime, cuda.cublaslt, cuda.cudnn, cuda.cudnn_built);
  if (cuda.kernel_driver.empty() && cuda.problem.empty()) {
    out +=
        "         libnvidia-ml.so.1 was not found: memory is that of the whole GPU, not of this process; in "
        "a\n"
        "         container, start it with NVIDIA_DRIVER_CAPABILITIES=compute,utility\n";
  }
  return out;
}

const BackendKind& cuda_kind() {
  // A GPU takes some tenths of a second to find the clock that its limit on power allows.
  // Its tables have 8 bytes for each 4 KiB.
  static constexpr BackendTraits kTraits{
      .takes_f32 = false, .settle_ns = 4e9, .host_bytes_per_table_byte = 512};
  static constexpr BackendKind kKind{
      "cuda", kTraits, find, make, [] { return describe(cuda_report()); }, cuda_is_built, join};
  return kKind;
}

}  // namespace sluice::core
