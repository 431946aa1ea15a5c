// SPDX-License-Identifier: Apache-2.0
// The order in which a finished Plan is submitted.
#include <algorithm>
#include <numeric>

#include "search/passes/passes.h"

namespace sluice::core {

void submit_by_start(Plan& plan) {
  std::vector<uint32_t> order(plan.actions.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return plan.actions[a].start_ns < plan.actions[b].start_ns;
  });
  std::vector<uint32_t> index(order.size());
  for (uint32_t i = 0; i < order.size(); ++i) index[order[i]] = i;
  std::vector<Action> actions;
  actions.reserve(order.size());
  for (const uint32_t i : order) actions.push_back(plan.actions[i]);
  plan.actions = std::move(actions);
  for (uint32_t& wait : plan.waits) wait = index[wait];
}

}  // namespace sluice::core
