// SPDX-License-Identifier: Apache-2.0
#include "run/prepare/checks.h"
#include "run/inputs/paths.h"

#include <unistd.h>

#include <utility>

#include "host/host_memory.h"
#include "io/safetensors.h"
#include "plans/card_cap.h"
#include "run/data/data.h"
#include "run/inputs/resolve.h"

namespace sluice::core {
namespace fs = std::filesystem;
namespace {

Status keep_to_this_machine(const RunConfig& config, const Machine& machine) {
  const HostLimit host = host_limit();
  const HostLimit device =
      machine.traits().shares_cores ? host : HostLimit{machine.device_total_bytes, "the device"};
  for (const auto& [tier, limit] : {std::pair{kDevice, device}, {kHost, host}}) {
    const int64_t cap = config.caps[tier];
    if (cap != kUnlimited && cap > limit.bytes)
      return cap_above(tier, cap, limit.bytes,
                       fmt::format("{} has {}", limit.whose, format_bytes(limit.bytes)));
  }
  return {};
}

// What goes by held-out losses needs some.
Status check_held_out(const RunConfig& config) {
  if (holds_out(config) && config.eval.rows > 0) return {};
  constexpr const char* kWhy =
      "nothing is evaluated: hold text out with data.heldout or data.heldout_paths, and let eval.rows be "
      "above 0";
  if (config.eval.patience > 0) return error("eval.patience = {}: {}", config.eval.patience, kWhy);
  if (config.run.keep_best == true) return error("run.keep_best = on: {}", kWhy);
  return {};
}

}  // namespace

Status check_early(RunConfig& config, const Machine& machine) {
  if (machine.card) SLUICE_TRY(keep_to_card(config, *machine.card));
  if (!machine.traits().runs_models) return {};
  SLUICE_TRY(check_held_out(config));
  SLUICE_TRY(keep_to_this_machine(config, machine));
  // One that only can be read may have all that is needed; what cannot be added to it is an error then.
  std::error_code ignored;
  const bool readable =
      fs::is_directory(config.data.cache, ignored) && ::access(config.data.cache.c_str(), R_OK | X_OK) == 0;
  if (!config.data.cache.empty() && !readable) SLUICE_TRY(check_directory("data.cache", config.data.cache));
  if (const auto files = model_files_of(config); !files.ok()) return files.error();
  // A run that goes on has its own.
  if (config.model.weights.empty() || !config.checkpoint().empty()) return {};
  const std::string_view key = key_of_part(config, config.model.weights, "model.weights");
  SLUICE_TRY(check_input(config, key, config.model.weights));
  // Headers say whether it is a checkpoint; which tensors it has is for the model to judge.
  const auto opened = TensorFiles::open(config.model.weights);
  if (!opened.ok()) return error_at(key, opened.error());
  return {};
}

}  // namespace sluice::core
