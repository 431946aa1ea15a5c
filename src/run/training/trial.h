// SPDX-License-Identifier: Apache-2.0
// What `sluice demo` and `sluice sweep` share: the run they stand for, and how it is measured.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "run/session/session.h"

namespace sluice::core {

// The configuration of a run on random tokens, for load_config() to go on from. `tokens_per_step` 0: chosen,
// enough that weights and optimizer traffic are paid once per many chunks.
RunConfig demo_config(const std::string& model, int64_t seq_len, int64_t tokens_per_step);
// The setting that names the model: a preset, or the path of a config.json.
std::string model_setting(const std::string& model);

struct MeasuredSteps {
  std::vector<double> ns;          // of every timed step, ascending; none when interrupted before the first
  std::vector<Interval> timeline;  // of one more, when traced
  double traced_ns = 0;            // which took so long

  // REQUIRES: a step was timed.
  double median_ns() const { return ns[ns.size() / 2]; }
};
// Takes one step to warm up and times `steps` more; `show` is called after each. Tracing makes a step longer,
// so that it is another one that is traced: the second, to have it when the others are interrupted.
Result<MeasuredSteps> measure_steps(Session& session, int64_t steps, bool traced,
                                    const std::atomic<bool>& interrupted,
                                    const std::function<void(const std::string& what, double ns)>& show);

}  // namespace sluice::core
