// SPDX-License-Identifier: Apache-2.0
// Rotary embedding in a config.json. transformers 5 writes the object rope_parameters; before, rope_theta
// stood at the root, and the rest in the object rope_scaling, which is null for the plain embedding. Where
// both objects are there, rope_scaling holds.
#include <algorithm>
#include <cmath>
#include <vector>

#include "model/families/family.h"
#include "model/families/keys.h"

namespace sluice::core {
namespace {

using nlohmann::json;

constexpr double kMostTheta = 1e12, kMostFactor = 1e6, kMostWeight = 1e3;
constexpr int64_t kMostContext = int64_t{1} << 31;
constexpr const char *kFullAttention = "full_attention", *kSlidingAttention = "sliding_attention";
constexpr const char* kPartial = "partial_rotary_factor";
constexpr const char* kOriginalContext = "original_max_position_embeddings";

constexpr const char* kTemperature = "llama_4_scaling_beta";

struct Kind {
  std::string_view name;
  RopeScaling::Kind kind;
  std::vector<std::string_view> needs, takes;
};

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> kKinds = {
      {"default", RopeScaling::Default, {}, {}},
      {"linear", RopeScaling::Linear, {"factor"}, {}},
      {"dynamic", RopeScaling::Dynamic, {"factor"}, {}},
      {"llama3",
       RopeScaling::Llama3,
       {"factor", "low_freq_factor", "high_freq_factor"},
       {"original_max_position_embeddings"}},
      {"yarn",
       RopeScaling::Yarn,
       {},
       {"factor", "original_max_position_embeddings", "attention_factor", "beta_fast", "beta_slow", "mscale",
        "mscale_all_dim", "truncate", kTemperature}},
      {"proportional", RopeScaling::Proportional, {}, {"factor"}},
      // The name that the first files had.
      {"su",
       RopeScaling::Long,
       {"short_factor", "long_factor"},
       {"factor", "original_max_position_embeddings", "attention_factor"}},
      {"longrope",
       RopeScaling::Long,
       {"short_factor", "long_factor"},
       {"factor", "original_max_position_embeddings", "attention_factor"}},
  };
  return kKinds;
}

const Kind* find_kind(std::string_view name) {
  for (const Kind& kind : kinds()) {
    if (kind.name == name) return &kind;
  }
  return nullptr;
}

std::string kind_names() {
  std::string out;
  for (const Kind& kind : kinds()) out.append(out.empty() ? "" : ", ").append(kind.name);
  return out;
}

// Nothing is passed over: a key that is not known here may be what makes the embedding another one.
Status check_keys(const json& object, const char* name, const Kind& kind) {
  // Keys of every kind. partial_rotary_factor is read elsewhere. `finetuned` comes from early YaRN models;
  // max_position_embeddings repeats the root's.
  constexpr std::string_view kCommon[] = {
      "type", "rope_type", "rope_theta", "partial_rotary_factor", "finetuned", "max_position_embeddings"};
  const auto is_in = [](const auto& names, std::string_view key) {
    return std::find(std::begin(names), std::end(names), key) != std::end(names);
  };
  for (const std::string_view key : kind.needs) {
    if (!says(object, key.data()))
      return error("model config: {}.{} is missing, which rope_type {} needs", name, key, kind.name);
  }
  for (const auto& [key, value] : object.items()) {
    if (is_in(kCommon, key) || is_in(kind.needs, key) || is_in(kind.takes, key) || value.is_null()) continue;
    if (kind.kind == RopeScaling::Default && key == "factor") {
      return error("model config: {}.factor is {} without a rope_type that says how; allowed are {}", name,
                   describe(value), kind_names());
    }
    return error("model config: {}.{} is {}; Sluice does not know it in rope_type {}", name, key,
                 describe(value), kind.name);
  }
  return {};
}

Status read_llama3(const json& object, const char* name, RopeScaling& rope) {
  SLUICE_TRY(read(object, "low_freq_factor", rope.low_freq_factor, 1e-6, kMostFactor));
  SLUICE_TRY(read(object, "high_freq_factor", rope.high_freq_factor, 1e-6, kMostFactor));
  if (rope.low_freq_factor < rope.high_freq_factor) return {};
  return error("model config: {}.low_freq_factor is {}; it must be below high_freq_factor, {}", name,
               rope.low_freq_factor, rope.high_freq_factor);
}

// Where a config.json lacks the factor, transformers 4 made one up. Transformers 5 refuses it, so a model
// that is trained here would not load there.
Status check_yarn_factor(const json& object, const char* name, int64_t context, const RopeScaling& rope) {
  if (says(object, "factor")) return {};
  const std::string number =
      fmt::format("{:.12g}", std::max(1.0, double(context) / double(rope.original_context)));
  return error(
      "model config: {}.factor is missing, which rope_type yarn needs. max_position_embeddings is {} and "
      "original_max_position_embeddings {}, so write \"factor\": {}{}",
      name, context, rope.original_context, number, number.find('.') == number.npos ? ".0" : "");
}

Status read_yarn(const json& object, const char* name, int64_t context, RopeScaling& rope) {
  SLUICE_TRY(check_yarn_factor(object, name, context, rope));
  double weight = 0, weight_all = 0;
  SLUICE_TRY(read(object, "mscale", weight, 0.0, kMostWeight));
  SLUICE_TRY(read(object, "mscale_all_dim", weight_all, 0.0, kMostWeight));
  rope.attention_factor = yarn_attention_factor(rope.factor, weight, weight_all);
  SLUICE_TRY(read(object, "attention_factor", rope.attention_factor, 1e-6, kMostFactor));
  SLUICE_TRY(read(object, "truncate", rope.truncate));
  SLUICE_TRY(read(object, kTemperature, rope.temperature, 0.0, kMostWeight));
  // 0 is as good as nothing there.
  for (const auto& [key, field] : {std::pair{"beta_fast", &rope.beta_fast}, {"beta_slow", &rope.beta_slow}}) {
    double value = 0;
    SLUICE_TRY(read(object, key, value, 0.0, kMostFactor));
    if (value != 0) *field = value;
  }
  if (rope.theta > 1) return {};
  return error("model config: rope_theta is {}; rope_type yarn needs more than 1", rope.theta);
}

Status read_factors(const json& object, const char* name, const char* key, std::vector<double>& out) {
  const json& list = object[key];
  if (!list.is_array())
    return error("model config: {}.{} is {}; a list is needed", name, key, describe(list));
  out.clear();  // another object may have filled it
  for (const json& entry : list) {
    if (!entry.is_number() || !(entry.get<double>() > 0 && entry.get<double>() <= kMostFactor))
      return error("model config: {}.{} has {}; allowed are numbers above 0", name, key, describe(entry));
    out.push_back(entry.get<double>());
  }
  return {};
}

// By the paper, where attention_factor does not say it: sqrt(1 + ln(factor) / ln(original context)).
Status read_long(const json& object, const char* name, int64_t context, RopeScaling& rope) {
  SLUICE_TRY(read_factors(object, name, "short_factor", rope.short_factors));
  SLUICE_TRY(read_factors(object, name, "long_factor", rope.long_factors));
  const double original = double(rope.original_context);
  if (!says(object, "factor")) rope.factor = double(context) / original;
  if (rope.factor > 1 && original > 1)
    rope.attention_factor = std::sqrt(1 + std::log(rope.factor) / std::log(original));
  return read(object, "attention_factor", rope.attention_factor, 1e-6, kMostFactor);
}

Status read_object(const json& root, const json& object, const char* name, int64_t context,
                   RopeScaling& rope) {
  std::string type = "default";
  SLUICE_TRY(read(object, "type", type));
  SLUICE_TRY(read(object, "rope_type", type));
  const Kind* kind = find_kind(type);
  if (kind == nullptr)
    return error("model config: {}.rope_type is '{}'; allowed are {}", name, type, kind_names());
  SLUICE_TRY(check_keys(object, name, *kind));
  SLUICE_TRY(read(object, "rope_theta", rope.theta, 1.0, kMostTheta));
  rope.kind = kind->kind;
  if (rope.kind == RopeScaling::Default) return {};
  SLUICE_TRY(read(object, "factor", rope.factor, 1.0, kMostFactor));
  if (rope.kind == RopeScaling::Linear) return {};
  if (rope.kind == RopeScaling::Proportional) return read(object, kPartial, rope.turned, 0.0, 1.0);
  rope.original_context = context;
  if (rope.kind != RopeScaling::Dynamic) {
    // At the root it holds for either object.
    for (const json* at : {&object, &root}) {
      SLUICE_TRY(
          read(*at, "original_max_position_embeddings", rope.original_context, int64_t{1}, kMostContext));
    }
  }
  if (rope.kind == RopeScaling::Llama3) return read_llama3(object, name, rope);
  if (rope.kind == RopeScaling::Yarn) return read_yarn(object, name, context, rope);
  if (rope.kind == RopeScaling::Long) return read_long(object, name, context, rope);
  return {};
}

// The rotation that an object of config.json says, or two of them that agree.
Status read_one(const json& root, int64_t context, RopeScaling& rope) {
  const json* chosen = nullptr;
  for (const char* name : {"rope_scaling", "rope_parameters"}) {
    if (!says(root, name)) continue;
    const json& object = root[name];
    if (!object.is_object())
      return error("model config: {} is {}; allowed are null and an object", name, describe(object));
    if (object.empty()) continue;
    // transformers 5 goes by the object, transformers 4 by the root.
    if (says(root, "rope_theta") && says(object, "rope_theta") && root["rope_theta"] != object["rope_theta"])
      return error("model config: rope_theta is {} beside {}.rope_theta = {}; leave one of them out",
                   describe(root["rope_theta"]), name, describe(object["rope_theta"]));
    if (chosen == nullptr) {
      chosen = &object;
      SLUICE_TRY(read_object(root, object, name, context, rope));
      continue;
    }
    RopeScaling other = rope;
    SLUICE_TRY(read_object(root, object, name, context, other));
    if (other == rope) continue;
    return error(
        "model config: rope_parameters and rope_scaling say different things; one of them is enough");
  }
  return {};
}

bool has_ropes_by_layers(const json& root) {
  const auto nested = root.find("rope_parameters");
  return nested != root.end() && nested->is_object() &&
         (nested->contains(kFullAttention) || nested->contains(kSlidingAttention));
}

// Checks the root's keys beside objects by layers: transformers 5 merges some of it into them, transformers 4
// goes by it alone.
Status check_beside_layers(const json& root, const WindowRope& family, int64_t context,
                           const ModelSpec& spec) {
  const json& nested = root["rope_parameters"];
  const auto refuse = [&](const char* key, const char* layers) {
    return error(
        "model config: {} is {} beside rope_parameters.{}, which does not say the same; leave it out", key,
        describe(root[key]), layers);
  };
  const auto check_theta = [&](const char* key, const char* layers) -> Status {
    if (!says(root, key)) return {};
    const auto object = nested.find(layers);
    const bool same =
        object != nested.end() && says(*object, "rope_theta") && (*object)["rope_theta"] == root[key];
    return same ? Status() : refuse(key, layers);
  };
  SLUICE_TRY(check_theta("rope_theta", kFullAttention));
  SLUICE_TRY(check_theta(family.key == nullptr ? "rope_theta" : family.key, kSlidingAttention));
  if (!says(root, "rope_scaling")) return {};
  json merged = nested.contains(kFullAttention) ? nested[kFullAttention] : json::object();
  if (merged.is_null()) merged = json::object();
  if (!root["rope_scaling"].is_object()) return refuse("rope_scaling", kFullAttention);
  merged.update(root["rope_scaling"]);
  RopeScaling rope{.theta = spec.rope.theta};
  SLUICE_TRY(read_object(root, merged, "rope_scaling", context, rope));
  return rope == spec.rope ? Status() : refuse("rope_scaling", kFullAttention);
}

// Layers with a window beside others: transformers 5 has an object per layer type in rope_parameters. Before,
// the root's values were the others'.
Status read_by_layers(const json& root, const Family& of, int64_t context, ModelSpec& spec) {
  const WindowRope& family = of.window_rope;
  RopeScaling& window =
      spec.window_rope.emplace(RopeScaling{.theta = family.theta == 0 ? spec.rope.theta : family.theta});
  if (!has_ropes_by_layers(root)) {
    // Transformers would read nothing of it.
    if (says(root, "rope_parameters") && !root["rope_parameters"].empty())
      return error("model config: rope_parameters is {} without {} and {}, which {} models need in it",
                   describe(root["rope_parameters"]), kFullAttention, kSlidingAttention, of.model_type);
    SLUICE_TRY(read_one(root, context, spec.rope));
    return family.key == nullptr ? Status() : read(root, family.key, window.theta, 1.0, kMostTheta);
  }
  if (says(root, kPartial) && root[kPartial] != 1)
    return error("model config: {} is {}; {} models have it in rope_parameters.{}", kPartial,
                 describe(root[kPartial]), of.model_type, kFullAttention);
  const json& nested = root["rope_parameters"];
  for (const auto& [key, object] : nested.items()) {
    const bool full = key == kFullAttention;
    if (!full && key != kSlidingAttention)
      return error("model config: rope_parameters.{} is {}; allowed are {} and {}", key, describe(object),
                   kFullAttention, kSlidingAttention);
    if (object.is_null()) continue;
    if (!object.is_object())
      return error("model config: rope_parameters.{} is {}; an object is needed", key, describe(object));
    RopeScaling& rope = full ? spec.rope : window;
    SLUICE_TRY(read_object(root, object, "rope_parameters", context, rope));
    if (rope.kind != RopeScaling::Proportional && says(object, kPartial) && object[kPartial] != 1)
      return error("model config: rope_parameters.{}.{} is {}; rope_type proportional alone has it", key,
                   kPartial, describe(object[kPartial]));
  }
  return check_beside_layers(root, family, context, spec);
}

// Reads the growth with the position of queries from the rotation's object, without which transformers has
// that of the first models.
Status read_tempered(const json& root, const Family& family, int64_t context, ModelSpec& spec) {
  json whole = root;
  if (!says(root, "rope_parameters") && !says(root, "rope_scaling"))
    whole["rope_parameters"] = {{"rope_type", "yarn"}, {"rope_theta", family.defaults.theta},
                                {"factor", 16.0},      {"original_max_position_embeddings", 16384},
                                {"beta_fast", 32.0},   {"beta_slow", 1.0},
                                {"mscale", 1.0},       {"mscale_all_dim", 1.0},
                                {kTemperature, 0.1}};
  for (const char* name : {"rope_parameters", "rope_scaling"}) {
    if (says(whole, name) && !says(whole[name], kTemperature))
      return error("model config: {}.{} is missing, which {} models need", name, kTemperature,
                   family.model_type);
  }
  return read_one(whole, context, spec.rope);
}

}  // namespace

double yarn_attention_factor(double factor, double weight, double weight_all) {
  const auto scale = [&](double w) { return factor <= 1 ? 1 : 0.1 * w * std::log(factor) + 1; };
  return weight != 0 && weight_all != 0 ? scale(weight) / scale(weight_all) : scale(1);
}

Status read_rope(const json& root, const Family& family, int64_t context, ModelSpec& spec) {
  for (const char* key : {family.theta_key, "rope_theta", "rope_scaling", "rope_parameters"}) {
    if (family.learns_positions && says(root, key))
      return error("model config: {} is {}; {} models are not rotated", key, describe(root[key]),
                   family.model_type);
  }
  SLUICE_TRY(read(root, family.theta_key, spec.rope.theta, 1.0, kMostTheta));
  if (says(root, "rope_theta") && root["rope_theta"] != spec.rope.theta)
    return error("model config: rope_theta is {}; {} models have {} for it", describe(root["rope_theta"]),
                 family.model_type, family.theta_key);
  if (context < 1 || context > kMostContext) {
    return error("model config: max_position_embeddings is {}; allowed are 1 to {}", context, kMostContext);
  }
  // Transformers 4 took it for all layers where windows have no key of their own; 5 gives those the default.
  const WindowRope& windows = family.window_rope;
  if (windows.has && windows.key == nullptr && !has_ropes_by_layers(root) &&
      spec.rope.theta != family.defaults.theta)
    return error(
        "model config: rope_theta is {} without rope_parameters by layers, which versions of transformers "
        "read differently; write rope_parameters with {} and {}",
        spec.rope.theta, kFullAttention, kSlidingAttention);
  if (windows.otherwise != nullptr && !says(root, "rope_parameters")) {
    json whole = root;
    whole["rope_parameters"] = json::parse(std::string_view(windows.otherwise));
    return read_by_layers(whole, family, context, spec);
  }
  if (windows.has) return read_by_layers(root, family, context, spec);
  if (family.tempered) return read_tempered(root, family, context, spec);
  if (family.defaults.original_context == 0 || says(root, kOriginalContext))
    return read_one(root, context, spec.rope);
  json whole = root;
  whole[kOriginalContext] = family.defaults.original_context;
  return read_one(whole, context, spec.rope);
}

Status read_rotated_rows(const json& root, const Family& family, ModelSpec& spec) {
  spec.rotated.neighbours = family.rotates_neighbours;
  if (family.partial.key == nullptr) return {};
  if (spec.rope.kind == RopeScaling::Proportional)
    return error("model config: rope_type is 'proportional'; {} models rotate a part of a head otherwise",
                 family.model_type);
  const auto read_factor = [](const json& object, const char* key, double& factor) {
    return read(object, key, factor, 1e-6, 1.0);
  };
  double factor = family.partial.factor;
  SLUICE_TRY(read_factor(root, family.partial.key, factor));
  const double at_root = factor;
  bool taken = false;
  for (const char* name : {"rope_scaling", "rope_parameters"}) {
    if (!says(root, name) || root[name].empty()) continue;
    double own = at_root;
    SLUICE_TRY(read_factor(root[name], kPartial, own));
    // transformers 5 goes by the object, transformers 4 by the root.
    if (says(root, family.partial.key) && own != at_root)
      return error("model config: {} is {} beside {}.{} = {}; leave one of them out", family.partial.key,
                   at_root, name, kPartial, own);
    if (taken && own != factor)
      return error("model config: rope_parameters and rope_scaling say different things of {}", kPartial);
    factor = own, taken = true;
  }
  if (family.partial.key != std::string_view(kPartial) && says(root, kPartial) && root[kPartial] != factor)
    return error("model config: {} is {}; {} models have {} for it", kPartial, describe(root[kPartial]),
                 family.model_type, family.partial.key);
  const int64_t head_dim = spec.attention().head_dim;
  if (head_dim < 1 || head_dim > kMostWidth) return {};  // validate() says so
  const auto rows = int64_t(double(head_dim) * factor);
  if (rows < 2 || rows % 2 != 0)
    return error("model config: {} is {}, which is {} of the {} rows of a head; an even number is needed",
                 family.partial.key, factor, rows, head_dim);
  spec.rotated.rows = rows == head_dim ? 0 : rows;
  return {};
}

namespace {

// Such that as many rows are read of it.
void write_rotated_rows(const ModelSpec& spec, const Family& family, json& root) {
  if (family.partial.key == nullptr) return;
  const Attention& a = spec.attention();
  const auto rows = double(spec.rotated_rows(a)), head_dim = double(a.head_dim);
  const double factor = rows / head_dim;
  root[family.partial.key] = std::floor(head_dim * factor) == rows ? factor : std::nextafter(factor, 1.0);
}

void write_scaling(const RopeScaling& rope, json& root, json& out) {
  for (const Kind& kind : kinds()) {
    if (kind.kind == rope.kind) out["rope_type"] = kind.name;
  }
  out["factor"] = rope.factor;
  if (rope.kind == RopeScaling::Proportional) out[kPartial] = rope.turned;
  if (rope.kind == RopeScaling::Dynamic) root["max_position_embeddings"] = rope.original_context;
  if (rope.kind == RopeScaling::Llama3) {
    out["low_freq_factor"] = rope.low_freq_factor;
    out["high_freq_factor"] = rope.high_freq_factor;
    out["original_max_position_embeddings"] = rope.original_context;
  }
  if (rope.kind == RopeScaling::Long) {
    out["short_factor"] = rope.short_factors;
    out["long_factor"] = rope.long_factors;
    out["original_max_position_embeddings"] = rope.original_context;
    out["attention_factor"] = rope.attention_factor;
  }
  if (rope.kind == RopeScaling::Yarn) {
    out["original_max_position_embeddings"] = rope.original_context;
    out["attention_factor"] = rope.attention_factor;
    out["beta_fast"] = rope.beta_fast;
    out["beta_slow"] = rope.beta_slow;
    out["truncate"] = rope.truncate;
    if (rope.temperature != 0) out[kTemperature] = rope.temperature;
  }
}

}  // namespace

void write_rope(const ModelSpec& spec, json& root) {
  const Family& family = *find_family(spec.family);
  write_rotated_rows(spec, family, root);
  if (family.tempered) {
    json& out = root["rope_parameters"];
    write_scaling(spec.rope, root, out);
    out["rope_theta"] = spec.rope.theta;
    return;
  }
  if (!spec.window_rope) {
    root[family.theta_key] = spec.rope.theta;
    if (spec.rope.kind == RopeScaling::Default) return;
    write_scaling(spec.rope, root, root["rope_scaling"]);
    // Where readers take the family's unless the root says it.
    if (family.defaults.original_context > 0 && root["rope_scaling"].contains(kOriginalContext))
      root[kOriginalContext] = spec.rope.original_context;
    return;
  }
  for (const auto& [key, rope] :
       {std::pair{kFullAttention, &spec.rope}, {kSlidingAttention, &*spec.window_rope}}) {
    json& out = root["rope_parameters"][key];
    out["rope_type"] = "default";
    if (rope->kind != RopeScaling::Default) write_scaling(*rope, root, out);
    out["rope_theta"] = rope->theta;
  }
}

}  // namespace sluice::core
