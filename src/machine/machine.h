// What runs the steps: this machine, or one that is only planned for.
#pragma once

#include <filesystem>
#include <memory>

#include "backend/backend.h"
#include "config/config.h"
#include "cost/profile.h"

namespace sluice {

struct Machine {
  std::string backend;      // "cpu", "cuda", or "sim": a machine that is only planned for
  std::string description;  // one line
  bool fast_bf16 = false;
  int64_t device_total_bytes = kUnlimited;  // what the device has
  int threads = 0, device = 0;
  bool deterministic = false;
  std::string uuid;           // of the GPU; empty: none
  std::string library_cache;  // file of what the GPU's libraries chose; empty: none
  Profile profile;

  // A fresh backend. REQUIRES: backend is not "sim".
  Result<std::unique_ptr<Backend>> make() const;
};
// The machine that config.run names; "auto" is the GPU where there is one, else the CPU. `preset` names a
// machine of cost/presets.h to plan for instead; empty: none.
Result<Machine> resolve_machine(const RunConfig& config, const std::string& preset);

// The file that keeps the machine's measured costs: one per machine and GPU, so that switching between two
// measures neither again. GPUs of one name differ by some per cent.
std::filesystem::path cost_cache(const RunConfig& config, const Machine& machine);

}  // namespace sluice
