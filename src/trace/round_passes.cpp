// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <utility>

#include "trace/trace.h"

namespace sluice::core {

std::vector<RoundPass> round_passes(const Program& program, const Plan& plan,
                                    std::span<const Interval> timeline) {
  std::map<std::pair<Phase, int32_t>, RoundPass> found;
  for (size_t id = 0; id < plan.actions.size(); ++id) {
    const Action& a = plan.actions[id];
    if (a.kind != ActionKind::Run || a.recompute) continue;
    const Task& task = program.task(a.task);
    const int32_t round = task.phase == Phase::Update ? -1 : task.round;
    const Interval& t = timeline[id];
    const auto [it, fresh] =
        found.try_emplace({task.phase, round}, RoundPass{task.phase, round, t.start_ns, t.end_ns, 0});
    RoundPass& pass = it->second;
    pass.start_ns = std::min(pass.start_ns, t.start_ns);
    pass.end_ns = std::max(pass.end_ns, t.end_ns);
    pass.busy_ns += t.end_ns - t.start_ns;
  }
  std::vector<RoundPass> out;
  const auto overlaps = [&](const RoundPass& a) {
    return std::any_of(found.begin(), found.end(), [&](const auto& b) {
      return &b.second != &a && a.start_ns < b.second.end_ns && b.second.start_ns < a.end_ns;
    });
  };
  for (const auto& [key, pass] : found) {
    if (pass.phase != Phase::Update || !overlaps(pass)) out.push_back(pass);
  }
  std::sort(out.begin(), out.end(),
            [](const RoundPass& a, const RoundPass& b) { return a.start_ns < b.start_ns; });
  std::vector<double> rows;  // where the last pass of each ends
  for (RoundPass& pass : out) {
    auto row = std::find_if(rows.begin(), rows.end(), [&](double end_ns) { return end_ns <= pass.start_ns; });
    if (row == rows.end()) row = rows.insert(row, 0);
    *row = pass.end_ns;
    pass.row = int32_t(row - rows.begin());
  }
  return out;
}

bool interleaved(std::span<const RoundPass> passes) {
  return std::any_of(passes.begin(), passes.end(), [&](const RoundPass& f) {
    return f.phase == Phase::Forward && std::any_of(passes.begin(), passes.end(), [&](const RoundPass& b) {
             return b.phase == Phase::Backward && b.round != f.round && b.start_ns < f.start_ns &&
                    f.start_ns < b.end_ns;
           });
  });
}

}  // namespace sluice::core
