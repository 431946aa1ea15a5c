// SPDX-License-Identifier: Apache-2.0
// What ops need on a GPU beside their operands.
#include "ops/gpu_workspace.h"

#include <gtest/gtest.h>

#include "ops/op.h"

namespace sluice::core {
namespace {

constexpr AttnShape kBlock{.rows = 2,
                           .q_len = 1024,
                           .kv_len = 1024,
                           .q_heads = 8,
                           .kv_heads = 2,
                           .head_dim = 128,
                           .distance = 0,
                           .packed = false,
                           .dtype = DType::BF16};

AttnBwd backward(DType grad, bool accumulate) {
  return {kBlock, grad, accumulate, accumulate};
}

TEST(GpuWorkspace, OfElementwiseOpsIsNothing) {
  EXPECT_EQ(workspace_bytes(RmsNorm{1024, 4096, 1e-5f, DType::BF16}, {}), 0);
  EXPECT_EQ(workspace_bytes(Swiglu{1024, 4096, DType::BF16}, {}), 0);
}

TEST(GpuWorkspace, OfTheHeadHoldsTheLogitsOfASubChunk) {
  HeadLoss op{.tokens = 4096, .dim = 64, .vocab = 1000, .sub_tokens = 512, .dtype = DType::BF16};
  const int64_t least = kProductWorkspaceBytes + op.sub_tokens * op.vocab * 4 + op.tokens * 4;
  EXPECT_GE(workspace_bytes(op, {}), least);
  EXPECT_LE(workspace_bytes(op, {}), least + least / 10);
  op.sub_tokens = 1 << 20;  // no more rows than there are
  EXPECT_LE(workspace_parts(op).row_loss, kProductWorkspaceBytes + op.tokens * logits_stride(op.vocab) * 4);
}

TEST(GpuWorkspace, OfAttentionHoldsSumsThatGoElsewhereAfterwards) {
  const int64_t q = 2 * kBlock.q_elements(), kv = 2 * kBlock.kv_elements();
  const int64_t plain = workspace_bytes(backward(DType::BF16, false), {});
  EXPECT_EQ(workspace_bytes(backward(DType::BF16, true), {}), plain + q + kv);
  EXPECT_EQ(workspace_bytes(backward(DType::F32, false), {}), plain + q + kv);
  const int64_t forward = workspace_bytes(AttnFwd{kBlock, DType::BF16, false}, {});
  EXPECT_EQ(workspace_bytes(AttnFwd{kBlock, DType::F32, true}, {}), forward + q + kBlock.lse_elements() * 4);
}

// Own kernels, without what cuDNN's need; what goes elsewhere afterwards is as wide.
TEST(GpuWorkspace, OfAttentionInF32IsThatOfOwnKernels) {
  AttnShape shape = kBlock;
  shape.dtype = DType::F32;
  const int64_t q = 4 * kBlock.q_elements(), kv = 4 * kBlock.kv_elements(), row = kBlock.lse_elements() * 4;
  for (const bool backward : {false, true}) EXPECT_FALSE(suits_cudnn(shape, backward, {}));
  EXPECT_EQ(workspace_bytes(AttnFwd{shape, DType::F32, false}, {}), 0);
  EXPECT_EQ(workspace_bytes(AttnFwd{shape, DType::F32, true}, {}), q + row);
  EXPECT_EQ(workspace_bytes(AttnBwd{shape, DType::F32, false, false}, {}), row);
  EXPECT_EQ(workspace_bytes(AttnBwd{shape, DType::F32, true, true}, {}), row + q + kv);
}

TEST(GpuWorkspace, OfWindowsAndCapsIsOfCudnnWhereTheyWereMeasured) {
  const GpuLibraries hopper{.capability = {9, 0}}, others{.capability = {8, 0}};
  AttnShape window = kBlock, softcap = kBlock;
  window.distance = 0, window.kv_len = window.q_len, window.window = 100;
  softcap.softcap = 30;
  for (const bool backward : {false, true}) {
    EXPECT_TRUE(suits_cudnn(window, backward, hopper));
    EXPECT_FALSE(suits_cudnn(window, backward, others));
    EXPECT_TRUE(suits_cudnn(softcap, backward, hopper));
    EXPECT_FALSE(suits_cudnn(softcap, backward, others));
    window.distance = window.q_len;  // an earlier block: a mask of another pattern
    EXPECT_FALSE(suits_cudnn(window, backward, hopper));
    window.distance = 0;
  }
  window.window = window.q_len / 8;
  EXPECT_TRUE(suits_cudnn(window, false, {.deterministic = true, .capability = {9, 0}}));
  AttnShape wider = window;
  wider.window = window.q_len / 4;
  EXPECT_TRUE(suits_cudnn(wider, true, {.deterministic = true, .capability = {9, 0}}));
  EXPECT_FALSE(suits_cudnn(window, true, {.deterministic = true, .capability = {9, 0}}));
  EXPECT_TRUE(suits_cudnn(window, true, {.deterministic = false, .capability = {9, 0}}));
}

TEST(GpuWorkspace, OfDeterministicAttentionStaysBelowItsCap) {
  GpuLibraries libraries{.deterministic = true};
  const int64_t whole = graph_bytes(kBlock, true, libraries);
  libraries.attention_cap_bytes = whole / 3;
  const AttnCalls calls = calls_of(kBlock, true, libraries);
  EXPECT_LT(calls.rows * calls.kv_heads, kBlock.rows * kBlock.kv_heads);
  EXPECT_TRUE(suits_cudnn(kBlock, true, libraries));
  EXPECT_LE(calls.lanes * graph_bytes(kBlock, true, libraries), libraries.attention_cap_bytes);
  libraries.attention_cap_bytes = 1;
  EXPECT_FALSE(suits_cudnn(kBlock, true, libraries));
}

}  // namespace
}  // namespace sluice::core
