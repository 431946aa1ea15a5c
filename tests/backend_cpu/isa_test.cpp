// SPDX-License-Identifier: Apache-2.0
// Every instruction set that this machine has gives the same results as the best one, up to rounding.
#include "run_op.h"

namespace sluice::core::testing {
namespace {

// Shapes with parts that are not whole vectors, tiles or blocks.
std::vector<SharedOp> ops_of(DType t) {
  const DType f32 = DType::F32;
  const MasterWeights off = MasterWeights::Off;
  const AttnShape shape{2, 70, 70, 4, 2, 40, 0, true, t}, whole{1, 200, 200, 2, 2, 64, 0, false, t};
  return {EmbedBwd{50, 12, 37, t, f32, true},
          RmsNorm{9, 37, 1e-5f, t},
          RmsNormBwd{40, 37, 1e-5f, t, f32, true, true},
          Linear{45, 37, 60, t, false, 2, 20},
          Linear{70, 96, 64, t, true},
          Linear{45, 37, 60, t, false, 2, 20, true},
          Linear{45, 37, 60, t, true, 0, 0, true},
          BiasGrad{45, 61, t, f32, true},
          HeadNormRope{{9, 2, 20, 21, 1e-5f}, t},
          HeadNormRopeBwd{{40, 2, 20, 21, 1e-5f}, f32, t, f32, true},
          RmsNorm{9, 37, 1e-5f, t, 1, 0.5f, true},
          LayerNorm{9, 37, 1e-5f, t, true, true},
          LayerNormBwd{40, 37, 1e-5f, t, f32, true, true, true, true, true},
          HeadNormRope{{9, 2, 20, 21, 1e-5f, 1, 1, true}, t},
          HeadNormRopeBwd{{40, 2, 20, 21, 1e-5f, 1, 1, true}, f32, t, f32, true},
          Swiglu{9, 37, t, GateActivation::Gelu},
          Swiglu{9, 37, t, GateActivation::QuickGelu, false, 0.5f},
          SwigluBwd{9, 37, t, GateActivation::QuickGelu, false, 0.5f},
          SinkGrad{2, 9, 3, 40, t, t, false},
          SwigluBwd{9, 37, t, GateActivation::Gelu, true},
          LinearDgrad{45, 37, 61, t, true},
          Linear{45, 38, 61, t, true},  // pairs of bf16, and panels that are not whole
          LinearDgrad{45, 37, 62, t, true},
          LinearWgrad{46, 37, 61, t, f32, true},
          LinearWgrad{45, 37, 61, t, t, true},
          LinearWgrad{330, 64, 96, t, f32, false},
          AttnFwd{shape, t, false},
          AttnFwd{whole, f32, false},
          AttnBwd{shape, f32, false, false},
          AttnBwd{whole, t, true, true},
          Rope{9, 2, 20, 21, t},
          RopeBwd{9, 2, 1, 20, t, f32},
          Cast{1001, t, t == f32 ? DType::BF16 : f32},
          Swiglu{9, 37, t},
          SwigluBwd{9, 37, t},
          Swiglu{9, 37, t, GateActivation::GeluTanh},
          SwigluBwd{9, 37, t, GateActivation::GeluTanh},
          HeadLoss{50, 37, 41, 16, t, f32, false, false, false},
          CachedAttention{1, 5, 100, 4, 2, 40, t},
          LastLogits{9, 2, 37, 41, t},
          SumSq{1001, 0, 1, t, true},
          AdamW{1001, 4, 1, 0.9f, 0.95f, 1e-8f, 0.1f, t, f32, f32, off, false},
          AdamWMoments{1001, 4, 1, 0.9f, 0.95f, f32, t, false},
          SgdMomentum{1001, 4, 1, 0.9f, 0.1f, true, t, f32, f32, off, false},
          SgdMomentumState{1001, 4, 1, 0.9f, f32, t, false},
          Lion{1001, 4, 1, 0.9f, 0.99f, 0.1f, t, f32, f32, off, false},
          LionState{1001, 4, 1, 0.99f, f32, t, false}};
}

Contents contents_of(const Op& op) {
  Contents contents;
  uint32_t seed = 1;
  for (const Operand& operand : operands(op)) {
    Values values = random_values(operand.elements, ++seed);
    if (operand.name == "args") {
      values = as_values({.step = 1, .learning_rate = 0.01f, .loss_scale = 1, .update = 1, .updates = 1});
    } else if (operand.format == DType::I32) {
      for (size_t i = 0; i < values.size(); ++i) values[i] = double(i % 7);
    } else if (operand.name == "v" || operand.name == "clip") {
      for (double& v : values) v *= v;
    } else if (operand.name == "lse") {
      for (double& v : values) v = 4 + v;
    }
    contents.push_back(std::move(values));
  }
  return contents;
}

class EveryIsa : public ::testing::TestWithParam<CpuIsa> {};
INSTANTIATE_TEST_SUITE_P(Isas, EveryIsa,
                         ::testing::Values(CpuIsa::Baseline, CpuIsa::Avx2, CpuIsa::Avx512,
                                           CpuIsa::Avx512Bf16));

TEST_P(EveryIsa, AgreesWithTheBest) {
  if (GetParam() > best_cpu_isa()) GTEST_SKIP() << "this machine has no " << name_of(GetParam());
  for (const DType type : {DType::F32, DType::BF16}) {
    for (const Op& op : ops_of(type)) {
      const Contents contents = contents_of(op);
      const Contents best = run_op(op, contents),
                     here = run_op(op, contents, {.threads = 2, .isa = GetParam()});
      for (size_t i = 0; i < best.size(); ++i) {
        EXPECT_LT(relative_error(here[i], best[i]), tolerance(type))
            << to_text(op) << ": " << operands(op)[i].name;
      }
    }
  }
}

}  // namespace
}  // namespace sluice::core::testing
