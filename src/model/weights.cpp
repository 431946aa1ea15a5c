// SPDX-License-Identifier: Apache-2.0
#include "model/weights.h"

#include <fmt/format.h>

#include <cmath>

namespace sluice::core {
namespace {

// Of matrices, as in the families' own code; those that write into the residual stream begin smaller by the
// root of how often it is written to, so that it does not grow with depth.
constexpr float kDeviation = 0.02f;

class Table {
 public:
  explicit Table(const ModelSpec& spec)
      : spec_(spec), into_residual_(kDeviation / std::sqrt(2.0f * float(spec.layers.size()))) {}

  std::vector<Weight> weights() {
    const int64_t d = spec_.dim, v = spec_.vocab;
    in(-1, spec_.trainable_ends);
    matrix("embedding", {{"model.embed_tokens.weight", v, d}});
    for (size_t l = 0; l < spec_.layers.size(); ++l) layer(int(l));
    in(-1, spec_.trainable_ends);
    norm("norm", "model.norm.weight", d);
    if (!spec_.tied_embeddings) matrix("head", {{"lm_head.weight", v, d}});
    return std::move(out_);
  }

 private:
  void layer(int index) {
    const LayerSpec& layer = spec_.layers[size_t(index)];
    const Attention& a = layer.attention;
    const int64_t d = spec_.dim, q = a.q_dim(), kv = a.kv_dim(), f = layer.mlp.ffn;
    const std::string base = fmt::format("model.layers.{}.", index);
    const auto at = [&](const char* name) { return base + name; };
    in(index, layer.trainable);
    norm("norm1", at("input_layernorm.weight"), d);
    matrix("wq", {{at("self_attn.q_proj.weight"), q, d}});
    if (a.qkv_bias) bias("bq", {{at("self_attn.q_proj.bias"), q, 1}});
    matrix("wkv", {{at("self_attn.k_proj.weight"), kv, d}, {at("self_attn.v_proj.weight"), kv, d}});
    if (a.qkv_bias) bias("bkv", {{at("self_attn.k_proj.bias"), kv, 1}, {at("self_attn.v_proj.bias"), kv, 1}});
    if (a.head_norm) {
      norm("q_norm", at("self_attn.q_norm.weight"), a.head_dim);
      norm("k_norm", at("self_attn.k_norm.weight"), a.head_dim);
    }
    matrix("wo", {{at("self_attn.o_proj.weight"), d, q}}, into_residual_);
    if (a.o_bias) bias("bo", {{at("self_attn.o_proj.bias"), d, 1}});
    norm("norm2", at("post_attention_layernorm.weight"), d);
    matrix("wgu", {{at("mlp.gate_proj.weight"), f, d}, {at("mlp.up_proj.weight"), f, d}});
    if (layer.mlp.bias) bias("bgu", {{at("mlp.gate_proj.bias"), f, 1}, {at("mlp.up_proj.bias"), f, 1}});
    matrix("wd", {{at("mlp.down_proj.weight"), d, f}}, into_residual_);
    if (layer.mlp.bias) bias("bd", {{at("mlp.down_proj.bias"), d, 1}});
  }

  // What follows belongs to a layer; -1: to none.
  void in(int layer, bool trainable) {
    layer_ = layer;
    trainable_ = trainable;
  }
  void put(const char* role, std::vector<WeightSource> sources, bool matrix, Init init, bool decay) {
    std::string object = layer_ < 0 ? role : fmt::format("{}.L{}", role, layer_);
    out_.push_back({std::move(object), role, layer_, std::move(sources), matrix, init, decay, trainable_});
    if (matrix && layer_ >= 0) out_.back().format = spec_.layers[size_t(layer_)].matrices;
  }
  void matrix(const char* role, std::vector<WeightSource> sources, float deviation = kDeviation) {
    put(role, std::move(sources), true, {Init::Normal, deviation}, true);
  }
  void norm(const char* role, std::string tensor, int64_t rows) {
    put(role, {{std::move(tensor), rows, 1}}, false, {Init::Ones}, false);
  }
  void bias(const char* role, std::vector<WeightSource> sources) {
    put(role, std::move(sources), false, {Init::Zeros}, false);
  }

  const ModelSpec& spec_;
  const float into_residual_;
  int layer_ = -1;
  bool trainable_ = true;
  std::vector<Weight> out_;
};

}  // namespace

int64_t Weight::elements() const {
  int64_t elements = 0;
  for (const WeightSource& s : sources) elements += s.rows * s.cols;
  return elements;
}

std::vector<Weight> weights_of(const ModelSpec& spec) {
  return Table(spec).weights();
}

}  // namespace sluice::core
