// SPDX-License-Identifier: Apache-2.0
// What a run is, as its checkpoints say it: everything that decides its results, and nothing else. Caps,
// threads, plans and the placement of updates may change when a run goes on; docs/reliability.md has a
// table of every key.
#pragma once

#include <span>
#include <string_view>

#include "checkpoint/checkpoint.h"
#include "run/prepare/prepare.h"
#include "sluice/schedule.h"

namespace sluice::core {

// Names are those of configuration keys where there is one: "train.seed", "shape.rounds".
// `content` is equal for equal documents.
Manifest manifest_of(const Prepared& prepared, const std::string& content);
// The same before there is a plan, of a run that goes on: its shape is the one that was saved, where the
// configuration does not ask for another.
Result<Manifest> manifest_before_plans(const RunConfig& config, const Machine& machine,
                                       const ModelSpec& model, const std::string& content,
                                       const Manifest& saved);
// Adds the date that a chat template shows; nothing if it is empty: none does.
void add_date(Manifest& manifest, const std::string& date);
// Adds the checksum of the weights that answers are compared by; nothing if it is empty.
inline constexpr std::string_view kReferenceName = "objective.reference";
void add_reference(Manifest& manifest, const std::string& weights);
// Adds what decides the learning rate of every step.
void add_schedule(Manifest& manifest, const sluice::Schedule& schedule);

// Words of --allow: each allows differences of the keys that have it (config/row.h).
std::vector<std::string> words_of_allow();
// Words with commas between. Errors name those that there are.
Result<std::vector<std::string>> parse_allowances(std::string_view text);

// Every difference, as differences() says it; a key that one side lacks is what that means.
std::vector<std::string> changes(const Manifest& saved, const Manifest& now);
// An error that has every difference which the configuration does not allow, and the ways out.
Status check_goes_on(const RunConfig& config, const Manifest& saved, const Manifest& now);
// `now` with what is allowed as it was saved, and with what it means by leaving out keys that were saved.
Manifest tolerating(const Manifest& saved, const Manifest& now, std::span<const std::string> allow);

// The facts in the checkpoint that a run goes on from; none where it begins.
Result<RunFacts> facts_of(const RunConfig& config);

}  // namespace sluice::core
