// SPDX-License-Identifier: Apache-2.0
#include "config/config.h"

#include <algorithm>
#include <functional>
#include <map>

#include "base/counts.h"
#include "base/nearest.h"
#include "config/aliases.h"
#include "config/values.h"
#include "model/families/families.h"
#include "text/toml.h"

namespace sluice::core {
namespace {

template <class Config, class F>
void visit_keys(Config& c, F&& key) {
  visit_model_keys(c.model, key);
  visit_adapter_keys(c.adapter, key);
  visit_data_keys(c.data, key);
  visit_train_keys(c.train, key);
  visit_objective_keys(c.objective, key);
  visit_rollout_keys(c.rollout, key);
  visit_shape_keys(c.shape, key);
  visit_eval_keys(c.eval, key);
  visit_sample_keys(c.sample, key);
  visit_run_keys(c.run, key);
  visit_memory_keys(c.caps, key);
}

// The hyperparameters of all optimizers, each name once: f(key, hyperparameter of the first that has it,
// meaning).
template <class F>
void visit_hyperparameters(F&& f) {
  std::vector<std::string_view> seen;
  for (const Optimizer* first : optimizers()) {
    for (const Hyperparameter& h : first->hyperparameters) {
      if (std::find(seen.begin(), seen.end(), h.name) != seen.end()) continue;
      seen.push_back(h.name);
      std::string meaning;
      for (const Optimizer* o : optimizers()) {
        for (const Hyperparameter& same : o->hyperparameters) {
          if (same.name != h.name) continue;
          meaning +=
              fmt::format("{}{} ({}): {}", meaning.empty() ? "" : "; ", o->name, same.value, same.meaning);
        }
      }
      f(fmt::format("train.{}", h.name), h, meaning);
    }
  }
}

Error unknown_key(std::string_view name) {
  const std::string meant = key_meant_by(name);
  return error("unknown key '{}'; {}sluice keys lists all{}", name,
               meant.empty() ? "" : fmt::format("the nearest known one is '{}' (", meant),
               meant.empty() ? "" : ")");
}

}  // namespace

Status apply_setting(RunConfig& config, const std::string& name, Setting setting, const PathReader& read) {
  Status status;
  bool known = false;
  const bool wants_one = !setting.is_array && setting.values.size() == 1;
  visit_keys(config, [&](std::string_view key, auto& field, const auto& constraint, const KeyRow&) {
    if (key != name) return;
    known = true;
    using Field = std::decay_t<decltype(field)>;
    constexpr bool kList =
        std::is_same_v<Field, std::vector<std::string>> || std::is_same_v<Field, std::vector<double>>;
    if (!kList && !wants_one) {
      status = error("{}: expected one value, not a list", name);
    } else {
      using Constraint = std::decay_t<decltype(constraint)>;
      const bool file = wants_one && setting.values.front().ends_with(".jinja");
      if (std::is_same_v<Constraint, InputPath> || (std::is_same_v<Constraint, TemplateName> && file)) {
        for (std::string& path : setting.values) path = read(config, key, path);
      }
      status = assign(name, setting, field, constraint);
    }
  });
  visit_hyperparameters([&](const std::string& key, const Hyperparameter& h, const std::string&) {
    if (key != name) return;
    known = true;
    double value = 0;
    status = wants_one ? assign(name, setting, value, Range{-most::kAny, most::kAny})
                       : error("{}: expected one value, not a list", name);
    if (status.ok()) config.train.hyperparameters.insert_or_assign(std::string(h.name), value);
  });
  if (!known) return unknown_key(name);
  config.given.insert(name);
  return status;
}

namespace {

// Those that were given are the optimizer's own, within its bounds.
Status check_hyperparameters(const RunConfig& config) {
  const Optimizer& optimizer = config.optimizer();
  for (const auto& [name, value] : config.train.hyperparameters) {
    const auto& own = optimizer.hyperparameters;
    const auto it = std::find_if(own.begin(), own.end(),
                                 [&name = name](const Hyperparameter& h) { return h.name == name; });
    if (it == own.end()) {
      std::vector<std::string> names;
      for (const Hyperparameter& h : own) names.push_back(fmt::format("train.{}", h.name));
      return error("train.{}: {} has no such setting; it has {}", name, optimizer.name,
                   fmt::join(names, ", "));
    }
    if (!it->takes(value)) return error("train.{} = {}; allowed are {}", name, print(value), it->allowed());
  }
  return optimizer.check == nullptr ? Status() : optimizer.check(config.optimizer_values());
}

// Answers are sampled by an objective that rewards them, and what says how by no other.
Status check_rollout(const RunConfig& config) {
  const Objective& objective = config.chosen_objective();
  const bool rewards = objective.compares == Compares::Rewards;
  const RunConfig unset;
  std::map<std::string_view, std::string> defaults;
  visit_rollout_keys(unset.rollout, [&](std::string_view key, const auto& field, const auto&, const KeyRow&) {
    defaults.emplace(key, recorded(field));
  });
  Status status;
  visit_rollout_keys(
      config.rollout, [&](std::string_view key, const auto& field, const auto&, const KeyRow&) {
        if (status.ok() && !rewards && recorded(field) != defaults.at(key))
          status = error("{}: train.objective = {} samples no answers; grpo does", key, objective.name);
      });
  SLUICE_TRY(status);
  if (!rewards && objective.compares != Compares::Teacher) return {};
  const std::string& function = config.rollout.rewards;
  const size_t colon = function.rfind(':');
  if (!function.empty() && (colon == function.npos || colon == 0 || colon + 1 == function.size() ||
                            function.find('/', colon) != function.npos))
    return error("rollout.rewards = {}: a file and a function are needed, as rewards.py:reward", function);
  if (!config.data.heldout_paths.empty() ||
      (config.data.heldout > 0 && config.given.contains("data.heldout")))
    return error("data.heldout: with train.objective = {}, nothing is held out; leave it open",
                 objective.name);
  return {};
}

// Settings go with the objective, and with data of its kind.
Status check_with_objective(const RunConfig& config) {
  const Objective& objective = config.chosen_objective();
  constexpr std::string_view kSection = "objective.";
  const ObjectiveKeys defaults;
  std::map<std::string_view, std::string> unset;
  visit_objective_keys(defaults, [&](std::string_view key, const auto& field, const auto&, const KeyRow&) {
    unset.emplace(key, recorded(field));
  });
  std::vector<std::string_view> given;
  visit_objective_keys(config.objective,
                       [&](std::string_view key, const auto& field, const auto&, const KeyRow&) {
                         if (recorded(field) != unset.at(key)) given.push_back(key.substr(kSection.size()));
                       });
  SLUICE_TRY(check_objective(objective, config.objective, given));
  SLUICE_TRY(check_rollout(config));
  if (objective.compares == Compares::Nothing) return {};
  const DataKeys& data = config.data;
  const auto refused = [&](std::string_view key, std::string_view value, std::string_view allowed) {
    return error("{} = {}: with train.objective = {}, allowed {}", key, value, objective.name, allowed);
  };
  if (data.mode == "contiguous") return refused("data.mode", data.mode, "are auto and packed");
  if (data.long_documents == "cut")
    return refused("data.long_documents", data.long_documents,
                   "are continue, which refuses what is longer than a row, and drop");
  if (data.learn != "assistant" && data.learn != "completion")
    return refused("data.learn", data.learn, "are assistant and completion");
  const auto& [text, prompt, completion, messages] = data.fields;
  if (objective.compares == Compares::Pairs && !(text + prompt + completion + messages).empty())
    return error(
        "data.fields: with train.objective = {}, pairs are read under the names that docs/preferences.md "
        "lists",
        objective.name);
  for (const double weight : data.weights) {
    if (weight != double(int64_t(weight))) return refused("data.weights", print(weight), "are whole numbers");
  }
  return {};
}

// As typed after --set: quoted text and lists follow the file's syntax, but a shell may have taken the quotes
// of a list's words away. Anything else is taken as it stands.
Result<Setting> typed_setting(const std::string& name, const std::string& value) {
  if (!value.starts_with('[') && !value.starts_with('"')) return Setting{{value}, false, 0};
  auto parsed = parse_toml("value = " + value, "--set " + name);
  if (parsed.ok()) return std::move(parsed->begin()->second);
  if (!value.starts_with('[') || !value.ends_with(']') || value.find('"') != value.npos)
    return parsed.error();
  Setting setting{{}, true, 0};
  std::string_view rest = std::string_view(value).substr(1, value.size() - 2);
  while (!rest.empty()) {
    const size_t end = std::min(rest.find(','), rest.size()), first = rest.find_first_not_of(' ');
    const size_t last = rest.find_last_not_of(' ', end - 1);
    if (first >= end) return parsed.error();
    setting.values.emplace_back(rest.substr(first, last + 1 - first));
    rest.remove_prefix(std::min(rest.size(), end + 1));
  }
  return setting;
}

}  // namespace

RunConfig::RunConfig() = default;
RunConfig::RunConfig(const RunConfig&) = default;
RunConfig::RunConfig(RunConfig&&) noexcept = default;
RunConfig& RunConfig::operator=(const RunConfig&) = default;
RunConfig& RunConfig::operator=(RunConfig&&) noexcept = default;
RunConfig::~RunConfig() = default;

Status apply_typed(RunConfig& config, const std::string& text, const PathReader& read) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0)
    return error("--set {}: expected key=value, such as train.steps=100", text);
  const std::string name = text.substr(0, equals), value = text.substr(equals + 1);
  SLUICE_ASSIGN(const Setting setting, typed_setting(name, value));
  if (constexpr std::string_view kMachine = "machine."; name.starts_with(kMachine)) {
    if (setting.is_array) return error("{}: expected one value, not a list", name);
    config.machine.emplace_back(name.substr(kMachine.size()), setting.values.front());
    return {};
  }
  return apply_setting(config, name, setting, read);
}

void name_preset(RunConfig& config) {
  const std::string typed = std::exchange(config.model.preset, preset_meant_by(config.model.preset));
  if (plain_name(typed) == plain_name(config.model.preset)) return;
  config.notices.push_back(
      fmt::format("model.preset = {}: this preset is called {} now", typed, config.model.preset));
}

Result<RunConfig> typed_config(const std::vector<std::string>& settings, RunConfig config,
                               std::optional<KeyOf> only) {
  const PathReader as_written = [](RunConfig&, std::string_view, const std::string& path) { return path; };
  for (const std::string& text : settings) {
    for (const KeyHelp& key : only ? config_keys() : std::vector<KeyHelp>()) {
      if (key.of != *only && text.starts_with(key.name + "="))
        return error("{}: this is no option here; a configuration file of sluice train takes it", key.name);
    }
    SLUICE_TRY(apply_typed(config, text, as_written));
  }
  name_preset(config);
  SLUICE_TRY(check_config(config));
  return config;
}

Status check_config(const RunConfig& config) {
  Status status;
  visit_keys(config, [&](std::string_view key, const auto& field, const auto& c, const KeyRow&) {
    if (status.ok()) status = check_value(key, field, c);
  });
  SLUICE_TRY(status);
  if (config.train.tokens_per_step % config.train.seq_len != 0) {
    return error("train.tokens_per_step = {}: must be a multiple of train.seq_len = {}",
                 config.train.tokens_per_step, config.train.seq_len);
  }
  const auto& t = config.train;
  if (t.learning_rate && t.min_learning_rate > t.learning_rate) {
    return error(
        "train.min_learning_rate = {}: must be at most train.learning_rate = {}; auto is a tenth of it",
        *t.min_learning_rate, *t.learning_rate);
  }
  SLUICE_TRY(check_hyperparameters(config));
  SLUICE_TRY(check_with_objective(config));
  const auto& fields = config.data.fields;
  if (fields.prompt.empty() != fields.completion.empty())
    return error("data.fields.{} is given, and data.fields.{} is not: a question goes with its answer",
                 fields.prompt.empty() ? "completion" : "prompt",
                 fields.prompt.empty() ? "prompt" : "completion");
  return {};
}

void fill_open(RunConfig& config, const std::function<std::string(std::string_view key)>& value) {
  visit_keys(config, [&](std::string_view key, auto& field, const auto& c, const KeyRow&) {
    if constexpr (requires { field.has_value(); }) {
      if (field) return;
      const std::string text = value(key);
      if (!text.empty()) (void)assign(key, Setting{{text}, false, 0}, field, c);
    }
  });
}

std::string to_toml(const RunConfig& config, const std::function<std::string(const std::string&)>& written) {
  std::string out, section;
  const auto line = [&](std::string_view key, const std::string& value, std::string_view meaning) {
    const size_t dot = key.find('.');
    if (key.substr(0, dot) != section) {
      section = key.substr(0, dot);
      out += fmt::format("{}[{}]\n", out.empty() ? "" : "\n", section);
    }
    out += fmt::format("{} = {}  # {}\n", key.substr(dot + 1), value, meaning);
  };
  visit_keys(config, [&](std::string_view key, const auto& field, const auto& c, const KeyRow& row) {
    if constexpr (std::is_same_v<std::decay_t<decltype(c)>, OutputPath>) {
      line(key, print(field.empty() ? field : written(field)), row.meaning);
    } else {
      line(key, print(field, c), row.meaning);
    }
    if (key != "train.optimizer") return;
    for (const Hyperparameter& h : config.optimizer().hyperparameters)
      line(fmt::format("train.{}", h.name), print(config.value_of(h)), h.meaning);
  });
  return out;
}

std::vector<KeyHelp> config_keys() {
  const RunConfig defaults;
  std::vector<KeyHelp> keys;
  visit_keys(defaults, [&](std::string_view key, const auto& field, const auto& c, const KeyRow& row) {
    keys.push_back({std::string(key), print(field, c), std::string(row.meaning), allowed(field, c),
                    row.goes_on, row.of, row.before.empty() ? recorded(field) : std::string(row.before)});
    if (key != "train.optimizer") return;
    visit_hyperparameters([&](const std::string& name, const Hyperparameter& h, const std::string& words) {
      keys.push_back(
          {name, print(h.value), words, allowed(h.value, Range{h.low, h.high}), row.goes_on, row.of, ""});
    });
  });
  return keys;
}

std::vector<std::pair<std::string, std::string>> recorded_keys(const RunConfig& config) {
  std::vector<std::pair<std::string, std::string>> out;
  const RunConfig none;
  std::map<std::string_view, std::string> defaults;
  visit_keys(none, [&](std::string_view key, const auto& field, const auto&, const KeyRow&) {
    defaults.emplace(key, recorded(field));
  });
  visit_keys(config, [&](std::string_view key, const auto& field, const auto&, const KeyRow& row) {
    std::string value = recorded(field);
    const bool is =
        row.recorded == Recorded::Always || (row.recorded == Recorded::Changed && value != defaults.at(key));
    if (is) out.emplace_back(key, std::move(value));
    if (key != "train.optimizer") return;
    for (const Hyperparameter& h : config.optimizer().hyperparameters)
      out.emplace_back(fmt::format("train.{}", h.name), recorded(config.value_of(h)));
  });
  return out;
}

}  // namespace sluice::core
