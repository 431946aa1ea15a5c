// SPDX-License-Identifier: Apache-2.0
// A RunConfig made concrete for a machine: the number formats and the optimizer.
#pragma once

#include <optional>

#include "config/config.h"
#include "lowering/build.h"
#include "setup/machine.h"

namespace sluice::core {

// "auto" becomes bf16 where bf16 products are fast, elsewhere f32. With bf16, backends that prefer compact
// state have bf16 gradients and state and stochastic rounding; others have f32 gradients, state and master
// weights. Master weights that are asked for bring f32 state. What the machine does not compute in is
// refused. `auto_master`: what train.master = auto stands for; none: what these rules say.
Result<Numerics> resolve_numerics(const RunConfig& config, const Machine& machine,
                                  std::optional<MasterWeights> auto_master = {});

// Gives the model the adapters that the configuration has, or none.
Status resolve_adapters(const RunConfig& config, ModelSpec& model);
// Gives the base of the model, which is not trained, and its products the formats that the configuration has.
void resolve_formats(const RunConfig& config, ModelSpec& model);
// Has the model trained as the configuration says: its adapters, what of it is frozen (model/weights.h), in
// which format that is, and how much the z-loss of its routers counts. A model without experts has no z-loss.
Status resolve_training(const RunConfig& config, ModelSpec& model);

// An error names what a run with run.exact cannot have, and why. REQUIRES: the model is resolved.
Status check_exact(const RunConfig& config, const Machine& machine, const ModelSpec& model,
                   const Numerics& numerics);

// Updates are deferred by default where transfers are what may bind, unless every step begins with samples.
OptimizerConfig resolve_optimizer(const RunConfig& config, const Machine& machine);

}  // namespace sluice::core
