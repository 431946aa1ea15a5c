// SPDX-License-Identifier: Apache-2.0
// Products that read 8 bits: gradients beside those of bf16 and of f32, and what a step keeps for them.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "equivalence/small_runs.h"
#include "ops/cast.h"

namespace sluice::core {
namespace {

using Values = std::map<std::string, std::vector<double>>;  // by weight

// Gradients of one step from the same weights.
Values gradients_of(const Numerics& numerics, const ProductFormats& products = {}, bool narrow_head = false) {
  Question request = small_request({16, 32, 1, 1, 16}, numerics, Updates::Deferred);
  request.model.products = products;
  request.model.narrow_head = narrow_head;
  request.model.vocab = 64;  // as the head's products need it
  rig::Rig run(request);
  run.initialize();
  run.step(1, rig::random_tokens(request.shape, request.model.vocab, 1));
  Values out;
  for (const auto& [name, bytes] : rig::read_state(run.training(), {ObjectKind::Grad})) {
    std::vector<double>& values = out[name];
    for (size_t i = 0; i < bytes.size(); i += sizeof(float)) {
      float x;
      std::memcpy(&x, bytes.data() + i, sizeof x);
      values.push_back(double{x});
    }
  }
  return out;
}

double off_by(const std::vector<double>& got, const std::vector<double>& expected) {
  double error = 0, size = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    error += (got[i] - expected[i]) * (got[i] - expected[i]);
    size += expected[i] * expected[i];
  }
  return std::sqrt(error / size);
}

// A product's factors are off by 2^-4 at most, gradients in f8e5m2 by 2^-3, and by a third of that in the
// root of their mean square. A gradient has both factors of its own product, and those of the passes before
// it.
TEST(NarrowProducts, HaveGradientsNearThoseOfF32) {
  constexpr double kFactor = 0x1p-4 / 3;
  constexpr int kProducts = 2 * 2 * 4;  // in both passes over two layers, each of four in a row
  const double allowed = kFactor * std::sqrt(2.0 * kProducts);
  const Values f32 = gradients_of({});
  const Values bf16 = gradients_of({.compute = DType::BF16}),
               fp8 = gradients_of({.compute = DType::BF16}, {kFloat8, kFloat8, kFloat8}),
               e5m2 = gradients_of({.compute = DType::BF16}, {kFloat8, kFloat8, kWideFloat8});
  for (const auto& [name, values] : f32) {
    const double narrow = off_by(fp8.at(name), values), wide = off_by(bf16.at(name), values);
    RecordProperty(name, std::to_string(narrow) + " fp8, " + std::to_string(wide) + " bf16");
    EXPECT_LT(narrow, allowed) << name << ", and bf16 is off by " << wide;
    EXPECT_NE(fp8.at(name), bf16.at(name)) << name;
    EXPECT_LT(off_by(e5m2.at(name), values), 2 * allowed) << name;
    // The forward pass, and what is before the first product, are as without.
    const bool before = name == "d_head" || name == "d_norm";
    EXPECT_EQ(e5m2.at(name) == fp8.at(name), before) << name;
  }
}

// The head's three products add theirs: logits' gradients are f8e5m2.
TEST(NarrowProducts, OfTheHeadHaveGradientsNearThoseOfF32) {
  const double allowed = 0x1p-4 / 3 * std::sqrt(2.0 * 2 * 2 * 4) + 0x1p-3 / 3 * std::sqrt(3.0);
  const Numerics bf16{.compute = DType::BF16};
  const ProductFormats products{kFloat8, kFloat8, kFloat8};
  const Values f32 = gradients_of({}), wide = gradients_of(bf16, products),
               narrow = gradients_of(bf16, products, true);
  for (const auto& [name, values] : f32) {
    RecordProperty(name, std::to_string(off_by(narrow.at(name), values)) + ", and with the head in bf16 " +
                             std::to_string(off_by(wide.at(name), values)));
    EXPECT_LT(off_by(narrow.at(name), values), allowed) << name;
    EXPECT_NE(narrow.at(name), wide.at(name)) << name;
  }
}

}  // namespace
}  // namespace sluice::core
