// SPDX-License-Identifier: Apache-2.0
#include "planner/refine.h"

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
  bool shorter(const Schedule& schedule, const std::vector<Gap>& gaps) {
    --left_;
    auto plan = rebuild_.build(schedule, gaps);
    // Sums in another order are no improvement.
    if (!plan || plan->makespan_ns >= c_.plan.makespan_ns * (1 - 1e-9)) return false;
    c_.plan = std::move(*plan);
    ++kept_;
    return true;
  }
  void flip(std::initializer_list<size_t> which) {
    std::vector<Gap> gaps = c_.gaps;
    for (const size_t g : which) gaps[g].cut = !gaps[g].cut;
    if (shorter(schedule_, gaps)) c_.gaps = std::move(gaps);
  }
  // What is overwritten next is away for nothing.
  bool open(size_t g) const { return !c_.gaps[g].dead; }

  void change_gaps() {
    for (size_t g = 0; g < c_.gaps.size() && left_ > 0; ++g) {
      if (open(g)) flip({g});
    }
    for (size_t g = 0; g < c_.gaps.size(); ++g) {
      for (size_t h = g + 1; h < c_.gaps.size() && left_ > 0; ++h) {
        if (open(g) && open(h) && c_.gaps[g].cut != c_.gaps[h].cut) flip({g, h});
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
        Schedule schedule = rebuild_.unroll(saves);
        auto cuts = rebuild_.cut(schedule, saves);
        if (!cuts || !shorter(schedule, cuts->gaps)) continue;
        c_.saves = std::move(saves);
        c_.gaps = std::move(cuts->gaps);
        schedule_ = std::move(schedule);
      }
    }
  }

  Candidate& c_;
  const std::vector<RecomputeUnit>& units_;
  const Rebuild& rebuild_;
  int left_;  // changes that may still be tried
  Schedule schedule_;
  int kept_ = 0;
};

}  // namespace

int refine(Candidate& candidate, const std::vector<RecomputeUnit>& units, const Rebuild& rebuild,
           int evaluations) {
  return Climb(candidate, units, rebuild, evaluations).run();
}

}  // namespace sluice::core
