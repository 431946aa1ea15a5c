// SPDX-License-Identifier: Apache-2.0
#include "run/prepare/manifest.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>

#include "dataset/corpus_changes.h"
#include "model/families/families.h"
#include "run/data/data.h"
#include "run/inputs/paths.h"
#include "run/inputs/resolve.h"
#include "setup/fields.h"
#include "setup/narrow.h"

namespace sluice::core {
namespace {

bool read(const std::string& text, bool& value) {
  value = text == "true";
  return value || text == "false";
}
bool read(const std::string& text, int64_t& value) {
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

// The configuration with the values that a run came to.
RunConfig resolved(const Parts& p) {
  RunConfig c = p.config;
  auto& t = c.train;
  t.compute = p.numerics.compute;
  t.grad = p.numerics.grad;
  t.state = p.numerics.state;
  t.master = p.numerics.master;
  t.stochastic = p.numerics.stochastic;
  t.freeze = p.model.freeze;
  if (p.model.products.w) t.fp8_except = p.model.wide;
  const Adapters& a = p.model.adapters;
  c.adapter.rank = a.rank;
  c.adapter.alpha = a.alpha;
  c.adapter.targets = a.targets;
  c.objective = with_defaults(c.chosen_objective(), c.objective);
  const bool packed = batch_mode(p.config) == BatchMode::Packed;
  c.data.mode = packed ? "packed" : "contiguous";
  if (!packed) c.data.long_documents = DataKeys().long_documents;
  c.run.backend = p.machine.backend->name;
  c.run.deterministic = p.machine.traits().repeats || p.config.run.deterministic;
  return c;
}

Manifest manifest_of(const Parts& p) {
  Manifest out;
  const auto model = nlohmann::json::parse(to_json(p.model));
  for (const auto& [name, value] : model.items()) out.emplace_back("model." + name, value.dump());
  // A base goes by the checksum of its values (checkpoint/weights.h), wherever it lies.
  const bool on_base = p.model.adapters.any() && !p.config.model.weights.empty();
  if (!on_base)
    out.emplace_back("model.weights", p.config.model.weights.empty() ? "none" : p.config.model.weights);
  visit_fields(p.shape, [&](std::string_view name, const auto& value) {
    // Checkpoints have always been of steps whose last chunk is like the others where they say nothing.
    if (name == kReplicas || name == kProcesses) return;
    if (name != kLastTokens || p.shape.last_tokens > 0)
      out.emplace_back(fmt::format("shape.{}", name), fmt::format("{}", value));
  });
  if (all_replicas(p.shape) > 1) out.emplace_back(kReplicasName, fmt::format("{}", all_replicas(p.shape)));
  for (auto& field : recorded_keys(resolved(p))) {
    if (p.model.adapters.any() || !field.first.starts_with("adapter.")) out.push_back(std::move(field));
  }
  if (p.model.products.w) out.emplace_back(kNarrowProducts, recorded(p.model.products.w->type));
  out.emplace_back("train.clip_norm", fmt::format("{}", p.optimizer.clip_norm));
  out.emplace_back("data.content", p.content);
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

// Every key, which are asked for again and again.
const std::vector<KeyHelp>& all_keys() {
  static const std::vector<KeyHelp> keys = config_keys();
  return keys;
}

// The word that allows a difference of that name; empty: none does.
std::string_view word_for(std::string_view name) {
  // Whether documents begin inside a sequence follows from the data.
  if (name == "shape.packed") name = "data.content";
  for (const KeyHelp& key : all_keys()) {
    if (name == (key.goes_on.decides.empty() ? key.name : key.goes_on.decides)) return key.goes_on.word;
  }
  return {};
}

// The values that manifests mean by leaving out keys.
Manifest left_out() {
  Manifest out;
  for (const KeyHelp& key : all_keys()) {
    if (!key.before.empty()) out.emplace_back(key.name, key.before);
  }
  return out;
}

bool allows(std::span<const std::string> allow, std::string_view name) {
  return std::find(allow.begin(), allow.end(), word_for(name)) != allow.end();
}

}  // namespace

Manifest manifest_of(const Prepared& p, const std::string& content) {
  return manifest_of({p.config, p.machine, p.model, p.numerics, p.optimizer, p.shape, content});
}

Result<Manifest> manifest_before_plans(const RunConfig& c, const Machine& machine, const ModelSpec& given,
                                       const std::string& content, const Manifest& saved) {
  SLUICE_ASSIGN(const Numerics numerics, resolve_numerics(c, machine));
  ModelSpec model = given;
  SLUICE_TRY(choose_narrow(c, machine, model));
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

void add_reference(Manifest& manifest, const std::string& weights) {
  if (!weights.empty()) manifest.emplace_back(kReferenceName, weights);
}

void add_schedule(Manifest& manifest, const sluice::Schedule& s) {
  const auto add = [&](const char* name, auto value) {
    manifest.emplace_back(name, fmt::format("{}", value));
  };
  add("train.steps", s.steps);
  add("train.learning_rate", s.learning_rate);
  add("train.min_learning_rate", s.lowest_rate());
  add("train.warmup_steps", s.warmup_steps);
  constexpr std::string_view kNames[] = {"cosine", "linear", "constant", "wsd"};
  // Checkpoints have always been of cosines where they say nothing.
  if (s.decay != sluice::Decay::Cosine) manifest.emplace_back("train.schedule", kNames[size_t(s.decay)]);
  if (s.decay == sluice::Decay::Wsd) add("train.decay_steps", s.decay_steps);
}

std::vector<std::string> words_of_allow() {
  std::vector<std::string> out;
  for (const KeyHelp& key : all_keys()) {
    const std::string_view word = key.goes_on.word;
    if (!word.empty() && std::find(out.begin(), out.end(), word) == out.end()) out.emplace_back(word);
  }
  return out;
}

Result<std::vector<std::string>> parse_allowances(std::string_view text) {
  std::vector<std::string> words;
  const std::vector<std::string> known = words_of_allow();
  while (!text.empty()) {
    const size_t end = std::min(text.find(','), text.size());
    const std::string word(text.substr(0, end));
    text.remove_prefix(std::min(text.size(), end + 1));
    if (std::find(known.begin(), known.end(), word) == known.end())
      return error("--allow {}: allowed are {}", word, fmt::join(known, ", "));
    words.push_back(word);
  }
  return words;
}

std::vector<std::string> changes(const Manifest& saved, const Manifest& now) {
  return differences(saved, now, left_out());
}

Status check_goes_on(const RunConfig& c, const Manifest& saved, const Manifest& now) {
  std::vector<std::string> changed;
  for (std::string& difference : changes(saved, tolerating(saved, now, c.allow))) {
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
  const Manifest meant = left_out();
  for (const auto& [name, value] : saved) {
    if (allows(allow, name)) {
      out.emplace_back(name, value);
    } else if (const std::string is = value_of(meant, name); value_of(now, name).empty() && !is.empty()) {
      out.emplace_back(name, is);
    }
  }
  return out;
}

Result<RunFacts> facts_of(const RunConfig& c) {
  RunFacts facts;
  if (c.checkpoint().empty()) return facts;
  if (c.latest.empty()) SLUICE_TRY(check_input(c, "run.resume", c.run.resume));
  SLUICE_ASSIGN(CheckpointInfo info, read_checkpoint_info(c.checkpoint()));
  const auto shape = shape_in(info.manifest);
  // Another step has no use for it; the session says what differs.
  if (shape && shape->seq_len == c.train.seq_len && shape->tokens() == c.train.tokens_per_step) {
    facts.shape = shape;
    facts.replicas = shape->replicas;
  }
  facts.saved = [manifest = std::move(info.manifest)](std::string_view key) {
    return value_of(manifest, key);
  };
  return facts;
}

}  // namespace sluice::core
