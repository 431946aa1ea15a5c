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

// Limits per step and per run; their product is far below the end of whole numbers.
constexpr double kMostTokens = 1 << 30, kMostSteps = 1e9;
constexpr double kMostReplicas = 4096;
constexpr Range kNotNegative{0, kMost};
constexpr Range kSteps{0, kMostSteps};
constexpr Tokens kTokensOrChosen{{0, kMostTokens}};
constexpr Range kAnyNumber{-kMost, kMost};

Choices optimizer_names() {
  Choices names;
  for (const Optimizer* o : optimizers()) names.emplace_back(o->name);
  return names;
}

// Calls key(name, field, constraint, meaning) for every key. The constraint is a Range or Tokens for numbers,
// Choices for words, a kind of path, and nothing (nullptr) otherwise.
template <class Config, class F>
void visit_keys(Config& c, F&& key) {
  key("model.preset", c.model.preset, ModelPresets(), "shapes by name");
  key("model.path", c.model.path, InputPath(),
      "folder of a Hugging Face model: config.json, weights, tokenizer; or a run's directory");
  key("model.config", c.model.config, InputPath(), "path of a Hugging Face config.json, instead of a preset");
  key("model.weights", c.model.weights, InputPath(), "checkpoint to start from; empty: random weights");
  key("model.unread", c.model.unread, Choices{"refuse", "drop"},
      "tensors of model.weights that the model does not read: an error, or they are left out");
  key("adapter.rank", c.adapter.rank, Range{0, 4096},
      "rank of low-rank adapters (LoRA), which are trained in place of the weights; 0: the weights are");
  key("adapter.alpha", c.adapter.alpha, Range{1e-3, 1e6},
      "what LoRA adapters add is times this over the rank; auto: twice the rank");
  key("adapter.rslora", c.adapter.rslora, nullptr,
      "over the root of the rank instead (rank-stabilised LoRA)");
  key("adapter.targets", c.adapter.targets, nullptr,
      "patterns over names of tensors, or ends of them such as q_proj, that LoRA adapters are for; empty, or "
      "all-linear: every product of a layer, without experts and head");
  key("adapter.exclude", c.adapter.exclude, nullptr, "patterns of what of these has no LoRA adapter");
  key("adapter.rank_pattern", c.adapter.rank_pattern, nullptr,
      "other ranks of some LoRA adapters, as pattern=rank; the last that names a tensor decides");
  key("adapter.alpha_pattern", c.adapter.alpha_pattern, nullptr,
      "the same of alpha of LoRA adapters, as pattern=alpha");
  key("adapter.modules_to_save", c.adapter.modules_to_save, nullptr,
      "patterns of weights that are trained as they are, beside LoRA adapters of others");
  key("adapter.decay", c.adapter.decay, nullptr, "whether train.weight_decay shrinks LoRA adapters, too");
  key("adapter.path", c.adapter.path, InputPath(),
      "folder of a LoRA adapter (PEFT) that a run starts from; it says rank, alpha and targets");
  key("adapter.base", c.adapter.base, InputPath(),
      "folder of the model that a LoRA adapter was made for, where its adapter_config.json names another "
      "place");
  key("data.paths", c.data.paths, InputPath(),
      "files of text, JSON, CSV or tokens, directories, patterns or a name of the Hugging Face hub; empty: "
      "random tokens");
  key("data.weights", c.data.weights, Range{0, 100},
      "how often the documents of each of data.paths come; empty: once");
  key("data.include", c.data.include, nullptr, "endings of the file names to take inside directories");
  key("data.exclude", c.data.exclude, nullptr, "patterns of paths to leave out");
  key("data.heldout", c.data.heldout, Range{0, 0.9},
      "fraction of the tokens to hold out for evaluation, in whole documents");
  key("data.heldout_paths", c.data.heldout_paths, InputPath(), "files to hold out instead of a fraction");
  key("data.learn", c.data.learn,
      Choices{"assistant", "all-turns", "last", "completion", "everything", "marked"},
      "what is learnt of conversations, and of prompts with completions; marked: what the chat template has "
      "inside of {% generation %}");
  key("data.learn_thoughts", c.data.learn_thoughts, nullptr,
      "whether what was thought before an answer is learnt with it");
  key("data.allow_unlearnt", c.data.allow_unlearnt, nullptr,
      "whether conversations may be there of which nothing is learnt, or whose markup is");
  key("data.special_in_text", c.data.special_in_text, nullptr,
      "special tokens that stay such where the data has their text");
  key("data.pairs", c.data.pairs, Choices{"auto", "chat", "text"},
      "a question and its answer as turns of a chat, or as one text; auto: turns, if the model has a chat "
      "template, and prompt with completion one text");
  key("data.fields.prompt", c.data.fields.prompt, nullptr,
      "key or column that has the question, where it is called otherwise than usual; goes with completion");
  key("data.fields.completion", c.data.fields.completion, nullptr, "key or column that has its answer");
  key("data.fields.text", c.data.fields.text, nullptr, "key or column that has plain text");
  key("data.fields.messages", c.data.fields.messages, nullptr, "key or column that has conversations");
  key("data.ignore", c.data.ignore, nullptr, "keys of records and messages that are passed over");
  key("data.roles", c.data.roles, nullptr,
      "roles of messages that are taken as they stand, beside those that are known");
  key("data.open_ends", c.data.open_ends, nullptr,
      "whether what data marks as learnt may leave out the token that ends a turn; such a model never stops");
  key("data.template_kwargs", c.data.template_kwargs, nullptr,
      "variables of the chat template, a JSON object such as '{\"enable_thinking\": false}'");
  key("data.chat_template", c.data.chat_template, TemplateName(),
      "name of the model's chat template, where it has several, or chatml, gemma, llama3, mistral, or a file "
      "that ends in .jinja; empty: its default");
  key("data.date", c.data.date, nullptr,
      "the date that chat templates show which ask for today's, as 2026-01-31; empty: that of the first "
      "start");
  key("data.malformed", c.data.malformed, Choices{"refuse", "skip"},
      "what becomes of records and texts that cannot be read: an error, or they are left out and counted");
  key("data.mode", c.data.mode, Choices{"auto", "contiguous", "packed"},
      "cut the text, or pack whole documents side by side; auto: packed if there are records (JSON, CSV)");
  key("data.long_documents", c.data.long_documents, Choices{"continue", "cut", "drop"},
      "packed: a document that is longer than a sequence goes on in another, is cut, or is left out");
  key("data.respect_documents", c.data.respect_documents, nullptr,
      "attention and targets end at document boundaries");
  key("data.cache", c.data.cache, OutputPath(), "directory for tokens and measured costs");
  key("train.seq_len", c.train.seq_len, Tokens{{2, 16777216}}, "tokens per sequence");
  key("train.tokens_per_step", c.train.tokens_per_step, Tokens{{1, kMostTokens}},
      "tokens per optimizer step");
  key("train.steps", c.train.steps, kSteps, "optimizer steps");
  key("train.epochs", c.train.epochs, Range{0, 1e6},
      "how often the data is gone through, which sets train.steps; 0: as train.steps says");
  key("train.seed", c.train.seed, kNotNegative, "of weights, data order and rounding");
  key("train.learning_rate", c.train.learning_rate, Range{0, kMostLearningRate},
      "peak, after warm-up; auto: by the model's size, its weights, tokens per step and optimizer");
  key("train.min_learning_rate", c.train.min_learning_rate, Range{0, kMostLearningRate},
      "at the end, but of a constant schedule; auto: a tenth of train.learning_rate");
  key("train.warmup_steps", c.train.warmup_steps, kSteps,
      "steps of linear warm-up; auto: 10, or all steps of a shorter run");
  key("train.schedule", c.train.schedule, Choices{"cosine", "linear", "constant", "wsd"},
      "the learning rate after warm-up; wsd stays, and decays linearly in the last steps");
  key("train.decay_steps", c.train.decay_steps, kSteps, "of wsd; 0: a tenth of the steps");
  key("train.optimizer", c.train.optimizer, optimizer_names(), "how gradients change the weights");
  key("train.clip_norm", c.train.clip_norm, Range{0, kMostClipNorm}, "global gradient norm; 0: no clipping");
  key("train.router_z_loss", c.train.router_z_loss, Range{0, kMostClipNorm},
      "how much the z-loss of routers is trained beside the loss: the square of log-sum-exp of a token's "
      "router logits, summed over the layers with experts; 0: not");
  key("train.max_skipped", c.train.max_skipped, Range{1, kMost},
      "steps in a row whose gradient is not finite, so that no update was made, that end the run");
  key("train.compute", c.train.compute, Numbers(), "type of weights and activations");
  key("train.grad", c.train.grad, Numbers(), "type in which weight gradients accumulate");
  key("train.state", c.train.state, StateNumbers(),
      "type of the optimizer's state; i8: a byte an element, and a scale for every 32");
  key("train.master", c.train.master, MasterNumbers(),
      "type of master weights beside bf16 weights; i8: what bf16 lacks of 24 bits, in a byte an element");
  key("train.stochastic", c.train.stochastic, Toggle(), "stochastic rounding of bf16 weights and state");
  key("train.deferred_update", c.train.deferred_update, Toggle(),
      "update each weight just before its next use");
  key("train.freeze", c.train.freeze, nullptr,
      "patterns over the names of the model's tensors: what they name stays as it is; ! before one takes "
      "back");
  key("shape.chunk_tokens", c.shape.chunk_tokens, kTokensOrChosen, "tokens processed together; 0: chosen");
  key("shape.rounds", c.shape.rounds, kSteps, "forward and backward passes of a step; 0: chosen");
  key("shape.first_round_chunks", c.shape.first_round_chunks, kSteps,
      "chunks of the first of them, which updates the weights, too; 0: chosen");
  key("shape.head_tokens", c.shape.head_tokens, kTokensOrChosen,
      "rows of logits that exist at once; 0: chosen");
  key("eval.every", c.eval.every, kSteps,
      "steps between evaluations; 0: at the end only; auto: at the beginning, too, and between as often as 3 "
      "% of the "
      "run allows, but ten times");
  key("eval.rows", c.eval.rows, kSteps, "held-out sequences per evaluation, at most as many as there are");
  key("eval.patience", c.eval.patience, kSteps,
      "evaluations in a row without a lower held-out loss that end the run; 0: none do");
  key("sample.tokens", c.sample.tokens, Tokens{{0, 65536}}, "tokens of a sampled text; 0: none is sampled");
  key("sample.texts", c.sample.texts, Range{1, 100}, "how many texts to sample each time");
  key("sample.every", c.sample.every, kSteps, "steps between samples; 0: at the end only");
  key("sample.prompt", c.sample.prompt, nullptr,
      "text to continue; auto: what comes before the first answer that is held out, as the chat template has "
      "it");
  key("sample.temperature", c.sample.temperature, Range{0, 100}, "0: the most likely token");
  key("run.backend", c.run.backend, nullptr, "where to run: auto, or a backend that this program has");
  key("run.device", c.run.device, Range{0, 1023},
      "index of the GPU; of several processes on a host that of the first, behind which the others come in "
      "turn");
  key("run.devices", c.run.devices, nullptr,
      "devices that share a step: all, how many, or their indices, such as 0,2; with 1 run.device says "
      "which");
  key("run.peer", c.run.peer, Choices{"auto", "off"},
      "whether devices copy to each other where they can; off: by way of the host");
  key("run.threads", c.run.threads, Range{0, 4096}, "threads that compute on the CPU; 0: all cores");
  key("run.instruction_set", c.run.instruction_set,
      Choices{"auto", "baseline", "avx2", "avx512", "avx512_bf16", "amx"},
      "of the CPU, which the last bits of results depend on; auto: the best that it has");
  key("run.replicas", c.run.replicas, Range{0, kMostReplicas},
      "copies of the model that each learn a part of a step's rows; sums of their gradients follow a tree, "
      "so "
      "that results do not depend on how many processes share them; 0: one a process");
  key("run.shard_state", c.run.shard_state, nullptr,
      "of several processes each has the optimizer state of a part of the weights alone, which it updates "
      "and "
      "gives the others; same results");
  key("run.lost_after", c.run.lost_after, Range{0, 86400},
      "seconds without a heartbeat after which a process of several is lost, and all of them end; one that "
      "is alive and late is named as often; 0: no heartbeats");
  key("run.dir", c.run.dir, OutputPath(), "run directory");
  key("run.checkpoint_every", c.run.checkpoint_every, kSteps,
      "steps between checkpoints; 0: none for this reason");
  key("run.checkpoint_minutes", c.run.checkpoint_minutes, Range{0, 1e6},
      "minutes between checkpoints, more where saving would take over 2 % of the run; 0: none for this "
      "reason");
  key("run.keep_last", c.run.keep_last, Range{1, 1000}, "how many of the newest checkpoints stay");
  key("run.keep_every", c.run.keep_every, kSteps,
      "checkpoints of every step that this divides are saved, and stay; 0: none");
  key("run.keep_best", c.run.keep_best, Toggle(),
      "the weights with the lowest held-out loss, as checkpoints/best; auto: while that takes less than 2 % "
      "of the "
      "run; on: every time");
  key("run.export_dtype", c.run.export_dtype, Choices{"auto", "f32"},
      "number format of the weights in checkpoints: the run's, or f32, its master weights where it has any");
  key("run.resume", c.run.resume, InputPath(),
      "checkpoint of another run to go on from in this run's own directory");
  key("run.replan", c.run.replan, Choices{"off", "auto"},
      "auto: where steps take another time than predicted, plans are searched for beside the run, by what "
      "ops "
      "and links take now; one that gains more than changing to it takes is adopted between two steps. No "
      "bit "
      "of a result depends on it");
  key("run.trace", c.run.trace, nullptr, "write trace.json of one step");
  key("run.trace_kernels", c.run.trace_kernels, nullptr,
      "name the kernels of that step in it (CUPTI, whose memory counts against the caps)");
  key("run.deterministic", c.run.deterministic, nullptr,
      "equal bits in every run on a GPU too, at some speed; CPU runs always are");
}

// Sizes have their own parser, so they are visited apart.
template <class Config, class F>
void visit_sizes(Config& c, F&& key) {
  key("memory.device", c.caps[kDevice], "cap on device memory, such as 48MiB or none");
  key("memory.host", c.caps[kHost], "cap on host memory, such as 1GiB or none");
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
  visit_keys(config, [&](std::string_view key, auto& field, const auto& constraint, std::string_view) {
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
  visit_sizes(config, [&](std::string_view key, int64_t& field, std::string_view) {
    if (key != name) return;
    known = true;
    const auto bytes = parse_bytes(wants_one ? setting.values.front() : "");
    if (bytes.ok()) {
      field = *bytes;
    } else {
      status = error("{} = {}", name, bytes.message());
    }
  });
  visit_hyperparameters([&](const std::string& key, const Hyperparameter& h, const std::string&) {
    if (key != name) return;
    known = true;
    double value = 0;
    status = wants_one ? assign(name, setting, value, kAnyNumber)
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

Result<RunConfig> typed_config(const std::vector<std::string>& settings, RunConfig config) {
  const PathReader as_written = [](RunConfig&, std::string_view, const std::string& path) { return path; };
  for (const std::string& text : settings) SLUICE_TRY(apply_typed(config, text, as_written));
  name_preset(config);
  SLUICE_TRY(check_config(config));
  return config;
}

Status check_config(const RunConfig& config) {
  Status status;
  visit_keys(config, [&](std::string_view key, const auto& field, const auto& c, std::string_view) {
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
  const auto& fields = config.data.fields;
  if (fields.prompt.empty() != fields.completion.empty())
    return error("data.fields.{} is given, and data.fields.{} is not: a question goes with its answer",
                 fields.prompt.empty() ? "completion" : "prompt",
                 fields.prompt.empty() ? "prompt" : "completion");
  return {};
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
  visit_keys(config, [&](std::string_view key, const auto& field, const auto& c, std::string_view meaning) {
    if constexpr (std::is_same_v<std::decay_t<decltype(c)>, OutputPath>) {
      line(key, print(field.empty() ? field : written(field)), meaning);
    } else {
      line(key, print(field), meaning);
    }
    if (key != "train.optimizer") return;
    for (const Hyperparameter& h : config.optimizer().hyperparameters)
      line(fmt::format("train.{}", h.name), print(config.value_of(h)), h.meaning);
  });
  visit_sizes(config, [&](std::string_view key, int64_t field, std::string_view meaning) {
    line(key, print_size(field), meaning);
  });
  return out;
}

std::vector<KeyHelp> config_keys() {
  const RunConfig defaults;
  std::vector<KeyHelp> keys;
  visit_keys(defaults, [&](std::string_view key, const auto& field, const auto& c, std::string_view meaning) {
    keys.push_back({std::string(key), print(field), std::string(meaning), allowed(field, c)});
    if (key != "train.optimizer") return;
    visit_hyperparameters([&](const std::string& name, const Hyperparameter& h, const std::string& words) {
      keys.push_back({name, print(h.value), words, allowed(h.value, Range{h.low, h.high})});
    });
  });
  visit_sizes(defaults, [&](std::string_view key, int64_t field, std::string_view meaning) {
    keys.push_back({std::string(key), print_size(field), std::string(meaning), kSizes});
  });
  return keys;
}

}  // namespace sluice::core
