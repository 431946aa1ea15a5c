// SPDX-License-Identifier: Apache-2.0
// Models with gated delta rules on the GPU: states at the borders of chunks are kept, sent and made again
// without changing a bit, and steps learn what they learn on a CPU.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "backend/cpu/cpu_backend.h"
#include "equivalence/small_runs.h"
#include "model/families/families.h"

namespace sluice::core {
namespace {

const Numerics kMaster{DType::BF16, DType::F32, DType::F32, MasterWeights::F32, false};

StageRequest request(const StepShape& shape) {
  const nlohmann::json config = {{"model_type", "qwen3_5_text"},
                                 {"hidden_size", 64},
                                 {"num_hidden_layers", 3},
                                 {"num_attention_heads", 4},
                                 {"num_key_value_heads", 2},
                                 {"head_dim", 16},
                                 {"intermediate_size", 96},
                                 {"vocab_size", 64},
                                 {"linear_num_key_heads", 2},
                                 {"linear_num_value_heads", 4},
                                 {"linear_key_head_dim", 16},
                                 {"linear_value_head_dim", 24},
                                 {"layer_types", {"linear_attention", "full_attention", "linear_attention"}},
                                 {"partial_rotary_factor", 0.5}};
  StageRequest r = small_request(shape, kMaster);
  r.model = rig::must(parse_model_config(with_own_keys(config.dump())));
  r.quick = true;
  return r;
}

TEST(GatedDeltas, CapsChangeNoBit) {
  for (const bool packed : {false, true}) {
    SCOPED_TRACE(packed ? "packed" : "whole sequences");
    const StageRequest roomy = request({256, 128, 4, 2, 64, packed});
    rig::Rig free(roomy);
    const rig::History expected = rig::run_steps(free, 3);
    rig::Rig capped(tightest(roomy, *rig::small_backend()));
    EXPECT_GT(totals(capped.model().program, capped.plan()).loads.actions, 0);
    expect_same(rig::run_steps(capped, 3), expected);
  }
}

TEST(GatedDeltas, StepsLearnWhatTheyLearnOnACpu) {
  const StageRequest r = request({256, 128, 4, 2, 64, true});
  rig::Rig gpu(r), cpu(r, make_cpu_backend());
  const auto on_gpu = rig::run_steps(gpu, 4).losses, on_cpu = rig::run_steps(cpu, 4).losses;
  // Both round to bf16, at different places: losses are means over 2,048 tokens of errors of either sign.
  for (size_t i = 0; i < on_cpu.size(); ++i) EXPECT_NEAR(on_gpu[i] / on_cpu[i], 1, 0x1p-8) << i;
}

}  // namespace
}  // namespace sluice::core
