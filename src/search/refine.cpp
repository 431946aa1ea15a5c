// SPDX-License-Identifier: Apache-2.0
#include "search/refine.h"

#include <initializer_list>

namespace sluice::core {
namespace {

class Climb {
 public:
  Climb(Candidate& candidate, const std::vector<RecomputeUnit>& units, const Rebuild& rebuild,
        int evaluations)
      : c_(candidate),
        units_(units),
        rebuild_(rebuild),
        left_(evaluations),
        schedule_(rebuild.unroll(candidate.saves)) {}

  int run() {
    int before = -1;
    while (kept_ != before && left_ > 0) {
      before = kept_;
      change_gaps();
      if (kept_ == before) change_saves();
    }
    return kept_;
  }

 private:
  bool shorter(const StepSchedule& schedule, const GapsByDevice& gaps) {
    --left_;
    auto plan = rebuild_.build(schedule, gaps);
    // Sums in another order are no improvement.
    if (!plan || plan->makespan_ns >= c_.plan.makespan_ns * (1 - 1e-9)) return false;
    c_.plan = std::move(*plan);
    c_.step_ns = c_.plan.makespan_ns;
    ++kept_;
    return true;
  }
  // A gap of a device.
  using Which = std::pair<size_t, size_t>;
  Gap& gap(Which which) { return c_.gaps[which.first][which.second]; }

  void flip(std::initializer_list<Which> which) {
    GapsByDevice gaps = c_.gaps;
    for (const auto& [device, g] : which) gaps[device][g].cut = !gaps[device][g].cut;
    if (shorter(schedule_, gaps)) c_.gaps = std::move(gaps);
  }

  void change_gaps() {
    // A value that is overwritten next is away without cost.
    std::vector<Which> open;
    for (size_t d = 0; d < c_.gaps.size(); ++d) {
      for (size_t g = 0; g < c_.gaps[d].size(); ++g) {
        if (!c_.gaps[d][g].dead) open.emplace_back(d, g);
      }
    }
    for (size_t i = 0; i < open.size() && left_ > 0; ++i) flip({open[i]});
    for (size_t i = 0; i < open.size(); ++i) {
      for (size_t j = i + 1; j < open.size() && left_ > 0; ++j) {
        if (gap(open[i]).cut != gap(open[j]).cut) flip({open[i], open[j]});
      }
    }
  }

  void change_saves() {
    for (const RecomputeUnit& unit : units_) {
      for (const Save save : {Save::Keep, Save::Host, Save::Again}) {
        if (left_ <= 0) return;
        if (c_.saves[unit.objects.front().value] == save) continue;
        Saves saves = c_.saves;
        for (const ObjectId o : unit.objects) saves[o.value] = save;
        StepSchedule schedule = rebuild_.unroll(saves);
        auto cuts = rebuild_.cut(schedule, saves);
        if (!cuts || !shorter(schedule, gaps_of(*cuts))) continue;
        c_.saves = std::move(saves);
        c_.gaps = gaps_of(*cuts);
        schedule_ = std::move(schedule);
      }
    }
  }

  Candidate& c_;
  const std::vector<RecomputeUnit>& units_;
  const Rebuild& rebuild_;
  int left_;  // changes that may still be tried
  StepSchedule schedule_;
  int kept_ = 0;
};

}  // namespace

int refine(Candidate& candidate, const std::vector<RecomputeUnit>& units, const Rebuild& rebuild,
           int evaluations) {
  return Climb(candidate, units, rebuild, evaluations).run();
}

}  // namespace sluice::core
