#include <fmt/format.h>
#include <unistd.h>

#include "backend/cpu/cpu_backend.h"
#include "backend/cuda/cuda_backend.h"
#include "sluice/sluice.h"

namespace sluice {

Outcome doctor() {
  fmt::print("CPU      {}\n", cpu_description());
  fmt::print("         bf16 products {}\n", cpu_has_fast_bf16() ? "in hardware" : "not in hardware: f32 is used");
  const double pages = double(sysconf(_SC_PHYS_PAGES)) * double(sysconf(_SC_PAGESIZE));
  fmt::print("memory   {}\n", format_bytes(static_cast<int64_t>(pages)));
  const CudaReport cuda = cuda_report();
  if (!cuda.problem.empty()) fmt::print("GPU      none usable: {}\n", cuda.problem);
  for (const CudaDevice& d : cuda.devices) {
    fmt::print("GPU      {}, compute capability {}.{}, {} multiprocessors, {} free of {}\n", d.name, d.cc_major, d.cc_minor,
               d.multiprocessors, format_bytes(d.free_bytes), format_bytes(d.total_bytes));
  }
  if (!cuda.driver.empty()) {
    fmt::print("CUDA     driver supports {}, runtime {}, cuBLASLt {}, cuDNN {} (built for {})\n", cuda.driver, cuda.runtime,
               cuda.cublaslt, cuda.cudnn, cuda.cudnn_built);
  }
  return {};
}

}  // namespace sluice
