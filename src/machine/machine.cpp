#include "machine/machine.h"

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "backend/cpu/cpu_backend.h"
#include "backend/cuda/cuda_backend.h"
#include "base/hash.h"
#include "cost/presets.h"

namespace sluice {

Result<std::unique_ptr<Backend>> Machine::make() const {
  if (backend == "cuda") {
    CudaOptions options;
    options.device = device;
    options.deterministic = deterministic;
    options.cache = library_cache;
    return make_cuda_backend(options);
  }
  SLUICE_CHECK(backend == "cpu", "no backend named {}", backend);
  return make_cpu_backend(CpuOptions{threads});
}

namespace {

// The backend's exact workspaces; a backend that is only asked holds no arenas.
Status ask_backend(Machine& m) {
  SLUICE_ASSIGN(std::unique_ptr<Backend> backend, m.make());
  m.profile.alignment = backend->alignment();
  m.profile.workspace_bytes = [shared = std::shared_ptr<Backend>(std::move(backend))](const Op& op) {
    return shared->workspace_bytes(op);
  };
  return {};
}

Result<Machine> cpu_machine(const RunConfig& config) {
  // What the process grows by after planning: command queues, library code, metrics.
  constexpr int64_t kMargin = 48 * kMiB;
  Machine m;
  m.backend = "cpu";
  m.threads = int(config.run.threads);
  m.fast_bf16 = cpu_has_fast_bf16();
  m.description = cpu_description();
  m.profile.name = fmt::format("{} ({} threads)", m.description, m.threads);
  SLUICE_ASSIGN(const std::unique_ptr<Backend> backend, m.make());
  m.profile.host_overhead_bytes = backend->memory().host_bytes + kMargin;
  SLUICE_TRY(ask_backend(m));
  return m;
}

Result<Machine> cuda_machine(const RunConfig& config) {
  SLUICE_ASSIGN(const std::vector<CudaDevice> devices, cuda_devices());
  if (config.run.device >= int64_t(devices.size())) {
    return error(ErrorKind::NotFound, "run.device = {}: there are {} GPUs, numbered from 0",
                 config.run.device, devices.size());
  }
  const CudaDevice& gpu = devices[size_t(config.run.device)];
  // What comes after planning: kernels, queues, the driver's records of pinned memory. 600 MiB were seen with
  // 109 GiB pinned.
  constexpr int64_t kHostMargin = 768 * kMiB;
  Machine m;
  m.backend = "cuda";
  m.device = int(config.run.device);
  m.uuid = gpu.uuid;
  m.deterministic = config.run.deterministic;
  m.fast_bf16 = true;
  m.description =
      fmt::format("{}, {} of {} free", gpu.name, format_bytes(gpu.free_bytes), format_bytes(gpu.total_bytes));
  // Kernels and library handles come on top of the context that the free bytes already count.
  m.device_total_bytes = gpu.free_bytes - kGiB;
  // Rates of ops that are not measured come from the preset nearest to this GPU.
  std::string preset = "h100";
  for (const char* name : {"h200", "h100", "a100", "3090", "4090", "5090"}) {
    std::string model = gpu.name;
    std::transform(model.begin(), model.end(), model.begin(),
                   [](unsigned char c) { return char(std::tolower(c)); });
    if (model.find(name) != std::string::npos)
      preset = std::isdigit(name[0]) ? std::string("rtx") + name : name;
  }
  SLUICE_ASSIGN(m.profile, machine_preset(preset));
  // Other versions have other speeds, and so have deterministic kernels.
  m.profile.name =
      fmt::format("{} ({}{})", gpu.name, cuda_versions(), m.deterministic ? ", deterministic" : "");
  m.library_cache = (std::filesystem::path(config.data.cache) / "cuda-libraries").string();
  SLUICE_TRY(ask_backend(m));
  SLUICE_ASSIGN(const std::unique_ptr<Backend> backend, m.make());
  m.profile.host_overhead_bytes = backend->memory().host_bytes + kHostMargin;
  return m;
}

}  // namespace

Result<Machine> resolve_machine(const RunConfig& config, const std::string& preset) {
  if (!preset.empty() || config.run.backend == "sim") {
    Machine m;
    m.backend = "sim";
    SLUICE_ASSIGN(m.profile, machine_preset(preset.empty() ? "h200" : preset));
    m.description = "simulated " + m.profile.name;
    m.fast_bf16 = m.profile.name != "cpu";
    return m;
  }
  if (config.run.backend == "cuda") return cuda_machine(config);
  if (config.run.backend == "auto") {
    if (const auto devices = cuda_devices(); devices.ok() && !devices->empty()) return cuda_machine(config);
  }
  return cpu_machine(config);
}

std::filesystem::path cost_cache(const RunConfig& config, const Machine& machine) {
  return std::filesystem::path(config.data.cache) /
         fmt::format("costs-{:016x}.json", Hash().add(machine.profile.name).add(machine.uuid).value());
}

}  // namespace sluice
