// A RunConfig made concrete: the model, the shape, the number formats and the machine.
#pragma once

#include <filesystem>
#include <memory>

#include "backend/backend.h"
#include "cost/profile.h"
#include "model/build.h"
#include "train/config.h"

namespace sluice {

// Reads model.config or takes model.preset.
Result<LlamaConfig> resolve_model(const RunConfig& config);

// What runs the steps.
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

// "auto" becomes: bf16 with bf16 gradients and state and stochastic rounding on a GPU; on a CPU bf16 with f32
// gradients, state and master weights where bf16 products are fast, and f32 elsewhere.
Result<Numerics> resolve_numerics(const RunConfig& config, const Machine& machine);

// Updates are deferred by default where transfers are what may bind.
OptimizerConfig resolve_optimizer(const RunConfig& config, const Machine& machine);

// learning rate of optimizer update `step`, counted from 1: linear warm-up, then a cosine down to the
// minimum.
double learning_rate(const RunConfig& config, int64_t step);

}  // namespace sluice
