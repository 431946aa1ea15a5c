// SPDX-License-Identifier: Apache-2.0
// Bytes that training keeps of every parameter, by optimizer and number formats.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "base/numerics.h"
#include "estimate/counts.h"

namespace sluice::core {

// Weights, gradients and state in these formats, by an optimizer. Bytes of one parameter; fractions where
// state is not kept of every parameter alike.
struct Recipe {
  std::string_view name;  // "adamw-bf16"
  std::string_view meaning;
  double weights, masters, grads, state;
  // State of parameters outside the layers' matrices; as `state`, unless the optimizer treats them otherwise.
  double other_state;
  // How Sluice is told to run it, and its Program's formats; empty: it does not.
  std::string_view settings;
  std::string_view optimizer;
  Numerics numerics;

  bool runs() const { return !optimizer.empty(); }
};
// The first is what Sluice does on a GPU unless told otherwise.
std::span<const Recipe> recipes();
// Null: none is called so.
const Recipe* find_recipe(std::string_view name);

// Bytes of all parameters. `in_layers` are those of the layers' matrices. What an optimizer keeps of rows and
// columns counts where the model is known.
struct StaticBytes {
  double weights = 0, masters = 0, grads = 0, state = 0;
  double all() const { return weights + masters + grads + state; }
};
StaticBytes static_bytes(const Recipe& recipe, double params, double in_layers,
                         const ModelSpec* spec = nullptr);

// The formats whose activations and arithmetic a recipe has: those it runs with, else bf16.
Numerics numerics_of(const Recipe& recipe);

}  // namespace sluice::core
