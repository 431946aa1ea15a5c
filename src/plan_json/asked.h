// SPDX-License-Identifier: Apache-2.0
// The planner as a function of text: a model, a machine and settings become a plan. It opens no file, takes
// nothing from the host, and starts no thread where it is told to use one.
#pragma once

#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "setup/prepared.h"
#include "sluice/observer.h"

namespace sluice::core {

struct AskedPlan {
  std::string machine;  // as find_card() takes it
  // A machine file, of a name that ends in .toml, instead of a known machine; and the text of a config.json,
  // instead of model.preset.
  std::string machine_file, machine_file_name = "machine.toml", model_config;
  std::vector<std::string> settings;  // "key=value" each, as typed after --set
  int threads = 1;                    // to search with; the plan does not depend on it
  // By a rule, without a search for the shape: a sequence for each chunk, four chunks a round, and the first
  // settings that have a plan. Keys of shape that are given stay.
  bool quick = false;
};

// Of a JSON object: {"machine": "h200", "settings": ["model.preset=llama3-8b", "memory.device=24GiB"],
// "threads": 1, "quick": false}, with "machine_file", "machine_file_name" and "model" (the text of a
// config.json, or that as an object) where they are meant. Errors name the key.
Result<AskedPlan> parse_asked(std::string_view json);

// The plan that `sluice plan` makes of the same, without what it compares it with. Settings that name files
// are refused. The observer hears how many programs the search has looked at; asked to stop, it ends soon,
// and the error is Cancelled. Where the plan is a quick one, a refusal of kind DoesNotFit names no cap that
// works, which would take a search of its own.
Result<Prepared> plan_asked(const AskedPlan& asked, Observer& observer = silent_observer(),
                            const std::stop_token& stop = {});

// What counting says of a request in a fraction of a second, whatever its caps: nothing is planned. Times are
// for the whole step as one chunk, which takes the least of them, memories for chunks of a sequence each; or
// both for the chunks that are given.
struct Formula {
  int64_t tokens = 0;     // of a step
  double least_ns = 0;    // that a step takes: the longer of the two below
  double compute_ns = 0;  // every task once, on all devices evenly
  double loading_ns = 0;  // what outlives a step and is more than the devices' caps, once over their links
  // The cap of each device that the largest task fits, and the least that the caps of all devices and the
  // host must be together. On several devices those of the ring in the order of one device, which takes the
  // least.
  int64_t device_bytes = 0, all_bytes = 0;
};
// Errors as of plan_asked(); of caps only one that is above the card's own memory is refused.
Result<Formula> by_formula(const AskedPlan& asked);

// What `sluice plan --json` writes of it.
std::string json_of(const Prepared& prepared);
// What `sluice plan` prints of it.
std::string printed_of(const Prepared& prepared);

}  // namespace sluice::core
