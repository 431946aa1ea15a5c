// SPDX-License-Identifier: Apache-2.0
#include "estimate/subject.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <utility>

#include "base/bytes.h"
#include "base/nearest.h"
#include "io/model_folder.h"
#include "model/families/families.h"

namespace sluice::core {
namespace {

struct Dimension {
  std::string_view name;
  int64_t value = 0;
  bool given = false;
};

class Dimensions {
 public:
  Status read(std::string_view text) {
    while (!text.empty()) {
      const size_t comma = std::min(text.find(','), text.size());
      SLUICE_TRY(read_one(text.substr(0, comma)));
      text.remove_prefix(std::min(comma + 1, text.size()));
    }
    return {};
  }
  int64_t operator[](std::string_view name) { return find(name)->value; }
  bool has(std::string_view name) { return find(name)->given; }

  // Whether those are given and no others.
  Status only(std::initializer_list<std::string_view> needed, std::initializer_list<std::string_view> also) {
    for (const std::string_view name : needed) {
      if (!has(name)) return error("model: dimensions need {} here, too", name);
    }
    for (const Dimension& d : all_) {
      const auto is = [&](std::string_view name) { return name == d.name; };
      if (d.given && std::none_of(needed.begin(), needed.end(), is) &&
          std::none_of(also.begin(), also.end(), is)) {
        return error("model: {} has no meaning beside {}", d.name, *needed.begin());
      }
    }
    return {};
  }

 private:
  Dimension* find(std::string_view name) {
    const auto it = std::find_if(all_.begin(), all_.end(), [&](const auto& d) { return d.name == name; });
    return it == all_.end() ? nullptr : &*it;
  }

  Status read_one(std::string_view part) {
    const size_t equals = std::min(part.find('='), part.size());
    const std::string name(part.substr(0, equals));
    Dimension* d = find(name);
    if (d == nullptr) {
      std::vector<std::string> names;
      for (const Dimension& known : all_) names.emplace_back(known.name);
      const std::string near = nearest(name, names);
      return error("model: dimension '{}'; allowed are {}{}", name, fmt::join(names, ", "),
                   similar(name, near) ? fmt::format("; did you mean {}?", near) : "");
    }
    SLUICE_ASSIGN(const double value, parse_amount(fmt::format("model: {}", name),
                                                   part.substr(std::min(equals + 1, part.size()))));
    constexpr double kMost = 1e15;
    if (value != std::floor(value) || value < 0 || value > kMost) {
      return error("model: {} is {}; allowed are whole numbers up to {:g}", name, value, kMost);
    }
    d->value = int64_t(value);
    d->given = true;
    return {};
  }

  std::array<Dimension, 10> all_{{{"layers"},
                                  {"dim"},
                                  {"ffn"},
                                  {"heads"},
                                  {"kv_heads"},
                                  {"head_dim"},
                                  {"vocab"},
                                  {"tied"},
                                  {"matrices"},
                                  {"params"}}};
};

// All arithmetic with a model and a million of its tokens stays far from the bounds of its numbers, and
// counting takes no longer than one waits for.
Status countable(const ModelSpec& spec) {
  constexpr size_t kMostLayers = 1000;
  constexpr double kMostParams = 1e15, kMostNumbers = 1e9;
  if (spec.layers.size() > kMostLayers) {
    return error("model: {} layers; estimates count each of them: allowed are up to {}", spec.layers.size(),
                 kMostLayers);
  }
  const auto d = double(spec.dim);
  double params = 2 * d * double(spec.vocab), numbers = double(spec.vocab);
  for (const LayerSpec& layer : spec.layers) {
    const Attention* const a = layer.attention();
    const double mixed = a != nullptr ? double(a->q_dim()) + double(a->kv_dim()) : 2 * d;
    params += d * (2 * mixed + 3 * double(layer.mlp().ffn));
    numbers += d + mixed + double(layer.mlp().ffn);
  }
  if (params > kMostParams || numbers > kMostNumbers) {
    return error("model: {:g} parameters, and {:g} numbers of a token; allowed are up to {:g} and {:g}",
                 params, numbers, kMostParams, kMostNumbers);
  }
  return {};
}

Result<Subject> subject_of(ModelSpec spec, std::string name) {
  SLUICE_TRY(validate(spec));
  SLUICE_TRY(countable(spec));
  Subject subject;
  subject.name = std::move(name);
  subject.params = spec.params();
  subject.spec = std::move(spec);
  return subject;
}

Result<Subject> from_dimensions(std::string_view text) {
  Dimensions d;
  SLUICE_TRY(d.read(text));
  if (d.has("params")) {
    SLUICE_TRY(d.only({"params"}, {}));
    if (d["params"] <= 0) return error("model: params is 0; it must be positive");
    Subject subject;
    subject.name = text;
    subject.params = d["params"];
    return subject;
  }
  if (d.has("matrices")) {
    SLUICE_TRY(d.only({"matrices", "layers", "dim", "ffn"}, {}));
    Subject subject;
    subject.name = text;
    subject.blocks = {d["layers"], d["dim"], d["ffn"], d["matrices"]};
    constexpr double kMost = 1e15;
    const double params = double(d["layers"]) * double(d["dim"]) * double(d["ffn"]) * double(d["matrices"]);
    if (!(params > 0) || params > kMost) {
      return error("model: {} has {:g} parameters; allowed are up to {:g}", text, params, kMost);
    }
    subject.params = subject.blocks->params();
    return subject;
  }
  SLUICE_TRY(d.only({"layers", "dim", "ffn", "heads", "vocab"}, {"kv_heads", "head_dim", "tied"}));
  // As many are made before they are counted.
  constexpr int64_t kMostLayers = 100'000;
  if (d["layers"] > kMostLayers) {
    return error("model: layers is {}; allowed are 1 to {}", d["layers"], kMostLayers);
  }
  const int64_t heads = d["heads"];
  if (!d.has("head_dim") && (heads == 0 || d["dim"] % heads != 0)) {
    return error("model: dim {} is not a multiple of heads {}; give head_dim", d["dim"], heads);
  }
  ModelSpec spec = model_of({.dim = d["dim"],
                             .layers = d["layers"],
                             .heads = heads,
                             .kv_heads = d.has("kv_heads") ? d["kv_heads"] : heads,
                             .head_dim = d.has("head_dim") ? d["head_dim"] : d["dim"] / heads,
                             .ffn = d["ffn"],
                             .vocab = d["vocab"]});
  spec.tied_embeddings = d["tied"] != 0;
  return subject_of(std::move(spec), std::string(text));
}

}  // namespace

Result<Subject> parse_subject(std::string_view text) {
  if (const std::string preset = preset_meant_by(text); !preset.empty()) {
    SLUICE_ASSIGN(ModelSpec spec, model_preset(preset));
    return subject_of(std::move(spec), preset);
  }
  const std::filesystem::path path = model_folder(text);
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored)) {
    SLUICE_ASSIGN(const ConfigText config, read_model_config(path));
    auto spec = parse_model_config(config.text);
    if (!spec.ok()) return error_at(config.path.string(), spec.error());
    return subject_of(std::move(*spec), std::string(text));
  }
  if (text.find('=') != text.npos) return from_dimensions(text);
  const bool number = parse_amount("", text).ok();
  return error(
      "model '{}': allowed are {}, the path of a config.json, a number of parameters such as params=14B, and "
      "dimensions such as layers=32,dim=4096,ffn=11008,heads=32,vocab=32000{}",
      text, fmt::join(model_presets(), ", "),
      number ? fmt::format("; did you mean params={}?", text) : other_models(text));
}

ModelSpec scaled_to(const ModelSpec& spec, int64_t layers) {
  const double scale = double(layers) / double(spec.layers.size());
  const auto scaled = [&](int64_t size, int64_t multiple) {
    return std::max(multiple, int64_t(std::lround(double(size) * scale / double(multiple))) * multiple);
  };
  ModelSpec out = spec;
  out.dim = scaled(spec.dim, 64);
  LayerSpec like = spec.layers.front();
  if (Attention* a = like.attention()) {
    // As many query heads of each key head as before, or one.
    const int64_t group = a->heads / a->kv_heads, heads = scaled(a->q_dim(), a->head_dim) / a->head_dim;
    a->heads = heads;
    a->kv_heads = heads % group == 0 ? heads / group : heads;
  }
  like.mlp().ffn = scaled(like.mlp().ffn, 64);
  out.layers.assign(size_t(layers), like);
  return out;
}

Result<double> parse_amount(std::string_view what, std::string_view text) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, read] = std::from_chars(text.data(), end, value);
  const std::string_view suffix(rest, size_t(end - rest));
  constexpr std::pair<std::string_view, double> kSuffixes[] = {
      {"", 1},    {"k", 1e3}, {"K", 1e3}, {"m", 1e6},  {"M", 1e6}, {"b", 1e9},
      {"B", 1e9}, {"g", 1e9}, {"G", 1e9}, {"t", 1e12}, {"T", 1e12}};
  for (const auto& [name, factor] : kSuffixes) {
    if (read == std::errc() && suffix == name && std::isfinite(value * factor)) return value * factor;
  }
  return error("{}: '{}' is no number such as 250k, 100M, 3B, 1.4T or 1e9", what, text);
}

}  // namespace sluice::core
