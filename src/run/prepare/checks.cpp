// SPDX-License-Identifier: Apache-2.0
#include "run/prepare/checks.h"
#include "run/inputs/paths.h"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/counts.h"
#include "host/cores.h"
#include "host/host_memory.h"
#include "io/safetensors.h"
#include "plans/card_cap.h"
#include "run/data/data.h"
#include "run/inputs/resolve.h"
#include "state/offered.h"

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

// Once: a run is checked before its data is read, and before it is planned.
void add_notice(RunConfig& config, std::string text) {
  if (std::ranges::find(config.notices, text) == config.notices.end())
    config.notices.push_back(std::move(text));
}

// A notice where a cap leaves other programs and the system itself too little memory.
void warn_of_little_left(RunConfig& config, const Machine& machine) {
  const HostLimit host = host_limit();
  if (host.bytes == kUnlimited) return;
  const bool shares = machine.traits().shares_cores;
  const auto taken = [&](Tier tier) { return config.caps[tier] == kUnlimited ? 0 : config.caps[tier]; };
  const int64_t caps = taken(kHost) + (shares ? taken(kDevice) : 0);
  const int64_t left = host.bytes - caps, wanted = std::min(4 * kGiB, host.bytes / 16);
  if (left >= wanted) return;
  const bool both = shares && config.caps[kDevice] != kUnlimited && config.caps[kHost] != kUnlimited;
  add_notice(
      config,
      fmt::format("{} = {}: that leaves {} of the {} that {} has to the system and other programs; "
                  "{} would leave {}",
                  both                               ? "memory.device and memory.host, which share it,"
                  : config.caps[kHost] == kUnlimited ? "memory.device"
                                                     : "memory.host",
                  format_bytes(caps), left > 0 ? format_bytes(left) : "nothing", format_bytes(host.bytes),
                  host.whose, format_bytes(host.bytes - wanted), format_bytes(wanted)));
}

// A CPU is one device, and its threads are on the cores that there are.
Status check_cores(RunConfig& config, const Machine& machine) {
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
    add_notice(config, fmt::format("run.threads = {}: this machine has {}, and more threads wait for them",
                                   config.run.threads, counted(all_cores(), "core")));
  }
  return {};
}

// Settings that use held-out losses need some.
Status check_held_out(RunConfig& config) {
  if (holds_out(config) && config.eval.rows > 0) return {};
  if (holds_out(config))
    add_notice(config, "eval.rows = 0: what is held out is neither trained on nor evaluated");
  constexpr const char* kWhy =
      "nothing is evaluated: hold text out with data.heldout or data.heldout_paths, and let eval.rows be "
      "above 0";
  if (config.eval.patience > 0) return error("eval.patience = {}: {}", config.eval.patience, kWhy);
  if (config.run.keep_best == true) return error("run.keep_best = on: {}", kWhy);
  if (config.given.contains("eval.every"))
    add_notice(config, fmt::format("eval.every = {}: {}", config.eval.every.value_or(0), kWhy));
  if (config.given.contains("eval.rows") && config.eval.rows > 0)
    add_notice(config, fmt::format("eval.rows = {}: {}", config.eval.rows, kWhy));
  return {};
}

}  // namespace

Status check_settings(RunConfig& config, const Machine& machine) {
  if (machine.card) SLUICE_TRY(keep_to_card(config, *machine.card));
  if (!machine.traits().runs_models) return {};
  SLUICE_TRY(check_held_out(config));
  const SampleKeys& sample = config.sample;
  const SampleKeys usual;
  if (sample.tokens == 0) {
    for (const auto& [key, given] : {std::pair{"sample.every", sample.every != usual.every},
                                     {"sample.prompt", sample.prompt != usual.prompt},
                                     {"sample.temperature", sample.temperature != usual.temperature},
                                     {"sample.texts", sample.texts != usual.texts}}) {
      if (given) add_notice(config, fmt::format("{}: no text is sampled, as sample.tokens is 0", key));
    }
  }
  SLUICE_TRY(keep_to_this_machine(config, machine));
  SLUICE_TRY(check_cores(config, machine));
  if (config.run.shard_state && machine.processes == 1)
    add_notice(config,
               "run.shard_state = true: this one process has the state of all weights; several share it");
  warn_of_little_left(config, machine);
  // One that only can be read may have all that is needed; what cannot be added to it is an error then.
  std::error_code ignored;
  const bool readable =
      fs::is_directory(config.data.cache, ignored) && ::access(config.data.cache.c_str(), R_OK | X_OK) == 0;
  if (!config.data.cache.empty() && !readable) SLUICE_TRY(check_directory("data.cache", config.data.cache));
  const auto files = model_files_of(config);
  return files.ok() ? Status() : Status(files.error());
}

void warn_of_idle(RunConfig& c) {
  const int64_t steps = c.train.steps;
  for (const auto& [key, every] : {std::pair{"eval.every", c.eval.every.value_or(0)},
                                   {"sample.every", c.sample.tokens > 0 ? c.sample.every : 0},
                                   {"run.checkpoint_every", c.run.checkpoint_every},
                                   {"run.keep_every", c.run.keep_every}}) {
    if (every > steps && steps > 0)
      add_notice(
          c, fmt::format("{} = {}: the run ends before that, after {}", key, every, counted(steps, "step")));
  }
  const int64_t every = c.eval.every.value_or(0), between = every > 0 ? (steps - 1) / every : 0;
  if (c.eval.every && every <= steps && c.eval.patience > between)
    add_notice(c,
               fmt::format("eval.patience = {}: the run is evaluated {} before its end, and never ends early",
                           c.eval.patience, counted(between, "time")));
  if (c.sample.tokens > 0 && c.sample.texts > 1 && c.sample.temperature == 0)
    add_notice(c, fmt::format("sample.texts = {}: with sample.temperature = 0 they are all the same",
                              c.sample.texts));
  if (c.run.trace_kernels && !c.run.trace)
    add_notice(c, "run.trace_kernels = true does not count: run.trace = false writes no trace");
  std::map<std::string_view, double> values;
  for (const Hyperparameter& h : c.optimizer().hyperparameters) values[h.name] = c.value_of(h);
  const auto is = [&](std::string_view name, double value) {
    return values.contains(name) && values[name] == value;
  };
  if (c.adapter.decay && is("weight_decay", 0))
    add_notice(c, "adapter.decay = true does not count: train.weight_decay is 0");
  if (is("nesterov", 1) && is("momentum", 0))
    add_notice(c, "train.nesterov = 1 does not count: train.momentum is 0");
  if (!c.data.heldout_paths.empty() && c.data.heldout != DataKeys().heldout)
    add_notice(c, fmt::format("data.heldout = {} does not count: data.heldout_paths names what is held out",
                              c.data.heldout));
}

Status check_early(RunConfig& config, const Machine& machine, const ModelSpec& model) {
  SLUICE_TRY(check_settings(config, machine));
  if (!machine.traits().runs_models) return {};
  // A run that goes on has its own, but for the base of an adapter.
  const bool goes_on = !config.checkpoint().empty();
  if (!config.adapter.path.empty() && !goes_on) {
    SLUICE_TRY(check_input(config, "adapter.path", config.adapter.path));
    const auto adapter = TensorFiles::open(config.adapter.path);
    if (!adapter.ok()) return error_at("adapter.path", adapter.error());
    SLUICE_TRY(check_adapter(model, *adapter));
  }
  if (config.model.weights.empty() || (goes_on && config.adapter.rank == 0)) return {};
  const std::string_view key = key_of_part(config, config.model.weights, "model.weights");
  SLUICE_TRY(check_input(config, key, config.model.weights));
  // Headers say whether it is a checkpoint, and whether it is the model's.
  const auto opened = TensorFiles::open(config.model.weights);
  if (!opened.ok()) return error_at(key, opened.error());
  const Unread unread = config.model.unread == "drop" ? Unread::Drop : Unread::Refuse;
  const Status offered = check_offered(model, *opened, unread, config.notices);
  if (!offered.ok()) return error_at(key, offered.error());
  return {};
}

}  // namespace sluice::core
