// SPDX-License-Identifier: Apache-2.0
#include "api/exact.h"

namespace sluice {
namespace {

using namespace api_rig;

class Exact : public testing::TestWithParam<std::tuple<size_t, Format>> {};

TEST_P(Exact, SamplersHaveTheLogProbabilitiesOfTraining) {
  const auto& [number, compute] = GetParam();
  // Not far above the least that works: a search tries all budgets below a cap.
  const double part = number >= 4 && compute == Format::BF16 ? 0.5 : 0.35;
  expect_exact(families()[number], compute, "cpu", part, 0);
}

INSTANTIATE_TEST_SUITE_P(Families, Exact,
                         testing::Combine(testing::Range<size_t>(0, 6),
                                          testing::Values(Format::F32, Format::BF16)),
                         [](const auto& info) {
                           return std::string(families()[std::get<0>(info.param)].name) +
                                  (std::get<1>(info.param) == Format::F32 ? "F32" : "BF16");
                         });

TEST(ExactPlans, RefuseWhatHasOtherBits) {
  const auto refused = [](const std::string& config, const StepOptions& options, std::string_view part) {
    const auto model = Model::from_config(config);
    ASSERT_TRUE(model.ok()) << model.message();
    expect_error(plan(*model, options, {}, *exact_machine("cpu")).error(), ErrorKind::Invalid, part);
  };
  const std::string dense = families()[0].config;
  StepOptions options = step_of(Format::F32, 3);
  options.settings = {"shape.chunk_tokens=80"};
  refused(dense, options, "run.exact = true: shape.chunk_tokens = 80 cuts sequences of 160");
  options.settings = {};
  options.adapter = Adapter{.rank = 4, .dropout = 0.1};
  refused(dense, options, "run.exact = true: adapter.dropout = 0.1");
  const std::string delta =
      "{" + kSizes + R"("model_type": "qwen3_next", "num_hidden_layers": 2, "head_dim": 32,
    "layer_types": ["linear_attention", "full_attention"], "linear_num_key_heads": 2,
    "linear_num_value_heads": 2, "linear_key_head_dim": 16, "linear_value_head_dim": 16,
    "linear_conv_kernel_dim": 4, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 16, "decoder_sparse_step": 1, "norm_topk_prob": true, "mlp_only_layers": []})";
  refused(delta, step_of(Format::F32, 3), "has gated delta rules");
}

}  // namespace
}  // namespace sluice
