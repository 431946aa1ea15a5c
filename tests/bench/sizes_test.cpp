// SPDX-License-Identifier: Apache-2.0
// Products at their sizes and at those that are advised.
#include "bench/sizes.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "config/config.h"
#include "config/files/load_config.h"
#include "equivalence/rig/rig.h"
#include "ops/op.h"

namespace sluice::core {
namespace {

using rig::must;

// One layer, of which the FFN alone, and what is left of its products, could be larger.
SizeBench measured_sizes() {
  const std::vector<std::string> settings{"run.backend=cpu", "run.threads=1"};
  Machine machine = must(resolve_machine(must(load_config("", settings)), ""));
  const BenchCell cell =
      must(make_cell("layers=1,dim=128,ffn=100,heads=2,vocab=128", 16, 2, "f32", settings));
  const std::atomic<bool> never = false;
  return must(run_sizes(cell, machine, never, [](const std::string&) {}));
}

TEST(Sizes, ProductsAndAdviceAreMeasured) {
  const SizeBench bench = measured_sizes();
  double s = 0;
  for (const auto& [product, one_s] : bench.now.of) {
    EXPECT_GT(one_s, 0) << product.name;
    s += double(product.count) * one_s;
  }
  EXPECT_DOUBLE_EQ(bench.now.s(), s);
  ASSERT_EQ(bench.advice.size(), 6u);
  for (const MeasuredAdvice& m : bench.advice) {
    const bool ffn = m.advice.dimension == Dimension::Ffn;
    EXPECT_EQ(m.advice.next.has_value(), ffn) << m.advice.name;
    EXPECT_EQ(m.at_next.of.empty(), !ffn) << m.advice.name;
    if (!ffn) continue;
    EXPECT_EQ(m.advice.next, 128);
    const auto gate_up =
        std::ranges::find(m.at_next.of, "gate_up", [](const auto& p) { return p.product.name; });
    ASSERT_NE(gate_up, m.at_next.of.end());
    EXPECT_EQ(gate_up->product.n, 2 * 128);
    EXPECT_GT(m.beside, 0);
    EXPECT_GT(m.gain(), -1);
  }
}

TEST(Sizes, ThePageSaysWhatWasMeasured) {
  MeasuredProduct product{{"down", 8, 128, 128, 2, Linear{8, 128, 128, DType::F32}}, 1e-6};
  MeasuredProduct next{{"down", 8, 256, 128, 2, Linear{8, 128, 256, DType::F32}}, 1.6e-6};
  SizeBench bench;
  bench.cell.model = "one", bench.cell.seq_len = 8, bench.cell.batch = 1;
  bench.now.of = {product};
  bench.advice = {
      {{.dimension = Dimension::Ffn, .name = "FFN F", .size = 128, .next = 256}, {{next}}, 0.26e12}};
  const std::string lines = to_json(sizes_page(bench));
  // 2 x 8 x 128 x 128 sums in a microsecond; twice as many in 1.6 are a quarter faster than 0.262 TFLOP/s.
  EXPECT_NE(lines.find("262144000000"), std::string::npos) << lines;
  EXPECT_NEAR(bench.advice.front().gain(), 0.32768 / 0.26 - 1, 1e-9);
}

TEST(Sizes, EveryLayerIsResized) {
  const ModelSpec spec = model_of({64, 3, 4, 2, 16, 96, 256});
  const auto wider = resized(spec, Dimension::Ffn, 128);
  ASSERT_TRUE(wider);
  for (const LayerSpec& layer : wider->layers) EXPECT_EQ(layer.mlp().ffn, 128);
  EXPECT_EQ(wider->dim, spec.dim);
  EXPECT_EQ(resized(spec, Dimension::Vocabulary, 384)->vocab, 384);
  EXPECT_FALSE(resized(spec, Dimension::Keys, 128));
}

}  // namespace
}  // namespace sluice::core
