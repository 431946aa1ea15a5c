// SPDX-License-Identifier: Apache-2.0
// Saves: which activations go to the host and which are computed again, so that both links can keep up.
//
// Without prices the dearest to compute again go to the host first, within a fixed part of the device that is
// held back for what is under way. With prices those go first that gain most by it, and what is under way is
// charged where and when it takes room.
#include <algorithm>
#include <numeric>
#include <optional>

#include "search/link_time.h"
#include "search/passes/passes.h"
#include "search/pressure.h"

namespace sluice::core {
namespace {

class Saver {
 public:
  Saver(const Program& program, const DeviceSchedule& plain, const std::vector<RecomputeUnit>& units,
        const Profile& profile, const Limits& limits, const SavePolicy& policy, const Prices& prices)
      : s_(plain),
        units_(units),
        profile_(profile),
        limits_(limits),
        policy_(policy),
        n_(plain.size()),
        saves_(program.objects().size(), Save::Keep),
        costs_{AgainCosts(plain.values.size(), 0), {}, prices},
        value_of_(program.objects().size(), kNoUse),
        unit_of_(plain.values.size(), kNoUse) {
    for (uint32_t v = 0; v < s_.values.size(); ++v) value_of_[s_.values[v].object.value] = v;
    for (uint32_t u = 0; u < units.size(); ++u) {
      for (const ObjectId o : units[u].objects) {
        const uint32_t v = value_of_[o.value];
        costs_.again[v] =
            policy.again_weight * units[u].ns * double(s_.values[v].bytes) / double(units[u].bytes);
        unit_of_[v] = u;
      }
    }
  }

  SaveChoice run() {
    // Recomputation takes time, in which links carry more, and leaves room, in which more can stay: a few
    // rounds settle it. Prices know that from the start; the second round knows what is under way.
    const int rounds = by_prices() ? 2 : 3;
    for (int round = 0; round < rounds; ++round) {
      hold_back();
      stretch();
      auto cuts = cut_gaps(s_, start_ns_, profile_, limits_, policy_.target_bytes, saves_, costs_);
      if (!cuts) break;
      decide(split_at(s_, limits_, cuts->gaps), std::move(cuts->pressure));
    }
    hold_back();
    costs_.again.clear();  // it is by value of the plain schedule
    return {std::move(saves_), std::move(costs_)};
  }

 private:
  // A unit's way to the host and back, from the end of the forward pass's last use to the first in the
  // backward pass.
  struct Crossing {
    uint32_t release = 0, deadline = kNoUse;  // positions: stored from the one on, loaded before the other
    double store_ns = 0, load_ns = 0;
    int64_t bytes = 0;
  };

  bool by_prices() const { return !costs_.prices.empty(); }
  void hold_back() {
    for (int64_t& bytes : costs_.prices.under_way) bytes = std::min(bytes, policy_.most_under_way);
  }
  // Start times with what is computed again added where it is first needed.
  void stretch() {
    std::vector<double> extra(n_ + 1, 0);
    for (const RecomputeUnit& unit : units_) {
      const uint32_t v = value_of_[unit.objects.front().value];
      if (saves_[unit.objects.front().value] == Save::Again) extra[needed_at(v)] += unit.ns;
    }
    start_ns_.resize(n_ + 1);
    double sum = 0;
    for (uint32_t p = 0; p <= n_; ++p) {
      start_ns_[p] = s_.start_ns[p] + sum;
      sum += extra[p];
    }
  }
  uint32_t needed_at(uint32_t v) const { return s_.values[v].uses[s_.values[v].crossing + 1].position; }
  uint32_t left_at(uint32_t v) const { return s_.values[v].uses[s_.values[v].crossing].position; }
  // The first position from `ns` on, and the last one that begins by then.
  uint32_t from(double ns) const {
    const auto it = std::lower_bound(start_ns_.begin(), start_ns_.end(), ns);
    return std::min(n_, uint32_t(it - start_ns_.begin()));
  }
  uint32_t by(double ns) const {
    const auto it = std::upper_bound(start_ns_.begin(), start_ns_.end(), ns);
    return it == start_ns_.begin() ? 0 : uint32_t(it - start_ns_.begin() - 1);
  }
  // Bytes are under way during [begin, end).
  void under_way(uint32_t begin, uint32_t end, int64_t bytes) {
    if (begin >= end) return;
    under_way_[begin] += bytes;
    under_way_[end] -= bytes;
  }
  std::vector<Crossing> book_what_must_travel(const Residency& residency);
  Pressure host_pressure(const Residency& residency) const;
  void decide(const Residency& residency, std::vector<int64_t> pressure);
  double gain(uint32_t unit, const Crossing& c) const;
  bool send_to_host(const Crossing& c);

  const DeviceSchedule& s_;
  const std::vector<RecomputeUnit>& units_;
  const Profile& profile_;
  const Limits& limits_;
  const SavePolicy policy_;
  const uint32_t n_;
  Saves saves_;
  GapCosts costs_;
  std::vector<uint32_t> value_of_;  // by object
  std::vector<uint32_t> unit_of_;   // by value
  std::vector<double> start_ns_;
  std::vector<int64_t> under_way_;  // differences between positions
  std::optional<LinkTime> loads_, stores_;
  Pressure device_, host_;
};

// Every transfer but those between the passes that can be computed again; these are returned, by unit.
std::vector<Saver::Crossing> Saver::book_what_must_travel(const Residency& residency) {
  std::vector<Crossing> crossings(units_.size());
  for (const Span& span : residency.spans) {
    const Value& v = s_.values[span.value];
    const uint32_t unit = unit_of_[span.value];
    if (span.store) {
      const double ns = profile_.store_ns(v.bytes);
      if (unit != kNoUse && left_at(span.value) == span.last_use) {
        crossings[unit].store_ns += ns;
      } else {
        const uint32_t release = std::min(span.last_use + 1, n_);
        if (by_prices()) under_way(release, from(stores_->end_of(release, ns)), v.bytes);
        stores_->take_after(release, ns);
      }
    }
    if (span.load) {
      const double ns = v.load_ns(profile_);
      if (unit != kNoUse && needed_at(span.value) == span.first_use) {
        Crossing& c = crossings[unit];
        c.load_ns += ns;
        c.bytes += v.bytes;
        c.release = std::max(c.release, left_at(span.value) + 1);
        c.deadline = std::min(c.deadline, span.first_use);
      } else {
        if (v.on_disk) continue;  // by a link of its own
        if (by_prices()) under_way(by(loads_->begin_of(span.first_use, ns)), span.first_use, v.bytes);
        loads_->take_before(span.first_use, ns);
      }
    }
  }
  return crossings;
}

// The pressure of everything but the units.
Pressure Saver::host_pressure(const Residency& residency) const {
  std::vector<int64_t> bytes(n_ + 2, 0);  // first the changes, then their sums
  bytes[0] = limits_.boundary_bytes[kHost];
  for (const HostSlot& slot : residency.slots) {
    if (unit_of_[slot.value] != kNoUse) continue;
    slot.hold(bytes, s_.values[slot.value].bytes);
  }
  std::partial_sum(bytes.begin(), bytes.end(), bytes.begin());
  return Pressure(bytes);
}

// The gain of sending a byte of the unit to the host over computing it again.
double Saver::gain(uint32_t unit, const Crossing& c) const {
  const double ns = units_[unit].ns, bytes = double(units_[unit].bytes);
  if (by_prices()) {
    const Prices& p = costs_.prices;
    return ns * p.again[c.deadline] / bytes - p.load[c.deadline] - p.store[c.release] -
           (p.host[c.deadline] - p.host[c.release]);
  }
  // Room on the host is taken for as long as a unit is away, so with overlapping rounds, which fill it,
  // length counts.
  const double away_ns = start_ns_[c.deadline] - start_ns_[c.release];
  return ns / bytes / (1 + policy_.away_weight * away_ns / start_ns_.back());
}

void Saver::decide(const Residency& residency, std::vector<int64_t> pressure) {
  loads_.emplace(start_ns_);
  stores_.emplace(start_ns_);
  under_way_.assign(n_ + 1, 0);
  const std::vector<Crossing> crossings = book_what_must_travel(residency);
  host_ = host_pressure(residency);
  if (by_prices()) {
    int64_t sum = 0;
    for (uint32_t p = 0; p <= n_; ++p) pressure[p] += sum += under_way_[p];
    device_ = Pressure(pressure);
  }
  std::vector<uint32_t> order;
  std::vector<double> gains(units_.size(), 0);
  for (uint32_t u = 0; u < units_.size(); ++u) {
    for (const ObjectId o : units_[u].objects) saves_[o.value] = Save::Keep;
    if (crossings[u].bytes == 0) continue;
    order.push_back(u);
    gains[u] = gain(u, crossings[u]);
  }
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return gains[a] != gains[b] ? gains[a] > gains[b] : crossings[a].release < crossings[b].release;
  });
  for (const uint32_t u : order) {
    const Save save = send_to_host(crossings[u]) ? Save::Host : Save::Again;
    for (const ObjectId o : units_[u].objects) saves_[o.value] = save;
  }
  if (by_prices()) {
    std::partial_sum(under_way_.begin(), under_way_.end(), costs_.prices.under_way.begin());
  } else if (policy_.priced) {
    costs_.use = {start_ns_, loads_->taken(), stores_->taken()};
  }
}

// Whether the unit can travel without its link falling behind by more than the policy allows, without the
// host overflowing. With prices it needs room on the device until it is stored and from when its load begins.
// If so, it does.
bool Saver::send_to_host(const Crossing& c) {
  const double stored_ns = stores_->end_of(c.release, c.store_ns);
  const double load_ns = loads_->begin_of(c.deadline, c.load_ns);
  if (stored_ns - c.store_ns - start_ns_[c.release] > policy_.lag_ns) return false;
  if (start_ns_[c.deadline] - c.load_ns - load_ns > policy_.lag_ns) return false;
  if (load_ns < stored_ns) return false;
  if (host_.most(c.release, c.deadline) + c.bytes > policy_.host_bytes) return false;
  if (by_prices()) {
    const uint32_t gone = c.store_ns > 0 ? from(stored_ns) : c.release, back = by(load_ns);
    const auto fits = [&](uint32_t begin, uint32_t end) {
      return begin >= end || device_.most(begin, end - 1) + c.bytes <= policy_.target_bytes;
    };
    if (!fits(c.release, gone) || !fits(back, c.deadline)) return false;
    for (const auto& [begin, end] : {std::pair(c.release, gone), {back, c.deadline}}) {
      if (begin < end) device_.add(begin, end - 1, c.bytes);
      under_way(begin, end, c.bytes);
    }
  }
  stores_->take_after(c.release, c.store_ns);
  loads_->take_before(c.deadline, c.load_ns);
  host_.add(c.release, c.deadline, c.bytes);
  return true;
}

}  // namespace

SaveChoice choose_saves(const Program& program, const DeviceSchedule& plain,
                        const std::vector<RecomputeUnit>& units, const Profile& profile, const Limits& limits,
                        const SavePolicy& policy, const Prices& prices) {
  return Saver(program, plain, units, profile, limits, policy, prices).run();
}

}  // namespace sluice::core
