// SPDX-License-Identifier: Apache-2.0
#include "run/checks.h"

#include <unistd.h>

#include <utility>

#include "host/host_memory.h"
#include "io/hub_cache.h"
#include "io/safetensors.h"
#include "plans/card_cap.h"
#include "run/data.h"
#include "run/resolve.h"

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

// The nearest directory that is there, which must let others be made in it.
Status can_make(std::string_view key, const fs::path& path, fs::path directory) {
  std::error_code ignored;
  while (!fs::exists(directory, ignored) && directory.has_relative_path())
    directory = directory.parent_path();
  if (!fs::is_directory(directory, ignored))
    return error(ErrorKind::Io, "{} = {}: {} is not a directory", key, path.string(), directory.string());
  if (::access(directory.c_str(), W_OK | X_OK) == 0) return {};
  return error(ErrorKind::Io, "{} = {}: {} cannot be written to", key, path.string(), directory.string());
}

fs::path whole_path(const fs::path& path) {
  std::error_code ignored;
  return fs::absolute(path, ignored).lexically_normal();
}

}  // namespace

Status check_input(const RunConfig& config, std::string_view key, const fs::path& path) {
  std::error_code ignored;
  if (fs::exists(path, ignored)) return {};
  const auto written = config.written_paths.find(path.string());
  if (written == config.written_paths.end())
    return error(ErrorKind::NotFound, "{} = {}: no such file or directory", key, path.string());
  const std::string& words = written->second;
  const std::string name = words.substr(1, std::max<size_t>(words.find('\'', 1), 1) - 1);
  const bool data = key.starts_with("data.");
  std::string hub;
  if (is_hub_name(name) && (data || key.starts_with("model.")))
    hub = fmt::format(
        "; nor is it in the cache of the Hugging Face hub, {}, where `hf download {}{}` would put it",
        hub_cache().string(), data ? "--repo-type dataset " : "",
        name.substr(0, name.find('/', name.find('/') + 1)));
  return error(ErrorKind::NotFound, "{}: {} is {}: no such file or directory{}", key, words, path.string(),
               hub);
}

std::string_view key_of_part(const RunConfig& config, const std::string& path, std::string_view own) {
  return !config.model.path.empty() && path == config.model.path ? "model.path" : own;
}

Status check_directory(std::string_view key, const fs::path& path) {
  return can_make(key, path, whole_path(path));
}

Status check_output(std::string_view key, const fs::path& path) {
  std::error_code ignored;
  const fs::path whole = whole_path(path), directory = whole.parent_path();
  if (fs::is_directory(whole, ignored))
    return error(ErrorKind::Io, "{} = {}: that is a directory; a file is needed", key, path.string());
  if (!fs::exists(directory, ignored))
    return error(ErrorKind::Io, "{} = {}: there is no directory {}", key, path.string(), directory.string());
  return can_make(key, path, directory);
}

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
