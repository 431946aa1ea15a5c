// SPDX-License-Identifier: Apache-2.0
// Parameters, inference, and arithmetic of a token.
#include <algorithm>
#include <cmath>

#include "estimate/sections.h"
#include "model/flops.h"

namespace sluice::core {

std::optional<Section> parameters_section(const Basis& b) {
  Section s{"parameters", "Parameters"};
  const auto add = [&](const char* key, const char* what, double value, const char* formula) {
    s.facts.push_back({key, what, value, Form::Count, formula});
  };
  if (b.spec != nullptr) {
    const Parts& p = b.parts;
    const bool alike = b.spec->attention().qkv_bias || p.biases > 0;
    add("embedding", "embedding", double(p.embedding), "V D");
    add("head", "head", double(p.head), b.spec->tied_embeddings ? "the embedding, tied" : "V D");
    add("attention", "attention", double(p.attention), "L (2 D Q + 2 D K)");
    add("ffn", b.spec->has_experts() ? "experts, and FFN" : "FFN", double(p.ffn),
        b.spec->has_experts()                ? "3 D F of every expert, and routers"
        : b.spec->layers.front().mlp().gated ? "3 L D F"
                                             : "2 L D F");
    add("norms", "norms", double(p.norms), "their weights");
    if (alike) add("biases", "biases", double(p.biases), "their weights");
    add("matrices", "all without norms, N", b.matrices, "what rules of thumb count");
    if (b.spec->has_experts())
      add("active", "of these, those that a token meets", b.active,
          "N of the rules of FLOPs: the experts that it chooses");
    add("without_ends", "the same without embedding and head", b.in_layers, "attention + FFN");
  } else if (b.in.subject.blocks) {
    add("matrices", "matrices of blocks", b.params, "L x matrices x D F");
  }
  add("all", "all, P", b.params, b.spec != nullptr ? "sum over the table of weights" : "as given");
  Table formats{"bytes", "Bytes of the weights", "format", {{"bytes", "bytes", Form::Bytes}}};
  for (const auto& [name, size] :
       {std::pair{"f32", 4.0}, {"bf16 or f16", 2.0}, {"8 bits", 1.0}, {"4 bits", 0.5}}) {
    formats.rows.push_back({name, {size * b.params}});
  }
  formats.rows.push_back({"bf16 beside f32", {6 * b.params}});
  formats.formulas = {"P x bytes of a number; scales of 8- and 4-bit formats, of 1 to 7 %, come on top."};
  s.tables.push_back(std::move(formats));
  return s;
}

namespace {

Table longest_contexts(const Basis& b, double kv_bytes) {
  const Device& d = *b.in.device;
  Table table{"longest_context",
              "Longest context, one sequence, weights and keys and values in the card's memory",
              "weights",
              {{"tokens", "tokens", Form::Count},
               {"rule_tokens", "by N", Form::Count},
               {"weights", "weights", Form::Bytes}}};
  const auto tokens = [&](double weights) {
    return std::max(0.0, std::floor((d.memory_bytes - weights) / kv_bytes));
  };
  for (const auto& [name, size] : {std::pair{"f32", 4.0}, {"bf16", 2.0}, {"8 bits", 1.0}, {"4 bits", 0.5}}) {
    const bool fits = size * b.params < d.memory_bytes;
    table.rows.push_back({name,
                          {tokens(size * b.params), tokens(size * b.matrices), size * b.params},
                          fits ? ""
                               : fmt::format("does not fit: {} missing",
                                             to_text(size * b.params - d.memory_bytes, Form::Bytes))});
  }
  table.formulas = {"(M - bytes x P) / bytes of keys and values of a token (bf16); by N: without norms."};
  return table;
}

// The tokens that the last one of a sequence attends to in a layer.
int64_t tokens_in_sight(const LayerSpec& layer, int64_t length) {
  const int64_t window = layer.attention() != nullptr ? layer.attention()->window : 0;
  return window > 0 ? std::min(window, length) : length;
}
bool has_windows(const ModelSpec& spec, int64_t length) {
  return std::any_of(spec.layers.begin(), spec.layers.end(),
                     [&](const LayerSpec& layer) { return tokens_in_sight(layer, length) < length; });
}

}  // namespace

std::optional<Section> inference_section(const Basis& b) {
  if (b.spec == nullptr) return std::nullopt;
  Section s{"inference", "Keys and values (KV cache), bf16"};
  const double bytes = 2 * b.kv_numbers();
  s.facts.push_back({"kv_numbers", "numbers of a token", b.kv_numbers(), Form::Count, "2 L K"});
  s.facts.push_back({"kv_per_token", "of a token", bytes, Form::Bytes, "2 L K x 2 bytes"});
  const int64_t length = b.in.batch.seq_len;
  double sequence = bytes * double(length);
  if (has_windows(*b.spec, length)) {
    sequence = 0;
    for (const LayerSpec& layer : b.spec->layers)
      if (const Attention* a = layer.attention(); a != nullptr && a->keys_of < 0)
        sequence += 2.0 * double(a->kv_dim()) * 2 * double(tokens_in_sight(layer, length));
  }
  s.facts.push_back({"kv_per_sequence", "of a sequence", sequence, Form::Bytes,
                     has_windows(*b.spec, length) ? "2 K x 2 bytes x min(S, W) of every layer, W its window"
                                                  : "2 L K x 2 bytes x S"});
  if (b.in.device) {
    const Device& d = *b.in.device;
    s.facts.push_back(
        {"memory_bound_context", "context from which decoding is bound by memory at any batch",
         2 * b.active / d.peak_flops * d.memory_rate / bytes, Form::Number,
         "tokens; reading K and V takes as long as a token's products: (2 N / C) W / bytes of a token"});
    s.tables.push_back(longest_contexts(b, bytes));
  }
  return s;
}

std::optional<Section> flops_section(const Basis& b) {
  Section s{"flops", "FLOPs of a token (multiply-add = 2)"};
  const double n = b.active;
  const auto add = [&](const char* key, const char* what, double value, const char* formula, double rule,
                       const char* rule_formula) {
    s.facts.push_back({key, what, value, Form::Flops, formula, Rule{rule, rule_formula}});
  };
  if (b.spec == nullptr) {
    for (const auto& [key, what, factor] : {std::tuple{"inference", "inference", 2.0},
                                            {"training", "training", 6.0},
                                            {"training_recomputed", "training with recomputation", 8.0}}) {
      s.facts.push_back({key, what, factor * n, Form::Flops, fmt::format("{} P", factor)});
    }
    return s;
  }
  const double forward = b.forward.flops / b.tokens(), training = b.training_flops();
  add("inference", "inference", forward, "sum over the tasks of a forward pass / T", 2 * n, "2 N");
  add("training", "training", training, "sum over the tasks of a step / T", 6 * n, "6 N");
  add("training_recomputed", "training, layers recomputed", training + b.again_flops(),
      "the same + tasks to run again where only each layer's input is kept", 8 * n, "8 N");
  s.facts.push_back(
      {"model", "training, as MFU counts", model_flops_per_token(*b.spec, b.in.batch.seq_len), Form::Flops,
       b.spec->has_experts()
           ? "sum over layers of 6 D (2 Q + 2 K + 3 F of each chosen expert + experts) + 6 S Q, + 6 D V"
       : b.spec->layers.front().mlp().gated ? "sum over layers of 6 D (2 Q + 2 K + 3 F) + 6 S Q, + 6 D V"
                                            : "sum over layers of 6 D (2 Q + 2 K + 2 F) + 6 S Q, + 6 D V"});
  s.facts.push_back({"attention", "of inference, scores and values", b.forward.attention_flops / b.tokens(),
                     Form::Flops, "sum over attention tasks / T: causal, 2 (S + 1) Q per layer"});
  const double rows = double(b.in.batch.rows), length = double(b.in.batch.seq_len), h = double(b.spec->dim);
  s.facts.push_back({"layer", "forward, one layer, whole batch", b.forward.layer_flops, Form::Flops,
                     "sum over a layer's tasks",
                     Rule{24 * rows * length * h * h + 4 * rows * length * length * h,
                          "24 B S D^2 + 4 B S^2 D: F = 4 D with two matrices, scores not causal"}});
  s.facts.push_back({"within_ops", "computed again within attention's backward",
                     b.training.again_flops / b.tokens(), Form::Flops,
                     "scores, a fifth product; counts for hardware, not for the model"});
  if (has_windows(*b.spec, b.in.batch.seq_len)) {
    s.notes.push_back(
        "Some layers have a window: of W tokens, where it is shorter than S, and W (2 - W / S) takes the "
        "place "
        "of S in what attention takes of a token there.");
  }
  if (b.spec->tied_embeddings) {
    s.notes.push_back("N counts the tied embedding once. The head multiplies by it, so the rules hold.");
  } else {
    s.notes.push_back(
        "The rules count the embedding, which is looked up and not multiplied, and leave attention's scores "
        "out.");
  }
  return s;
}

}  // namespace sluice::core
