#include "model/llama.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>

namespace sluice {
namespace {

using nlohmann::json;

// Reads `key` into `out` when it is there and not null; an error when its type does not fit.
template <class T>
Status read(const json& object, const char* key, T& out) {
  const auto it = object.find(key);
  if (it == object.end() || it->is_null()) return {};
  const bool fits = std::is_same_v<T, bool>      ? it->is_boolean()
                    : std::is_same_v<T, int64_t> ? it->is_number_integer()
                    : std::is_same_v<T, double>  ? it->is_number()
                                                 : it->is_string();
  if (!fits) return error("model config: {} is {}, which is not of the expected type", key, it->dump());
  out = it->get<T>();
  return {};
}

Status read_rope(const json& root, RopeConfig& rope) {
  SLUICE_TRY(read(root, "rope_theta", rope.theta));
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const auto it = root.find(key);
    if (it == root.end() || !it->is_object()) continue;
    std::string type = "default";
    SLUICE_TRY(read(*it, "type", type));
    SLUICE_TRY(read(*it, "rope_type", type));
    SLUICE_TRY(read(*it, "rope_theta", rope.theta));
    if (type == "default") continue;
    if (type != "llama3")
      return error("model config: {}.rope_type is '{}'; allowed are default, llama3", key, type);
    SLUICE_TRY(read(*it, "factor", rope.factor));
    SLUICE_TRY(read(*it, "low_freq_factor", rope.low_freq_factor));
    SLUICE_TRY(read(*it, "high_freq_factor", rope.high_freq_factor));
    SLUICE_TRY(read(*it, "original_max_position_embeddings", rope.original_context));
  }
  if (!(rope.theta > 0)) return error("model config: rope_theta is {}; it must be positive", rope.theta);
  return {};
}

Status refuse(const json& root, const char* key) {
  bool set = false;
  SLUICE_TRY(read(root, key, set));
  if (set) return error("model config: {} is true; Sluice supports false only", key);
  return {};
}

}  // namespace

int64_t LlamaConfig::params() const {
  const int64_t layer = dim * (2 * q_dim() + 2 * kv_dim()) + 3 * dim * ffn + 2 * dim;
  return layers * layer + dim + vocab * dim * (tied_embeddings ? 1 : 2);
}

Status validate(const LlamaConfig& c) {
  const std::pair<const char*, int64_t> positive[] = {
      {"hidden_size", c.dim},           {"num_hidden_layers", c.layers},
      {"num_attention_heads", c.heads}, {"num_key_value_heads", c.kv_heads},
      {"head_dim", c.head_dim},         {"intermediate_size", c.ffn},
      {"vocab_size", c.vocab}};
  for (const auto& [key, value] : positive) {
    if (value <= 0) return error("model: {} is {}; it must be positive", key, value);
    if (value > (int64_t{1} << 31)) return error("model: {} is {}; it must be below 2^31", key, value);
  }
  if (c.heads % c.kv_heads != 0) {
    return error("model: num_attention_heads {} is not a multiple of num_key_value_heads {}", c.heads,
                 c.kv_heads);
  }
  if (c.head_dim % 2 != 0) {
    return error("model: head_dim is {}; rotary embedding needs an even number", c.head_dim);
  }
  if (!(c.norm_eps > 0)) return error("model: rms_norm_eps is {}; it must be positive", c.norm_eps);
  return {};
}

Result<LlamaConfig> parse_llama_config(std::string_view text) {
  const json root = json::parse(text, nullptr, false);
  if (!root.is_object()) return error("model config: not a JSON object");
  LlamaConfig c;
  SLUICE_TRY(read(root, "hidden_size", c.dim));
  SLUICE_TRY(read(root, "num_hidden_layers", c.layers));
  SLUICE_TRY(read(root, "num_attention_heads", c.heads));
  c.kv_heads = c.heads;
  SLUICE_TRY(read(root, "num_key_value_heads", c.kv_heads));
  SLUICE_TRY(read(root, "intermediate_size", c.ffn));
  SLUICE_TRY(read(root, "vocab_size", c.vocab));
  SLUICE_TRY(read(root, "rms_norm_eps", c.norm_eps));
  SLUICE_TRY(read(root, "tie_word_embeddings", c.tied_embeddings));
  SLUICE_TRY(read(root, "head_dim", c.head_dim));
  if (c.head_dim == 0 && c.heads > 0) {
    if (c.dim % c.heads != 0) {
      return error("model: hidden_size {} is not a multiple of num_attention_heads {}; give head_dim", c.dim,
                   c.heads);
    }
    c.head_dim = c.dim / c.heads;
  }
  SLUICE_TRY(read_rope(root, c.rope));
  SLUICE_TRY(refuse(root, "attention_bias"));
  SLUICE_TRY(refuse(root, "mlp_bias"));
  std::string act = "silu";
  SLUICE_TRY(read(root, "hidden_act", act));
  if (act != "silu") return error("model config: hidden_act is '{}'; allowed is silu", act);
  std::string type = "llama";
  SLUICE_TRY(read(root, "model_type", type));
  if (type != "llama") return error("model config: model_type is '{}'; allowed is llama", type);
  SLUICE_TRY(validate(c));
  return c;
}

std::string to_json(const LlamaConfig& c) {
  json root = {{"architectures", {"LlamaForCausalLM"}},
               {"model_type", "llama"},
               {"hidden_act", "silu"},
               {"hidden_size", c.dim},
               {"num_hidden_layers", c.layers},
               {"num_attention_heads", c.heads},
               {"num_key_value_heads", c.kv_heads},
               {"head_dim", c.head_dim},
               {"intermediate_size", c.ffn},
               {"vocab_size", c.vocab},
               {"rms_norm_eps", c.norm_eps},
               {"rope_theta", c.rope.theta},
               {"tie_word_embeddings", c.tied_embeddings}};
  if (c.rope.factor != 1) {
    root["rope_scaling"] = {{"rope_type", "llama3"},
                            {"factor", c.rope.factor},
                            {"low_freq_factor", c.rope.low_freq_factor},
                            {"high_freq_factor", c.rope.high_freq_factor},
                            {"original_max_position_embeddings", c.rope.original_context}};
  }
  return root.dump(2);
}

Result<LlamaConfig> llama_preset(std::string_view name) {
  // 1B and 8B are Llama-3.2-1B and Llama-3-8B; 15B and 32B keep the family's proportions at the widths that
  // the published measurements of other systems use.
  const auto make = [](int64_t dim, int64_t layers, int64_t heads, int64_t kv, int64_t hd, int64_t ffn,
                       bool tied) {
    LlamaConfig c{dim, layers, heads, kv, hd, ffn, 128256, 1e-5, tied, {}};
    c.rope.theta = 500000;
    return c;
  };
  if (name == "tiny") return LlamaConfig{320, 8, 5, 5, 64, 864, 256, 1e-5, false, {}};
  if (name == "1") return make(2048, 16, 32, 8, 64, 8192, true);
  if (name == "8") return make(4096, 32, 32, 8, 128, 14336, false);
  if (name == "15") return make(5120, 40, 40, 8, 128, 17408, false);
  if (name == "32") return make(5120, 64, 64, 8, 128, 25600, false);
  return error("model '{}': allowed are tiny, 1, 8, 15, 32", name);
}

std::vector<float> rope_inv_freq(const RopeConfig& rope, int64_t head_dim) {
  std::vector<float> out(static_cast<size_t>(head_dim / 2));
  for (size_t i = 0; i < out.size(); ++i) {
    double f = std::pow(rope.theta, -2.0 * double(i) / double(head_dim));
    if (rope.factor != 1) {
      // Llama 3.1: wavelengths beyond the original context are stretched by `factor`, short ones are left,
      // and those between are blended.
      const double wavelength = 2 * std::numbers::pi / f;
      const double ratio = double(rope.original_context) / wavelength;
      const double blend = (ratio - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
      if (ratio < rope.low_freq_factor) {
        f /= rope.factor;
      } else if (ratio <= rope.high_freq_factor) {
        f = (1 - blend) * f / rope.factor + blend * f;
      }
    }
    out[i] = static_cast<float>(f);
  }
  return out;
}

std::vector<Weight> llama_weights(const LlamaConfig& c) {
  std::vector<Weight> out;
  out.push_back({"embedding", {{"model.embed_tokens.weight", c.vocab, c.dim}}, false});
  for (int64_t l = 0; l < c.layers; ++l) {
    const std::string p = fmt::format("model.layers.{}.", l);
    const auto name = [&](const char* role) { return fmt::format("{}.L{}", role, l); };
    out.push_back({name("norm1"), {{p + "input_layernorm.weight", c.dim, 1}}, true});
    out.push_back({name("wq"), {{p + "self_attn.q_proj.weight", c.q_dim(), c.dim}}, false});
    out.push_back({name("wkv"),
                   {{p + "self_attn.k_proj.weight", c.kv_dim(), c.dim},
                    {p + "self_attn.v_proj.weight", c.kv_dim(), c.dim}},
                   false});
    out.push_back({name("wo"), {{p + "self_attn.o_proj.weight", c.dim, c.q_dim()}}, false});
    out.push_back({name("norm2"), {{p + "post_attention_layernorm.weight", c.dim, 1}}, true});
    out.push_back({name("wgu"),
                   {{p + "mlp.gate_proj.weight", c.ffn, c.dim}, {p + "mlp.up_proj.weight", c.ffn, c.dim}},
                   false});
    out.push_back({name("wd"), {{p + "mlp.down_proj.weight", c.dim, c.ffn}}, false});
  }
  out.push_back({"norm", {{"model.norm.weight", c.dim, 1}}, true});
  if (!c.tied_embeddings) out.push_back({"head", {{"lm_head.weight", c.vocab, c.dim}}, false});
  return out;
}

}  // namespace sluice
