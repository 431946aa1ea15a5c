// SPDX-License-Identifier: Apache-2.0
#include "estimate/memory.h"

#include <algorithm>

#include "optimizer/optimizer.h"

namespace sluice::core {
namespace {

constexpr Numerics formats(DType compute, DType grad, DType state, MasterWeights master, bool stochastic) {
  return {.compute = compute, .grad = grad, .state = state, .master = master, .stochastic = stochastic};
}
constexpr Numerics kF32{};
constexpr Numerics kBf16 = formats(DType::BF16, DType::BF16, DType::BF16, MasterWeights::Off, true);
constexpr Numerics kMixed = formats(DType::BF16, DType::F32, DType::F32, MasterWeights::F32, false);
constexpr Numerics kMasters = formats(DType::BF16, DType::BF16, DType::F32, MasterWeights::F32, false);

constexpr Numerics k8Bit = formats(DType::BF16, DType::BF16, DType::I8, MasterWeights::Off, true);
constexpr Numerics k8BitMixed = formats(DType::BF16, DType::F32, DType::I8, MasterWeights::F32, false);
constexpr Numerics kCompact = formats(DType::BF16, DType::BF16, DType::I8, MasterWeights::I8, false);

constexpr std::string_view k8BitMixedSettings = "train.state=i8, train.master=on, train.grad=f32";
constexpr std::string_view kMixedSettings = "train.master=on, train.grad=f32";
constexpr std::string_view kF32Settings = "train.compute=f32, on a CPU";

// Weights, masters, gradients, state, state of what is no matrix of a layer. State: moments of two bytes or
// four each; 8-bit ones have one byte each, and an f32 scale for every 32 (ops/compact.h).
// Adafactor's second moment is a row and a column per matrix, which is next to nothing and is counted apart;
// it has no first one here. Muon keeps one momentum of matrices in layers and leaves the rest to AdamW.
constexpr Recipe kRecipes[] = {
    {"adamw-bf16", "AdamW, all bf16, stochastic rounding", 2, 0, 2, 4, 4, "what a GPU runs", "adamw", kBf16},
    {"adamw-mixed", "AdamW, bf16 beside f32 masters", 2, 4, 4, 8, 8, kMixedSettings, "adamw", kMixed},
    {"adamw-masters", "the same with bf16 gradients", 2, 4, 2, 8, 8, "train.master=on", "adamw", kMasters},
    {"adamw-f32", "AdamW, all f32", 4, 0, 4, 8, 8, kF32Settings, "adamw", kF32},
    {"adamw-kahan", "AdamW, all bf16, Kahan sums of weights", 2, 2, 2, 4, 4, "", "", {}},
    {"adamw-8bit", "AdamW, mixed, moments of 8 bits", 2, 4, 4, 2.25, 2.25, k8BitMixedSettings, "adamw",
     k8BitMixed},
    {"adamw-8bit-bf16", "AdamW, bf16, moments of 8 bits", 2, 0, 2, 2.25, 2.25, "train.state=i8", "adamw",
     k8Bit},
    {"adamw-compact", "AdamW, bf16, masters of 24 bits, moments of 8", 2, 1, 2, 2.25, 2.25, "train.master=i8",
     "adamw", kCompact},
    {"sgd-bf16", "SGD with momentum, all bf16", 2, 0, 2, 2, 2, "train.optimizer=sgd", "sgd", kBf16},
    {"sgd-mixed", "SGD with momentum, mixed", 2, 4, 4, 4, 4, "train.optimizer=sgd, as adamw-mixed", "sgd",
     kMixed},
    {"lion-bf16", "Lion, all bf16", 2, 0, 2, 2, 2, "train.optimizer=lion", "lion", kBf16},
    {"lion-mixed", "Lion, mixed", 2, 4, 4, 4, 4, "train.optimizer=lion, as adamw-mixed", "lion", kMixed},
    {"adafactor-bf16", "Adafactor, all bf16; a number for each row and column", 2, 0, 2, 0, 0,
     "train.optimizer=adafactor", "adafactor", kBf16},
    {"adafactor-mixed", "Adafactor, mixed", 2, 4, 4, 0, 0, "train.optimizer=adafactor, as adamw-mixed",
     "adafactor", kMixed},
    {"muon-mixed", "Muon, mixed; AdamW for what is no matrix of a layer", 2, 4, 4, 4, 8,
     "train.optimizer=muon, as adamw-mixed", "muon", kMixed},
    {"muon-bf16", "Muon, all bf16", 2, 0, 2, 2, 4, "train.optimizer=muon", "muon", kBf16},
};

double of_rows_and_columns(const ModelSpec& spec, const Recipe& recipe) {
  OptimizerConfig config;
  config.optimizer = find_optimizer(recipe.optimizer);
  double bytes = 0;
  for (const Weight& weight : weights_of(spec)) {
    const Numerics own = numerics_of(weight, recipe.numerics);
    const UpdateRule& rule = config.optimizer->rule_of(weight);
    if (!rule.whole) continue;
    for (const UpdateExtent& extent : extents_of(weight, config, own)) {
      for (const StateSlot& slot : rule.state) {
        if (slot.each != Each::Element)
          bytes += double(slot.format_in(own).bytes(slot.format_in(own).padded(slot.numbers(extent))));
      }
    }
  }
  return bytes;
}

}  // namespace

std::span<const Recipe> recipes() {
  return kRecipes;
}

const Recipe* find_recipe(std::string_view name) {
  const auto* it =
      std::find_if(std::begin(kRecipes), std::end(kRecipes), [&](const auto& r) { return r.name == name; });
  return it == std::end(kRecipes) ? nullptr : it;
}

StaticBytes static_bytes(const Recipe& r, double params, double in_layers, const ModelSpec* spec) {
  return {r.weights * params, r.masters * params, r.grads * params,
          r.state * in_layers + r.other_state * (params - in_layers) +
              (spec != nullptr && r.runs() ? of_rows_and_columns(*spec, r) : 0)};
}

Numerics numerics_of(const Recipe& recipe) {
  return recipe.runs() ? recipe.numerics : kBf16;
}

}  // namespace sluice::core
