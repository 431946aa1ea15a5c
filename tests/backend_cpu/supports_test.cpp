// SPDX-License-Identifier: Apache-2.0
// What tables of support refuse, and how they say so. That they are complete is for the compiler.
#include <gtest/gtest.h>

#include "backend/cpu/cpu_backend.h"
#include "backend/cuda/cuda_backend.h"
#include "ops/op.h"

namespace sluice::core {
namespace {

std::string refusal(const Status& status) {
  const std::string text = status.message();
  return text.substr(text.rfind(": ") + 2);
}

LinearDgrad dgrad() {
  return {.tokens = 32, .in = 16, .out = 32, .dtype = DType::BF16, .accumulate = false};
}

TEST(Supports, FormatsOfOperands) {
  LinearDgrad op = dgrad();
  EXPECT_TRUE(cpu_supports(op).ok());
  EXPECT_TRUE(cuda_supports(op).ok());
  op.weight_format = NumberFormat(DType::F4E2M1, 16, DType::F8E4M3);
  for (const Status& status : {cpu_supports(op), cuda_supports(op)})
    EXPECT_EQ(refusal(status), "operand w is in f4e2m1 by 16 with f8e4m3, which no kernel takes");
  op.weight_format = DType::F8E8M0;  // scales, and no numbers
  for (const Status& status : {cpu_supports(op), cuda_supports(op)})
    EXPECT_EQ(refusal(status), "operand w is in f8e8m0, which no kernel takes");
}

TEST(Supports, MultiplesAndTypes) {
  LinearDgrad op = dgrad();
  op.in = 12;
  EXPECT_TRUE(cpu_supports(op).ok());
  EXPECT_EQ(
      cuda_supports(op).message(),
      "the CUDA backend cannot run \"linear_dgrad tokens=32 in=12 out=32 dtype=bf16 acc=0\": in = 12; a "
      "multiple of 8 is needed");
  op = dgrad();
  op.dtype = DType::I32;
  for (const Status& status : {cpu_supports(op), cuda_supports(op)})
    EXPECT_EQ(refusal(status), "dtype = i32; bf16 or f32 is needed");
  EXPECT_EQ(refusal(cuda_supports(BiasGrad{8, 8, DType::F32, DType::F32, false})),
            "dtype = f32; bf16 is needed");
  AdamWMoments update{};
  update.grad_dtype = DType::F32;
  update.state_dtype = DType::F64;
  for (const Status& status : {cpu_supports(update), cuda_supports(update)})
    EXPECT_EQ(refusal(status), "state = f64; bf16, f32 or i8 is needed");
}

TEST(Supports, WhatJoinsSeveralAttributes) {
  const Rope rope{.tokens = 8, .heads = 1, .head_dim = 2048, .dtype = DType::BF16};
  EXPECT_EQ(refusal(cpu_supports(rope)), "hd = 2048; at most 1024 is supported");
  EXPECT_EQ(refusal(cuda_supports(rope)), "hd = 2048; at most 512 is supported");
  LinearDgrad op = dgrad();
  op.dy_format = op.weight_format = kFloat8.over(op.out);
  EXPECT_TRUE(cuda_supports(op, {9, 0}).ok());
  EXPECT_TRUE(cuda_supports(op, {8, 9}).ok());
  EXPECT_EQ(refusal(cuda_supports(op, {8, 6})),
            "products in 8 bits need a GPU of compute capability 8.9 or more, and this one has 8.6; set "
            "train.compute = bf16");
  // A row of the gates of 70B, in shared memory.
  const Quantize row{.rows = 16, .cols = 57344, .dtype = DType::BF16, .format = kFloat8, .by_row = true};
  EXPECT_TRUE(cuda_supports(row, {9, 0}).ok());
  EXPECT_EQ(refusal(cuda_supports(row, {8, 9})), "cols = 57344; at most 49152 is supported");
  op.dy_format = kWideFloat8.over(op.out);
  EXPECT_TRUE(cpu_supports(op).ok() && cuda_supports(op, {9, 0}).ok());
  op.weight_format = op.dy_format;
  EXPECT_EQ(refusal(cuda_supports(op, {9, 0})),
            "a product of f8e5m2 by f8e5m2; the library takes one of them in f8e4m3");
}

}  // namespace
}  // namespace sluice::core
