// Saves: which activations go to the host and which are computed again, so that both links can keep up.
#include <algorithm>
#include <numeric>

#include "planner/link_time.h"
#include "planner/passes/passes.h"
#include "planner/pressure.h"

namespace sluice {
namespace {

class Saver {
 public:
  Saver(const Program& program, const Schedule& plain, const std::vector<RecomputeUnit>& units,
        const Profile& profile, const Limits& limits, const SavePolicy& policy)
      : s_(plain),
        units_(units),
        profile_(profile),
        limits_(limits),
        policy_(policy),
        n_(plain.size()),
        saves_(program.objects().size(), Save::Keep),
        value_of_(program.objects().size(), kNoUse),
        unit_of_(plain.values.size(), kNoUse) {
    costs_.again.assign(plain.values.size(), 0);
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
    // What is computed again takes time, in which links carry more, and leaves room, in which more can stay:
    // a few rounds settle it.
    for (int round = 0; round < 3; ++round) {
      stretch();
      auto cuts = cut_gaps(s_, start_ns_, profile_, limits_, policy_.target_bytes, saves_, costs_);
      if (!cuts) break;
      decide(split_at(s_, limits_, cuts->gaps));
    }
    costs_.again.clear();  // it is by value of the plain schedule
    return {std::move(saves_), std::move(costs_)};
  }

 private:
  struct Crossing {
    uint32_t release = 0, deadline = kNoUse;  // positions: stored after, needed before
    double store_ns = 0, load_ns = 0;
    int64_t bytes = 0;
  };

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
  void decide(const Residency& residency);
  bool send_to_host(const Crossing& c, LinkTime& loads, LinkTime& stores, Pressure& host);

  const Schedule& s_;
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
};

void Saver::decide(const Residency& residency) {
  LinkTime loads(start_ns_), stores(start_ns_);
  std::vector<Crossing> crossings(units_.size());
  // What must travel anyway comes first.
  for (const Span& span : residency.spans) {
    const Value& v = s_.values[span.value];
    const uint32_t unit = unit_of_[span.value];
    if (span.store) {
      const double ns = profile_.transfer_ns(v.bytes, false);
      if (unit != kNoUse && left_at(span.value) == span.last_use) {
        crossings[unit].store_ns += ns;
      } else {
        stores.take_after(std::min(span.last_use + 1, n_), ns);
      }
    }
    if (span.load) {
      const double ns = profile_.transfer_ns(v.bytes, true);
      if (unit != kNoUse && needed_at(span.value) == span.first_use) {
        Crossing& c = crossings[unit];
        c.load_ns += ns;
        c.bytes += v.bytes;
        c.release = std::max(c.release, left_at(span.value) + 1);
        c.deadline = std::min(c.deadline, span.first_use);
      } else {
        loads.take_before(span.first_use, ns);
      }
    }
  }
  std::vector<int64_t> host_bytes(n_ + 2, 0);  // first the changes, then their sums
  host_bytes[0] = limits_.boundary_host_bytes;
  for (const HostSlot& slot : residency.slots) {
    if (unit_of_[slot.value] != kNoUse) continue;
    host_bytes[slot.always ? 0 : slot.begin] += s_.values[slot.value].bytes;
    host_bytes[slot.always ? n_ + 1 : slot.end + 1] -= s_.values[slot.value].bytes;
  }
  std::partial_sum(host_bytes.begin(), host_bytes.end(), host_bytes.begin());
  Pressure host(host_bytes);
  std::vector<uint32_t> order;
  for (uint32_t u = 0; u < units_.size(); ++u) {
    for (const ObjectId o : units_[u].objects) saves_[o.value] = Save::Keep;
    if (crossings[u].bytes > 0) order.push_back(u);
  }
  // Room on the host is taken for as long as a unit is away, so with overlapping rounds, which fill it,
  // length counts.
  const auto price = [&](uint32_t u) {
    const double away_ns = start_ns_[crossings[u].deadline] - start_ns_[crossings[u].release];
    return units_[u].ns / double(units_[u].bytes) / (1 + policy_.away_weight * away_ns / start_ns_.back());
  };
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return price(a) != price(b) ? price(a) > price(b) : crossings[a].release < crossings[b].release;
  });
  for (const uint32_t u : order) {
    const Save save = send_to_host(crossings[u], loads, stores, host) ? Save::Host : Save::Again;
    for (const ObjectId o : units_[u].objects) saves_[o.value] = save;
  }
  if (policy_.priced) costs_.use = {start_ns_, loads.taken(), stores.taken()};
}

// Whether the unit can travel without its link falling behind by more than the policy allows, and without the
// host overflowing; if so, it does.
bool Saver::send_to_host(const Crossing& c, LinkTime& loads, LinkTime& stores, Pressure& host) {
  const double stored_ns = stores.end_of(c.release, c.store_ns);
  const double load_ns = loads.begin_of(c.deadline, c.load_ns);
  if (stored_ns - c.store_ns - start_ns_[c.release] > policy_.lag_ns) return false;
  if (start_ns_[c.deadline] - c.load_ns - load_ns > policy_.lag_ns) return false;
  if (load_ns < stored_ns) return false;
  if (host.most(c.release, c.deadline) + c.bytes > policy_.host_bytes) return false;
  stores.take_after(c.release, c.store_ns);
  loads.take_before(c.deadline, c.load_ns);
  host.add(c.release, c.deadline, c.bytes);
  return true;
}

}  // namespace

SaveChoice choose_saves(const Program& program, const Schedule& plain,
                        const std::vector<RecomputeUnit>& units, const Profile& profile, const Limits& limits,
                        const SavePolicy& policy) {
  return Saver(program, plain, units, profile, limits, policy).run();
}

}  // namespace sluice
