// SPDX-License-Identifier: Apache-2.0
// What the routers of a step did, from the sums that it leaves (LoadLayout of ops/experts.h).
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "sluice/observer.h"

namespace sluice::core {

// The sums of one layer.
struct LayerLoad {
  int layer = 0;
  std::vector<double> sums;
};

// Nothing where no layer has experts.
std::optional<sluice::ExpertLoad> expert_load_of(std::span<const LayerLoad> layers, int64_t tokens);

}  // namespace sluice::core
