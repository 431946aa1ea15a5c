// SPDX-License-Identifier: Apache-2.0
// Models whose layers have kernels of their own on the GPU, gated delta rules and Gemma 4's: states at the
// borders of chunks, keys that layers share and tables are kept, sent and made again without changing a bit,
// and steps learn what they learn on a CPU.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "backend/cpu/cpu_backend.h"
#include "equivalence/small_runs.h"
#include "model/families/families.h"

namespace sluice::core {
namespace {

const Numerics kMaster{DType::BF16, DType::F32, DType::F32, MasterWeights::F32, false};

nlohmann::json config_of(const std::string& type) {
  nlohmann::json config = {{"model_type", type},       {"hidden_size", 64}, {"num_hidden_layers", 3},
                           {"num_attention_heads", 4}, {"head_dim", 16},    {"num_key_value_heads", 2},
                           {"intermediate_size", 96},  {"vocab_size", 64}};
  if (type == "qwen3_5_text") {
    config.update({{"linear_num_key_heads", 2},
                   {"linear_num_value_heads", 4},
                   {"linear_key_head_dim", 16},
                   {"linear_value_head_dim", 24},
                   {"layer_types", {"linear_attention", "full_attention", "linear_attention"}},
                   {"partial_rotary_factor", 0.5}});
  } else {
    // Later layers read keys of both sizes of heads; a table of each layer, and experts beside an MLP.
    config.update(
        {{"num_hidden_layers", 4},
         {"global_head_dim", 512},
         {"sliding_window", 48},
         {"num_kv_shared_layers", 2},
         {"attention_k_eq_v", true},
         {"layer_types", {"sliding_attention", "full_attention", "sliding_attention", "full_attention"}},
         {"hidden_size_per_layer_input", 8},
         {"vocab_size_per_layer_input", 64},
         {"use_double_wide_mlp", true},
         {"enable_moe_block", true},
         {"num_experts", 8},
         {"top_k_experts", 2},
         {"moe_intermediate_size", 24},
         {"final_logit_softcapping", 30.0}});
  }
  return config;
}

Question request(const std::string& type, const StepShape& shape) {
  Question r = small_request(shape, kMaster);
  r.model = rig::must(parse_model_config(with_own_keys(config_of(type).dump())));
  return r;
}

class OwnLayers : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(, OwnLayers, testing::Values("qwen3_5_text", "gemma4_text"),
                         [](const auto& type) { return type.param; });

TEST_P(OwnLayers, CapsChangeNoBit) {
  for (const bool packed : {false, true}) {
    SCOPED_TRACE(packed ? "packed" : "whole sequences");
    const Question roomy = request(GetParam(), {256, 128, 4, 2, 64, packed});
    rig::Rig free(roomy);
    const rig::History expected = rig::run_steps(free, 3);
    rig::Rig capped(tightest(roomy, *rig::small_backend()));
    EXPECT_GT(totals(capped.model().program, capped.plan()).loads.actions, 0);
    expect_same(rig::run_steps(capped, 3), expected);
  }
}

TEST_P(OwnLayers, StepsLearnWhatTheyLearnOnACpu) {
  const Question r = request(GetParam(), {256, 128, 4, 2, 64, true});
  rig::Rig gpu(r), cpu(r, make_cpu_backend());
  const auto on_gpu = rig::run_steps(gpu, 4).losses, on_cpu = rig::run_steps(cpu, 4).losses;
  // Both round to bf16, at different places: losses are means over 2,048 tokens of errors of either sign.
  for (size_t i = 0; i < on_cpu.size(); ++i) EXPECT_NEAR(on_gpu[i] / on_cpu[i], 1, 0x1p-8) << i;
}

}  // namespace
}  // namespace sluice::core
