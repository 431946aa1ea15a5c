// SPDX-License-Identifier: Apache-2.0
#include "run/prepare/manifest.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <concepts>
#include <nlohmann/json.hpp>
#include <optional>

#include "model/families/families.h"
#include "plans/fields.h"
#include "run/data/data.h"
#include "run/inputs/paths.h"
#include "run/inputs/resolve.h"
#include "tokens/corpus_changes.h"

namespace sluice::core {
namespace {

std::string print(DType value) {
  return std::string(name_of(value));
}
// Manifests have always said whether there are f32 masters.
std::string print(MasterWeights value) {
  return value == MasterWeights::Off   ? "false"
         : value == MasterWeights::F32 ? "true"
                                       : std::string(name_of(value));
}
template <class T>
requires std::is_arithmetic_v<T> std::string print(T value) {
  return fmt::format("{}", value);
}

bool read(const std::string& text, bool& value) {
  value = text == "true";
  return value || text == "false";
}
template <class T>
requires std::same_as<T, int64_t> || std::same_as<T, double>
bool read(const std::string& text, T& value) {
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
  return ec == std::errc() && end == text.data() + text.size();
}

constexpr std::string_view kLastTokens = "last_tokens", kReplicas = "replicas", kProcesses = "processes",
                           kReplicasName = "run.replicas";

// The replicas of a step, by however many processes they are shared.
int64_t all_replicas(const StepShape& shape) {
  return shape.replicas * shape.processes;
}

// The parts of a manifest.
struct Parts {
  const RunConfig& config;
  const Machine& machine;
  const ModelSpec& model;
  const Numerics& numerics;
  const OptimizerConfig& optimizer;
  const StepShape& shape;
  const std::string& content;
};

Manifest manifest_of(const Parts& p) {
  Manifest out;
  const auto add = [&](std::string_view group) {
    return [&out, group](std::string_view name, const auto& value) {
      out.emplace_back(fmt::format("{}.{}", group, name), print(value));
    };
  };
  const auto model = nlohmann::json::parse(to_json(p.model));
  for (const auto& [name, value] : model.items()) out.emplace_back("model." + name, value.dump());
  // A base goes by the checksum of its values (state/weights.h), wherever it lies.
  const bool on_base = p.model.adapters.any() && !p.config.model.weights.empty();
  if (!on_base)
    out.emplace_back("model.weights", p.config.model.weights.empty() ? "none" : p.config.model.weights);
  visit_fields(p.shape, [&](std::string_view name, const auto& value) {
    // Checkpoints have always been of steps whose last chunk is like the others where they say nothing.
    if (name == kReplicas || name == kProcesses) return;
    if (name != kLastTokens || p.shape.last_tokens > 0) add("shape")(name, value);
  });
  if (all_replicas(p.shape) > 1) out.emplace_back(kReplicasName, print(all_replicas(p.shape)));
  visit_fields(p.numerics, add("train"));
  const auto train = add("train");
  train("tokens_per_step", p.config.train.tokens_per_step);
  train("seed", p.config.train.seed);
  const Optimizer& optimizer = *p.optimizer.optimizer;
  out.emplace_back("train.optimizer", optimizer.name);
  for (size_t i = 0; i < optimizer.hyperparameters.size(); ++i)
    train(optimizer.hyperparameters[i].name, p.optimizer.values[i]);
  train("clip_norm", p.optimizer.clip_norm);
  // Nor was this there for models without routers, and before.
  if (p.config.train.router_z_loss != 0) train("router_z_loss", p.config.train.router_z_loss);
  // Checkpoints have always been of runs that train everything where they say nothing.
  if (!p.model.freeze.empty())
    out.emplace_back(kFreezeName, fmt::format("[{}]", fmt::join(p.model.freeze, ", ")));
  if (const Adapters& a = p.model.adapters; a.any()) {
    const auto list = [&](std::string_view name, const std::vector<std::string>& patterns) {
      if (!patterns.empty())
        out.emplace_back(fmt::format("adapter.{}", name), fmt::format("[{}]", fmt::join(patterns, ", ")));
    };
    const auto adapter = add("adapter");
    adapter("rank", a.rank);
    adapter("alpha", a.alpha);
    adapter("rslora", a.rslora);
    adapter("decay", a.decay);
    list("targets", a.targets);
    list("exclude", a.exclude);
    list("rank_pattern", p.config.adapter.rank_pattern);
    list("alpha_pattern", p.config.adapter.alpha_pattern);
    list("modules_to_save", a.whole);
    if (!p.config.adapter.path.empty()) out.emplace_back("adapter.path", p.config.adapter.path);
  }
  const bool packed = batch_mode(p.config) == BatchMode::Packed;
  out.emplace_back("data.mode", packed ? "packed" : "contiguous");
  if (packed && p.config.data.long_documents != "continue")
    out.emplace_back("data.long_documents", p.config.data.long_documents);
  add("data")("respect_documents", p.config.data.respect_documents);
  out.emplace_back("data.content", p.content);
  out.emplace_back("run.backend", p.machine.backend->name);
  if (p.config.run.instruction_set != "auto")
    out.emplace_back("run.instruction_set", p.config.run.instruction_set);
  add("run")("deterministic", p.machine.traits().repeats || p.config.run.deterministic);
  return out;
}

// The shape in a checkpoint's manifest; none if it is incomplete.
std::optional<StepShape> shape_in(const Manifest& manifest) {
  StepShape shape;
  bool whole = true;
  visit_fields(shape, [&](const char* name, auto& value) {
    if (name == kProcesses) return;
    const bool may_be_missing = name == kLastTokens || name == kReplicas;
    const std::string text =
        value_of(manifest, name == kReplicas ? std::string(kReplicasName) : fmt::format("shape.{}", name));
    whole = (read(text, value) || (text.empty() && may_be_missing)) && whole;
  });
  return whole && validate(shape).ok() ? std::optional(shape) : std::nullopt;
}

constexpr std::string_view kSteps[] = {"train.steps"};
constexpr std::string_view kRates[] = {"train.learning_rate", "train.min_learning_rate", "train.warmup_steps",
                                       "train.schedule", "train.decay_steps"};
// Whether documents begin inside a sequence follows from the data.
constexpr std::string_view kData[] = {"data.content",           "data.mode",
                                      "data.long_documents",    "data.date",
                                      "data.respect_documents", "shape.packed"};
constexpr std::string_view kBackend[] = {"run.backend", "run.deterministic", "run.instruction_set"};
constexpr std::string_view kFreeze[] = {kFreezeName};
// The state that was saved is rounded to the new formats.
constexpr std::string_view kFormats[] = {"train.grad", "train.state", "train.master", "train.stochastic"};
// How much of what is there is added, and how it is trained from here on.
constexpr std::string_view kAdapter[] = {"adapter.alpha", "adapter.rslora", "adapter.alpha_pattern",
                                         "adapter.decay"};
constexpr Allowance kAllowances[] = {{"steps", kSteps},    {"learning_rate", kRates}, {"data", kData},
                                     {"freeze", kFreeze},  {"adapter", kAdapter},     {"formats", kFormats},
                                     {"backend", kBackend}};

// The word that allows a difference of that name; empty: none does.
std::string_view word_for(std::string_view name) {
  for (const Allowance& a : kAllowances) {
    if (std::find(a.names.begin(), a.names.end(), name) != a.names.end()) return a.word;
  }
  return {};
}

bool allows(std::span<const std::string> allow, std::string_view name) {
  return std::find(allow.begin(), allow.end(), word_for(name)) != allow.end();
}

}  // namespace

Manifest manifest_of(const Prepared& p, const std::string& content) {
  return manifest_of({p.config, p.machine, p.model, p.numerics, p.optimizer, p.shape, content});
}

Result<Manifest> manifest_before_plans(const RunConfig& c, const Machine& machine, const ModelSpec& model,
                                       const std::string& content, const Manifest& saved) {
  SLUICE_ASSIGN(const Numerics numerics, resolve_numerics(c, machine));
  StepShape shape = shape_in(saved).value_or(StepShape());
  const auto ask = [](int64_t& field, int64_t key) { field = key == 0 ? field : key; };
  ask(shape.seq_len, c.train.seq_len);
  ask(shape.chunk_tokens, c.shape.chunk_tokens);
  ask(shape.rounds, c.shape.rounds);
  ask(shape.head_tokens, c.shape.head_tokens);
  ask(shape.replicas, c.run.replicas);
  if (c.shape.first_round_chunks != shape.chunks_in(0)) ask(shape.first_chunks, c.shape.first_round_chunks);
  shape.packed = packs_documents(c);
  return manifest_of({c, machine, model, numerics, resolve_optimizer(c, machine), shape, content});
}

void add_date(Manifest& manifest, const std::string& date) {
  if (!date.empty()) manifest.emplace_back("data.date", date);
}

void add_schedule(Manifest& manifest, const sluice::Schedule& s) {
  manifest.emplace_back("train.steps", print(s.steps));
  manifest.emplace_back("train.learning_rate", print(s.learning_rate));
  manifest.emplace_back("train.min_learning_rate", print(s.lowest_rate()));
  manifest.emplace_back("train.warmup_steps", print(s.warmup_steps));
  constexpr std::string_view kNames[] = {"cosine", "linear", "constant", "wsd"};
  // Checkpoints have always been of cosines where they say nothing.
  if (s.decay != sluice::Decay::Cosine) manifest.emplace_back("train.schedule", kNames[size_t(s.decay)]);
  if (s.decay == sluice::Decay::Wsd) manifest.emplace_back("train.decay_steps", print(s.decay_steps));
}

std::span<const Allowance> allowances() {
  return kAllowances;
}

Result<std::vector<std::string>> parse_allowances(std::string_view text) {
  std::vector<std::string> words;
  while (!text.empty()) {
    const size_t end = std::min(text.find(','), text.size());
    const std::string word(text.substr(0, end));
    text.remove_prefix(std::min(text.size(), end + 1));
    std::vector<std::string_view> known;
    for (const Allowance& a : kAllowances) known.push_back(a.word);
    if (std::find(known.begin(), known.end(), word) == known.end())
      return error("--allow {}: allowed are {}", word, fmt::join(known, ", "));
    words.push_back(word);
  }
  return words;
}

Status check_goes_on(const RunConfig& c, const Manifest& saved, const Manifest& now) {
  std::vector<std::string> changed;
  for (std::string& difference : differences(saved, tolerating(saved, now, c.allow))) {
    const std::string name = difference.substr(0, difference.find(' '));
    const std::string_view word = word_for(name);
    if (name == "data.content") {
      const std::string files = corpus_changes(c.data.cache, value_of(saved, name), value_of(now, name));
      if (!files.empty()) difference = fmt::format("data.content is not what it was: {}", files);
    }
    if (!word.empty()) difference += fmt::format(" (--allow {})", word);
    changed.push_back(std::move(difference));
  }
  if (changed.empty()) return {};
  const bool own = !c.latest.empty();
  return error(
      "{} = {}: it cannot be resumed with other settings than it was saved with: {}. Set them back{}; to "
      "start a new run from its weights: model.weights = {}{}",
      own ? "run.dir" : "run.resume", own ? c.run.dir : c.run.resume, fmt::join(changed, "; "),
      own ? ", or begin another run beside it with --new" : "", c.checkpoint(), own ? " and --new" : "");
}

Manifest tolerating(const Manifest& saved, const Manifest& now, std::span<const std::string> allow) {
  Manifest out;
  for (const auto& field : now) {
    if (!allows(allow, field.first)) out.push_back(field);
  }
  for (const auto& field : saved) {
    if (allows(allow, field.first)) out.push_back(field);
  }
  return out;
}

Status keep_shape(RunConfig& c) {
  if (c.checkpoint().empty()) return {};
  if (c.latest.empty()) SLUICE_TRY(check_input(c, "run.resume", c.run.resume));
  SLUICE_ASSIGN(const CheckpointInfo info, read_checkpoint_info(c.checkpoint()));
  const auto shape = shape_in(info.manifest);
  // Another step has no use for it; the session says what differs.
  if (!shape || shape->seq_len != c.train.seq_len || shape->tokens() != c.train.tokens_per_step) return {};
  keep_shape(c, *shape);
  if (c.run.replicas == 0) c.run.replicas = shape->replicas;
  return {};
}

void keep_shape(RunConfig& c, const StepShape& shape) {
  const auto keep = [](int64_t& key, int64_t value) { key = key == 0 ? value : key; };
  keep(c.shape.chunk_tokens, shape.chunk_tokens);
  keep(c.shape.rounds, shape.rounds);
  keep(c.shape.first_round_chunks, shape.chunks_in(0));
  keep(c.shape.head_tokens, shape.head_tokens);
}

Status keep_formats(RunConfig& c) {
  if (c.checkpoint().empty()) return {};
  SLUICE_ASSIGN(const CheckpointInfo info, read_checkpoint_info(c.checkpoint()));
  const auto type = [&](std::string_view name, std::optional<DType> key) {
    const auto saved = parse_dtype(value_of(info.manifest, name));
    return key || !saved.ok() ? key : std::optional(*saved);
  };
  auto& train = c.train;
  const std::optional<DType> compute = type("train.compute", {});
  if (!compute || train.compute.value_or(*compute) != *compute) return {};
  train.compute = compute;
  train.grad = type("train.grad", train.grad);
  train.state = type("train.state", train.state);
  const std::string master = value_of(info.manifest, "train.master");
  for (const MasterWeights kept : {MasterWeights::Off, MasterWeights::F32, MasterWeights::I8})
    if (!train.master && master == print(kept)) train.master = kept;
  bool stochastic = false;
  if (!train.stochastic && read(value_of(info.manifest, "train.stochastic"), stochastic))
    train.stochastic = stochastic;
  return {};
}

Status keep_rate(RunConfig& c) {
  if (c.checkpoint().empty() || (c.train.learning_rate && c.train.min_learning_rate && c.train.warmup_steps))
    return {};
  SLUICE_ASSIGN(const CheckpointInfo info, read_checkpoint_info(c.checkpoint()));
  double peak = 0, lowest = 0;
  int64_t warmup = 0;
  if (!c.train.warmup_steps && read(value_of(info.manifest, "train.warmup_steps"), warmup))
    c.train.warmup_steps = warmup;
  if (!read(value_of(info.manifest, "train.learning_rate"), peak)) return {};
  if (!c.train.learning_rate) c.train.learning_rate = peak;
  const bool same =
      peak == c.train.learning_rate && read(value_of(info.manifest, "train.min_learning_rate"), lowest);
  if (same && !c.train.min_learning_rate) c.train.min_learning_rate = lowest;
  return {};
}

}  // namespace sluice::core
