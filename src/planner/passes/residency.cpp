// Residency: which values leave the device between which uses, and when transfers begin and end.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <queue>

#include "planner/passes/passes.h"

namespace sluice {
namespace {

// The time between two uses of a value next to each other, interior positions [first, last]. Around the boundary the
// interior is [first, N] and [0, last].
struct Gap {
  uint32_t value;
  uint32_t use;        // index of the use before the gap; the last one for a gap around the boundary
  uint32_t first, last;
  bool around;
  bool cut = false;
  double worth = 0;    // ns of residency freed per ns of transfer
};

class Resident {
 public:
  Resident(const Schedule& schedule, const Profile& profile, const Limits& limits, int64_t target_bytes,
           int64_t fill_bytes)
      : s_(schedule), profile_(profile), limits_(limits), target_(target_bytes), fill_(fill_bytes),
        n_(schedule.size()) {}

  std::optional<Residency> run() {
    charge_everything();
    if (!working_sets_fit()) return std::nullopt;
    cut_gaps();
    restore_cuts();
    split_into_spans();
    drain_stores();
    start_loads_early();
    out_.device_peak_bytes = *std::max_element(pressure_.begin(), pressure_.end());
    return std::move(out_);
  }

 private:
  void charge_everything();
  bool working_sets_fit();
  void collect_gaps();
  void cut_gaps();
  void restore_cuts();
  void split_into_spans();
  void keep_copies_equal(uint32_t v);
  void split_value(uint32_t v, const std::vector<const Gap*>& cuts);
  void drain_stores();
  void start_loads_early();

  double time_of(uint32_t position) const { return s_.start_ns[position]; }
  double step_ns() const { return s_.start_ns[n_]; }
  void add(uint32_t first, uint32_t last, int64_t bytes) {
    for (uint32_t p = first; p <= last; ++p) pressure_[p] += bytes;
  }
  void add(const Gap& g, int64_t bytes) {
    if (!g.around) return add(g.first, g.last, bytes);
    add(g.first, n_, bytes);
    if (g.last != UINT32_MAX) add(0, g.last, bytes);
  }
  int64_t most(uint32_t first, uint32_t last) const {
    return *std::max_element(pressure_.begin() + first, pressure_.begin() + last + 1);
  }
  double length_ns(const Gap& g) const {
    if (!g.around) return time_of(g.last + 1) - time_of(g.first);
    return step_ns() - time_of(g.first) + (g.last == UINT32_MAX ? 0 : time_of(g.last + 1));
  }
  // A value can be cut at the gap before its first use when it is given on the host anyway.
  bool starts_on_host(const Value& v) const { return v.given && v.host_home; }

  const Schedule& s_;
  const Profile& profile_;
  const Limits& limits_;
  const int64_t target_, fill_;
  const uint32_t n_;
  std::vector<int64_t> pressure_;  // bytes charged at each position
  std::vector<int64_t> floor_;     // bytes that must be there: working set
  std::vector<Gap> gaps_;
  Residency out_;
};

void Resident::charge_everything() {
  pressure_ = s_.workspace_bytes;
  for (const Value& v : s_.values) {
    if (v.fixed) continue;
    if (v.circular && !v.host_home) {
      add(0, n_, v.bytes);
    } else {
      add(v.uses.front().position, v.uses.back().position, v.bytes);
    }
  }
}

bool Resident::working_sets_fit() {
  floor_ = s_.workspace_bytes;
  for (const Value& v : s_.values) {
    if (v.fixed) continue;
    for (const ValueUse& u : v.uses) floor_[u.position] += v.bytes;
  }
  return *std::max_element(floor_.begin(), floor_.end()) <= limits_.device_bytes;
}

void Resident::collect_gaps() {
  for (uint32_t i = 0; i < s_.values.size(); ++i) {
    const Value& v = s_.values[i];
    if (v.fixed) continue;
    bool written = false;  // since the value was last known to be on the host
    const auto add_gap = [&](uint32_t use, uint32_t first, uint32_t last, bool around) {
      Gap g{i, use, first, last, around};
      const double transfer = profile_.transfer_ns(v.bytes, true) +
                              (written ? profile_.transfer_ns(v.bytes, false) : 0);
      g.worth = length_ns(g) * double(v.bytes) / transfer;
      gaps_.push_back(g);
    };
    written = !v.given || (v.circular && !v.host_home);
    for (uint32_t k = 0; k + 1 < v.uses.size(); ++k) {
      written = written || v.uses[k].writes;
      if (v.uses[k + 1].position > v.uses[k].position + 1) {
        add_gap(k, v.uses[k].position + 1, v.uses[k + 1].position - 1, false);
      }
    }
    if (v.circular && !v.host_home) {
      written = std::any_of(v.uses.begin(), v.uses.end(), [](const ValueUse& u) { return u.writes; });
      const uint32_t before = v.uses.front().position;
      add_gap(static_cast<uint32_t>(v.uses.size() - 1), v.uses.back().position + 1,
              before == 0 ? UINT32_MAX : before - 1, true);
    }
  }
}

// One sweep over the step: wherever the bytes exceed the target, cut the gap that frees most for its traffic.
void Resident::cut_gaps() {
  if (most(0, n_) <= target_) return;
  collect_gaps();
  std::vector<std::vector<uint32_t>> starting(n_ + 1);
  for (uint32_t g = 0; g < gaps_.size(); ++g) {
    starting[gaps_[g].first].push_back(g);
    if (gaps_[g].around && gaps_[g].last != UINT32_MAX && gaps_[g].first != 0) starting[0].push_back(g);
  }
  const auto worse = [&](uint32_t a, uint32_t b) {
    return gaps_[a].worth != gaps_[b].worth ? gaps_[a].worth < gaps_[b].worth : a > b;
  };
  std::priority_queue<uint32_t, std::vector<uint32_t>, decltype(worse)> open(worse);
  for (uint32_t p = 0; p <= n_; ++p) {
    for (const uint32_t g : starting[p]) open.push(g);
    while (pressure_[p] > std::max(target_, floor_[p]) && !open.empty()) {
      Gap& g = gaps_[open.top()];
      open.pop();
      const bool covers = g.around ? p >= g.first || (g.last != UINT32_MAX && p <= g.last) : p <= g.last;
      if (g.cut || !covers) continue;
      g.cut = true;
      add(g, -s_.values[g.value].bytes);
    }
  }
}

// Cuts made early may have become unnecessary through later ones: gives back the dearest traffic first.
void Resident::restore_cuts() {
  std::vector<uint32_t> order;
  for (uint32_t g = 0; g < gaps_.size(); ++g) {
    if (gaps_[g].cut) order.push_back(g);
  }
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return gaps_[a].worth < gaps_[b].worth; });
  for (const uint32_t i : order) {
    Gap& g = gaps_[i];
    const int64_t bytes = s_.values[g.value].bytes;
    int64_t peak = g.around ? most(g.first, n_) : most(g.first, g.last);
    if (g.around && g.last != UINT32_MAX) peak = std::max(peak, most(0, g.last));
    if (peak + bytes > target_) continue;
    g.cut = false;
    add(g, bytes);
  }
}

void Resident::split_into_spans() {
  std::vector<std::vector<const Gap*>> cuts(s_.values.size());
  for (const Gap& g : gaps_) {
    if (g.cut) cuts[g.value].push_back(&g);
  }
  for (uint32_t v = 0; v < s_.values.size(); ++v) {
    if (s_.values[v].fixed) {
      keep_copies_equal(v);
    } else {
      split_value(v, cuts[v]);
    }
  }
}

// A fixed value may have a home on the host as well; what is written to one must reach the other.
void Resident::keep_copies_equal(uint32_t index) {
  const Value& v = s_.values[index];
  const Home& home = limits_.fixed_homes[v.object.value];
  const bool written = std::any_of(v.uses.begin(), v.uses.end(), [](const ValueUse& u) { return u.writes; });
  if (home.host_offset == kNowhere || !written) return;
  const uint32_t first = v.uses.front().position, last = v.uses.back().position;
  Span span{index, first, last, first, last, false, true};
  span.address = home.device_offset;
  out_.spans.push_back(span);
  out_.slots.push_back({index, 0, n_, true, true});
}

void Resident::split_value(uint32_t index, const std::vector<const Gap*>& cuts) {
  const Value& v = s_.values[index];
  const uint32_t first_span = static_cast<uint32_t>(out_.spans.size());
  const bool around_cut = std::any_of(cuts.begin(), cuts.end(), [](const Gap* g) { return g->around; });
  const bool from_host = starts_on_host(v) || around_cut;
  if (cuts.empty() && v.circular && !v.host_home) {
    out_.spans.push_back({index, 0, n_, v.uses.front().position, v.uses.back().position, false, false, true});
    return;
  }
  bool on_host = from_host;  // the host copy holds the current content
  std::vector<bool> cut_after(v.uses.size(), false);
  for (const Gap* g : cuts) cut_after[g->use] = true;
  Span span{index, v.uses.front().position, 0, v.uses.front().position, 0, from_host && v.given};
  bool uses_host = from_host || v.needed_after;
  for (uint32_t k = 0; k < v.uses.size(); ++k) {
    on_host = on_host && !v.uses[k].writes;
    const bool last = k + 1 == v.uses.size();
    const bool returns = last && (v.needed_after || (v.host_home && v.circular) || around_cut);
    if (!cut_after[k] && !last) continue;
    span.last_use = span.end = v.uses[k].position;
    span.store = (cut_after[k] || returns) && !on_host;
    on_host = on_host || span.store;
    uses_host = uses_host || span.store;
    out_.spans.push_back(span);
    if (!last) {
      const uint32_t next = v.uses[k + 1].position;
      span = {index, next, 0, next, 0, true};
    }
  }
  if (v.circular && !v.host_home && !around_cut) {
    // Resident around the boundary: the last span runs into the first.
    Span head = out_.spans[first_span];
    Span& tail = out_.spans.back();
    tail.end = head.end;
    tail.last_use = head.last_use;
    tail.store = head.store;
    out_.spans.erase(out_.spans.begin() + first_span);
  }
  if (!uses_host) return;
  HostSlot slot{index, 0, n_, false, from_host || v.needed_after || v.host_home};
  slot.always = slot.home || v.circular;
  if (!slot.always) {
    // From the first store to the last load.
    bool begun = false;
    for (uint32_t i = first_span; i < out_.spans.size(); ++i) {
      const Span& s = out_.spans[i];
      if (s.store && !begun) slot.begin = s.last_use, begun = true;
      if (s.load) slot.end = s.first_use;
    }
  }
  out_.slots.push_back(slot);
}

// A stored value keeps its bytes until its store is predicted to have ended, where they are free; elsewhere whoever
// takes them waits for the store.
void Resident::drain_stores() {
  std::vector<uint32_t> stores;
  for (uint32_t i = 0; i < out_.spans.size(); ++i) {
    if (out_.spans[i].store) stores.push_back(i);
  }
  std::stable_sort(stores.begin(), stores.end(),
                   [&](uint32_t a, uint32_t b) { return out_.spans[a].last_use < out_.spans[b].last_use; });
  double lane_ns = 0;
  for (const uint32_t i : stores) {
    Span& span = out_.spans[i];
    const int64_t bytes = s_.values[span.value].bytes;
    lane_ns = std::max(lane_ns, time_of(span.last_use + 1)) + profile_.transfer_ns(bytes, false);
    if (span.wraps() || s_.values[span.value].fixed) continue;
    while (span.end + 1 < n_ && time_of(span.end + 1) < lane_ns &&
           pressure_[span.end + 1] + bytes <= fill_) {
      pressure_[++span.end] += bytes;
    }
  }
}

// Loads in the order of their deadlines from the last to the first, each as late as the link allows and as early as
// the memory allows.
void Resident::start_loads_early() {
  std::vector<uint32_t> loads;
  for (uint32_t i = 0; i < out_.spans.size(); ++i) {
    if (out_.spans[i].load) loads.push_back(i);
  }
  std::stable_sort(loads.begin(), loads.end(),
                   [&](uint32_t a, uint32_t b) { return out_.spans[a].first_use > out_.spans[b].first_use; });
  // A load cannot begin before the value's span before it has ended, as its store feeds the load.
  std::vector<int64_t> earliest(out_.spans.size(), 0);
  for (uint32_t i = 0; i < out_.spans.size(); ++i) {
    const Span& span = out_.spans[i];
    if (i > 0 && out_.spans[i - 1].value == span.value) earliest[i] = int64_t{out_.spans[i - 1].end} + 1;
  }
  // What comes before the first span of a value that is resident around the boundary is the end of its last one.
  for (uint32_t i = static_cast<uint32_t>(out_.spans.size()); i-- > 0;) {
    if (!out_.spans[i].wraps()) continue;
    uint32_t first = i;
    while (first > 0 && out_.spans[first - 1].value == out_.spans[i].value) --first;
    earliest[first] = std::max(earliest[first], int64_t{out_.spans[i].end} + 1);
  }
  const auto fits = [&](uint32_t p, int64_t bytes) { return pressure_[p] + bytes <= fill_; };
  double lane_ns = step_ns();
  for (const uint32_t i : loads) {
    Span& span = out_.spans[i];
    const Value& v = s_.values[span.value];
    lane_ns = std::min(lane_ns, time_of(span.first_use)) - profile_.transfer_ns(v.bytes, true);
    while (int64_t{span.begin} > earliest[i] && time_of(span.begin) > lane_ns && fits(span.begin - 1, v.bytes)) {
      pressure_[--span.begin] += v.bytes;
    }
  }
}

}  // namespace

std::optional<Residency> decide_residency(const Schedule& schedule, const Profile& profile, const Limits& limits,
                                          int64_t target_bytes, int64_t fill_bytes) {
  return Resident(schedule, profile, limits, target_bytes, fill_bytes).run();
}

}  // namespace sluice
