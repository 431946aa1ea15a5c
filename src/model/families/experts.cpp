// SPDX-License-Identifier: Apache-2.0
// Keys of families whose layers have experts.
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "model/families/keys.h"
#include "model/families/own_keys.h"
#include "ops/experts.h"

namespace sluice::core {
namespace {

using nlohmann::json;

// Transformers' defaults of a family.
struct ExpertDefaults {
  int64_t count, top_k;
  // The key of each one's width; null: intermediate_size.
  const char* ffn_key;
  int64_t ffn;
  double balance;  // 0: its class has no loss of routers, whatever a file says
};
constexpr double kMostCoefficient = 1e6;

// Sizes and losses that families share, of every layer.
Status read_experts(const json& root, const ExpertDefaults& defaults, Experts experts, ModelSpec& spec) {
  experts.count = defaults.count;
  experts.top_k = defaults.top_k;
  // Classes of transformers have one name or the other, and most read both.
  const char* found = nullptr;
  for (const char* key : {"num_experts", "num_local_experts"}) {
    if (!says(root, key)) continue;
    const int64_t before = experts.count;
    SLUICE_TRY(read(root, key, experts.count, int64_t{1}, kMostExperts));
    if (found != nullptr && experts.count != before)
      return error("model config: {} is {} and {}, which is the same, {}", found, before, key, experts.count);
    found = key;
  }
  SLUICE_TRY(
      read(root, "num_experts_per_tok", experts.top_k, int64_t{1}, std::min(experts.count, kMostChosen)));
  int64_t ffn = defaults.ffn;
  if (defaults.ffn_key != nullptr) SLUICE_TRY(read(root, defaults.ffn_key, ffn, int64_t{1}, kMostWidth));
  for (LayerSpec& layer : spec.layers) {
    experts.each = layer.mlp();
    Mlp& each = experts.each;
    if (defaults.ffn_key != nullptr) each.ffn = ffn;
    if (each.ffn >= 1 && each.ffn <= kMostWidth && spec.dim >= 1 && spec.dim <= kMostWidth)
      experts.group = group_of(experts.count, each.up_dim() * spec.dim);
    layer.feed_forward = experts;
  }
  // transformers adds the loss in training where its model hands on what routers say.
  bool adds = false;
  double balance = defaults.balance;
  if (balance == 0) return {};
  SLUICE_TRY(read(root, "output_router_logits", adds));
  SLUICE_TRY(read(root, "router_aux_loss_coef", balance, 0.0, kMostCoefficient));
  spec.router_balance = adds ? balance : 0;
  return {};
}

const LayerSpec& with_experts(const ModelSpec& spec) {
  return *std::ranges::find_if(spec.layers,
                               [](const LayerSpec& layer) { return layer.experts() != nullptr; });
}

void write_experts(const ModelSpec& spec, const char* count_key, json& root) {
  const Experts& e = *with_experts(spec).experts();
  root[count_key] = e.count;
  root["num_experts_per_tok"] = e.top_k;
  if (spec.router_balance == 0) return;
  root["output_router_logits"] = true;
  root["router_aux_loss_coef"] = spec.router_balance;
}

// Layers that have an MLP of intermediate_size instead.
void make_dense(int64_t ffn, LayerSpec& layer) {
  Mlp mlp = layer.mlp();
  mlp.ffn = ffn;
  layer.feed_forward = mlp;
}

// Whether the softmax over all experts is made that over the chosen ones.
Status read_normalised(const json& root, Experts& experts) {
  bool normalised = experts.score == RouterScore::Chosen;
  SLUICE_TRY(read(root, "norm_topk_prob", normalised));
  experts.score = normalised ? RouterScore::Chosen : RouterScore::Softmax;
  return {};
}

constexpr const char* kMixtralReads[] = {"num_experts", "num_local_experts", "num_experts_per_tok",
                                         "output_router_logits", "router_aux_loss_coef"};
constexpr Neutral kMixtralNeutral[] = {{"router_jitter_noise", 0}};
Status read_mixtral(const json& root, ModelSpec& spec) {
  return read_experts(root, {8, 2, nullptr, 0, 0.001}, {.score = RouterScore::Chosen}, spec);
}
void write_mixtral(const ModelSpec& spec, json& root) {
  write_experts(spec, "num_local_experts", root);
}

constexpr const char* kOlmoeReads[] = {"num_experts",          "num_local_experts",    "num_experts_per_tok",
                                       "output_router_logits", "router_aux_loss_coef", "norm_topk_prob"};
Status read_olmoe(const json& root, ModelSpec& spec) {
  Experts experts;
  SLUICE_TRY(read_normalised(root, experts));
  return read_experts(root, {64, 8, nullptr, 0, 0.01}, experts, spec);
}
void write_olmoe(const ModelSpec& spec, json& root) {
  write_experts(spec, "num_experts", root);
  root["norm_topk_prob"] = with_experts(spec).experts()->score == RouterScore::Chosen;
}

constexpr const char* kQwen2MoeReads[] = {"num_experts",
                                          "num_local_experts",
                                          "num_experts_per_tok",
                                          "moe_intermediate_size",
                                          "shared_expert_intermediate_size",
                                          "decoder_sparse_step",
                                          "mlp_only_layers",
                                          "norm_topk_prob",
                                          "output_router_logits",
                                          "router_aux_loss_coef"};
constexpr const char* kQwen3MoeReads[] = {
    "num_experts",           "num_local_experts",    "num_experts_per_tok",
    "moe_intermediate_size", "decoder_sparse_step",  "mlp_only_layers",
    "norm_topk_prob",        "output_router_logits", "router_aux_loss_coef"};
// Layers are without experts where a list says so, and all but every so manieth.
Status read_dense_layers(const json& root, int64_t ffn, ModelSpec& spec) {
  SLUICE_TRY(read(root, "intermediate_size", ffn));
  int64_t step = 1;
  SLUICE_TRY(read(root, "decoder_sparse_step", step, int64_t{1}, kMostLayers));
  for (size_t l = 0; l < spec.layers.size(); ++l) {
    if (int64_t(l + 1) % step != 0) make_dense(ffn, spec.layers[l]);
  }
  const json list = says(root, "mlp_only_layers") ? root["mlp_only_layers"] : json::array();
  const auto layers = int64_t(spec.layers.size());
  const bool fits =
      list.is_array() && std::ranges::all_of(list, [](const json& l) { return l.is_number_integer(); });
  if (!fits) return error("model config: mlp_only_layers is {}; a list of layers is needed", describe(list));
  for (const json& entry : list) {
    const auto layer = entry.get<int64_t>();
    if (layer >= 0 && layer < layers) make_dense(ffn, spec.layers[size_t(layer)]);
  }
  if (spec.has_experts()) return {};
  return error("model config: no layer of this {} model has experts", spec.family);
}
Status read_qwen_moe(const json& root, const ExpertDefaults& defaults, int64_t dense_ffn, Experts experts,
                     ModelSpec& spec) {
  SLUICE_TRY(read_normalised(root, experts));
  SLUICE_TRY(read_experts(root, defaults, experts, spec));
  return read_dense_layers(root, dense_ffn, spec);
}
void write_qwen_moe(const ModelSpec& spec, json& root) {
  write_experts(spec, "num_experts", root);
  const LayerSpec& mixed = with_experts(spec);
  root["moe_intermediate_size"] = mixed.mlp().ffn;
  root["norm_topk_prob"] = mixed.experts()->score == RouterScore::Chosen;
  root["decoder_sparse_step"] = 1;
  root["mlp_only_layers"] = json::array();
  root.erase("intermediate_size");
  for (size_t l = 0; l < spec.layers.size(); ++l) {
    if (spec.layers[l].experts() != nullptr) continue;
    root["mlp_only_layers"].push_back(l);
    root["intermediate_size"] = spec.layers[l].mlp().ffn;
  }
}
Status read_qwen2_moe(const json& root, ModelSpec& spec) {
  Experts experts{.shared = 5632};
  SLUICE_TRY(read(root, "shared_expert_intermediate_size", experts.shared, int64_t{1}, kMostWidth));
  return read_qwen_moe(root, {60, 4, "moe_intermediate_size", 1408, 0.001}, 5632, experts, spec);
}
void write_qwen2_moe(const ModelSpec& spec, json& root) {
  write_qwen_moe(spec, root);
  root["shared_expert_intermediate_size"] = with_experts(spec).experts()->shared;
}
Status read_qwen3_moe(const json& root, ModelSpec& spec) {
  return read_qwen_moe(root, {128, 8, "moe_intermediate_size", 768, 0.001}, 6144, {}, spec);
}

// Those of kDeltaReads, too.
template <size_t n>
constexpr auto with_delta_reads(const char* const (&more)[n]) {
  std::array<const char*, n + std::size(kDeltaReads)> out;
  std::copy(std::begin(more), std::end(more),
            std::copy(std::begin(kDeltaReads), std::end(kDeltaReads), out.begin()));
  return out;
}
constexpr auto kQwen35MoeReads = with_delta_reads(
    {"num_experts", "num_local_experts", "num_experts_per_tok", "moe_intermediate_size",
     "shared_expert_intermediate_size", "mlp_only_layers", "output_router_logits", "router_aux_loss_coef"});
constexpr auto kQwen3NextReads = with_delta_reads(kQwen2MoeReads);
Status read_qwen35_moe(const json& root, ModelSpec& spec) {
  SLUICE_TRY(read_delta_keys(root, spec));
  if (says(root, "mlp_only_layers") && root["mlp_only_layers"] != json::array())
    return error("model config: mlp_only_layers is {}; all layers of {} models have experts",
                 describe(root["mlp_only_layers"]), spec.family);
  Experts experts{.score = RouterScore::Chosen, .shared = 512};
  SLUICE_TRY(read(root, "shared_expert_intermediate_size", experts.shared, int64_t{1}, kMostWidth));
  return read_experts(root, {256, 8, "moe_intermediate_size", 512, 0.001}, experts, spec);
}
void write_qwen35_moe(const ModelSpec& spec, json& root) {
  write_experts(spec, "num_experts", root);
  const Experts& e = *with_experts(spec).experts();
  root["moe_intermediate_size"] = e.each.ffn;
  root["shared_expert_intermediate_size"] = e.shared;
  root.erase("intermediate_size");
}
Status read_qwen3_next(const json& root, ModelSpec& spec) {
  SLUICE_TRY(read_delta_keys(root, spec));
  Experts experts{.score = RouterScore::Chosen, .shared = 512};
  SLUICE_TRY(read(root, "shared_expert_intermediate_size", experts.shared, int64_t{1}, kMostWidth));
  return read_qwen_moe(root, {512, 10, "moe_intermediate_size", 512, 0.001}, 5632, experts, spec);
}

constexpr const char* kLfm2MoeReads[] = {
    "num_experts",      "num_local_experts", "num_experts_per_tok",   "moe_intermediate_size",
    "num_dense_layers", "use_expert_bias",   "routed_scaling_factor", "norm_topk_prob",
    "conv_L_cache",     "full_attn_idxs",    "output_router_logits",  "use_pos_enc"};
constexpr Neutral kLfm2MoeNeutral[] = {{"conv_bias", 0}};
Status read_lfm2_moe(const json& root, ModelSpec& spec) {
  Experts experts{.score = RouterScore::Sigmoid, .normalised = true, .selection_bias = true};
  SLUICE_TRY(read(root, "norm_topk_prob", experts.normalised));
  SLUICE_TRY(read(root, "use_expert_bias", experts.selection_bias));
  SLUICE_TRY(read(root, "routed_scaling_factor", experts.scale, 1 / kMostCoefficient, kMostCoefficient));
  const int64_t dense_ffn = spec.layers.empty() ? 0 : spec.layers.front().mlp().ffn;
  SLUICE_TRY(check_silu(root, spec));
  SLUICE_TRY(read_experts(root, {32, 4, "moe_intermediate_size", 1792, 0}, experts, spec));
  int64_t dense = 2;
  SLUICE_TRY(read(root, "num_dense_layers", dense, int64_t{0}, kMostLayers));
  for (int64_t l = 0; l < std::min(dense, int64_t(spec.layers.size())); ++l)
    make_dense(dense_ffn, spec.layers[size_t(l)]);
  return {};
}
void write_lfm2_moe(const ModelSpec& spec, json& root) {
  const auto dense =
      std::ranges::count_if(spec.layers, [](const LayerSpec& l) { return l.experts() == nullptr; });
  root["num_dense_layers"] = dense;
  if (dense == 0) root.erase("intermediate_size");
  if (!spec.has_experts()) return;
  write_experts(spec, "num_experts", root);
  const LayerSpec& mixed = with_experts(spec);
  root["moe_intermediate_size"] = mixed.mlp().ffn;
  root["norm_topk_prob"] = mixed.experts()->normalised;
  root["use_expert_bias"] = mixed.experts()->selection_bias;
  root["routed_scaling_factor"] = mixed.experts()->scale;
}

// gpt_oss: the arithmetic is the family's, and `hidden_act` does not say it.
constexpr const char* kGptOssReads[] = {"num_experts",
                                        "num_local_experts",
                                        "num_experts_per_tok",
                                        "experts_per_token",
                                        "initial_context_length",
                                        "output_router_logits",
                                        "router_aux_loss_coef",
                                        "swiglu_limit"};
constexpr Neutral kGptOssNeutral[] = {{"swiglu_alpha", 1.702}};
// Keys of OpenAI's own code, which published files repeat.
Status check_said_again(const json& root, const char* key, int64_t value) {
  int64_t again = value;
  SLUICE_TRY(read(root, key, again));
  if (again != value) return error("model config: {} is {}, and elsewhere {}", key, again, value);
  return {};
}
Status read_gpt_oss(const json& root, ModelSpec& spec) {
  if (!says(root, "rope_scaling") && !says(root, "rope_parameters")) {
    spec.rope = {.kind = RopeScaling::Yarn,
                 .theta = spec.rope.theta,
                 .factor = 32,
                 .original_context = 4096,
                 .truncate = false,
                 .attention_factor = yarn_attention_factor(32)};
  }
  if (spec.rope.kind == RopeScaling::Yarn)
    SLUICE_TRY(check_said_again(root, "initial_context_length", spec.rope.original_context));
  double limit = 7;
  SLUICE_TRY(read(root, "swiglu_limit", limit, 1 / kMostCoefficient, kMostCoefficient));
  SLUICE_TRY(check_silu(root, spec));
  for (LayerSpec& layer : spec.layers) {
    layer.attention()->sinks = true;
    layer.mlp().activation = GateActivation::QuickGelu;
    layer.mlp().limit = limit;
  }
  const Experts experts{.score = RouterScore::Chosen, .router_bias = true};
  SLUICE_TRY(read_experts(root, {128, 4, nullptr, 0, 0.001}, experts, spec));
  if (spec.layers.empty()) return {};
  return check_said_again(root, "experts_per_token", spec.layers.front().experts()->top_k);
}
void write_gpt_oss(const ModelSpec& spec, json& root) {
  write_experts(spec, "num_local_experts", root);
  root["hidden_act"] = "silu";
  root["swiglu_limit"] = spec.layers.front().mlp().limit;
}

}  // namespace

int64_t group_of(int64_t experts, int64_t elements) {
  constexpr int64_t kMostOfGroup = int64_t{1} << 27;
  int64_t group =
      std::clamp<int64_t>(kMostOfGroup / std::max<int64_t>(elements, 1), 1, std::max<int64_t>(experts, 1));
  while (experts % group != 0) --group;
  return group;
}

const OwnKeys kMixtralOwnKeys{kMixtralReads, kMixtralNeutral, read_mixtral, write_mixtral};
const OwnKeys kOlmoeOwnKeys{kOlmoeReads, {}, read_olmoe, write_olmoe};
const OwnKeys kQwen2MoeOwnKeys{kQwen2MoeReads, {}, read_qwen2_moe, write_qwen2_moe};
const OwnKeys kQwen35MoeOwnKeys{kQwen35MoeReads, kDeltaNeutral, read_qwen35_moe, write_qwen35_moe};
const OwnKeys kQwen3NextOwnKeys{kQwen3NextReads, kDeltaNeutral, read_qwen3_next, write_qwen2_moe};
const OwnKeys kQwen3MoeOwnKeys{kQwen3MoeReads, {}, read_qwen3_moe, write_qwen_moe};
const OwnKeys kGptOssOwnKeys{kGptOssReads, kGptOssNeutral, read_gpt_oss, write_gpt_oss};
const OwnKeys kLfm2MoeOwnKeys{kLfm2MoeReads, kLfm2MoeNeutral, read_lfm2_moe, write_lfm2_moe};

}  // namespace sluice::core
