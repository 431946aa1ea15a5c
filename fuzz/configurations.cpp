// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "config/config.h"
#include "config/files/load_config.h"
#include "fuzz.h"
#include "generate/defaults.h"
#include "generate/sampling.h"
#include "model/families/families.h"
#include "model/weights.h"
#include "text/toml.h"

namespace sluice::core::fuzz {

void model_config(Bytes input) {
  const auto spec = parse_model_config(text_in(input));
  if (!spec.ok()) return;
  require(spec->params() > 0, "a model without parameters");
  constexpr int64_t kLongSequence = 1 << 20;
  for (const LayerSpec& layer : spec->layers) {
    const Attention* const a = layer.attention();
    if (a == nullptr || !a->rotated) continue;
    const RopeScaling& rope = spec->rotates_as_window(*a) ? *spec->window_rope : spec->rope;
    for (const float f : rope_inv_freq(rope, a->head_dim, kLongSequence, spec->rotated.rows))
      require(std::isfinite(f), "a frequency is none");
  }
  const auto again = parse_model_config(to_json(*spec));
  require(again.ok() && to_text(*again) == to_text(*spec) && again->rope == spec->rope,
          "what is written is read as something else");
}

std::string seed_model_config() {
  return R"({"model_type":"llama","hidden_size":64,"num_hidden_layers":2,"num_attention_heads":4,
"num_key_value_heads":2,"head_dim":16,"intermediate_size":96,"vocab_size":128,"rms_norm_eps":1e-5,"rope_theta":10000,
"hidden_act":"silu","tie_word_embeddings":false,"attention_bias":false,"mlp_bias":true,"sliding_window":null,
"rope_scaling":{"rope_type":"llama3","factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,
"original_max_position_embeddings":8192}})";
}

// Whatever a folder says of drawing, a token is drawn that may be, or the error says why none is.
void generation_config(Bytes input) {
  const auto defaults = parse_generation_defaults("", text_in(input));
  if (!defaults.ok()) return;
  Sampler sampler(defaults->rule);
  const std::vector<int32_t> seen{0, 3};
  for (const float scale : {0.0f, 1.0f, -1e30f, 3e38f, INFINITY}) {
    std::vector<float> logits(16);
    for (size_t t = 0; t < logits.size(); ++t) logits[t] = scale * (float(t % 7) / 6 - 0.5f);
    const auto drawn = sampler.choose(logits, seen, {0, 0, 1});
    if (!drawn.ok()) continue;
    const int32_t token = drawn->token;
    require(token >= 0 && size_t(token) < logits.size() && std::isfinite(logits[size_t(token)]),
            "a token is drawn that is none");
    for (const int32_t never : defaults->rule.left_out)
      require(token != never, "a token comes that never does");
  }
}

std::string seed_generation_config() {
  return R"({"do_sample":true,"temperature":0.7,"top_k":20,"top_p":0.9,"min_p":0.05,"repetition_penalty":1.1,
"suppress_tokens":[1,2],"eos_token_id":[3,4],"max_new_tokens":64,"stop_strings":["end"]})";
}

void toml(Bytes input) {
  (void)parse_toml(text_in(input), "input");
  const MemoryFile file(input);
  const auto config = load_config(file.path().string(), {});
  if (!config.ok()) return;
  const std::string text = to_toml(*config);
  const MemoryFile written({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  const auto again = load_config(written.path().string(), {});
  require(again.ok() && to_toml(*again) == text, "what is written is read as something else");
}

std::string seed_toml() {
  return R"([model]
preset = "tiny"
[data]
paths = ["docs", 'README.md']
heldout = 0.1
[train]
tokens_per_step = "8k"
steps = 20
optimizer = "adamw"
beta1 = 0.9
[memory]
device = "64MiB" # a cap
host = "1GiB"
[run]
trace = false
)";
}

}  // namespace sluice::core::fuzz
