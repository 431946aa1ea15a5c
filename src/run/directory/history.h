// SPDX-License-Identifier: Apache-2.0
// What a run already wrote to its metrics.jsonl.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "base/status.h"
#include "draw/plot.h"
#include "sluice/observer.h"

namespace sluice::core {

// Loads of a model's routers, step by step: see ExpertLoad.
struct RouterHistory {
  Series variation{"mean of the layers", {}}, worst_variation{"the worst layer", {}}, entropy{"entropy", {}},
      balance{"balance loss", {}}, z{"z-loss", {}};
};
// Names of these numbers of a step in metrics.jsonl and TensorBoard, and of those without a picture.
struct RouterNumber {
  const char* key;
  double ExpertLoad::*of_step;
  Series RouterHistory::*over_steps;  // null: there is none
};
constexpr RouterNumber kRouterNumbers[] = {
    {"load_variation", &ExpertLoad::variation, &RouterHistory::variation},
    {"worst_load_variation", &ExpertLoad::worst_variation, &RouterHistory::worst_variation},
    {"busiest_expert", &ExpertLoad::busiest, nullptr},
    {"entropy", &ExpertLoad::entropy, &RouterHistory::entropy},
    {"balance_loss", &ExpertLoad::balance, &RouterHistory::balance},
    {"z_loss", &ExpertLoad::z, &RouterHistory::z},
};
struct History {
  Series training{"training", {}}, heldout{"held-out", {}, true};
  RouterHistory router;
  std::string last;  // the last line that is kept; empty: none is
};
// The point of the lowest held-out loss; nothing if there is none.
std::optional<Point> lowest(const Series& heldout);

// Makes the metrics.jsonl at `to` what the one at `from` has up to and with `last_step`, from step 0 on a
// line per step. Later ones are steps that a run which goes on after it makes again. Both may be one file;
// where there is none at `from`, the other is empty. Lines that are not one step's JSON object, as the last
// one that a killed process wrote may be, are dropped. Takes the memory of a line.
Result<History> take_history(const std::filesystem::path& from, const std::filesystem::path& to,
                             int64_t last_step);

}  // namespace sluice::core
