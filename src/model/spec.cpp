// SPDX-License-Identifier: Apache-2.0
#include "model/spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "model/kinds.h"
#include "model/weights.h"

namespace sluice::core {
namespace {

Status validate_layer(const LayerSpec& layer) {
  const auto valid = [](const auto& half) { return validate(half); };
  SLUICE_TRY(std::visit(valid, layer.mixer));
  if (!layer.norm2 && (!layer.parallel || layer.norms != Norms::Before))
    return error("model: a layer with one norm has it before both of its halves");
  SLUICE_TRY(std::visit(valid, layer.feed_forward));
  SLUICE_CHECK(layer.input >= 0, "an input of {}", layer.input);
  if (layer.experts() == nullptr) return {};
  if (layer.parallel) return error("model: experts beside attention");
  if (layer.experts()->beside > 0 && layer.norms != Norms::Around)
    return error("model: experts beside an MLP have norms before and behind them");
  return {};
}

std::string ffn_text(const LayerSpec& layer) {
  if (layer.experts() == nullptr) return fmt::format("ffn {}", layer.mlp().ffn);
  const Experts& e = *layer.experts();
  std::string out = fmt::format("{} of {} experts of ffn {}", e.top_k, e.count, e.each.ffn);
  if (e.score == RouterScore::Sigmoid) out += ", by sigmoids";
  if (e.shared > 0) out += fmt::format(", one of {} for all", e.shared);
  if (e.beside > 0) out += fmt::format(", beside ffn {}", e.beside);
  return out;
}

std::string to_text(const LayerSpec& layer) {
  std::string out = std::visit([](const auto& mixer) { return text_of(mixer); }, layer.mixer);
  out += ", " + ffn_text(layer);
  if (layer.attention() == nullptr) return out;
  const Attention& a = *layer.attention();
  const Mlp& mlp = layer.mlp();
  if (a.qk_norm != QkNorm::None) out += a.qk_norm == QkNorm::Heads ? ", head norms" : ", norms of q and k";
  if (a.qkv_bias) out += a.o_bias ? ", attention biases" : ", q, k and v biases";
  if (!a.qkv_bias && a.o_bias) out += ", o bias";
  if (mlp.bias) out += ", ffn biases";
  if (mlp.activation != GateActivation::Silu) {
    out += mlp.activation == GateActivation::Gelu        ? ", exact GELU"
           : mlp.activation == GateActivation::QuickGelu ? ", quick GELU"
                                                         : ", GELU";
    if (mlp.gated) out += " gates";
  }
  if (!mlp.gated) out += ", no gates";
  if (!a.rotated) out += ", not rotated";
  if (a.window > 0) out += fmt::format(", window {}", a.window);
  if (a.scale != 0) out += fmt::format(", scores times {}", a.scale);
  if (a.softcap != 0) out += fmt::format(", scores capped at {}", a.softcap);
  if (a.sinks) out += ", sinks";
  if (a.gated) out += ", gated";
  if (a.values != BehindHeads::Copied)
    out += a.values == BehindHeads::Normed ? ", values normalised" : ", values of keys";
  if (a.keys_of >= 0) out += fmt::format(", keys of layer {}", a.keys_of);
  if (mlp.limit != 0) out += fmt::format(", gates limited at {}", mlp.limit);
  if (layer.norms != Norms::Before) out += layer.norms == Norms::After ? ", norms after" : ", norms around";
  if (layer.input > 0) out += fmt::format(", rows of {} for tokens", layer.input);
  if (layer.parallel)
    out += layer.norm2 ? ", halves beside each other" : ", halves beside each other with one norm";
  return out;
}

// An earlier layer has keys and values of its own, in the same heads, for those that read them, too.
Status check_keys(const ModelSpec& spec, size_t layer) {
  const Attention* const a = spec.layers[layer].attention();
  if (a == nullptr || a->keys_of < 0) return {};
  const Attention* const of = a->keys_of < int(layer) ? spec.layers[size_t(a->keys_of)].attention() : nullptr;
  if (of == nullptr || of->keys_of >= 0 || of->head_dim != a->head_dim || of->kv_heads != a->kv_heads ||
      of->scale != a->scale || of->window != a->window)
    return error("model: layer {} takes keys of layer {}, which has none of its own that fit", layer,
                 a->keys_of);
  return {};
}

bool rotates_any(const ModelSpec& spec) {
  return std::ranges::any_of(spec.layers, [](const LayerSpec& layer) {
    return layer.attention() != nullptr && layer.attention()->rotated;
  });
}

}  // namespace

Status check_positive(const char* key, int64_t value, int64_t most) {
  if (value <= 0) return error("model: {} is {}; it must be positive", key, value);
  if (value > most) return error("model: {} is {}; at most {} is allowed", key, value, most);
  return {};
}

int64_t ModelSpec::params() const {
  int64_t params = 0;
  for (const Weight& weight : weights_of(*this)) params += weight.elements();
  return params;
}

bool ModelSpec::has_experts() const {
  return std::ranges::any_of(layers, [](const LayerSpec& layer) { return layer.experts() != nullptr; });
}

const Attention& ModelSpec::attention() const {
  static const Attention none;
  for (const LayerSpec& layer : layers) {
    if (const Attention* a = layer.attention()) return *a;
  }
  return none;
}

int64_t ModelSpec::active_params() const {
  double params = 0;
  for (const Weight& weight : weights_of(*this)) params += active_elements(*this, weight);
  return std::llround(params);
}

ModelSpec model_of(const EqualLayers& s) {
  ModelSpec spec;
  spec.dim = s.dim;
  spec.vocab = s.vocab;
  spec.layers.assign(size_t(s.layers), {Attention{s.heads, s.kv_heads, s.head_dim}, Mlp{s.ffn}});
  return spec;
}

Status validate(const ModelSpec& spec) {
  const std::tuple<const char*, int64_t, int64_t> sizes[] = {
      {"hidden_size", spec.dim, kMostWidth},
      {"num_hidden_layers", int64_t(spec.layers.size()), kMostLayers},
      {"vocab_size", spec.vocab, kMostVocab}};
  for (const auto& [key, value, most] : sizes) SLUICE_TRY(check_positive(key, value, most));
  const Experts* experts = nullptr;  // of all layers that have some
  int64_t rotates[2] = {0, 0};       // the heads that frequencies are for: of all layers, and of windows' own
  for (size_t l = 0; l < spec.layers.size(); ++l) {
    const LayerSpec& layer = spec.layers[l];
    SLUICE_TRY(validate_layer(layer));
    SLUICE_TRY(check_keys(spec, l));
    if (experts != nullptr && layer.experts() != nullptr) {
      Experts alike = *layer.experts();
      alike.beside = experts->beside;
      if (alike != *experts) return error("model: layers with experts that differ");
    }
    if (layer.experts() != nullptr) experts = layer.experts();
    const Attention* const a = layer.attention();
    if (a == nullptr || !a->rotated) continue;
    int64_t& head_dim = rotates[spec.rotates_as_window(*a) ? 1 : 0];
    if (head_dim != 0 && head_dim != a->head_dim) {
      return error(
          "model: head_dim is {} in one layer and {} in another; layers that are rotated alike need the same",
          head_dim, a->head_dim);
    }
    head_dim = a->head_dim;
    const int64_t rows = spec.rotated_rows(*a);
    if (rows % 2 != 0 || rows < 2 || rows > a->head_dim)
      return error("model: {} rows of a head of {} are rotated; an even number is needed, up to all",
                   spec.rotated.rows, a->head_dim);
  }
  SLUICE_TRY(check_stored(spec));
  SLUICE_TRY(validate_adapters(spec));
  if (spec.positions < 0 || spec.positions > kMostVocab)
    return error("model: {} positions; at most {} are allowed", spec.positions, kMostVocab);
  if (spec.positions > 0 && rotates_any(spec))
    return error("model: {} positions are learnt; then no layer is rotated", spec.positions);
  for (const bool of_windows : {false, true}) {
    const int64_t head_dim = rotates[of_windows ? 1 : 0], rows = spec.rotated_rows({.head_dim = head_dim});
    if (head_dim == 0) continue;
    const RopeScaling* const rope = of_windows ? &*spec.window_rope : &spec.rope;
    if (rope->kind == RopeScaling::Dynamic && rows < 4)
      return error("model: {} rows of a head are rotated; rotary embedding of type dynamic needs at least 4",
                   rows);
    const bool of_norms = std::ranges::any_of(spec.layers, [](const LayerSpec& layer) {
      return layer.attention() != nullptr && layer.attention()->qk_norm != QkNorm::None;
    });
    if (of_norms && rope->attention_factor != 1 && rows < head_dim)
      return error(
          "model: rotary embedding multiplies by {} and partial_rotary_factor leaves rows of a head out; "
          "where "
          "heads are normalised they cannot be both",
          rope->attention_factor);
    if (of_norms && rope->temperature != 0)
      return error("model: heads are normalised, and queries have a temperature; they cannot be both");
    if (rope->kind != RopeScaling::Long) continue;
    for (const auto& [key, factors] :
         {std::pair{"short_factor", &rope->short_factors}, {"long_factor", &rope->long_factors}}) {
      if (int64_t(factors->size()) != rows / 2)
        return error("model: {} has {} numbers; half of what is rotated of head_dim, {}, are needed", key,
                     factors->size(), rows / 2);
    }
  }
  // In f32 less is nothing; more drowns what is normalised.
  constexpr double kLeastEps = 1e-20, kMostEps = 1;
  if (!(spec.norm_eps >= kLeastEps && spec.norm_eps <= kMostEps))
    return error("model: {} is {}; allowed are {} to {}",
                 spec.norm.centred ? "the norm's epsilon" : "rms_norm_eps", spec.norm_eps, kLeastEps,
                 kMostEps);
  const std::pair<const char*, double> scales[] = {
      {"embeddings", spec.embedding_scale}, {"residuals", spec.residual_scale}, {"logits", spec.logit_scale}};
  constexpr double kLeastScale = 1e-6, kMostScale = 1e6;
  std::vector<double> caps{spec.logit_softcap};
  for (const LayerSpec& layer : spec.layers) {
    if (const Attention* a = layer.attention()) caps.push_back(a->softcap);
  }
  for (const double cap : caps) {
    // With a smaller one nothing is told apart, with a larger one nothing is capped.
    constexpr double kLeastCap = 1e-2, kMostCap = 1e6;
    if (cap != 0 && !(cap >= kLeastCap && cap <= kMostCap))
      return error("model: a soft cap is {}; allowed are {} to {}", cap, kLeastCap, kMostCap);
  }
  for (const auto& [what, scale] : scales) {
    if (!(scale >= kLeastScale && scale <= kMostScale))
      return error("model: {} are multiplied by {}; allowed are {} to {}", what, scale, kLeastScale,
                   kMostScale);
  }
  return {};
}

int64_t positions_of(const ModelSpec& spec) {
  if (spec.positions > 0) return spec.positions;
  if (!spec.rope.follows_length()) return spec.context;
  return spec.context == 0 ? spec.rope.original_context : std::min(spec.context, spec.rope.original_context);
}

int64_t reach_of(const ModelSpec& spec) {
  if (spec.positions > 0) return spec.positions;
  if (spec.context == 0 || spec.rope.kind == RopeScaling::Dynamic) return 0;
  if (!rotates_any(spec)) return 0;
  // Files keep the context from before a linear scaling.
  const int64_t from = spec.rope.kind == RopeScaling::Linear ? spec.context : spec.rope.original_context;
  using enum RopeScaling::Kind;
  const auto kind = spec.rope.kind;
  const bool stretched = kind != Default && kind != Long && kind != Proportional;
  return stretched ? std::max(spec.context, int64_t(spec.rope.factor * double(from))) : spec.context;
}

std::vector<std::string> notices_of_length(const ModelSpec& spec, const TextRows& rows,
                                           std::string_view key) {
  std::vector<std::string> out;
  const int64_t reach = reach_of(spec), turns = spec.rope.original_context;
  const int64_t text = rows.packed && rows.longest > 0 ? std::min(rows.tokens, rows.longest) : rows.tokens;
  if (reach > 0 && text > reach) {
    out.push_back(fmt::format(
        "{} = {}: config.json says that the model is for texts of {} tokens (max_position_embeddings = {}); "
        "positions beyond them are new to it. Checkpoints keep that number, and sluice generate goes by it: "
        "for longer texts write max_position_embeddings = {} in config.json, or a rope_scaling that reaches "
        "so far",
        key, text, reach, spec.context, text));
  }
  if (rows.packed && spec.rope.follows_length() && rows.tokens > turns) {
    out.push_back(
        fmt::format("{} = {}: the model's rotary embedding is another one beyond {} tokens, and goes by the "
                    "row here. Documents of up to {} get that of the row, where transformers and sluice "
                    "generate take that of short texts; rows of {} give it to them",
                    key, rows.tokens, turns, turns, turns));
  }
  return out;
}

Status check_length(const ModelSpec& spec, int64_t tokens, std::string_view key) {
  if (spec.positions == 0 || tokens <= spec.positions) return {};
  return error("{} = {}: the model has learnt {} positions; at most as many are allowed", key, tokens,
               spec.positions);
}

int64_t least_piece(const ModelSpec& spec) {
  int64_t out = 1;
  for (const LayerSpec& layer : spec.layers)
    out = std::max(out, std::visit([](const auto& mixer) { return looks_back(mixer); }, layer.mixer));
  return out;
}

// Rows of experts' products, one for each choice of a token, have numbers in i32 (RoutingLayout).
constexpr int64_t kMostExpertRows = std::numeric_limits<int32_t>::max();

Status check_pieces(const ModelSpec& spec, int64_t seq_len, int64_t chunk_tokens) {
  for (const LayerSpec& layer : spec.layers) {
    if (layer.experts() == nullptr) continue;
    const int64_t choices = layer.experts()->top_k;
    if (chunk_tokens <= kMostExpertRows / choices) continue;
    return error(
        "shape.chunk_tokens = {}: {} experts of each token make more rows than are counted in 32 bits; at "
        "most "
        "{} is allowed",
        chunk_tokens, choices, kMostExpertRows / choices);
  }
  const int64_t least = least_piece(spec);
  if (chunk_tokens >= seq_len || chunk_tokens >= least) return {};
  return error("shape.chunk_tokens = {}: pieces of sequences need at least {} in a model with convolutions",
               chunk_tokens, least);
}

namespace {

// The text of each kind of layer, in the order of their first ones, and the numbers of such layers.
std::vector<std::pair<std::string, std::string>> kinds_of(const std::vector<LayerSpec>& layers) {
  std::vector<std::pair<std::string, std::string>> out;
  for (size_t begin = 0, end = 0; begin < layers.size(); begin = end) {
    const std::string text = to_text(layers[begin]);
    for (end = begin + 1; end < layers.size() && to_text(layers[end]) == text;) ++end;
    const std::string places =
        end - begin == 1 ? fmt::format("{}", begin) : fmt::format("{} to {}", begin, end - 1);
    const auto kind = std::find_if(out.begin(), out.end(), [&](const auto& k) { return k.first == text; });
    if (kind == out.end())
      out.emplace_back(text, places);
    else
      kind->second += ", " + places;
  }
  return out;
}

}  // namespace

ModelSpec::ModelSpec() = default;
ModelSpec::ModelSpec(const ModelSpec&) = default;
ModelSpec::ModelSpec(ModelSpec&&) noexcept = default;
ModelSpec& ModelSpec::operator=(const ModelSpec&) = default;
ModelSpec& ModelSpec::operator=(ModelSpec&&) noexcept = default;
ModelSpec::~ModelSpec() = default;

std::string to_text(const ModelSpec& spec) {
  std::string out = fmt::format("{} x {}", spec.layers.size(), spec.dim);
  for (const auto& [layer, places] : kinds_of(spec.layers)) {
    const bool all = places == fmt::format("0 to {}", spec.layers.size() - 1) || spec.layers.size() == 1;
    out += all ? ", " + layer : fmt::format(", layers {}: {}", places, layer);
  }
  if (spec.norm.centred)
    out += spec.norm.bias     ? ", LayerNorm"
           : spec.norm.weight ? ", LayerNorm without biases"
                              : ", LayerNorm without weights";
  if (spec.norm_offset != 0) out += fmt::format(", norms with {} + w", spec.norm_offset);
  if (spec.positions > 0) out += fmt::format(", {} learnt positions", spec.positions);
  if (spec.window_rope) out += ", windows rotated by themselves";
  if (spec.rotated.rows > 0) out += fmt::format(", {} rows of a head rotated", spec.rotated.rows);
  if (spec.rotated.neighbours) out += ", neighbours rotated";
  const std::pair<const char*, double> scales[] = {
      {"embedding", spec.embedding_scale}, {"residuals", spec.residual_scale}, {"logits", spec.logit_scale}};
  for (const auto& [what, scale] : scales) {
    if (scale != 1) out += fmt::format(", {} times {}", what, scale);
  }
  if (spec.logit_softcap != 0) out += fmt::format(", logits capped at {}", spec.logit_softcap);
  for (const StoredIn& stored : spec.stored) {
    if (stored.format) out += fmt::format(", {} in {}", stored.pattern, to_text(*stored.format));
  }
  out += fmt::format(", vocabulary {}", spec.vocab);
  return spec.adapters.any() ? out + ", " + to_text(spec.adapters) : out;
}

}  // namespace sluice::core
