// SPDX-License-Identifier: Apache-2.0
// Adapters of all experts of a layer as PEFT has them of one parameter with three sizes (target_parameters).
// A is [experts * rank, in], and B is [out, rank * experts]. In B columns of an expert are as far apart as
// there are experts.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/safetensors.h"
#include "model/weights.h"

namespace sluice::core {

// Gate and up are one parameter there. Of rank `parts` times that of either, in which a column of B is 0 but
// for the rows of its own part, that is the same.
struct StackedExperts {
  std::string module;     // "model.layers.0.mlp.experts"
  std::string parameter;  // "gate_up_proj"
  LowRankSizes sizes;     // of one expert
  double scale;
  int64_t experts, in;
  std::vector<std::string> modules;  // whose A and B they are, part after part, expert after expert

  int64_t rank() const { return sizes.parts * sizes.rank; }
  std::vector<int64_t> shape(bool b) const;
  // All of A, or of B, from the tensors of the modules, which have the shapes that the model needs.
  Result<std::vector<float>> read(const TensorFiles& files, bool b) const;
};

// One for each layer's gate and up, and one for its down. An error names experts whose modules the class of
// transformers calls otherwise than their checkpoint.
Result<std::vector<StackedExperts>> stacked_experts(const ModelSpec& spec);

}  // namespace sluice::core
