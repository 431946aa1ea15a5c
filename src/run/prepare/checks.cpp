// SPDX-License-Identifier: Apache-2.0
#include "run/prepare/checks.h"
#include "run/inputs/paths.h"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/counts.h"
#include "checkpoint/offered.h"
#include "host/cores.h"
#include "host/host_memory.h"
#include "io/safetensors.h"
#include "run/data/data.h"
#include "run/inputs/resolve.h"
#include "setup/card_cap.h"

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

// A notice where a cap leaves other programs and the system itself too little memory.
void warn_of_little_left(const RunConfig& config, const Machine& machine, Notices& notices) {
  const HostLimit host = host_limit();
  if (host.bytes == kUnlimited) return;
  const bool shares = machine.traits().shares_cores;
  const auto taken = [&](Tier tier) { return config.caps[tier] == kUnlimited ? 0 : config.caps[tier]; };
  const int64_t caps = taken(kHost) + (shares ? taken(kDevice) : 0);
  const int64_t left = host.bytes - caps, wanted = std::min(4 * kGiB, host.bytes / 16);
  if (left >= wanted) return;
  const bool both = shares && config.caps[kDevice] != kUnlimited && config.caps[kHost] != kUnlimited;
  notices.push_back(
      fmt::format("{} = {}: that leaves {} of the {} that {} has to the system and other programs; "
                  "{} would leave {}",
                  both                               ? "memory.device and memory.host, which share it,"
                  : config.caps[kHost] == kUnlimited ? "memory.device"
                                                     : "memory.host",
                  format_bytes(caps), left > 0 ? format_bytes(left) : "nothing", format_bytes(host.bytes),
                  host.whose, format_bytes(host.bytes - wanted), format_bytes(wanted)));
}

// A CPU is one device, and its threads are on the cores that there are.
Status check_cores(const RunConfig& config, const Machine& machine, Notices& notices) {
  if (config.run.device > 0 && machine.devices() > 1) {
    return error("run.device = {}: run.devices = {} says which; name them there, with commas between",
                 config.run.device, to_text(config.run.devices));
  }
  if (!machine.traits().shares_cores) return {};
  if (config.run.device > 0) {
    return error("run.device = {}: the backend {} has one device, 0", config.run.device,
                 machine.backend->name);
  }
  if (config.run.threads > all_cores()) {
    notices.push_back(fmt::format("run.threads = {}: this machine has {}, and more threads wait for them",
                                  config.run.threads, counted(all_cores(), "core")));
  }
  return {};
}

// Settings that use held-out losses need some.
Status check_held_out(const RunConfig& config, Notices& notices) {
  if (holds_out(config) && config.eval.rows > 0) return {};
  if (holds_out(config))
    notices.push_back("eval.rows = 0: what is held out is neither trained on nor evaluated");
  constexpr const char* kWhy =
      "nothing is evaluated: hold text out with data.heldout or data.heldout_paths, and let eval.rows be "
      "above 0";
  if (config.eval.patience > 0) return error("eval.patience = {}: {}", config.eval.patience, kWhy);
  if (config.run.keep_best == true) return error("run.keep_best = on: {}", kWhy);
  if (config.given.contains("eval.every"))
    notices.push_back(fmt::format("eval.every = {}: {}", config.eval.every.value_or(0), kWhy));
  if (config.given.contains("eval.rows") && config.eval.rows > 0)
    notices.push_back(fmt::format("eval.rows = {}: {}", config.eval.rows, kWhy));
  return {};
}

}  // namespace

Result<Notices> check_settings(const RunConfig& config, const Machine& machine) {
  Notices notices;
  SLUICE_TRY(caps_on(config, machine));
  if (!machine.traits().runs_models) return notices;
  SLUICE_TRY(check_held_out(config, notices));
  const SampleKeys& sample = config.sample;
  const SampleKeys usual;
  if (sample.tokens == 0) {
    for (const auto& [key, given] : {std::pair{"sample.every", sample.every != usual.every},
                                     {"sample.prompt", sample.prompt != usual.prompt},
                                     {"sample.temperature", sample.temperature != usual.temperature},
                                     {"sample.texts", sample.texts != usual.texts}}) {
      if (given) notices.push_back(fmt::format("{}: no text is sampled, as sample.tokens is 0", key));
    }
  }
  SLUICE_TRY(keep_to_this_machine(config, machine));
  SLUICE_TRY(check_cores(config, machine, notices));
  if (config.run.shard_state && machine.processes == 1)
    notices.push_back(
        "run.shard_state = true: this one process has the state of all weights; several share it");
  warn_of_little_left(config, machine, notices);
  // One that only can be read may have all that is needed; what cannot be added to it is an error then.
  std::error_code ignored;
  const bool readable =
      fs::is_directory(config.data.cache, ignored) && ::access(config.data.cache.c_str(), R_OK | X_OK) == 0;
  if (!config.data.cache.empty() && !readable) SLUICE_TRY(check_directory("data.cache", config.data.cache));
  SLUICE_TRY(model_files_of(config));
  return notices;
}

Result<Notices> check_early(const RunConfig& config, const Machine& machine, const ModelSpec& model) {
  SLUICE_ASSIGN(Notices notices, check_settings(config, machine));
  if (!machine.traits().runs_models) return notices;
  // A run that goes on has its own, but for the base of an adapter.
  const bool goes_on = !config.checkpoint().empty();
  if (!config.adapter.path.empty() && !goes_on) {
    SLUICE_TRY(check_input(config, "adapter.path", config.adapter.path));
    const auto adapter = TensorFiles::open(config.adapter.path);
    if (!adapter.ok()) return error_at("adapter.path", adapter.error());
    SLUICE_TRY(check_adapter(model, *adapter));
  }
  if (config.model.weights.empty() || (goes_on && config.adapter.rank == 0)) return notices;
  const std::string_view key = key_of_part(config, config.model.weights, "model.weights");
  SLUICE_TRY(check_input(config, key, config.model.weights));
  // Headers say whether it is a checkpoint, and whether it is the model's.
  const auto opened = TensorFiles::open(config.model.weights);
  if (!opened.ok()) return error_at(key, opened.error());
  const Unread unread = config.model.unread == "drop" ? Unread::Drop : Unread::Refuse;
  const Status offered = check_offered(model, *opened, unread, notices);
  if (!offered.ok()) return error_at(key, offered.error());
  return notices;
}

}  // namespace sluice::core
