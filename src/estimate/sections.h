// SPDX-License-Identifier: Apache-2.0
// The sections of an estimate. Each is none, or shorter, where the input lacks what it is about.
#pragma once

#include <optional>

#include "estimate/estimate.h"

namespace sluice::core {

// The counts that all sections use.
struct Basis {
  const EstimateInput& in;
  double params = 0;     // P: every one
  double matrices = 0;   // N: without norms and biases, as rules count
  double active = 0;     // of these, the ones that a token is multiplied with
  double in_layers = 0;  // of N, those in layers
  StaticBytes statics;   // by the recipe
  // With a model that Sluice builds Programs of.
  const ModelSpec* spec = nullptr;
  Parts parts;
  ForwardCounts forward;
  TrainingCounts training;

  double tokens() const { return double(in.batch.tokens()); }
  // Replicas of a step over all devices.
  double replicas() const { return double(in.devices) / double(in.tp * in.pp); }
  double step_tokens() const { return tokens() * double(in.accumulate) * replicas(); }
  // Numbers of keys and values of one token.
  double kv_numbers() const { return double(forward.kv_bytes) / tokens() / 2; }
  // By one token: training's, of products and attention, without and with what layers compute again.
  double training_flops() const { return training.flops / tokens(); }
  double again_flops() const { return training.blocks.again_flops / tokens(); }
};

using SectionOf = std::optional<Section>(const Basis& basis);
SectionOf parameters_section, inference_section, flops_section, memory_section, activations_section;
SectionOf time_section, roofline_section, scaling_section, batch_section, sharding_section, mesh_section;
SectionOf sizes_section;

}  // namespace sluice::core
