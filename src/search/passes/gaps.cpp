// SPDX-License-Identifier: Apache-2.0
// Gaps: which values leave the device between which of their uses.
#include <algorithm>
#include <queue>

#include "search/passes/grouped.h"
#include "search/passes/passes.h"
#include "search/pressure.h"

namespace sluice::core {
namespace {

// The cost of a transfer on a free link, as part of its time; and the part of the step in which it looks for
// time.
constexpr double kFree = 0.15;
constexpr double kWindowShare = 0.02;

class GapCutter {
 public:
  GapCutter(const DeviceSchedule& schedule, const std::vector<double>& start_ns, const Profile& profile,
            const Limits& limits, int64_t target_bytes, const GapCosts& costs)
      : s_(schedule),
        limits_(limits),
        start_ns_(start_ns),
        profile_(profile),
        again_(costs.again),
        use_(costs.use),
        prices_(costs.prices),
        target_(target_bytes),
        n_(schedule.size()) {
    if (use_.empty() && prices_.empty()) return;
    uint32_t plain = 0;
    for (uint32_t p = 0; p <= n_; ++p) {
      plain_.push_back(plain);
      plain += p < n_ && schedule.runs[p].plain;
    }
  }

  bool working_sets_fit();
  Cuts run(const Saves& saves);
  Cuts with(std::vector<Gap> gaps);
  std::vector<Gap> all() {
    collect();
    return std::move(gaps_);
  }

 private:
  void charge_everything();
  void collect();
  void cut(Gap& gap) {
    gap.cut = true;
    add(gap, -s_.values[gap.value].bytes);
  }
  void cut_given(const Saves& saves);
  void cut_where_full();
  void give_back();
  Cuts result();

  void add(const Gap& g, int64_t bytes) {
    if (!g.around) return pressure_.add(g.first, g.last, bytes);
    pressure_.add(g.first, n_, bytes);
    if (g.last != kNoUse) pressure_.add(0, g.last, bytes);
  }
  int64_t most(const Gap& g) const {
    int64_t bytes = pressure_.most(g.first, g.around ? n_ : g.last);
    if (g.around && g.last != kNoUse) bytes = std::max(bytes, pressure_.most(0, g.last));
    return bytes;
  }
  double length_ns(const Gap& g) const {
    if (!g.around) return start_ns_[g.last + 1] - start_ns_[g.first];
    return start_ns_[n_] - start_ns_[g.first] + (g.last == kNoUse ? 0 : start_ns_[g.last + 1]);
  }
  // Position of the use after the gap; the step's begin where there is none before the first.
  uint32_t back(const Gap& g) const { return g.around && g.last == kNoUse ? 0 : g.last + 1; }
  double transfers_ns(const Gap& g) const {
    const Value& v = s_.values[g.value];
    if (!prices_.empty()) {
      const uint32_t from = plain_[g.first], to = plain_[back(g)];
      const bool host = !v.circular && !v.given;  // others have their place there all the time
      // The link from the disk is not traded with: what comes from there takes its time.
      return (v.on_disk ? v.load_ns(profile_) : double(v.load_bytes()) * prices_.load[to]) +
             double(v.bytes) *
                 ((g.written ? prices_.store[from] : 0) + (host ? prices_.host[to] - prices_.host[from] : 0));
    }
    double load_ns = v.load_ns(profile_), store_ns = g.written ? profile_.store_ns(v.bytes) : 0;
    if (!use_.empty() && !v.on_disk) {
      const double window_ns = std::min(length_ns(g), kWindowShare * (start_ns_[n_] + s_.left_out_ns));
      load_ns *= kFree + (1 - kFree) * use_.loads_before(plain_[back(g)], window_ns);
      store_ns *= kFree + (1 - kFree) * use_.stores_after(plain_[g.first], window_ns);
    }
    return load_ns + store_ns;
  }
  double cost_ns(const Gap& g) const {
    const bool again =
        !again_.empty() && again_[g.value] > 0 && s_.values[g.value].crossing == g.use && !g.around;
    if (!again) return transfers_ns(g);
    const double weight = prices_.empty() ? 1 : prices_.again[plain_[back(g)]];
    return std::min(transfers_ns(g), again_[g.value] * weight);
  }
  // The cost of holding a byte throughout the gap; without prices, its time.
  double held_ns(const Gap& g) const {
    if (prices_.empty()) return length_ns(g);
    const double around = g.around ? prices_.device.back() : 0;
    // Tasks that run again have no time of their own in the plain schedule; they count a little.
    constexpr double kTie = 1e-30;
    return around + prices_.device[plain_[back(g)]] - prices_.device[plain_[g.first]] + kTie * length_ns(g);
  }
  int64_t under_way(uint32_t p) const { return prices_.under_way.empty() ? 0 : prices_.under_way[plain_[p]]; }

  const DeviceSchedule& s_;
  const Limits& limits_;
  const std::vector<double>& start_ns_;
  const Profile& profile_;
  const AgainCosts& again_;
  const LinkUse& use_;
  const Prices& prices_;
  std::vector<uint32_t> plain_;  // by position: that of the plain schedule
  const int64_t target_;
  const uint32_t n_;
  Pressure pressure_;
  std::vector<int64_t> floor_;  // bytes that must be there: what is pinned, and working sets
  std::vector<Gap> gaps_;
};

bool GapCutter::working_sets_fit() {
  floor_ = s_.workspace_bytes;
  int64_t always = 0;
  for (const Value& v : s_.values) {
    if (v.fixed) continue;
    if (limits_.pins(v.object)) {
      always += v.bytes;
      continue;
    }
    if (v.read_by_host) {
      for (uint32_t p = v.uses.front().position; p <= v.uses.back().position; ++p) floor_[p] += v.bytes;
    } else {
      for (const ValueUse& u : v.uses) floor_[u.position] += v.bytes;
    }
  }
  for (int64_t& bytes : floor_) bytes += always;
  return *std::max_element(floor_.begin(), floor_.end()) <= limits_.bytes[s_.device];
}

void GapCutter::charge_everything() {
  std::vector<int64_t> change(n_ + 2, 0);
  for (const Value& v : s_.values) {
    if (v.fixed) continue;
    const bool always = v.circular && !v.host_home;
    change[always ? 0 : v.uses.front().position] += v.bytes;
    change[always ? n_ + 1 : v.uses.back().position + 1] -= v.bytes;
  }
  std::vector<int64_t> bytes = s_.workspace_bytes;
  int64_t sum = 0;
  for (uint32_t p = 0; p <= n_; ++p) bytes[p] += (sum += change[p]) + under_way(p);
  pressure_ = Pressure(bytes);
}

void GapCutter::collect() {
  for (uint32_t i = 0; i < s_.values.size(); ++i) {
    const Value& v = s_.values[i];
    if (v.fixed || v.read_by_host || limits_.pins(v.object)) continue;
    // A single gap between one write and the next has to store; the longest is charged.
    const size_t first = gaps_.size();
    size_t since = first;
    const auto charge = [&] {
      if (since == gaps_.size()) return;
      std::max_element(gaps_.begin() + long(since), gaps_.end(), [&](const Gap& a, const Gap& b) {
        return length_ns(a) < length_ns(b);
      })->written = true;
      since = gaps_.size();
    };
    const bool at_boundary = v.circular && !v.host_home;  // resident there unless cut
    bool dirty = !v.given;
    for (uint32_t k = 0; k + 1 < v.uses.size(); ++k) {
      if (v.uses[k].writes) {
        if (dirty) charge();
        since = gaps_.size();
        dirty = true;
      }
      if (v.uses[k + 1].position > v.uses[k].position + 1) {
        gaps_.push_back({i, k, v.uses[k].position + 1, v.uses[k + 1].position - 1, false, false});
        gaps_.back().dead = v.uses[k + 1].overwrites;
      }
    }
    if (v.uses.back().writes && dirty) charge();
    dirty = dirty || v.uses.back().writes;
    if (at_boundary) {
      const uint32_t before = v.uses.front().position;
      gaps_.push_back({i, static_cast<uint32_t>(v.uses.size() - 1), v.uses.back().position + 1,
                       before == 0 ? kNoUse : before - 1, true, false});
    }
    if (dirty) charge();
    for (size_t g = first; g < gaps_.size(); ++g) {
      gaps_[g].worth = held_ns(gaps_[g]) * double(v.bytes) / cost_ns(gaps_[g]);
    }
  }
}

void GapCutter::cut_given(const Saves& saves) {
  for (Gap& g : gaps_) {
    const Value& v = s_.values[g.value];
    const bool given =
        !saves.empty() && saves[v.object.value] != Save::Keep && !g.around && v.crossing == g.use;
    if (g.dead || given) cut(g);
  }
}

void GapCutter::cut_where_full() {
  const Grouped starting(n_ + 1, [&](auto&& add) {
    for (uint32_t i = 0; i < gaps_.size(); ++i) {
      const Gap& g = gaps_[i];
      if (g.cut) continue;
      add(g.first, i);
      if (g.around && g.last != kNoUse && g.first != 0) add(0, i);
    }
  });
  const auto worse = [&](uint32_t a, uint32_t b) {
    return gaps_[a].worth != gaps_[b].worth ? gaps_[a].worth < gaps_[b].worth : a > b;
  };
  std::priority_queue<uint32_t, std::vector<uint32_t>, decltype(worse)> open(worse);
  for (uint32_t p = 0; p <= n_; ++p) {
    for (const uint32_t i : starting[p]) open.push(i);
    const int64_t allowed = std::max(target_, floor_[p] + under_way(p));
    for (int64_t bytes = pressure_.at(p); bytes > allowed && !open.empty();) {
      Gap& g = gaps_[open.top()];
      open.pop();
      const bool covers = g.around ? p >= g.first || (g.last != kNoUse && p <= g.last) : p <= g.last;
      if (g.cut || !covers) continue;
      cut(g);
      bytes -= s_.values[g.value].bytes;
    }
  }
}

void GapCutter::give_back() {
  std::vector<uint32_t> order;
  for (uint32_t g = 0; g < gaps_.size(); ++g) {
    if (gaps_[g].cut && !gaps_[g].dead) order.push_back(g);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return gaps_[a].worth < gaps_[b].worth; });
  for (const uint32_t i : order) {
    Gap& g = gaps_[i];
    const int64_t bytes = s_.values[g.value].bytes;
    if (most(g) + bytes > target_) continue;
    g.cut = false;
    add(g, bytes);
  }
}

Cuts GapCutter::run(const Saves& saves) {
  charge_everything();
  collect();
  if (pressure_.most(0, n_) > target_) {
    cut_given(saves);
    cut_where_full();
    give_back();
  }
  return result();
}

Cuts GapCutter::with(std::vector<Gap> gaps) {
  charge_everything();
  gaps_ = std::move(gaps);
  for (Gap& g : gaps_) {
    if (g.cut) cut(g);
  }
  return result();
}

Cuts GapCutter::result() {
  Cuts out{std::move(gaps_), std::vector<int64_t>(n_ + 1)};
  for (uint32_t p = 0; p <= n_; ++p) out.pressure[p] = pressure_.at(p) - under_way(p);
  return out;
}

}  // namespace

double LinkUse::loads_before(uint32_t p, double window_ns) const {
  const double begin_ns = std::max(0.0, start_ns[p] - window_ns);
  const auto q = size_t(std::lower_bound(start_ns.begin(), start_ns.end(), begin_ns) - start_ns.begin());
  return q >= p ? 1 : (load_ns[p] - load_ns[q]) / (start_ns[p] - start_ns[q]);
}

double LinkUse::stores_after(uint32_t p, double window_ns) const {
  const double end_ns = std::min(start_ns.back(), start_ns[p] + window_ns);
  const auto q = size_t(std::upper_bound(start_ns.begin(), start_ns.end(), end_ns) - start_ns.begin()) - 1;
  return q <= p ? 1 : (store_ns[q] - store_ns[p]) / (start_ns[q] - start_ns[p]);
}

std::optional<Cuts> cut_gaps(const DeviceSchedule& schedule, const std::vector<double>& start_ns,
                             const Profile& profile, const Limits& limits, int64_t target_bytes,
                             const Saves& saves, const GapCosts& costs) {
  GapCutter cutter(schedule, start_ns, profile, limits, target_bytes, costs);
  if (!cutter.working_sets_fit()) return std::nullopt;
  return cutter.run(saves);
}

std::vector<Gap> gaps_of(const DeviceSchedule& schedule, const Profile& profile, const Limits& limits) {
  const GapCosts none;
  return GapCutter(schedule, schedule.start_ns, profile, limits, 0, none).all();
}

std::optional<Cuts> cuts_of(const DeviceSchedule& schedule, std::vector<Gap> gaps, const Limits& limits) {
  const Profile no_profile;
  const GapCosts none;
  Cuts cuts = GapCutter(schedule, schedule.start_ns, no_profile, limits, 0, none).with(std::move(gaps));
  const int64_t most = *std::max_element(cuts.pressure.begin(), cuts.pressure.end());
  return most <= limits.bytes[schedule.device] ? std::optional(std::move(cuts)) : std::nullopt;
}

}  // namespace sluice::core
