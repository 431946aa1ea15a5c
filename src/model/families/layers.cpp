// SPDX-License-Identifier: Apache-2.0
// What a config.json says of single layers: windows (sliding_window and what turns it on, layer_types) and
// layers that are not rotated (no_rope_layers).
#include <algorithm>

#include "model/families/family.h"
#include "model/families/keys.h"
#include "model/kinds.h"

namespace sluice::core {
namespace {

using nlohmann::json;

constexpr const char* kFull = "full_attention";
constexpr const char* kSliding = "sliding_attention";
constexpr const char* kConv = "conv";
constexpr const char* kLinear = "linear_attention";
constexpr int64_t kMostWindow = int64_t{1} << 31;

// A key of other families, which this one's class of transformers passes over: it must say nothing.
Status refuse_foreign(const json& root, const Family& family, const char* key, const json& neutral) {
  if (!says(root, key) || root[key] == neutral) return {};
  return error("model config: {} is {}; {} models have no such key", key, describe(root[key]),
               family.model_type);
}

// Whether each layer is rotated: a list of 0 and 1 or, without one, all but every so manieth.
Status read_rotated(const json& root, ModelSpec& spec) {
  const auto layers = int64_t(spec.layers.size());
  int64_t interval = 4;
  SLUICE_TRY(read(root, "no_rope_layer_interval", interval, int64_t{1}, int64_t{1} << 31));
  for (int64_t l = 0; l < layers; ++l) spec.layers[size_t(l)].attention()->rotated = (l + 1) % interval != 0;
  if (!says(root, "no_rope_layers")) return {};
  const json& list = root["no_rope_layers"];
  if (!list.is_array() || int64_t(list.size()) < layers) {
    return error("model config: no_rope_layers is {}; a list of {} entries, one per layer, is needed",
                 list.is_array() ? fmt::format("a list of {}", list.size()) : describe(list), layers);
  }
  for (int64_t l = 0; l < layers; ++l) {
    const json& entry = list[size_t(l)];
    const bool fits = entry.is_boolean() || entry == 0 || entry == 1;
    if (!fits) return error("model config: no_rope_layers has {}; 1 is rotated, 0 is not", describe(entry));
    spec.layers[size_t(l)].attention()->rotated = entry.is_boolean() ? entry.get<bool>() : entry == 1;
  }
  return {};
}

// The width of windows, 0 when there are none: of families whose windows are turned on, only then.
Result<int64_t> read_window(const json& root, const Family& family) {
  bool on = family.windows == Windows::All || family.windows == Windows::Pattern;
  if (!on) SLUICE_TRY(read(root, "use_sliding_window", on));
  const bool none =
      root.contains("sliding_window") ? root["sliding_window"].is_null() : family.defaults.window == 0;
  if (!on || none) return 0;
  int64_t window = family.defaults.window;
  SLUICE_TRY(read(root, "sliding_window", window, int64_t{1}, kMostWindow));
  return window;
}

// layer_types says itself which layers have the window.
Status read_layer_types(const json& types, int64_t window, const Family& family, ModelSpec& spec) {
  if (!types.is_array() || types.size() != spec.layers.size()) {
    return error("model config: layer_types is {}; a list of {} entries, one per layer, is needed",
                 types.is_array() ? fmt::format("a list of {}", types.size()) : describe(types),
                 spec.layers.size());
  }
  for (size_t l = 0; l < spec.layers.size(); ++l) {
    const bool slides = types[l] == kSliding;
    if (!slides && types[l] != kFull && types[l] != "attention") {
      return error("model config: layer_types has {}; allowed are {} and {}", describe(types[l]), kFull,
                   kSliding);
    }
    if (slides && window == 0) {
      return error("model config: layer_types has {}, but {}", kSliding,
                   family.windows == Windows::None
                       ? fmt::format("{} models have no window", family.model_type)
                   : family.windows == Windows::All || family.windows == Windows::Pattern
                       ? "sliding_window is null"
                       : "use_sliding_window is false or sliding_window null");
    }
    if (!slides && window > 0 && family.windows == Windows::All) {
      return error(
          "model config: layer_types has {}, but {} models with a sliding_window have it in every layer",
          describe(types[l]), family.model_type);
    }
    spec.layers[l].attention()->window = slides ? window : 0;
  }
  return {};
}

Status read_windows(const json& root, const Family& family, ModelSpec& spec) {
  if (family.unrotated_layers) {
    SLUICE_TRY(read_rotated(root, spec));
  } else {
    SLUICE_TRY(refuse_foreign(root, family, "no_rope_layers", nullptr));
    SLUICE_TRY(refuse_foreign(root, family, "no_rope_layer_interval", nullptr));
  }
  const bool none = family.windows == Windows::None || family.windows == Windows::Off;
  if (none) {
    SLUICE_TRY(refuse_foreign(root, family, "use_sliding_window", false));
    // A number there is somebody else's, unless it is turned off.
    if (family.windows == Windows::None && !says(root, "use_sliding_window"))
      SLUICE_TRY(refuse_foreign(root, family, "sliding_window", nullptr));
  }
  int64_t window = 0, first = 28;  // max_window_layers in transformers' classes
  if (!none) {
    SLUICE_ASSIGN(window, read_window(root, family));
  }
  int64_t pattern = family.defaults.window_pattern;
  if (family.windows == Windows::Pattern)
    SLUICE_TRY(read(root, "sliding_window_pattern", pattern, int64_t{1}, kMostWindow));
  if ((family.windows == Windows::All || family.windows == Windows::Pattern) && window > 0)
    SLUICE_TRY(refuse_foreign(root, family, "use_sliding_window", true));
  if (says(root, "layer_types")) return read_layer_types(root["layer_types"], window, family, spec);
  SLUICE_TRY(read(root, "max_window_layers", first));
  for (size_t l = 0; l < spec.layers.size(); ++l) {
    Attention& a = *spec.layers[l].attention();
    const bool slides = family.windows == Windows::All ||
                        (family.windows == Windows::Upper && int64_t(l) >= first) ||
                        (family.windows == Windows::Unrotated && !a.rotated) ||
                        (family.windows == Windows::Pattern && int64_t(l + 1) % pattern != 0);
    a.window = slides ? window : 0;
  }
  return {};
}

// Which layers have a convolution: by their types, or all but those that are listed.
Status read_convolutions(const json& root, const Family& family, ModelSpec& spec) {
  for (const char* key : {"sliding_window", "no_rope_layers", "no_rope_layer_interval"})
    SLUICE_TRY(refuse_foreign(root, family, key, nullptr));
  SLUICE_TRY(refuse_foreign(root, family, "use_sliding_window", false));
  int64_t width = 3;
  SLUICE_TRY(read(root, "conv_L_cache", width, int64_t{1}, kMostWindow));
  const auto layers = int64_t(spec.layers.size());
  if (says(root, "layer_types")) {
    const json& types = root["layer_types"];
    if (!types.is_array() || int64_t(types.size()) != layers)
      return error("model config: layer_types is {}; a list of {} entries, one per layer, is needed",
                   types.is_array() ? fmt::format("a list of {}", types.size()) : describe(types), layers);
    for (int64_t l = 0; l < layers; ++l) {
      const json& type = types[size_t(l)];
      if (type != kFull && type != kConv)
        return error("model config: layer_types has {}; allowed are {} and {}", describe(type), kFull, kConv);
      if (type == kConv) spec.layers[size_t(l)].mixer = Convolution{width};
    }
  } else if (says(root, "full_attn_idxs")) {
    const json& attend = root["full_attn_idxs"];
    if (!attend.is_array())
      return error("model config: full_attn_idxs is {}; a list of layers is needed", describe(attend));
    for (int64_t l = 0; l < layers; ++l) {
      if (std::find(attend.begin(), attend.end(), json(l)) == attend.end())
        spec.layers[size_t(l)].mixer = Convolution{width};
    }
  }
  return validate(spec);
}

// Sizes of a gated delta rule, as all layers have them.
Result<GatedDelta> read_delta(const json& root) {
  GatedDelta d{.sizes = {.key_heads = 16, .value_heads = 32, .key_dim = 128, .value_dim = 128}, .width = 4};
  SLUICE_TRY(read(root, "linear_num_key_heads", d.sizes.key_heads));
  SLUICE_TRY(read(root, "linear_num_value_heads", d.sizes.value_heads));
  SLUICE_TRY(read(root, "linear_key_head_dim", d.sizes.key_dim));
  SLUICE_TRY(read(root, "linear_value_head_dim", d.sizes.value_dim));
  SLUICE_TRY(read(root, "linear_conv_kernel_dim", d.width));
  SLUICE_TRY(validate(d));
  return d;
}

// Which layers have one: by their types, or all but every so manieth.
Status read_deltas(const json& root, const Family& family, ModelSpec& spec) {
  for (const char* key : {"sliding_window", "no_rope_layers", "no_rope_layer_interval"})
    SLUICE_TRY(refuse_foreign(root, family, key, nullptr));
  SLUICE_TRY(refuse_foreign(root, family, "use_sliding_window", false));
  SLUICE_ASSIGN(const GatedDelta delta, read_delta(root));
  const auto layers = int64_t(spec.layers.size());
  int64_t interval = 4;
  SLUICE_TRY(read(root, "full_attention_interval", interval, int64_t{1}, kMostLayers));
  const json types = says(root, "layer_types") ? root["layer_types"] : json();
  if (!types.is_null() && (!types.is_array() || int64_t(types.size()) != layers))
    return error("model config: layer_types is {}; a list of {} entries, one per layer, is needed",
                 types.is_array() ? fmt::format("a list of {}", types.size()) : describe(types), layers);
  for (int64_t l = 0; l < layers; ++l) {
    const json type = types.is_null() ? json((l + 1) % interval == 0 ? kFull : kLinear) : types[size_t(l)];
    if (type != kFull && type != kLinear)
      return error("model config: layer_types has {}; allowed are {} and {}", describe(type), kFull, kLinear);
    if (type == kLinear) spec.layers[size_t(l)].mixer = delta;
  }
  return validate(spec);
}

void write_deltas(const ModelSpec& spec, json& root) {
  for (const LayerSpec& layer : spec.layers) {
    const GatedDelta* const d = layer.delta();
    root["layer_types"].push_back(d != nullptr ? kLinear : kFull);
    if (d == nullptr) continue;
    root.update({{"linear_num_key_heads", d->sizes.key_heads},
                 {"linear_num_value_heads", d->sizes.value_heads},
                 {"linear_key_head_dim", d->sizes.key_dim},
                 {"linear_value_head_dim", d->sizes.value_dim},
                 {"linear_conv_kernel_dim", d->width}});
  }
}

}  // namespace

Status read_layers(const json& root, const Family& family, ModelSpec& spec) {
  if (family.convolves) return read_convolutions(root, family, spec);
  if (family.deltas) return read_deltas(root, family, spec);
  SLUICE_TRY(read_windows(root, family, spec));
  if (!family.windows_alone_rotate) return {};
  if (root.contains("sliding_window") && root["sliding_window"].is_null())
    return error("model config: sliding_window is null; {} models need one", family.model_type);
  for (LayerSpec& layer : spec.layers) layer.attention()->rotated = layer.attention()->window > 0;
  return {};
}

void write_layers(const ModelSpec& spec, const Family& family, json& root) {
  if (family.deltas) return write_deltas(spec, root);
  if (family.convolves) {
    for (const LayerSpec& layer : spec.layers) {
      const Convolution* const convolution = layer.convolution();
      root["layer_types"].push_back(convolution != nullptr ? kConv : kFull);
      if (convolution != nullptr) root["conv_L_cache"] = convolution->width;
    }
    return;
  }
  if (family.unrotated_layers) {
    for (const LayerSpec& layer : spec.layers)
      root["no_rope_layers"].push_back(layer.attention()->rotated ? 1 : 0);
  }
  const auto windowed = std::find_if(spec.layers.begin(), spec.layers.end(),
                                     [](const LayerSpec& layer) { return layer.attention()->window > 0; });
  const int64_t window = windowed == spec.layers.end() ? 0 : windowed->attention()->window;
  if (family.windows == Windows::All) {
    root["sliding_window"] = window > 0 ? json(window) : json(nullptr);
  } else if (family.windows == Windows::Pattern) {
    root["sliding_window"] = window > 0 ? window : family.defaults.window;
    for (const LayerSpec& layer : spec.layers)
      root["layer_types"].push_back(layer.attention()->window > 0 ? kSliding : kFull);
  } else if (window > 0) {
    root["use_sliding_window"] = true;
    root["sliding_window"] = window;
    // Readers that do not know layer_types yet count the lower layers.
    root["max_window_layers"] = windowed - spec.layers.begin();
    for (const LayerSpec& layer : spec.layers)
      root["layer_types"].push_back(layer.attention()->window > 0 ? kSliding : kFull);
  }
}

}  // namespace sluice::core
