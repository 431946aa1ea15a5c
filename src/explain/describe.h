// SPDX-License-Identifier: Apache-2.0
// What the user reads about a run: headers, comparisons, and the files of a run directory.
#pragma once

#include <string>
#include <vector>

#include "report/report.h"
#include "run/prepare.h"
#include "run/saver.h"

namespace sluice::core {

// Model, shape (and why), machine and caps: names and words.
std::vector<std::pair<std::string, std::string>> facts_of(const Prepared& prepared);
// The facts, a line each.
std::string describe_run(const Prepared& prepared);
// The same and the plan in ten lines.
std::string describe(const Prepared& prepared);

// The training plan explained, with the Sluice that made it among the facts.
PlanReport report_of(const Prepared& prepared, std::vector<WhatIf> what_ifs = {});
// "start-up: 12.3 s (measure 4.0 s, plan ...)".
std::string describe(const StartUp& start_up);

// What checkpoints will take, and what one took: a line each.
std::string describe(const SaveForecast& forecast);
std::string describe(const SaveEvent& event);

// By op: how often it ran, how long the plan said it would take, how long it took; and how long compute stood
// still.
std::string compare_to_plan(const Program& program, const Plan& plan, std::span<const Interval> timeline);
// The formulas in words.
std::string explain_speed();

// Writes config.toml, plan.txt, plan.json, timeline.svg and predicted.json (a Chrome trace) into the run
// directory.
Status save_plan(const Prepared& prepared);
// The same for the page `json` of its report, so many `threads` at a time; each takes memory for what it
// writes.
Status save_plan(const Prepared& prepared, std::string_view json, int threads);

}  // namespace sluice::core
