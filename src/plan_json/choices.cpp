// SPDX-License-Identifier: Apache-2.0
#include "plan_json/choices.h"

#include <nlohmann/json.hpp>

#include "config/config.h"
#include "cost/card.h"
#include "model/families/families.h"
#include "version/version.h"

namespace sluice::core {
namespace {

using nlohmann::json;

json json_of(const Card& card) {
  const bool bf16 = card.bf16.known();
  const ReachedRates& reached = bf16 ? card.bf16 : card.f32;
  const std::string format = bf16 ? "bf16" : "f32", of_steps = "reached_flops." + format;
  json rates = {{of_steps + ".products", reached.products},
                {of_steps + ".attention_forward", reached.attention_forward},
                {of_steps + ".attention_backward", reached.attention_backward},
                {"links.load_bytes_per_s", card.load_rate},
                {"links.store_bytes_per_s", card.store_rate}};
  if (const double peak = bf16 ? card.peak.bf16 : card.peak.f32; peak > 0)
    rates["peak_flops." + format] = peak;
  if (card.peer_rate > 0) rates["links.peer_bytes_per_s"] = card.peer_rate;
  const std::optional<OffBy> off = off_by(card);
  return {{"key", card.key},
          {"card", card.name},
          {"memory_bytes", card.memory_bytes},
          {"usable_bytes", card.usable_bytes()},
          {"compared", card.compared},
          {"off_by", off ? to_text(*off) : ""},
          {"reached", card.reached_source},
          {"link", card.link_source},
          {"rates", std::move(rates)}};
}

// A config.json of sizes alone, which are not made of each other; the rest is the family's.
std::string sizes_of(const ModelSpec& spec) {
  const LayerSpec& layer = spec.layers.front();
  nlohmann::ordered_json config = {
      {"model_type", spec.family}, {"hidden_size", spec.dim}, {"num_hidden_layers", spec.layers.size()}};
  const Attention& a = spec.attention();
  for (const auto& [key, size] : {std::pair{"num_attention_heads", a.heads},
                                  {"num_key_value_heads", a.kv_heads},
                                  {"head_dim", a.head_dim}}) {
    if (size > 0) config[key] = size;
  }
  // By which key a family has an expert's width, whether it has layers without experts, and whether a width
  // is made of what stands there, is its own.
  const json all = json::parse(to_json(spec));
  for (const char* key : {"intermediate_size", "block_auto_adjust_ff_dim", "num_dense_layers", "num_experts",
                          "num_local_experts", "num_experts_per_tok", "moe_intermediate_size",
                          "shared_expert_intermediate_size"}) {
    if (all.contains(key)) config[key] = all[key];
  }
  if (!spec.has_experts()) config["intermediate_size"] = layer.mlp().ffn;  // by other names, too
  config["vocab_size"] = spec.vocab;
  config["tie_word_embeddings"] = spec.tied_embeddings;
  return with_own_keys(config.dump());
}

}  // namespace

Result<std::string> machine_json(std::string_view text, const std::string& name) {
  SLUICE_ASSIGN(const Card card, parse_card(text, name));
  return json_of(card).dump();
}

std::string choices_json() {
  json out = {{"sluice", std::string(version()) + ", commit " + std::string(commit())},
              {"models", model_presets()}};
  for (const Card& card : cards()) {
    if (card.can_be_planned()) out["machines"].push_back(json_of(card));
  }
  for (const std::string& family : model_families()) {
    if (const auto model = parse_model_config(json{{"model_type", family}}.dump()); model.ok())
      out["families"][family] = sizes_of(*model);
  }
  for (const KeyHelp& key : config_keys())
    out["keys"].push_back({{"name", key.name},
                           {"value", key.value},
                           {"meaning", key.meaning},
                           {"allowed", key.allowed},
                           {"of_step", key.of == KeyOf::Step}});
  return out.dump();
}

}  // namespace sluice::core
