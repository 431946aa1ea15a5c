// SPDX-License-Identifier: Apache-2.0
// Prices of room and of the links' time at every moment of a step: the dual of the choice between keeping a
// value on the device, moving it, and computing it again.
//
// The step is divided into moments. Each has a price per byte of device and host and per ns of either link.
// At given prices every value takes what is cheapest for it in each of its gaps; what is asked for too much
// then gets dearer, and what is left over cheaper, until supply and demand agree on average. Multiplicative
// updates of the prices by the average demand so far; only sums, products and quotients, so that prices are
// the same on every machine.
#include <algorithm>
#include <limits>
#include <numeric>

#include "planner/passes/passes.h"

namespace sluice::core {
namespace {

constexpr uint32_t kMoments = 768;
// How many moments a transfer can be before the use that it serves, or after the one that it follows.
constexpr uint32_t kWindow = 24;
constexpr double kRate = 0.1;
// Rounds of trade; for programs of many gaps fewer, as each takes time in proportion to them.
constexpr size_t kMostRounds = 300, kLeastRounds = 60, kTrades = 6'000'000;
constexpr double kNever = std::numeric_limits<double>::infinity();

// A value in one gap, or all values of a unit in their gaps between the passes.
struct Trader {
  double begin, end;     // moments, with fractions; around the boundary end < begin
  double bytes, stored;  // of them, those that must be stored to leave
  double again_ns;       // to compute it again; 0: that cannot be done
  bool pays_host;        // its place on the host is taken only while it is away
};

// One thing that is for sale, by moment.
struct Good {
  std::vector<double> price, asked, average;

  explicit Good(double first_price) : price(kMoments, first_price), asked(kMoments), average(kMoments, 0) {}
  void forget() { asked.assign(kMoments + 2, 0); }
  void learn(double part) {
    for (uint32_t m = 0; m < kMoments; ++m) average[m] += part * (asked[m] - average[m]);
  }
  void move(uint32_t m, double supply, double least, double most) {
    const double over = std::clamp(average[m] / supply - 1, -1.0, 2.0);
    price[m] = std::clamp(price[m] * (1 + kRate * over), least, most);
  }
};

class Market {
 public:
  Market(const Schedule& s, const std::vector<RecomputeUnit>& units, const Profile& profile,
         const Limits& limits, int64_t target_bytes);
  Prices run();

 private:
  double moment_of(uint32_t position) const {
    return std::min(s_.start_ns[position] / moment_ns_, double(kMoments));
  }
  static uint32_t whole(double moment) { return std::min(uint32_t(moment), kMoments - 1); }
  // Of sums over moments: the value at a fraction of one.
  static double at(const std::vector<double>& sums, double moment) {
    const uint32_t m = whole(moment);
    return sums[m] + (sums[m + 1] - sums[m]) * (moment - m);
  }
  static double between(const std::vector<double>& sums, double begin, double end) {
    return at(sums, end) - at(sums, begin) + (end < begin ? sums.back() : 0);
  }
  // Adds to differences between moments.
  static void hold(std::vector<double>& differences, double begin, double end, double bytes);
  void supply(const Limits& limits, int64_t target_bytes);
  void price_transfers();
  void trade();
  void record(Prices& sum) const;
  double again_price(double moment) const {
    const uint32_t m = whole(moment);
    constexpr double kLeast = 0.05;
    return std::max(kLeast, 1 - load_.price[m] - store_.price[m]);
  }

  const Schedule& s_;
  const double moment_ns_;
  const double load_ns_, store_ns_;  // per byte
  std::vector<Trader> traders_;
  std::vector<double> room_;  // bytes on the device beside the working sets, by moment
  double host_room_ = 0;
  Good device_{0}, host_{0};                  // ns per byte and moment
  Good load_{0.2}, store_{0.1};               // ns per ns
  std::vector<double> again_ns_, under_way_;  // by moment
  std::vector<double> device_sum_, host_sum_;
  // Per byte that is loaded by the begin of a moment or stored from there on, and when that is cheapest.
  std::vector<double> load_cost_, store_cost_;
  std::vector<uint32_t> load_at_, store_at_;
};

void Market::hold(std::vector<double>& differences, double begin, double end, double bytes) {
  if (end < begin) {
    hold(differences, begin, kMoments, bytes);
    hold(differences, 0, end, bytes);
    return;
  }
  const auto step = [&](double moment, double change) {
    const uint32_t m = whole(moment);
    const double rest = 1 - (moment - m);
    differences[m] += change * rest;
    differences[m + 1] += change * (1 - rest);
  };
  step(begin, bytes);
  step(end, -bytes);
}

Market::Market(const Schedule& s, const std::vector<RecomputeUnit>& units, const Profile& profile,
               const Limits& limits, int64_t target_bytes)
    : s_(s),
      moment_ns_(s.start_ns.back() / kMoments),
      load_ns_(1e9 / profile.bytes_per_s(kHost, kDevice)),
      store_ns_(1e9 / profile.bytes_per_s(kDevice, kHost)) {
  std::vector<uint32_t> unit_of(s.values.size(), kNoUse), trader_of(units.size(), kNoUse);
  std::vector<uint32_t> value_of;  // by object
  for (uint32_t v = 0; v < s.values.size(); ++v) {
    const uint32_t o = s.values[v].object.value;
    if (o >= value_of.size()) value_of.resize(o + 1, kNoUse);
    value_of[o] = v;
  }
  for (uint32_t u = 0; u < units.size(); ++u) {
    for (const ObjectId o : units[u].objects) unit_of[value_of[o.value]] = u;
  }
  for (const Gap& g : gaps_of(s, profile, limits)) {
    if (g.dead) continue;
    const Value& v = s.values[g.value];
    const double bytes = double(v.bytes), stored = g.written ? bytes : 0;
    const uint32_t unit = !g.around && v.crossing == g.use ? unit_of[g.value] : kNoUse;
    if (unit != kNoUse && trader_of[unit] != kNoUse) {
      traders_[trader_of[unit]].bytes += bytes;
      traders_[trader_of[unit]].stored += stored;
      continue;
    }
    if (unit != kNoUse) trader_of[unit] = uint32_t(traders_.size());
    traders_.push_back({moment_of(g.first), g.last == kNoUse ? 0 : moment_of(g.last + 1), bytes, stored,
                        unit == kNoUse ? 0 : units[unit].ns, !v.circular && !v.given});
  }
  supply(limits, target_bytes);
}

void Market::supply(const Limits& limits, int64_t target_bytes) {
  // A price needs something to be sold.
  constexpr double kLeast = 0.02;
  std::vector<double> working(s_.workspace_bytes.begin(), s_.workspace_bytes.end());
  double on_host = double(limits.boundary_bytes[kHost]), pinned = 0;
  for (const Value& v : s_.values) {
    if (v.fixed) continue;
    if (limits.pins(v.object)) {
      pinned += double(v.bytes);
      continue;
    }
    for (const ValueUse& u : v.uses) working[u.position] += double(v.bytes);
    if (v.circular || v.given) on_host += double(v.bytes);
  }
  for (double& bytes : working) bytes += pinned;
  const double device = double(target_bytes), host = double(limits.bytes[kHost]);
  std::vector<double> taken(kMoments + 2, 0);
  for (uint32_t p = 0; p < s_.size(); ++p) hold(taken, moment_of(p), moment_of(p + 1), working[p]);
  std::partial_sum(taken.begin(), taken.end(), taken.begin());
  for (uint32_t m = 0; m < kMoments; ++m) room_.push_back(std::max(kLeast * device, device - taken[m]));
  host_room_ = std::max(kLeast * host, host - on_host);
  // First prices of about the right size: all room is worth half of what travelling costs at a third of the
  // links' time.
  double cost = 0;
  for (const Trader& t : traders_) {
    const double travel = 0.3 * (t.bytes * load_ns_ + t.stored * store_ns_);
    cost += t.again_ns > 0 ? std::min(travel, t.again_ns) : travel;
  }
  const double room = std::accumulate(room_.begin(), room_.end(), 0.0);
  device_ = Good(0.5 * cost / room);
  host_ = Good(0.01 * cost / room);
}

void Market::price_transfers() {
  device_sum_.assign(kMoments + 1, 0);
  host_sum_.assign(kMoments + 1, 0);
  std::partial_sum(device_.price.begin(), device_.price.end(), device_sum_.begin() + 1);
  std::partial_sum(host_.price.begin(), host_.price.end(), host_sum_.begin() + 1);
  load_cost_.assign(kMoments + 1, kNever);
  store_cost_.assign(kMoments + 1, kNever);
  load_at_.resize(kMoments + 1);
  store_at_.resize(kMoments + 1);
  for (uint32_t m = 0; m <= kMoments; ++m) {
    double before = 0, after = 0;  // what the room costs meanwhile
    for (uint32_t k = 0; k < kWindow; ++k) {
      const uint32_t load = (m + kMoments - 1 - k) % kMoments, store = (m + k) % kMoments;
      before += device_.price[load];
      after += device_.price[store];
      const double load_cost = load_.price[load] * load_ns_ + before;
      const double store_cost = store_.price[store] * store_ns_ + after;
      if (load_cost < load_cost_[m]) load_cost_[m] = load_cost, load_at_[m] = load;
      if (store_cost < store_cost_[m]) store_cost_[m] = store_cost, store_at_[m] = store;
    }
  }
}

// Everyone takes what is cheapest.
void Market::trade() {
  for (Good* good : {&device_, &host_, &load_, &store_}) good->forget();
  again_ns_.assign(kMoments, 0);
  under_way_.assign(kMoments + 2, 0);
  for (const Trader& t : traders_) {
    const auto from = uint32_t(t.begin), to = uint32_t(t.end);
    const double keep = t.bytes * between(device_sum_, t.begin, t.end);
    double travel = t.bytes * load_cost_[to] + t.stored * store_cost_[from];
    if (t.pays_host) travel += t.bytes * between(host_sum_, t.begin, t.end);
    const double again = t.again_ns > 0 ? t.again_ns * again_price(t.end) : kNever;
    if (keep <= travel && keep <= again) {
      hold(device_.asked, t.begin, t.end, t.bytes);
    } else if (travel <= again) {
      load_.asked[load_at_[to]] += t.bytes * load_ns_;
      hold(under_way_, load_at_[to], to == 0 ? kMoments : to, t.bytes);
      if (t.stored > 0) {
        store_.asked[store_at_[from]] += t.stored * store_ns_;
        hold(under_way_, from % kMoments, store_at_[from] + 1, t.stored);
      }
      if (t.pays_host) hold(host_.asked, t.begin, t.end, t.bytes);
    } else {
      again_ns_[whole(t.end)] += t.again_ns;
    }
  }
  for (auto* sums : {&device_.asked, &host_.asked, &under_way_})
    std::partial_sum(sums->begin(), sums->end(), sums->begin());
  for (uint32_t m = 0; m < kMoments; ++m) device_.asked[m] += under_way_[m];
}

void Market::record(Prices& sum) const {
  for (uint32_t p = 0; p <= s_.size(); ++p) {
    const double moment = moment_of(p);
    sum.device[p] += at(device_sum_, moment);
    sum.host[p] += at(host_sum_, moment);
    sum.load[p] += load_cost_[uint32_t(moment)];
    sum.store[p] += store_cost_[uint32_t(moment)];
    sum.again[p] += again_price(moment);
    sum.under_way[p] += int64_t(under_way_[whole(moment)]);
  }
}

Prices Market::run() {
  const size_t n = s_.size() + 1;
  Prices sum{std::vector<double>(n), std::vector<double>(n), std::vector<double>(n),
             std::vector<double>(n), std::vector<double>(n), std::vector<int64_t>(n)};
  const size_t rounds = std::clamp(kTrades / (traders_.size() + 1), kLeastRounds, kMostRounds);
  std::vector<double> again(kMoments, 0);
  for (size_t round = 0; round < rounds; ++round) {
    price_transfers();
    trade();
    // The first half finds about where prices are, the second counts.
    if (2 * round >= rounds) record(sum);
    const double part = 1.0 / double(1 + round % (rounds / 2));
    for (Good* good : {&device_, &host_, &load_, &store_}) good->learn(part);
    for (uint32_t m = 0; m < kMoments; ++m) again[m] += part * (again_ns_[m] - again[m]);
    const double least = 1e-4 * device_sum_.back() / kMoments;
    for (uint32_t m = 0; m < kMoments; ++m) {
      device_.move(m, room_[m], least, kNever);
      host_.move(m, host_room_, 1e-2 * least, kNever);
      // A ns of waiting has room for a ns of transfer.
      load_.move(m, moment_ns_ + again[m], 1e-3, 1);
      store_.move(m, moment_ns_ + again[m], 1e-3, 1);
    }
  }
  const size_t counted = rounds - (rounds + 1) / 2;
  for (auto* prices : {&sum.device, &sum.host, &sum.load, &sum.store, &sum.again}) {
    for (double& p : *prices) p /= double(counted);
  }
  for (int64_t& bytes : sum.under_way) bytes /= int64_t(counted);
  return sum;
}

}  // namespace

Prices find_prices(const Schedule& plain, const std::vector<RecomputeUnit>& units, const Profile& profile,
                   const Limits& limits, int64_t target_bytes) {
  return Market(plain, units, profile, limits, target_bytes).run();
}

}  // namespace sluice::core
