// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/device.h"

#include <cublasLt.h>
#include <cuda_runtime.h>
#include <cudnn.h>
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <type_traits>
#include <vector>

#include "backend/cuda/check.h"
#include "base/bytes.h"

namespace sluice::core {
namespace cuda {
namespace {

constexpr int kLeastMajor = 8;

// A CUDA version number, 1000 * major + 10 * minor.
std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}
// A cuDNN or cuBLASLt one, 10000 * major + 100 * minor + patch.
std::string library_version(size_t version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

Result<int> device_count() {
  int count = 0, driver = 0;
  const cudaError_t code = cudaGetDeviceCount(&count);
  if (code == cudaSuccess && count > 0) return count;
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
    return error(
        ErrorKind::Device,
        "no NVIDIA driver is installed (libcuda.so.1 was not found); in a container it comes from the host: "
        "start it with --gpus all");
  }
  if (code == cudaErrorInsufficientDriver || driver < CUDART_VERSION / 1000 * 1000) {
    return error(ErrorKind::Device,
                 "the NVIDIA driver supports CUDA {}, this program needs {} or later: update the driver",
                 version_text(driver), version_text(CUDART_VERSION / 1000 * 1000));
  }
  if (code == cudaErrorNoDevice || code == cudaSuccess)
    return error(ErrorKind::Device, "there is no NVIDIA GPU");
  return check(code, "cudaGetDeviceCount").error();
}

Result<CudaDevice> device_at(int index) {
  cudaDeviceProp properties{};
  SLUICE_CUDA_TRY(cudaGetDeviceProperties(&properties, index));
  CudaDevice device{properties.name,
                    {},
                    {properties.major, properties.minor},
                    properties.multiProcessorCount,
                    int64_t(properties.totalGlobalMem)};
  for (const char byte : properties.uuid.bytes) device.uuid += fmt::format("{:02x}", uint8_t(byte));
  std::array<char, 32> pci{};
  if (cudaDeviceGetPCIBusId(pci.data(), int(pci.size()), index) == cudaSuccess) device.pci = pci.data();
  // As the system spells it.
  for (char& c : device.pci) c = char(std::tolower(static_cast<unsigned char>(c)));
  const auto nvml = Nvml::open(index);
  device.others = nvml->others();
  device.now.named_bytes = nvml->named_bytes();
  if (const auto link = nvml->pcie()) {
    device.pcie_generation = int(link->generation);
    device.pcie_width = int(link->width);
  }
  if (const auto memory = nvml->memory()) {
    device.free_bytes = memory->total - memory->used;
    device.now.used_bytes = memory->used;
    return device;
  }
  // The runtime answers only through a context, which itself takes memory.
  size_t free = 0, total = 0;
  SLUICE_CUDA_TRY(cudaSetDevice(index));
  SLUICE_CUDA_TRY(cudaMemGetInfo(&free, &total));
  device.free_bytes = int64_t(free);
  device.now.used_bytes = int64_t(total - free);
  return device;
}

}  // namespace

Result<CudaDevice> open_device(int index) {
  SLUICE_ASSIGN(const int count, device_count());
  if (index < 0 || index >= count)
    return error(ErrorKind::NotFound, "there is no GPU {}: {} found, counted from 0", index, count);
  SLUICE_ASSIGN(CudaDevice device, device_at(index));
  if (device.capability.major < kLeastMajor) {
    return error(ErrorKind::Device, "GPU {} ({}) has compute capability {}; {}.0 is needed", index,
                 device.name, device.capability.to_text(), kLeastMajor);
  }
  SLUICE_CUDA_TRY(cudaSetDevice(index));
  return device;
}

// The parts of NVML's C interface that are used, declared here so that its header is not needed to build.
struct Nvml::Functions {
  struct MemoryInfo {
    unsigned long long total, free, used;
  };
  struct Process {
    unsigned pid;
    unsigned long long bytes;
    unsigned gpu_instance, compute_instance;
  };
  static constexpr unsigned long long kUnknown = ~0ull;

  void* library = nullptr;
  void* device = nullptr;
  int (*shutdown)() = nullptr;
  int (*memory)(void*, MemoryInfo*) = nullptr;
  int (*processes)(void*, unsigned*, Process*) = nullptr;  // that compute,
  int (*drawing)(void*, unsigned*, Process*) = nullptr;    // and that draw; some do both
  int (*driver_version)(char*, unsigned) = nullptr;
  int (*pcie_generation)(void*, unsigned*) = nullptr;
  int (*pcie_width)(void*, unsigned*) = nullptr;

  std::vector<Process> list() const {
    std::vector<Process> all;
    for (const auto of : {processes, drawing}) {
      std::vector<Process> some(64);
      auto count = unsigned(some.size());
      if (of == nullptr || of(device, &count, some.data()) != 0) count = 0;
      some.resize(count);
      for (const Process& p : some) {
        if (p.bytes != kUnknown && std::ranges::find(all, p.pid, &Process::pid) == all.end())
          all.push_back(p);
      }
    }
    return all;
  }
};

std::shared_ptr<const Nvml> Nvml::open(int device) {
  std::shared_ptr<Nvml> nvml(new Nvml);
  // NVML counts GPUs its own way; both sides agree on the bus. Asking for it creates no context.
  std::array<char, 32> bus_id{};
  if (cudaDeviceGetPCIBusId(bus_id.data(), int(bus_id.size()), device) != cudaSuccess) return nvml;
  void* library = dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) return nvml;
  const auto find = [&](const char* name, auto*& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    return function != nullptr;
  };
  auto functions = std::make_unique<Functions>();
  int (*init)() = nullptr;
  int (*by_bus_id)(const char*, void**) = nullptr;
  if (!find("nvmlInit_v2", init) || !find("nvmlShutdown", functions->shutdown) ||
      !find("nvmlDeviceGetHandleByPciBusId_v2", by_bus_id) ||
      !find("nvmlDeviceGetMemoryInfo", functions->memory) || init() != 0) {
    dlclose(library);
    return nvml;
  }
  find("nvmlDeviceGetComputeRunningProcesses_v3", functions->processes);
  find("nvmlDeviceGetGraphicsRunningProcesses_v3", functions->drawing);
  find("nvmlSystemGetDriverVersion", functions->driver_version);
  find("nvmlDeviceGetMaxPcieLinkGeneration", functions->pcie_generation);
  find("nvmlDeviceGetMaxPcieLinkWidth", functions->pcie_width);
  functions->library = library;
  nvml->functions_ = std::move(functions);
  if (by_bus_id(bus_id.data(), &nvml->functions_->device) != 0) return std::shared_ptr<Nvml>(new Nvml);
  return nvml;
}

Nvml::~Nvml() {
  if (!functions_) return;
  functions_->shutdown();
  dlclose(functions_->library);
}

std::optional<Nvml::Memory> Nvml::memory() const {
  Functions::MemoryInfo info{};
  if (!functions_ || functions_->memory(functions_->device, &info) != 0) return std::nullopt;
  return Memory{int64_t(info.total), int64_t(info.used)};
}

std::optional<int64_t> Nvml::own_bytes() const {
  if (!functions_) return std::nullopt;
  for (const auto& process : functions_->list()) {
    if (process.pid == unsigned(getpid())) return int64_t(process.bytes);
  }
  return std::nullopt;
}

int64_t Nvml::named_bytes() const {
  int64_t bytes = 0;
  if (!functions_) return bytes;
  for (const auto& process : functions_->list()) bytes += int64_t(process.bytes);
  return bytes;
}

std::optional<Nvml::Pcie> Nvml::pcie() const {
  Pcie link{};
  if (!functions_ || functions_->pcie_generation == nullptr || functions_->pcie_width == nullptr) return {};
  if (functions_->pcie_generation(functions_->device, &link.generation) != 0) return {};
  if (functions_->pcie_width(functions_->device, &link.width) != 0) return {};
  return link;
}

std::string Nvml::driver_version() const {
  std::array<char, 96> text{};
  if (!functions_ || functions_->driver_version == nullptr) return {};
  return functions_->driver_version(text.data(), unsigned(text.size())) == 0 ? text.data() : "";
}

std::string Nvml::others() const {
  std::string text;
  if (!functions_) return text;
  for (const auto& process : functions_->list()) {
    if (process.pid == unsigned(getpid())) continue;
    text += fmt::format("{}process {} holds {}", text.empty() ? "" : ", ", process.pid,
                        format_bytes(int64_t(process.bytes)));
  }
  return text;
}

}  // namespace cuda

Result<std::vector<CudaDevice>> cuda_devices() {
  SLUICE_ASSIGN(const int count, cuda::device_count());
  std::vector<CudaDevice> devices;
  for (int i = 0; i < count; ++i) {
    SLUICE_ASSIGN(CudaDevice device, cuda::device_at(i));
    for (int other = 0; other < count; ++other) {
      int can = 0;
      if (other != i && cudaDeviceCanAccessPeer(&can, i, other) == cudaSuccess && can != 0)
        device.reaches.push_back(other);
    }
    devices.push_back(std::move(device));
  }
  return devices;
}

CudaReport cuda_report() {
  CudaReport report;
  int version = 0;
  if (cudaDriverGetVersion(&version) == cudaSuccess && version > 0)
    report.driver = cuda::version_text(version);
  if (cudaRuntimeGetVersion(&version) == cudaSuccess) report.runtime = cuda::version_text(version);
  report.cublaslt = cuda::library_version(cublasLtGetVersion());
  report.cudnn = cuda::library_version(cudnnGetVersion());
  report.cudnn_built = cuda::library_version(CUDNN_VERSION);
  report.kernel_driver = cuda::Nvml::open(0)->driver_version();
  auto devices = cuda_devices();
  if (devices.ok()) {
    report.devices = std::move(*devices);
  } else {
    report.problem = devices.message();
  }
  return report;
}

bool cuda_is_built() {
  return true;
}

std::string cuda_versions() {
  int cuda = 0;
  if (cudaDriverGetVersion(&cuda) != cudaSuccess || cuda == 0) return {};
  return fmt::format("driver {} (CUDA {}), cuBLASLt {}, cuDNN {}", cuda::Nvml::open(0)->driver_version(),
                     cuda::version_text(cuda), cuda::library_version(cublasLtGetVersion()),
                     cuda::library_version(cudnnGetVersion()));
}

}  // namespace sluice::core
