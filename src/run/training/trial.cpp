// SPDX-License-Identifier: Apache-2.0
#include "run/training/trial.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "model/families/families.h"

namespace sluice::core {

RunConfig demo_config(const std::string& model, int64_t seq_len, int64_t tokens_per_step) {
  const int64_t wanted = tokens_per_step > 0                ? tokens_per_step
                         : preset_meant_by(model) == "tiny" ? 4096
                                                            : 131072;
  RunConfig config;
  config.train.seq_len = seq_len;
  config.train.tokens_per_step = std::max<int64_t>(1, wanted / std::max<int64_t>(1, seq_len)) * seq_len;
  config.sample.tokens = 0;
  return config;
}

std::string model_setting(const std::string& model) {
  std::error_code ignored;
  // A name with a slash is a path, or one of the hub.
  const bool file =
      model.ends_with(".json") || model.find('/') != model.npos || std::filesystem::exists(model, ignored);
  return (file ? "model.config=" : "model.preset=") + model;
}

Result<MeasuredSteps> measure_steps(Session& session, int64_t steps, bool traced,
                                    const std::atomic<bool>& interrupted,
                                    const std::function<void(const std::string& what, double ns)>& show) {
  SLUICE_ASSIGN(const StepResult warm_up, session.step());
  show("warm-up", warm_up.ns);
  MeasuredSteps measured;
  for (int64_t i = 1; i <= steps && !interrupted; ++i) {
    SLUICE_ASSIGN(const StepResult r, session.step(nullptr));
    measured.ns.push_back(r.ns);
    show(fmt::format("step {}", i), r.ns);
    if (!traced || i > 1 || interrupted) continue;
    session.engine().note_activities();
    SLUICE_ASSIGN(const StepResult with_times, session.step(&measured.timeline));
    measured.traced_ns = with_times.ns;
    show("traced", with_times.ns);
  }
  std::sort(measured.ns.begin(), measured.ns.end());
  return measured;
}

}  // namespace sluice::core
