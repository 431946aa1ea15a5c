// SPDX-License-Identifier: Apache-2.0
#include "planning/choices.h"

#include <nlohmann/json.hpp>

#include "config/config.h"
#include "cost/card.h"
#include "model/families/families.h"
#include "version/version.h"

namespace sluice::core {

std::string choices_json() {
  using nlohmann::json;
  json out = {{"sluice", std::string(version()) + ", commit " + std::string(commit())},
              {"models", model_presets()}};
  for (const Card& card : cards()) {
    if (!card.can_be_planned()) continue;
    const ReachedRates& reached = card.bf16.known() ? card.bf16 : card.f32;
    out["machines"].push_back({{"key", card.key},
                               {"card", card.name},
                               {"memory_bytes", card.memory_bytes},
                               {"usable_bytes", card.usable_bytes()},
                               {"products_rate", reached.products},
                               {"load_rate", card.load_rate},
                               {"link", card.link_source},
                               {"reached", card.reached_source},
                               {"compared", card.compared}});
  }
  for (const KeyHelp& key : config_keys())
    out["keys"].push_back(
        {{"name", key.name}, {"value", key.value}, {"meaning", key.meaning}, {"allowed", key.allowed}});
  return out.dump();
}

}  // namespace sluice::core
