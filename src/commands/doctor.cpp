#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "backend/cpu/cpu_backend.h"
#include "backend/cuda/cuda_backend.h"
#include "base/host_memory.h"
#include "io/file.h"
#include "measure/calibrate.h"
#include "run/prepare.h"
#include "sluice/sluice.h"

namespace sluice {
namespace {

void show_host() {
  fmt::print("CPU      {}\n", cpu_description());
  fmt::print("         bf16 products {}\n",
             cpu_has_fast_bf16() ? "in hardware" : "not in hardware: f32 is used");
  const double pages = double(sysconf(_SC_PHYS_PAGES)) * double(sysconf(_SC_PAGESIZE));
  fmt::print("memory   {}, {} available\n", format_bytes(static_cast<int64_t>(pages)),
             format_bytes(available_bytes()));
  constexpr auto kHugePages = "/sys/kernel/mm/transparent_hugepage/enabled";
  if (const auto setting = read_file(kHugePages); setting.ok() && setting->find("[never]") != setting->npos) {
    fmt::print("         huge pages are off, which slows start-up and copies; as root: echo madvise > {}\n",
               kHugePages);
  }
}

void show_gpus(const CudaReport& cuda) {
  if (!cuda.problem.empty()) fmt::print("GPU      none usable: {}\n", cuda.problem);
  for (const CudaDevice& d : cuda.devices) {
    fmt::print("GPU      {}, compute capability {}.{}, {} multiprocessors, {} free of {}\n", d.name,
               d.cc_major, d.cc_minor, d.multiprocessors, format_bytes(d.free_bytes),
               format_bytes(d.total_bytes));
    if (d.pcie_generation > 0) fmt::print("         PCIe {} x{}\n", d.pcie_generation, d.pcie_width);
    if (!d.others.empty()) fmt::print("         {}\n", d.others);
  }
  if (cuda.driver.empty()) return;
  fmt::print("CUDA     driver {} (CUDA {}), runtime {}, cuBLASLt {}, cuDNN {} (built for {})\n",
             cuda.kernel_driver.empty() ? "of unknown version" : cuda.kernel_driver, cuda.driver,
             cuda.runtime, cuda.cublaslt, cuda.cudnn, cuda.cudnn_built);
  if (cuda.kernel_driver.empty() && cuda.problem.empty()) {
    fmt::print(
        "         libnvidia-ml.so.1 was not found: memory is that of the whole GPU, not of this process; in "
        "a\n"
        "         container, start it with NVIDIA_DRIVER_CAPABILITIES=compute,utility\n");
  }
}

// How fast the first GPU's link is, measured unless it is known already.
Status show_links() {
  SLUICE_ASSIGN(const RunConfig config, load_config("", {"run.backend=cuda"}));
  SLUICE_ASSIGN(Machine machine, resolve_machine(config, ""));
  SLUICE_ASSIGN(const std::unique_ptr<Backend> backend, machine.make());
  SLUICE_TRY(calibrate(*backend, StepMix(), cost_cache(config, machine), CalibrateOptions{}, machine.profile,
                       [](int64_t, int64_t) {}));
  fmt::print("links    load {:.1f} GB/s, store {:.1f} GB/s\n", machine.profile.load_bytes_per_s / 1e9,
             machine.profile.store_bytes_per_s / 1e9);
  return {};
}

// What a time means: arithmetic for what is bound by it, else memory traffic.
std::string rate_of(const Op& op, double ns) {
  return flops(op) > 0 ? fmt::format("{:.1f} TFLOP/s", flops(op) / ns / 1e3)
                       : fmt::format("{:.1f} GB/s", traffic(op) / ns);
}

Status show_costs(const DoctorRequest& request) {
  SLUICE_ASSIGN(RunConfig config, load_config(request.config_path, request.settings));
  SLUICE_ASSIGN(const Prepared p, prepare(std::move(config), "", false));
  const Profile& profile = p.machine.profile;
  fmt::print("\n{}\nlinks: load {:.1f} GB/s, store {:.1f} GB/s; beside the arena {} of the device\n",
             profile.name, profile.load_bytes_per_s / 1e9, profile.store_bytes_per_s / 1e9,
             format_bytes(profile.device_overhead_bytes));
  fmt::print("{:>12}  {:>16}  op\n", "ms", "rate");
  for (const Op& op : distinct_ops(p.stages.training.model.program)) {
    const double ns = profile.cost(op).ns;
    fmt::print("{:>12.4f}  {:>16}  {}\n", ns / 1e6, rate_of(op, ns), cost_key(op));
  }
  return {};
}

}  // namespace

Outcome doctor(const DoctorRequest& request) {
  show_host();
  const CudaReport cuda = cuda_report();
  show_gpus(cuda);
  if (cuda.problem.empty() && !cuda.devices.empty()) {
    if (const Status status = show_links(); !status.ok())
      fmt::print("links    not measured: {}\n", status.message());
  }
  if (!request.calibrate) return {};
  std::fflush(stdout);
  const Status status = show_costs(request);
  return status.ok() ? Outcome{} : Outcome{false, status.message()};
}

}  // namespace sluice
