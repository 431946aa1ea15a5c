// SPDX-License-Identifier: Apache-2.0
// Loss and every gradient of a whole model against PyTorch, for every way to cut the same tokens.
//
// Tolerance in fp32. Every value is the end of a chain of about 3 layers x 12 ops, forward and back, each
// with inner sums of at most 128 terms. Roundings behave like a random walk, so an op adds about sqrt(128) u
// and the chain about sqrt(72) times that: 8.5 * 11.3 * 2^-24 = 6e-6 of a tensor's norm. Both sides round:
// sqrt(2) times as much, and a factor 2 for ops whose inputs cancel: 2e-5. A single element may be off by a
// few deviations of its share: 1e-4 of the largest. In bf16 only what is stored is rounded, to u = 2^-9:
// sqrt(72) * 2^-9 = 1.7e-2 for the chain, and as much again from each of the rounded weights and the softmax,
// whose scores are off by u times their size (up to 4): 0.1.
#include <gtest/gtest.h>

#include "reference/fixture.h"

namespace sluice::core {
namespace {

struct Case {
  const char* name;
  const char* fixture;
  const char* batch;  // prefix of its tensors
  StepShape shape;
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.name;
}

const Case kCases[] = {
    {"one_chunk", "llama_tiny", "", {64, 128, 1, 1, 128}},
    {"tied", "llama_tiny_tied", "", {64, 128, 1, 1, 128}},
    {"head_in_parts", "llama_tiny", "", {64, 128, 1, 1, 32}},
    {"a_chunk_per_sequence", "llama_tiny", "", {64, 64, 2, 1, 64}},
    {"two_rounds", "llama_tiny", "", {64, 64, 1, 2, 64}},
    {"two_chunks_per_sequence", "llama_tiny", "", {64, 32, 4, 1, 32}},
    {"two_chunks_two_rounds", "llama_tiny", "", {64, 32, 2, 2, 16}},
    {"four_chunks_per_sequence", "llama_tiny", "", {64, 16, 8, 1, 16}},
    {"tied_four_chunks_two_rounds", "llama_tiny_tied", "", {64, 16, 4, 2, 16}},
    {"packed_one_chunk", "llama_tiny", "packed_", {128, 128, 1, 1, 128, true}},
    {"packed_two_chunks", "llama_tiny", "packed_", {128, 64, 2, 1, 64, true}},
    {"packed_four_chunks", "llama_tiny", "packed_", {128, 32, 4, 1, 32, true}},
    {"packed_sixteen_chunks", "llama_tiny", "packed_", {128, 8, 16, 1, 8, true}},
    // Documents with context beside each other, where they were run one at a time; of 32 tokens none is
    // learnt.
    {"masked_one_chunk", "llama_tiny", "masked_", {128, 128, 1, 1, 128, true}},
    {"masked_head_in_parts", "llama_tiny", "masked_", {128, 128, 1, 1, 16, true}},
    {"masked_four_chunks", "llama_tiny", "masked_", {128, 32, 4, 1, 32, true}},
    {"masked_sixteen_chunks", "llama_tiny", "masked_", {128, 8, 16, 1, 8, true}},
    // The same documents in rows of 64, which are in different rounds; in a third one nothing is learnt.
    {"masked_two_rows", "llama_tiny", "masked_", {64, 128, 1, 1, 128, true}},
    {"masked_two_rounds", "llama_tiny", "masked_", {64, 64, 1, 2, 64, true}},
    {"masked_two_rounds_four_chunks", "llama_tiny", "masked_", {64, 16, 4, 2, 16, true}},
    {"masked_a_round_without", "llama_tiny", "masked_", {64, 32, 2, 3, 16, true}},
    // Three rows in chunks of two.
    {"masked_a_short_last_chunk", "llama_tiny", "masked_", {64, 128, 2, 1, 128, true, 0, 0, 64}},
    {"masked_a_short_last_round", "llama_tiny", "masked_", {64, 128, 1, 2, 128, true, 0, 0, 64}},
    {"masked_qwen3_a_round_without", "qwen3_tiny", "masked_", {64, 16, 4, 3, 64, true}},
    {"masked_qwen3_eight_chunks", "qwen3_tiny", "masked_", {128, 16, 8, 1, 16, true}},
    {"biases", "llama_tiny_biases", "", {64, 128, 1, 1, 128}},
    {"biases_four_chunks_two_rounds", "llama_tiny_biases", "", {64, 16, 4, 2, 16}},
    {"packed_biases_four_chunks", "llama_tiny_biases", "packed_", {128, 32, 4, 1, 32, true}},
    {"qwen3", "qwen3_tiny", "", {64, 128, 1, 1, 128}},
    {"qwen3_four_chunks_two_rounds", "qwen3_tiny", "", {64, 16, 4, 2, 16}},
    {"packed_qwen3_four_chunks", "qwen3_tiny", "packed_", {128, 32, 4, 1, 32, true}},
    {"tied_qwen3", "qwen3_tiny_tied", "", {64, 128, 1, 1, 128}},
    {"qwen2", "qwen2_tiny", "", {64, 128, 1, 1, 128}},
    {"qwen2_four_chunks_two_rounds", "qwen2_tiny", "", {64, 16, 4, 2, 16}},
    {"dynamic", "llama_tiny_dynamic", "", {64, 128, 1, 1, 128}},
    {"dynamic_four_chunks", "llama_tiny_dynamic", "", {64, 16, 8, 1, 16}},
    {"gelu", "llama_tiny_gelu", "", {64, 128, 1, 1, 128}},
    {"gelu_four_chunks_two_rounds", "llama_tiny_gelu", "", {64, 16, 4, 2, 16}},
    {"mistral", "mistral_tiny", "", {64, 128, 1, 1, 128}},
    {"mistral_two_chunks", "mistral_tiny", "", {64, 32, 4, 1, 32}},
    {"mistral_four_chunks_two_rounds", "mistral_tiny", "", {64, 16, 4, 2, 16}},
    {"mistral_sixteen_chunks", "mistral_tiny", "", {64, 4, 32, 1, 4}},
    {"packed_mistral", "mistral_tiny", "packed_", {128, 128, 1, 1, 128, true}},
    {"packed_mistral_eight_chunks", "mistral_tiny", "packed_", {128, 16, 8, 1, 16, true}},
    {"mistral_yarn", "mistral_tiny_yarn", "", {64, 128, 1, 1, 128}},
    {"mistral_yarn_four_chunks_two_rounds", "mistral_tiny_yarn", "", {64, 16, 4, 2, 16}},
    {"qwen2_window", "qwen2_tiny_window", "", {64, 128, 1, 1, 128}},
    {"qwen2_window_four_chunks_two_rounds", "qwen2_tiny_window", "", {64, 16, 4, 2, 16}},
    {"qwen3_window", "qwen3_tiny_window", "", {64, 128, 1, 1, 128}},
    {"qwen3_window_four_chunks_two_rounds", "qwen3_tiny_window", "", {64, 16, 4, 2, 16}},
    {"packed_qwen3_window_four_chunks", "qwen3_tiny_window", "packed_", {128, 32, 4, 1, 32, true}},
    {"smollm3", "smollm3_tiny", "", {64, 128, 1, 1, 128}},
    {"smollm3_four_chunks_two_rounds", "smollm3_tiny", "", {64, 16, 4, 2, 16}},
    {"packed_smollm3_four_chunks", "smollm3_tiny", "packed_", {128, 32, 4, 1, 32, true}},
    {"olmo2", "olmo2_tiny", "", {64, 128, 1, 1, 128}},
    {"olmo2_four_chunks_two_rounds", "olmo2_tiny", "", {64, 16, 4, 2, 16}},
    {"packed_olmo2_four_chunks", "olmo2_tiny", "packed_", {128, 32, 4, 1, 32, true}},
    {"olmo3", "olmo3_tiny", "", {64, 128, 1, 1, 128}},
    {"olmo3_four_chunks_two_rounds", "olmo3_tiny", "", {64, 16, 4, 2, 16}},
    {"packed_olmo3_four_chunks", "olmo3_tiny", "packed_", {128, 32, 4, 1, 32, true}},
    {"olmo", "olmo_tiny", "", {64, 128, 1, 1, 128}},
    {"olmo_four_chunks_two_rounds", "olmo_tiny", "", {64, 16, 4, 2, 16}},
    {"packed_olmo_four_chunks", "olmo_tiny", "packed_", {128, 32, 4, 1, 32, true}},
    {"starcoder2", "starcoder2_tiny", "", {64, 128, 1, 1, 128}},
    {"starcoder2_four_chunks_two_rounds", "starcoder2_tiny", "", {64, 16, 4, 2, 16}},
    {"packed_starcoder2_four_chunks", "starcoder2_tiny", "packed_", {128, 32, 4, 1, 32, true}},
    {"phi3", "phi3_tiny", "", {64, 128, 1, 1, 128}},
    {"phi3_four_chunks_two_rounds", "phi3_tiny", "", {64, 16, 4, 2, 16}},
    {"packed_phi3_four_chunks", "phi3_tiny", "packed_", {128, 32, 4, 1, 32, true}},
    {"phi3_long_four_chunks_two_rounds", "phi3_tiny_long", "", {64, 16, 4, 2, 16}},
    {"granite", "granite_tiny", "", {64, 128, 1, 1, 128}},
    {"granite_four_chunks_two_rounds", "granite_tiny", "", {64, 16, 4, 2, 16}},
    {"packed_granite_four_chunks", "granite_tiny", "packed_", {128, 32, 4, 1, 32, true}},
    {"gemma", "gemma_tiny", "", {64, 128, 1, 1, 128}},
    {"gemma_four_chunks_two_rounds", "gemma_tiny", "", {64, 16, 4, 2, 16}},
    {"packed_gemma_four_chunks", "gemma_tiny", "packed_", {128, 32, 4, 1, 32, true}},
    {"gemma3", "gemma3_tiny", "", {64, 128, 1, 1, 128}},
    {"gemma3_four_chunks_two_rounds", "gemma3_tiny", "", {64, 16, 4, 2, 16}},
    {"packed_gemma3_four_chunks", "gemma3_tiny", "packed_", {128, 32, 4, 1, 32, true}},
    {"phi3_partial_four_chunks_two_rounds", "phi3_tiny_partial", "", {64, 16, 4, 2, 16}},
    {"glm4", "glm4_tiny", "", {64, 128, 1, 1, 128}},
    {"glm4_four_chunks_two_rounds", "glm4_tiny", "", {64, 16, 4, 2, 16}},
    {"packed_glm4_four_chunks", "glm4_tiny", "packed_", {128, 32, 4, 1, 32, true}},
    {"cohere2", "cohere2_tiny", "", {64, 128, 1, 1, 128}},
    {"cohere2_four_chunks_two_rounds", "cohere2_tiny", "", {64, 16, 4, 2, 16}},
    {"packed_cohere2_four_chunks", "cohere2_tiny", "packed_", {128, 32, 4, 1, 32, true}},
    {"cohere2_biases_four_chunks_two_rounds", "cohere2_tiny_biases", "", {64, 16, 4, 2, 16}},
    {"gpt_neox", "gpt_neox_tiny", "", {64, 128, 1, 1, 128}},
    {"gpt_neox_four_chunks_two_rounds", "gpt_neox_tiny", "", {64, 16, 4, 2, 16}},
    {"packed_gpt_neox_four_chunks", "gpt_neox_tiny", "packed_", {128, 32, 4, 1, 32, true}},
    {"gpt2", "gpt2_tiny", "", {64, 128, 1, 1, 128}},
    {"gpt2_four_chunks_two_rounds", "gpt2_tiny", "", {64, 16, 4, 2, 16}},
    {"packed_gpt2_four_chunks", "gpt2_tiny", "packed_", {128, 32, 4, 1, 32, true}},
    {"gemma2", "gemma2_tiny", "", {64, 128, 1, 1, 128}},
    {"gemma2_four_chunks_two_rounds", "gemma2_tiny", "", {64, 16, 4, 2, 16}},
    {"packed_gemma2_four_chunks", "gemma2_tiny", "packed_", {128, 32, 4, 1, 32, true}},
    {"ministral3", "ministral3_tiny", "", {64, 128, 1, 1, 128}},
    {"ministral3_four_chunks_two_rounds", "ministral3_tiny", "", {64, 16, 4, 2, 16}},
    {"packed_ministral3_four_chunks", "ministral3_tiny", "packed_", {128, 32, 4, 1, 32, true}},
    {"glm4_yarn_four_chunks_two_rounds", "glm4_tiny_yarn", "", {64, 16, 4, 2, 16}},
    {"phi3_partial_long_four_chunks_two_rounds", "phi3_tiny_partial_long", "", {64, 16, 4, 2, 16}},
    {"lfm2", "lfm2_tiny", "", {64, 128, 1, 1, 128}},
    {"lfm2_four_chunks_two_rounds", "lfm2_tiny", "", {64, 16, 4, 2, 16}},
    {"packed_lfm2_four_chunks", "lfm2_tiny", "packed_", {128, 32, 4, 1, 32, true}},
    {"gemma4_unified", "gemma4_unified_tiny", "", {64, 128, 1, 1, 128}},
    {"gemma4_unified_four_chunks_two_rounds", "gemma4_unified_tiny", "", {64, 16, 4, 2, 16}},
    {"packed_gemma4_unified_four_chunks", "gemma4_unified_tiny", "packed_", {128, 32, 4, 1, 32, true}},
    {"gpt_neox_serial_four_chunks_two_rounds", "gpt_neox_tiny_serial", "", {64, 16, 4, 2, 16}},
};

// The models are so small that in bf16 transformers' own gradients are off by up to 0.22 of f32's.
const Case kInF32Alone[] = {
    {"gemma4", "gemma4_tiny", "", {64, 128, 1, 1, 128}},
    {"gemma4_four_chunks_two_rounds", "gemma4_tiny", "", {64, 16, 4, 2, 16}},
    {"packed_gemma4_four_chunks", "gemma4_tiny", "packed_", {128, 32, 4, 1, 32, true}},
    {"qwen3_5", "qwen3_5_tiny", "", {64, 128, 1, 1, 128}},
    {"qwen3_5_four_chunks_two_rounds", "qwen3_5_tiny", "", {64, 16, 4, 2, 16}},
    {"packed_qwen3_5", "qwen3_5_tiny", "packed_", {128, 128, 1, 1, 128, true}},
    {"packed_qwen3_5_four_chunks", "qwen3_5_tiny", "packed_", {128, 32, 4, 1, 32, true}},
};
// In bf16 a token's choice of experts is another where two are about as good: losses_test.cpp has those of
// most tokens.
const Case kWithExperts[] = {
    {"mixtral", "mixtral_tiny", "", {64, 128, 1, 1, 128}},
    {"mixtral_four_chunks_two_rounds", "mixtral_tiny", "", {64, 16, 4, 2, 16}},
    {"packed_mixtral_four_chunks", "mixtral_tiny", "packed_", {128, 32, 4, 1, 32, true}},
    // The balance of its experts is over a round.
    {"olmoe", "olmoe_tiny", "", {64, 128, 1, 1, 128}},
    {"olmoe_eight_chunks", "olmoe_tiny", "", {64, 16, 8, 1, 16}},
    {"qwen2_moe", "qwen2_moe_tiny", "", {64, 128, 1, 1, 128}},
    {"qwen2_moe_four_chunks_two_rounds", "qwen2_moe_tiny", "", {64, 16, 4, 2, 16}},
    {"qwen3_moe", "qwen3_moe_tiny", "", {64, 128, 1, 1, 128}},
    {"qwen3_moe_four_chunks_two_rounds", "qwen3_moe_tiny", "", {64, 16, 4, 2, 16}},
    {"packed_qwen3_moe_four_chunks", "qwen3_moe_tiny", "packed_", {128, 32, 4, 1, 32, true}},
    {"lfm2_moe", "lfm2_moe_tiny", "", {64, 128, 1, 1, 128}},
    {"lfm2_moe_four_chunks_two_rounds", "lfm2_moe_tiny", "", {64, 16, 4, 2, 16}},
    {"packed_lfm2_moe_four_chunks", "lfm2_moe_tiny", "packed_", {128, 32, 4, 1, 32, true}},
    {"qwen3_5_moe", "qwen3_5_moe_tiny", "", {64, 128, 1, 1, 128}},
    {"qwen3_5_moe_four_chunks_two_rounds", "qwen3_5_moe_tiny", "", {64, 16, 4, 2, 16}},
    {"qwen3_next", "qwen3_next_tiny", "", {64, 128, 1, 1, 128}},
    {"packed_qwen3_next_four_chunks", "qwen3_next_tiny", "packed_", {128, 32, 4, 1, 32, true}},
    {"gemma4_moe", "gemma4_tiny_moe", "", {64, 128, 1, 1, 128}},
    {"gemma4_moe_four_chunks_two_rounds", "gemma4_tiny_moe", "", {64, 16, 4, 2, 16}},
    {"packed_gemma4_moe_four_chunks", "gemma4_tiny_moe", "packed_", {128, 32, 4, 1, 32, true}},
    {"gpt_oss", "gpt_oss_tiny", "", {64, 128, 1, 1, 128}},
    {"gpt_oss_four_chunks_two_rounds", "gpt_oss_tiny", "", {64, 16, 4, 2, 16}},
    {"packed_gpt_oss_four_chunks", "gpt_oss_tiny", "packed_", {128, 32, 4, 1, 32, true}},
    {"gpt_oss_mxfp4", "gpt_oss_tiny_mxfp4", "", {64, 128, 1, 1, 128}},
};

class Gradients : public testing::TestWithParam<Case> {};
class GradientsInBf16 : public Gradients {};

std::string loss_name(const Case& c) {
  return std::string(c.batch) + "loss";
}
std::string grad_name(const Case& c, const std::string& tensor) {
  const std::string batch = c.batch;
  return (batch.empty() ? "" : batch.substr(0, batch.size() - 1) + ".") + "grad." + tensor;
}
Fixture fixture_of(const Case& c) {
  return Fixture(c.fixture,
                 std::string_view(c.batch) == "masked_" ? "masked.safetensors" : "expected.safetensors");
}

// The documents of a row, whole, in the shape's rows: each in the first with room for it. A second of three
// rows stays empty, as padding is.
rig::Tokens in_rows(const rig::Tokens& whole, const StepShape& shape) {
  const auto rows = size_t(shape.sequences()), length = size_t(shape.seq_len);
  std::vector<rig::Tokens> made(rows);
  for (size_t begin = 0, end = 0; begin < whole.tokens.size(); begin = end) {
    end = begin + 1;
    while (end < whole.tokens.size() && whole.positions[end] != 0) ++end;
    size_t row = 0;
    while (made[row].tokens.size() + end - begin > length) row += rows == 3 ? 2 : 1;
    for (const auto part : {&rig::Tokens::tokens, &rig::Tokens::targets, &rig::Tokens::positions}) {
      const std::vector<int32_t>& from = whole.*part;
      (made[row].*part)
          .insert((made[row].*part).end(), from.begin() + int64_t(begin), from.begin() + int64_t(end));
    }
  }
  rig::Tokens all;
  for (rig::Tokens& row : made) {
    for (int32_t position = 0; row.tokens.size() < length; ++position) {
      row.tokens.push_back(0);
      row.targets.push_back(-1);
      row.positions.push_back(position);
    }
    for (const auto part : {&rig::Tokens::tokens, &rig::Tokens::targets, &rig::Tokens::positions})
      (all.*part).insert((all.*part).end(), (row.*part).begin(), (row.*part).end());
  }
  return all;
}

rig::Tokens tokens_of(const Fixture& fixture, const Case& c) {
  const rig::Tokens tokens = fixture.tokens(c.batch, c.shape.seq_len);
  const bool other_rows = std::string_view(c.batch) == "masked_" && c.shape.seq_len < 128;
  return other_rows ? in_rows(tokens, c.shape) : tokens;
}

TEST_P(Gradients, MatchPyTorchInF32) {
  const Case& c = GetParam();
  const Fixture fixture = fixture_of(c);
  const auto run = open_fixture(fixture, c.shape, {});
  const rig::Losses got = run->measure(tokens_of(fixture, c));
  EXPECT_NEAR(got.loss, fixture.values<float>(loss_name(c))[0], 2e-6 * got.loss);
  double squares = 0;
  for_each_tensor(fixture.config, run->training(), "d_", [&](const std::string& tensor, const auto& values) {
    const auto expected = fixture.values<float>(grad_name(c, tensor));
    ASSERT_EQ(values.size(), expected.size()) << tensor;
    const Distance d = distance(values, expected);
    EXPECT_LT(d.relative, 2e-5) << tensor;
    EXPECT_LT(d.largest, 1e-4) << tensor;
    for (const float g : expected) squares += double(g) * g;
  });
  EXPECT_NEAR(got.norm, std::sqrt(squares), 2e-5 * got.norm);
}

TEST_P(GradientsInBf16, AreNearPyTorch) {
  const Case& c = GetParam();
  const Fixture fixture = fixture_of(c);
  const auto run =
      open_fixture(fixture, c.shape, {DType::BF16, DType::F32, DType::F32, MasterWeights::F32, false});
  const rig::Losses got = run->measure(tokens_of(fixture, c));
  const double expected_loss = fixture.values<float>(loss_name(c))[0];
  EXPECT_NEAR(got.loss, expected_loss, 2e-3 * expected_loss);
  for_each_tensor(fixture.config, run->training(), "d_", [&](const std::string& tensor, const auto& values) {
    const Distance d = distance(values, fixture.values<float>(grad_name(c, tensor)));
    EXPECT_GT(d.cosine, 0.99) << tensor;
    EXPECT_LT(d.relative, 0.1) << tensor;
  });
}

std::string name_of_case(const testing::TestParamInfo<Case>& test) {
  return test.param.name;
}
INSTANTIATE_TEST_SUITE_P(Cuts, Gradients, testing::ValuesIn(kCases), name_of_case);
INSTANTIATE_TEST_SUITE_P(CutsInF32Alone, Gradients, testing::ValuesIn(kInF32Alone), name_of_case);
INSTANTIATE_TEST_SUITE_P(CutsWithExperts, Gradients, testing::ValuesIn(kWithExperts), name_of_case);
INSTANTIATE_TEST_SUITE_P(Cuts, GradientsInBf16, testing::ValuesIn(kCases), name_of_case);

}  // namespace
}  // namespace sluice::core
