// The Llama family as data: the architecture read from a Hugging Face config.json, and where each weight of a
// checkpoint belongs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace sluice {

// Rotary embedding frequencies. With factor > 1 low frequencies are stretched as Llama 3.1 does.
struct RopeConfig {
  double theta = 10000;
  double factor = 1;
  double low_freq_factor = 1, high_freq_factor = 4;
  int64_t original_context = 8192;
};

struct LlamaConfig {
  int64_t dim = 0, layers = 0, heads = 0, kv_heads = 0, head_dim = 0, ffn = 0, vocab = 0;
  double norm_eps = 1e-5;
  bool tied_embeddings = false;
  RopeConfig rope;

  int64_t q_dim() const { return heads * head_dim; }
  int64_t kv_dim() const { return kv_heads * head_dim; }
  int64_t params() const;
};

// Shapes that fit together: positive sizes, heads divisible by kv_heads, an even head_dim. Errors name the
// key.
Status validate(const LlamaConfig& config);

// Reads the text of a config.json. Unknown keys are ignored, as checkpoints carry many; a key that would
// change the arithmetic in a way Sluice does not do (attention bias, other activations, other rope types) is
// an error.
Result<LlamaConfig> parse_llama_config(std::string_view json);
std::string to_json(const LlamaConfig& config);

// Llama-3 shapes by name: "tiny" (10 M, byte vocabulary), "1", "8", "15", "32" (billions of parameters).
Result<LlamaConfig> llama_preset(std::string_view name);

// inv_freq[i] for i < head_dim / 2, with the Llama-3.1 scaling applied.
std::vector<float> rope_inv_freq(const RopeConfig& rope, int64_t head_dim);

// One weight object of a program and the tensors of a Hugging Face checkpoint it is made of, stacked by rows.
struct WeightSource {
  std::string tensor;  // "model.layers.3.self_attn.k_proj.weight"
  int64_t rows, cols;  // cols is 1 for norm weights
};
struct Weight {
  std::string object;  // "wkv.L3"
  std::vector<WeightSource> sources;
  bool is_norm;  // no weight decay; initialised to one
};
// Every weight, in the order of the forward pass.
std::vector<Weight> llama_weights(const LlamaConfig& config);

}  // namespace sluice
