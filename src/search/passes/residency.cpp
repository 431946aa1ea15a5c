// SPDX-License-Identifier: Apache-2.0
// Residency: which values leave the device between which uses, and when transfers begin and end.
#include <algorithm>
#include <span>

#include "search/link_time.h"
#include "search/passes/passes.h"

namespace sluice::core {
namespace {

class Resident {
 public:
  Resident(const DeviceSchedule& schedule, const Profile& profile, const Limits& limits, Cuts cuts,
           int64_t fill_bytes)
      : s_(schedule),
        profile_(profile),
        limits_(limits),
        fill_(fill_bytes),
        n_(schedule.size()),
        pressure_(std::move(cuts.pressure)),
        gaps_(std::move(cuts.gaps)) {}

  Residency split() {
    split_into_spans();
    return std::move(out_);
  }
  Residency run(PassRunner& passes) {
    split_into_spans();
    const auto move = [&](Pass pass, void (Resident::*decide)()) {
      const auto work = [&] { return (this->*decide)(), true; };
      passes.run<bool>(pass, false, work, [&](bool) { return verify(s_, out_); });
    };
    move(Pass::Drain, &Resident::drain_stores);
    move(Pass::Early, &Resident::start_loads_early);
    return std::move(out_);
  }

 private:
  void split_into_spans();
  void keep_copies_equal(uint32_t v);
  void split_value(uint32_t v, std::span<const Gap* const> cuts);
  void take_while_of_use(HostSlot& slot, uint32_t first_span, uint32_t end_span) const;
  void store_before_the_boundary();
  void drain_stores();
  void start_loads_early();
  uint32_t next_begin(uint32_t span) const;
  // Moves the begin of the span's load towards `begin_ns`, not before position `earliest`.
  void start_early(Span& span, double begin_ns, int64_t earliest);
  // As start_early(), into the end of the step before; begin_ns counts from the begin of that step.
  void start_before_the_step(Span& span, double begin_ns, int64_t earliest);

  double time_of(uint32_t position) const { return s_.start_ns[position]; }
  double step_ns() const { return s_.start_ns[n_]; }
  bool fits(uint32_t p, int64_t bytes) const { return pressure_[p] + bytes <= fill_; }
  // A value can be cut at the gap before its first use when it is given on the host anyway.
  bool starts_on_host(const Value& v) const { return v.given && v.host_home; }

  const DeviceSchedule& s_;
  const Profile& profile_;
  const Limits& limits_;
  const int64_t fill_;
  const uint32_t n_;
  std::vector<int64_t> pressure_;  // bytes charged at each position
  const std::vector<Gap> gaps_;
  std::vector<bool> cut_after_, dead_after_;  // of a value that is split, by use
  Residency out_;
};

void Resident::split_into_spans() {
  // By value, one after the other.
  std::vector<uint32_t> end(s_.values.size() + 1, 0);
  for (const Gap& g : gaps_) end[g.value + 1] += g.cut;
  for (size_t v = 1; v < end.size(); ++v) end[v] += end[v - 1];
  std::vector<const Gap*> cuts(end.back());
  for (const Gap& g : gaps_) {
    if (g.cut) cuts[end[g.value]++] = &g;
  }
  for (uint32_t v = 0, first = 0; v < s_.values.size(); first = end[v++]) {
    if (s_.values[v].fixed) {
      keep_copies_equal(v);
    } else {
      split_value(v, std::span(cuts).subspan(first, end[v] - first));
    }
  }
}

// A fixed value may have a home on the host as well; what is written to one must reach the other.
void Resident::keep_copies_equal(uint32_t index) {
  const Value& v = s_.values[index];
  const Home& home = limits_.fixed_homes[v.object.value];
  const bool written = std::any_of(v.uses.begin(), v.uses.end(), [](const ValueUse& u) { return u.writes; });
  if (!home.on(kHost) || !written) return;
  const uint32_t first = v.uses.front().position, last = v.uses.back().position;
  Span span{index, first, last, first, last, false, true};
  span.address = home.offset(s_.device);
  span.store_at = last;
  out_.spans.push_back(span);
  out_.slots.push_back({index, 0, n_, true, true});
}

void Resident::split_value(uint32_t index, std::span<const Gap* const> cuts) {
  const Value& v = s_.values[index];
  const uint32_t first_span = static_cast<uint32_t>(out_.spans.size());
  const bool around_cut = std::any_of(cuts.begin(), cuts.end(), [](const Gap* g) { return g->around; });
  const bool from_host = starts_on_host(v) || around_cut;
  if (cuts.empty() && v.circular && !v.host_home) {
    out_.spans.push_back({index, 0, n_, v.uses.front().position, v.uses.back().position, false, false, true});
    return;
  }
  // A value that no run writes lies in both tiers between steps, and is never stored.
  const bool unwritten = v.on_disk || (v.circular && v.given && !limits_.host_is_short &&
                                       std::ranges::none_of(v.uses, &ValueUse::writes));
  bool on_host = from_host || unwritten;  // the host copy holds the current content
  cut_after_.assign(v.uses.size(), false);
  dead_after_.assign(v.uses.size(), false);
  for (const Gap* g : cuts) cut_after_[g->use] = true, dead_after_[g->use] = g->dead;
  Span span{index, v.uses.front().position, 0, v.uses.front().position, 0, from_host && v.given};
  bool uses_host = on_host || v.needed_after;
  for (uint32_t k = 0; k < v.uses.size(); ++k) {
    on_host = on_host && !v.uses[k].writes;
    const bool last = k + 1 == v.uses.size();
    const bool returns = last && (v.needed_after || (v.host_home && v.circular) || around_cut);
    if (!cut_after_[k] && !last) continue;
    span.last_use = span.end = span.store_at = v.uses[k].position;
    span.store = (cut_after_[k] || returns) && !dead_after_[k] && !on_host;
    on_host = on_host || span.store;
    uses_host = uses_host || span.store;
    out_.spans.push_back(span);
    if (!last) {
      const uint32_t next = v.uses[k + 1].position;
      span = {index, next, 0, next, 0, !dead_after_[k]};
    }
  }
  if (v.circular && !v.host_home && !around_cut) {
    // Resident around the boundary: the last span runs into the first.
    Span head = out_.spans[first_span];
    Span& tail = out_.spans.back();
    tail.end = head.end;
    tail.last_use = tail.store_at = head.last_use;
    tail.store = head.store;
    out_.spans.erase(out_.spans.begin() + first_span);
  }
  if (!uses_host || v.on_disk) return;
  HostSlot slot{index, 0, n_, false, from_host || unwritten || v.needed_after || v.host_home};
  take_while_of_use(slot, first_span, uint32_t(out_.spans.size()));
  out_.slots.push_back(slot);
}

// The place of what lives within the step is taken from the first store to the last load. What outlives the
// step is stored and loaded in a circle. The longest time between a load (or a store that nothing loads) and
// the next store needs no place, as the host's copy is of no use then. A gradient's is free from its deferred
// update to its first store in the next backward pass.
void Resident::take_while_of_use(HostSlot& slot, uint32_t first_span, uint32_t end_span) const {
  const Value& v = s_.values[slot.value];
  slot.begin = 0, slot.end = n_, slot.always = true;
  if (v.host_home || v.needed_after || (slot.home && !v.circular)) return;
  if (v.circular && !limits_.host_is_short) return;
  struct Event {
    uint32_t position;
    bool store;
  };
  std::vector<Event> events;
  for (uint32_t i = first_span; i < end_span; ++i) {
    const Span& span = out_.spans[i];
    if (span.load) events.push_back({span.first_use, false});
    if (span.store) events.push_back({span.store_at, true});
  }
  if (!v.circular) {
    slot.always = false;
    const auto first = std::ranges::find_if(events, &Event::store);
    if (first != events.end()) slot.begin = first->position;
    slot.end = events.back().position;
    return;
  }
  uint32_t longest = 1;
  for (size_t i = 0; i < events.size() && events.size() > 1; ++i) {
    const Event &before = events[i], &next = events[(i + 1) % events.size()];
    if (!next.store) continue;
    const bool around = next.position < before.position;
    if (around && slot.home) continue;
    const uint32_t time = next.position + (around ? n_ + 1 : 0) - before.position;
    if (time <= longest) continue;
    longest = time;
    slot.begin = next.position, slot.end = before.position, slot.always = false;
  }
}

// A value that stays around the boundary and leaves in the next step can be stored in this one, once it is
// final, where the link has nothing else to do. The next step's forward pass has stores of its own.
void Resident::store_before_the_boundary() {
  LinkTime link(s_.start_ns);
  std::vector<std::pair<uint32_t, uint32_t>> candidates;  // position after which it is final, span
  for (uint32_t i = 0; i < out_.spans.size(); ++i) {
    const Span& span = out_.spans[i];
    if (!span.store) continue;
    const Value& v = s_.values[span.value];
    const auto written =
        std::find_if(v.uses.rbegin(), v.uses.rend(), [](const ValueUse& u) { return u.writes; });
    const bool changes_after = std::any_of(v.uses.begin(), v.uses.end(), [&](const ValueUse& u) {
      return u.writes && u.position <= span.last_use;
    });
    if (span.wraps() && written != v.uses.rend() && written->position >= span.begin && !changes_after) {
      candidates.push_back({written->position, i});
    } else {
      link.take_after(std::min(span.last_use + 1, n_), profile_.store_ns(v.bytes));
    }
  }
  std::sort(candidates.begin(), candidates.end());
  std::vector<uint32_t> slot_of(s_.values.size(), kNoUse);
  for (uint32_t i = 0; i < out_.slots.size(); ++i) slot_of[out_.slots[i].value] = i;
  for (const auto& [position, i] : candidates) {
    Span& span = out_.spans[i];
    const double ns = profile_.store_ns(s_.values[span.value].bytes);
    if (link.end_of(position + 1, ns) > step_ns()) {
      link.take_after(span.last_use + 1, ns);
      continue;
    }
    link.take_after(position + 1, ns);
    span.store_at = position;
    HostSlot& slot = out_.slots[slot_of[span.value]];
    slot.home = true;
    uint32_t first = i, end = i + 1;
    while (first > 0 && out_.spans[first - 1].value == span.value) --first;
    while (end < out_.spans.size() && out_.spans[end].value == span.value) ++end;
    take_while_of_use(slot, first, end);
  }
}

// A stored value keeps its bytes until its store is predicted to have ended, where they are free; elsewhere
// whoever takes them waits for the store.
void Resident::drain_stores() {
  if (limits_.store_around) store_before_the_boundary();
  std::vector<uint32_t> stores;
  for (uint32_t i = 0; i < out_.spans.size(); ++i) {
    if (out_.spans[i].store) stores.push_back(i);
  }
  std::stable_sort(stores.begin(), stores.end(),
                   [&](uint32_t a, uint32_t b) { return out_.spans[a].store_at < out_.spans[b].store_at; });
  double lane_ns = 0;
  for (const uint32_t i : stores) {
    Span& span = out_.spans[i];
    const int64_t bytes = s_.values[span.value].bytes;
    lane_ns = std::max(lane_ns, time_of(span.store_at + 1)) + profile_.store_ns(bytes);
    if (span.store_at != span.last_use || s_.values[span.value].fixed) continue;
    if (span.wraps() && !limits_.store_around) continue;
    // By its next span the value has to be stored.
    const uint32_t limit = std::min(next_begin(i), n_);
    while (span.end + 1 < limit && time_of(span.end + 1) < lane_ns &&
           pressure_[span.end + 1] + bytes <= fill_) {
      pressure_[++span.end] += bytes;
    }
  }
}

// Where the span after this one of the same value begins, or, around the boundary, the first or this one
// itself.
uint32_t Resident::next_begin(uint32_t i) const {
  const auto same = [&](uint32_t j) { return out_.spans[j].value == out_.spans[i].value; };
  if (!out_.spans[i].wraps()) return i + 1 < out_.spans.size() && same(i + 1) ? out_.spans[i + 1].begin : n_;
  uint32_t first = i;
  while (first > 0 && same(first - 1)) --first;
  return out_.spans[first].begin;
}

// Loads in the order of their deadlines from the last to the first, each as late as its link allows. What may
// fill the device early comes as early as the memory allows. What comes from the host for its first use of
// the step can come before the step begins. Its deadline is in the next step, and its load in this one.
void Resident::start_loads_early() {
  struct Early {
    uint32_t span;
    bool next_step;
    int64_t earliest;  // position: a load cannot begin before the span before it has ended, as its store
                       // feeds the load
  };
  std::vector<Early> loads;
  for (uint32_t i = 0, first = 0; i < out_.spans.size(); ++i) {
    const Span& span = out_.spans[i];
    if (i == 0 || out_.spans[i - 1].value != span.value) first = i;
    if (!span.load) continue;
    const Value& v = s_.values[span.value];
    Early early{i, false, i == first ? 0 : int64_t{out_.spans[i - 1].end} + 1};
    if (v.chosen) {
      // Not before it is known what to load.
      early.earliest = std::max(early.earliest, int64_t{v.chosen->known_at} + 1);
    } else if (i == first && v.circular && !v.host_home) {
      // Before the first span comes the last one of the step before; it may end in this one.
      uint32_t last = i;
      while (last + 1 < out_.spans.size() && out_.spans[last + 1].value == span.value) ++last;
      early.next_step = !out_.spans[last].wraps();
      early.earliest = int64_t{out_.spans[last].end} + 1;
    }
    loads.push_back(early);
  }
  const auto deadline_ns = [&](const Early& e) {
    return time_of(out_.spans[e.span].first_use) + (e.next_step ? step_ns() : 0);
  };
  std::stable_sort(loads.begin(), loads.end(),
                   [&](const Early& a, const Early& b) { return deadline_ns(a) > deadline_ns(b); });
  double from_host_ns = 2 * step_ns(), from_disk_ns = from_host_ns;
  for (const Early& e : loads) {
    const Value& v = s_.values[out_.spans[e.span].value];
    const double most_ns = 1e9 * double(limits_.early_bytes) / profile_.bytes_per_s(v.far(), s_.device);
    double& lane_ns = v.on_disk ? from_disk_ns : from_host_ns;
    lane_ns = std::max(std::min(lane_ns, deadline_ns(e)), deadline_ns(e) - most_ns) - v.load_ns(profile_);
    if (e.next_step) {
      start_before_the_step(out_.spans[e.span], lane_ns, e.earliest);
    } else {
      start_early(out_.spans[e.span], lane_ns, e.earliest);
    }
  }
}

void Resident::start_early(Span& span, double begin_ns, int64_t earliest) {
  const int64_t bytes = s_.values[span.value].bytes;
  while (int64_t{span.begin} > earliest && time_of(span.begin) > begin_ns && fits(span.begin - 1, bytes)) {
    pressure_[--span.begin] += bytes;
  }
}

void Resident::start_before_the_step(Span& span, double begin_ns, int64_t earliest) {
  const int64_t bytes = s_.values[span.value].bytes;
  start_early(span, begin_ns - step_ns(), 0);
  if (span.begin > 0 || begin_ns >= step_ns() || earliest >= n_) return;
  if (!fits(n_, bytes) || !fits(n_ - 1, bytes)) return;
  pressure_[n_] += bytes;
  span.begin = n_;
  start_early(span, begin_ns, earliest);
}

}  // namespace

Residency split_at(const DeviceSchedule& schedule, const Limits& limits, const std::vector<Gap>& gaps) {
  return Resident(schedule, Profile(), limits, {gaps, {}}, 0).split();
}

Status verify(const DeviceSchedule& schedule, const Residency& residency) {
  std::vector<std::vector<const Span*>> spans(schedule.values.size());
  for (const Span& span : residency.spans) {
    if (!span.covers(span.first_use) || !span.covers(span.last_use)) {
      return error("value {}: not resident at its uses {} and {}", span.value, span.first_use, span.last_use);
    }
    spans[span.value].push_back(&span);
  }
  for (uint32_t v = 0; v < schedule.values.size(); ++v) {
    if (schedule.values[v].fixed) continue;
    for (const ValueUse& use : schedule.values[v].uses) {
      const auto covering = std::count_if(spans[v].begin(), spans[v].end(),
                                          [&](const Span* span) { return span->covers(use.position); });
      if (covering != 1) return error("value {}: {} spans at its use {}", v, covering, use.position);
    }
  }
  return {};
}

Residency decide_residency(const DeviceSchedule& schedule, const Profile& profile, const Limits& limits,
                           Cuts cuts, int64_t fill_bytes, PassRunner& passes) {
  return Resident(schedule, profile, limits, std::move(cuts), fill_bytes).run(passes);
}

}  // namespace sluice::core
