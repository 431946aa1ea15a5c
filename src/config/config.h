// SPDX-License-Identifier: Apache-2.0
// The run configuration: every key with its type, default, range and meaning, in one table (visit_keys).
// Files, command line overrides, help and the resolved copy in the run directory all go through it.
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
#include "base/dtype.h"
#include "base/status.h"
#include "base/tier.h"
#include "config/devices.h"
#include "text/toml.h"
#include "update/optimizer.h"

namespace sluice::core {

struct RunConfig {
  struct {
    std::string preset = "tiny";  // ignored when `config` is given
    std::string path;     // of a Hugging Face folder: `config` and `weights`, where these are not given
    std::string config;   // path of a Hugging Face config.json
    std::string weights;  // path of a checkpoint to start from
    std::string unread = "refuse";
  } model;
  struct {
    int64_t rank = 0;             // 0: none
    std::optional<double> alpha;  // none: twice the rank
    bool rslora = false, decay = false;
    std::vector<std::string> targets, exclude;             // see names_part() in model/weights.h
    std::vector<std::string> rank_pattern, alpha_pattern;  // "pattern=number"
    std::vector<std::string> modules_to_save;
    std::string path;  // an adapter's folder
    std::string base;  // the folder of its base, where its own file names another place
  } adapter;
  struct {
    std::vector<std::string> paths, include, exclude;
    std::vector<double> weights;  // of paths
    double heldout = 0.05;
    std::vector<std::string> heldout_paths;
    std::string learn = "assistant", chat_template, date, malformed = "refuse";
    std::string pairs = "auto";
    struct {
      std::string text, prompt, completion, messages;
    } fields;                         // names of keys and columns
    std::vector<std::string> ignore;  // keys of records and messages
    std::vector<std::string> roles;   // of messages
    bool open_ends = false, learn_thoughts = true, allow_unlearnt = false;
    std::vector<std::string> special_in_text;  // special tokens
    std::string template_kwargs;               // a JSON object; empty: none
    std::string mode = "auto", long_documents = "continue";
    bool respect_documents = true;
    std::string cache = ".cache/sluice";
  } data;
  struct {
    int64_t seq_len = 256;
    int64_t tokens_per_step = 4096;
    int64_t steps = 100;
    double epochs = 0;  // 0: `steps` says how many there are
    int64_t seed = 1;
    std::optional<double> learning_rate;      // none: choose_rate() of plans/learning_rate.h
    std::optional<double> min_learning_rate;  // none: a tenth of learning_rate
    std::optional<int64_t> warmup_steps;      // none: choose_warmup() of plans/learning_rate.h
    std::string schedule = "cosine";
    int64_t decay_steps = 0;
    std::string optimizer = std::string(optimizers().front()->name);
    std::map<std::string, double, std::less<>> hyperparameters;  // of the optimizer: those that were given
    double clip_norm = 1.0;
    double router_z_loss = 0;
    int64_t max_skipped = 10;
    std::optional<DType> compute, grad, state;        // none: by the machine
    std::optional<MasterWeights> master;              // none: by these
    std::optional<bool> stochastic, deferred_update;  // none: by these and the machine
    std::vector<std::string> freeze;                  // see frozen() in model/weights.h
  } train;
  struct {
    int64_t chunk_tokens = 0, rounds = 0, first_round_chunks = 0, head_tokens = 0;  // 0: chosen
  } shape;
  BytesByTier caps = BytesByTier(kUnlimited);
  struct {
    std::optional<int64_t> every;  // steps; none: chosen
    int64_t rows = 16, patience = 0;
  } eval;
  struct {
    int64_t tokens = 128, texts = 1, every = 0;
    std::string prompt = "auto";
    double temperature = 0.8;
  } sample;
  struct {
    std::string backend = "auto";
    int64_t device = 0, threads = 0, replicas = 0, lost_after = 30;
    bool shard_state = false;
    DeviceChoice devices = first_devices(1);
    std::string peer = "auto";
    std::string instruction_set = "auto";  // of the CPU
    std::string dir = "runs/latest";
    int64_t checkpoint_every = 0;
    double checkpoint_minutes = 15;
    int64_t keep_last = 2, keep_every = 0;
    std::optional<bool> keep_best;      // none: where a save costs little
    std::string export_dtype = "auto";  // of checkpoints' weights
    std::string resume;
    std::string replan = "off";
    bool trace = true, trace_kernels = false;
    bool deterministic = false;
  } run;

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
// are written, and nothing is looked for where they lead.
Result<RunConfig> typed_config(const std::vector<std::string>& settings, RunConfig config = {});

// Whether a configuration that was filled field by field is one that load_config() may return: every number
// within its bounds, every word one that its key may be, and what goes together. Errors are load_config()'s.
Status check_config(const RunConfig& config);

// As TOML that load_config() reads back; `written` says what becomes of paths to write to.
std::string to_toml(const RunConfig& config, const std::function<std::string(const std::string&)>& written);

// Every key with its default and what it may be.
std::vector<KeyHelp> config_keys();

}  // namespace sluice::core
