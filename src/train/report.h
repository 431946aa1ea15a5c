// What the user sees: headers, progress lines, and the files of a run directory.
#pragma once

#include <string>
#include <vector>

#include "report/report.h"
#include "train/session.h"

namespace sluice {

// Model, shape (and why), machine and caps: names and words.
std::vector<std::pair<std::string, std::string>> facts_of(const Prepared& prepared);
// The facts, a line each.
std::string describe_run(const Prepared& prepared);
// The same and the plan in ten lines.
std::string describe(const Prepared& prepared);

// The training plan explained.
PlanReport report_of(const Prepared& prepared, std::vector<WhatIf> what_ifs = {});
// "start-up: 12.3 s (measure 4.0 s, plan ...)".
std::string describe(const StartUp& start_up);

// Speeds of a step by the formulas of model/flops.h.
struct Speed {
  double tokens_per_s = 0;
  double model_tflops = 0;     // model FLOPs per second
  double hardware_tflops = 0;  // with recomputation, the plan's and attention's own
  double mfu = 0, hfu = 0;     // of peak; 0 when the peak is unknown
};
Speed speed_of(const Program& program, const Plan& plan, double step_ns, double peak_flops);
// By op: how often it ran, how long the plan said it would take, how long it took; and how long compute stood
// still.
std::string compare_to_plan(const Program& program, const Plan& plan, std::span<const Interval> timeline);
// The formulas in words.
std::string explain_speed();

// The fastest matrix product of the profile, FLOPs per second: what MFU is measured against.
double peak_flops(const Prepared& prepared);

// "1:02:03", "4:05" or "7 s".
std::string format_duration(double seconds);

// Progress on a terminal is one line rewritten in place; elsewhere one line now and then.
class ProgressLine {
 public:
  ProgressLine();
  // Shows `text` now on a terminal; elsewhere when some seconds have passed or when `important`.
  void show(const std::string& text, bool important);
  // Ends the line, so that other output can follow.
  void end();

 private:
  bool terminal_;
  double shown_ns_ = 0;
  size_t width_ = 0;
};

// Writes config.toml, plan.txt, plan.json, timeline.svg and predicted.json (a Chrome trace) into the run
// directory.
Status save_plan(const Prepared& prepared, const std::vector<WhatIf>& what_ifs = {});

}  // namespace sluice
