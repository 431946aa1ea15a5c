// SPDX-License-Identifier: Apache-2.0
// The run configuration: the tables of its components, whose rows are its keys (config/row.h).
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "base/tier.h"
#include "config/data_keys.h"
#include "config/row.h"
#include "config/run_keys.h"
#include "config/step_keys.h"
#include "text/toml.h"

namespace sluice::core {

struct RunConfig {
  // Compiled once, in config.cpp, as it has many parts.
  RunConfig();
  RunConfig(const RunConfig&);
  RunConfig(RunConfig&&) noexcept;
  RunConfig& operator=(const RunConfig&);
  RunConfig& operator=(RunConfig&&) noexcept;
  ~RunConfig();

  ModelKeys model;
  AdapterKeys adapter;
  DataKeys data;
  TrainKeys train;
  ObjectiveKeys objective;
  RolloutKeys rollout;
  ShapeKeys shape;
  BytesByTier caps = BytesByTier(kUnlimited);
  EvalKeys eval;
  SampleKeys sample;
  RunKeys run;

  // Keys and values of a machine file, in order, for the machine that is planned for. Settings alone have
  // them: machine.memory.size=48GiB.
  std::vector<std::pair<std::string, std::string>> machine;

  // The keys that somebody named, whatever their values are.
  std::set<std::string, std::less<>> given;

  // Notices on how settings were understood, a sentence each: commands show them.
  std::vector<std::string> notices;
  // Relative paths as they were written, by their absolute form: "'src' in configs/a.toml".
  std::map<std::string, std::string, std::less<>> written_paths;

  // Options of a single start, beside the keys. `latest` is the newest checkpoint of run.dir: the run there
  // goes on, wherever it began. `allow` has words of run/prepare/manifest.h.
  std::string latest;
  std::vector<std::string> allow;
  // Whether every process of a job sees run.dir, as was tried: then each writes its part of the state there.
  bool all_see_dir = false;

  // The checkpoint that the run resumes from; empty: none.
  const std::string& checkpoint() const { return latest.empty() ? run.resume : latest; }

  // REQUIRES: what load_config() returned.
  const Objective& chosen_objective() const { return *find_objective(train.objective); }
  // Whether answers are sampled, rather than read.
  bool samples_answers() const {
    return chosen_objective().compares == Compares::Rewards && !rollout.rewards.empty();
  }
  const Optimizer& optimizer() const { return *find_optimizer(train.optimizer); }
  // As given, or the optimizer's default.
  double value_of(const Hyperparameter& h) const {
    const auto it = train.hyperparameters.find(h.name);
    return it == train.hyperparameters.end() ? h.value : it->second;
  }
  // All values, in the optimizer's order.
  std::vector<double> optimizer_values() const {
    std::vector<double> out;
    for (const Hyperparameter& h : optimizer().hyperparameters) out.push_back(value_of(h));
    return out;
  }
};

struct KeyHelp {
  std::string name, value, meaning;
  std::string allowed;  // "numbers from 0 to 10", "auto, f32, bf16", "a size such as 48MiB, or none"
  GoesOn goes_on = {};
  KeyOf of = KeyOf::Run;
  std::string before;  // what a manifest of a checkpoint means that has no value of this name
};

// Resolves a path to read, named by a key, as load_config() does.
using PathReader =
    std::function<std::string(RunConfig& config, std::string_view key, const std::string& path)>;

// Sets a key to what a file or a person says. Errors name the key, the value, and what is allowed; unknown
// keys name the known one that is meant: by other programs' names for it, else by spelling. Numbers of tokens
// take suffixes (base/counts.h), sizes units (base/bytes.h); words may be in any case.
Status apply_setting(RunConfig& config, const std::string& name, Setting setting, const PathReader& read);
// The same of "key=value", as typed after --set. Keys below machine are not looked at: who makes the machine
// knows them.
Status apply_typed(RunConfig& config, const std::string& text, const PathReader& read);
// From here on the preset goes by its own name.
void name_preset(RunConfig& config);

// The configuration that settings alone make, each "key=value", in order. Opens no file: paths stay as they
// are written, and nothing is looked for where they lead. `only`: other keys than its own are refused.
Result<RunConfig> typed_config(const std::vector<std::string>& settings, RunConfig config = {},
                               std::optional<KeyOf> only = {});

// Whether a configuration that was filled field by field is one that load_config() may return. Every number
// is within its bounds, every word is one that its key may be, and values go together. Errors are
// load_config()'s.
Status check_config(const RunConfig& config);

// Gives keys that are "auto" what `value` has for them: text as they take it; empty, or not allowed: none.
void fill_open(RunConfig& config, const std::function<std::string(std::string_view key)>& value);

// As TOML that load_config() reads back; `written` says what becomes of paths to write to.
std::string to_toml(const RunConfig& config, const std::function<std::string(const std::string&)>& written);

// Every key with its default and what it may be.
std::vector<KeyHelp> config_keys();

// Values of keys for the manifest of a checkpoint, by name. REQUIRES: a configuration whose values are those
// that the run came to.
std::vector<std::pair<std::string, std::string>> recorded_keys(const RunConfig& config);

}  // namespace sluice::core
