// SPDX-License-Identifier: Apache-2.0
// What the user reads about a run and its plan: headers and comparisons.
#pragma once

#include <string>
#include <vector>

#include "report/report.h"
#include "setup/prepared.h"
#include "setup/speed.h"

namespace sluice::core {

// "llama, 8.03 B parameters".
std::string describe_model(const Prepared& prepared);
// The title of a plan, in a line.
std::string title_of(const Prepared& prepared);
// Model, shape (and why), machine and caps: names and words.
std::vector<std::pair<std::string, std::string>> facts_of(const Prepared& prepared);
// The facts, a line each.
std::string describe_run(const Prepared& prepared);
// The same and the plan in ten lines.
std::string describe(const Prepared& prepared);

// The training plan explained, with the Sluice that made it among the facts.
PlanReport report_of(const Prepared& prepared, std::vector<WhatIf> what_ifs = {});
// How the rate that MFU is of compares with that of bf16, where products read 8 bits; else empty.
std::string peak_text(const Prepared& prepared, const Speed& speed);
// "start-up: 12.3 s (measure 4.0 s, plan ...)".
std::string describe(const StartUp& start_up);

// By op: how often it ran, how long the plan said it would take, how long it took; and how long compute stood
// still.
std::string compare_to_plan(const Program& program, const Plan& plan, std::span<const Interval> timeline);
// The formulas in words.
std::string explain_speed();

}  // namespace sluice::core
