// SPDX-License-Identifier: Apache-2.0
// Every family computes the same on two devices, in little memory, beside weights that are frozen, and with
// adapters.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "equivalence/small_runs.h"
#include "model/families/families.h"

namespace sluice::core {
namespace {

constexpr StepShape kFamilyShape{16, 8, 2, 2, 8, true};

// A tiny model of a family, in which layers that have windows have short ones.
ModelSpec tiny(const std::string& type) {
  nlohmann::json config = {{"model_type", type},       {"hidden_size", 32}, {"num_hidden_layers", 2},
                           {"num_attention_heads", 4}, {"head_dim", 8},     {"intermediate_size", 24},
                           {"vocab_size", 37}};
  // Others have as many as heads.
  if (type != "gpt2" && type != "gpt_neox") config["num_key_value_heads"] = 2;
  if (type.starts_with("lfm2")) config["full_attn_idxs"] = {0};  // without it no layer has a convolution
  const bool local = type == "mixtral" || type == "gpt_oss";
  const bool gated = type.starts_with("qwen3_5") || type == "qwen3_next";
  if (gated) {
    config.update({{"linear_num_key_heads", 2},
                   {"linear_num_value_heads", 4},
                   {"linear_key_head_dim", 8},
                   {"linear_value_head_dim", 6},
                   {"layer_types", {"full_attention", "linear_attention"}},
                   {"partial_rotary_factor", 0.5}});
  }
  if (type.starts_with("gemma4")) {
    // Later layers read keys of both sizes; a table of each layer, and experts beside an MLP.
    config.update(
        {{"num_hidden_layers", 4},
         {"global_head_dim", 16},
         {"num_kv_shared_layers", 2},
         {"attention_k_eq_v", true},
         {"layer_types", {"sliding_attention", "full_attention", "sliding_attention", "full_attention"}}});
  }
  if (type == "gemma4_text") {
    config.update({{"hidden_size_per_layer_input", 6},
                   {"vocab_size_per_layer_input", 37},
                   {"use_double_wide_mlp", true},
                   {"enable_moe_block", true},
                   {"num_experts", 6},
                   {"top_k_experts", 2},
                   {"moe_intermediate_size", 24}});
  }
  const bool experts = local || type.ends_with("moe") || type.ends_with("moe_text") || type == "qwen3_next";
  if (experts) {
    config["num_experts_per_tok"] = 2;
    config[local ? "num_local_experts" : "num_experts"] = 6;
    if (type.starts_with("qwen") || type == "lfm2_moe") config["moe_intermediate_size"] = 24;
    if (type == "lfm2_moe") config["num_dense_layers"] = 1;
    config["output_router_logits"] = type == "olmoe";
    if (type == "gpt_oss") config["swiglu_limit"] = 0.02;  // below some of what a random model has
  }
  ModelSpec spec = rig::must(parse_model_config(with_own_keys(config.dump())));
  // Experts in three groups.
  for (LayerSpec& layer : spec.layers) {
    if (Experts* e = layer.experts()) e->group = 2;
    if (Attention* a = layer.attention()) a->window = std::min<int64_t>(a->window, 6);
  }
  return spec;
}

Question request_of(const ModelSpec& spec) {
  Question request = small_request(kFamilyShape, {}, Updates::Deferred);
  request.model = spec;
  return request;
}

// What its steps compute with room on one device.
rig::History same_on_two_devices_and_in_little_memory(const Question& request) {
  rig::Rig roomy(request), two(request, rig::small_devices(2, true));
  const rig::History expected = rig::run_steps(roomy, 2);
  expect_same(rig::run_steps(two, 2), expected);
  rig::Rig tight(tightest(request, roomy.backend()));
  EXPECT_LT(tight.plan().arenas[kDevice].bytes, roomy.plan().arenas[kDevice].bytes);
  expect_same(rig::run_steps(tight, 2), expected);
  return expected;
}

class EveryFamily : public testing::TestWithParam<std::string> {};

TEST_P(EveryFamily, ComputesTheSameOnTwoDevicesAndInLittleMemory) {
  (void)same_on_two_devices_and_in_little_memory(request_of(tiny(GetParam())));
}

TEST_P(EveryFamily, ComputesTheSameWithAdapters) {
  ModelSpec spec = tiny(GetParam());
  spec.adapters = {.rank = 8, .alpha = 16};
  ASSERT_TRUE(validate(spec).ok()) << validate(spec).message();
  (void)same_on_two_devices_and_in_little_memory(request_of(spec));
}

// q, k and v have masks of their own, or, as rows of one tensor, one.
TEST(Dropout, IsTheSameOnTwoDevicesAndInLittleMemory) {
  for (const char* type : {"qwen2", "phi3"}) {
    SCOPED_TRACE(type);
    ModelSpec spec = tiny(type);
    spec.adapters = {.rank = 8, .alpha = 16, .tokens = {5, 2, 3}, .dropout = 0.25};
    ASSERT_TRUE(validate(spec).ok()) << validate(spec).message();
    (void)same_on_two_devices_and_in_little_memory(request_of(spec));
  }
}

// Of tensors that are one product, of rows of one tensor, beside biases, and behind norms.
TEST(Magnitudes, AreTheSameOnTwoDevicesAndInLittleMemory) {
  for (const char* type : {"qwen2", "phi3", "gemma2"}) {
    SCOPED_TRACE(type);
    ModelSpec spec = tiny(type);
    spec.adapters = {.rank = 8, .alpha = 16, .dora = true};
    ASSERT_TRUE(validate(spec).ok()) << validate(spec).message();
    (void)same_on_two_devices_and_in_little_memory(request_of(spec));
  }
}

TEST(ExpertsAdapters, AreTheSameOnTwoDevicesAndInLittleMemory) {
  ModelSpec spec = tiny("olmoe");
  spec.adapters = {.rank = 8, .alpha = 16, .targets = {"self_attn", "experts"}};
  ASSERT_TRUE(validate(spec).ok()) << validate(spec).message();
  (void)same_on_two_devices_and_in_little_memory(request_of(spec));
}

TEST_P(EveryFamily, GivesOthersTheSameGradientsWhereAPartIsFrozen) {
  ModelSpec spec = tiny(GetParam());
  rig::Rig all(request_of(spec));
  std::vector<std::string> frozen{std::string(spec.names.layers) + ".0"};
  // A convolution's own weights, too: its op writes their gradient anyway.
  frozen.emplace_back(spec.layers[1].convolution() != nullptr ? "*.conv.conv"
                      : spec.layers[1].delta() != nullptr     ? "*.linear_attn.A_log"
                      : spec.family == "mixtral"              ? "*.block_sparse_moe"
                                                              : "*.mlp");
  rig::must(freeze(spec, frozen, "train.freeze"));
  rig::Rig some(request_of(spec));
  const rig::Tokens tokens = rig::random_tokens(kFamilyShape, spec.vocab, 3);
  for (rig::Rig* run : {&all, &some}) {
    run->initialize();
    (void)run->measure(tokens);
  }
  int compared = 0;
  for (const Weight& weight : weights_of(spec)) {
    if (!weight.trainable) continue;
    const std::string gradient = "d_" + weight.object;
    EXPECT_EQ(rig::read_bytes(some.training(), rig::find(some.model().program, gradient)),
              rig::read_bytes(all.training(), rig::find(all.model().program, gradient)))
        << gradient;
    ++compared;
  }
  EXPECT_GE(compared, 4);
}

// What an update takes whole, and what such an optimizer leaves to another rule, is as it is wherever it
// runs.
TEST(EveryOptimizer, ComputesTheSameOnTwoDevicesAndInLittleMemory) {
  const auto* formats =
      std::ranges::find(kNumerics, std::string_view("bf16_compact_master"), &NamedNumerics::name);
  const Numerics numerics = rig::takes(formats->numerics) ? formats->numerics : Numerics{};
  int tried = 0;
  for (const Optimizer* optimizer : optimizers()) {
    if (std::ranges::none_of(optimizer->rules, &UpdateRule::whole)) continue;
    SCOPED_TRACE(optimizer->name);
    Question request = request_of(tiny("qwen2"));
    request.numerics = numerics;
    request.optimizer.optimizer = optimizer;
    request.optimizer.values = OptimizerConfig::defaults_of(*optimizer);
    (void)same_on_two_devices_and_in_little_memory(request);
    ++tried;
  }
  EXPECT_GT(tried, 0);
}

INSTANTIATE_TEST_SUITE_P(Families, EveryFamily, testing::ValuesIn(model_families()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace sluice::core
