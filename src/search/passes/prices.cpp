// SPDX-License-Identifier: Apache-2.0
// Prices of room and of the links' time at every moment of a step. They are the dual of the choice between
// keeping a value on the device, moving it, and computing it again.
//
// The step is divided into moments. Each has a price per byte of device and host and per ns of either link.
// At given prices every value takes what is cheapest for it in each of its gaps. Then what is asked for too
// much gets dearer, and what is left over cheaper, until supply and demand agree on average. Multiplicative
// updates of the prices by the average demand so far; only sums, products and quotients, so that prices are
// the same on every machine.
#include <algorithm>
#include <limits>
#include <numeric>

#include "search/passes/passes.h"

namespace sluice::core {
namespace {

// The number of moments of a whole step.
constexpr uint32_t kMoments = 768;
// How many moments a transfer can be before the use that it serves, or after the one that it follows.
constexpr uint32_t kWindow = 24;
constexpr double kRate = 0.1;
// Rounds of trade; for programs of many gaps fewer, as each takes time in proportion to them.
constexpr size_t kMostRounds = 300, kLeastRounds = 60, kTrades = 6'000'000;
constexpr double kNever = std::numeric_limits<double>::infinity();

// A time of the step: in which moment, and which part of that is over.
struct Instant {
  Instant(double moments, uint32_t all)
      : next(uint32_t(moments)), moment(std::min(next, all - 1)), part(moments - moment) {}

  friend bool operator<(const Instant& a, const Instant& b) { return a.moment + a.part < b.moment + b.part; }

  uint32_t next;  // at the end of the step, where no moment begins, their number
  uint32_t moment;
  double part;
};

// A value in one gap, or all values of a unit in their gaps between the passes.
struct Trader {
  Instant begin, end;            // around the boundary end < begin
  double bytes, loaded, stored;  // of them, those that are loaded, and that must be stored to leave
  double again_ns;               // to compute it again; 0: that cannot be done
  bool around;
  bool pays_host;  // its place on the host is taken only while it is away
};

// Moves an average on by a part of the way to what comes.
void approach(std::vector<double>& average, const std::vector<double>& next, double part) {
  double* const to = average.data();
  const double* const from = next.data();
  for (size_t m = 0; m < average.size(); ++m) to[m] += part * (from[m] - to[m]);
}

// One thing that is for sale, by moment.
struct Good {
  std::vector<double> price, asked, average;

  Good(uint32_t moments, double first_price)
      : price(moments, first_price), asked(moments), average(moments, 0) {}
  void forget() { asked.assign(price.size() + 2, 0); }
  void learn(double part) { approach(average, asked, part); }
  // supply(m): how much of it there is at a moment.
  void move(double least, double most, auto supply) {
    const double* const of = average.data();
    double* const now = price.data();
    for (size_t m = 0; m < price.size(); ++m) {
      const double over = std::clamp(of[m] / supply(m) - 1, -1.0, 2.0);
      now[m] = std::clamp(now[m] * (1 + kRate * over), least, most);
    }
  }
};

// The cheapest moment for a transfer among the first few after the one from which on it can store, or before
// the one by which it must have loaded: by that moment.
class Transfers {
 public:
  Transfers(uint32_t moments, bool loads)
      : moments_(moments), loads_(loads), cost_(moments + 1), at_(moments + 1) {
    for (uint32_t q = 0; q < moments + kWindow; ++q)
      moment_.push_back(loads ? (2 * moments - 1 - q) % moments : q % moments);
    cost_from_begin_.resize(moment_.size());
    open_.resize(moment_.size());
  }

  // Per byte, with the room it takes meanwhile.
  const std::vector<double>& cost() const { return cost_; }
  uint32_t at(uint32_t m) const { return at_[m]; }
  void find(const std::vector<double>& room, const std::vector<double>& link, double link_ns);

 private:
  const uint32_t moments_;
  const bool loads_;
  std::vector<double> cost_, cost_from_begin_;
  std::vector<uint32_t> at_;
  std::vector<uint32_t> moment_;  // by place in time, which runs backwards for loads: these are stores then
  std::vector<uint32_t> open_;    // places to come, each cheaper than all that are sooner
};

// From the last moment to the first, the ones to come stand in a line.
void Transfers::find(const std::vector<double>& room, const std::vector<double>& link, double link_ns) {
  const auto end = uint32_t(moment_.size());
  double paid = 0;
  for (uint32_t q = 0; q < end; ++q) {
    const uint32_t m = moment_[q];
    paid += room[m];
    cost_from_begin_[q] = paid + link[m] * link_ns;
  }
  size_t first = 0, last = 0;  // of those that are open, and behind them
  for (uint32_t q = end; q-- > 0;) {
    paid -= room[moment_[q]];
    const double cost = cost_from_begin_[q];
    while (last > first && cost_from_begin_[open_[last - 1]] >= cost) --last;
    open_[last++] = q;
    if (open_[first] >= q + kWindow) ++first;
    if (q > moments_) continue;
    const uint32_t m = loads_ ? moments_ - q : q;
    cost_[m] = cost_from_begin_[open_[first]] - paid;
    at_[m] = moment_[open_[first]];
  }
}

class PriceFinder {
 public:
  PriceFinder(const DeviceSchedule& s, const std::vector<RecomputeUnit>& units, const Profile& profile,
              const Limits& limits, int64_t target_bytes);
  Prices run();

 private:
  Instant instant_of(uint32_t position) const {
    return Instant(std::min(s_.start_ns[position] / moment_ns_, double(moments_)), moments_);
  }
  // Interpolates sums over moments at a fraction of one.
  static double at(const std::vector<double>& sums, const Instant& t) {
    return sums[t.moment] + (sums[t.moment + 1] - sums[t.moment]) * t.part;
  }
  static double between(const std::vector<double>& sums, const Trader& t) {
    return at(sums, t.end) - at(sums, t.begin) + (t.around ? sums.back() : 0);
  }
  // Adds to differences between moments.
  static void change(std::vector<double>& differences, const Instant& t, double bytes) {
    differences[t.moment] += bytes * (1 - t.part);
    differences[t.moment + 1] += bytes * t.part;
  }
  static void hold(std::vector<double>& differences, const Trader& t, double bytes) {
    change(differences, t.begin, bytes);
    change(differences, t.end, -bytes);
    if (t.around) differences[0] += bytes;
  }
  static void hold(std::vector<double>& differences, uint32_t begin, uint32_t end, double bytes) {
    differences[begin] += bytes;
    differences[end] -= bytes;
    if (end < begin) differences[0] += bytes;
  }
  void supply(const Limits& limits, int64_t target_bytes);
  void price_transfers();
  void trade();
  void record();
  Prices average(size_t rounds) const;
  double again_price(uint32_t m) const {
    constexpr double kLeast = 0.05;
    return std::max(kLeast, 1 - load_.price[m] - store_.price[m]);
  }

  // Those of a whole step, less what the rounds that are left out have of them.
  static uint32_t moments_of(const DeviceSchedule& s) {
    return std::max(2 * kWindow, uint32_t(kMoments * (s.start_ns.back() / s.whole_ns())));
  }

  const DeviceSchedule& s_;
  const uint32_t moments_;
  const double moment_ns_;
  const double load_ns_, store_ns_;  // per byte
  std::vector<Trader> traders_;
  std::vector<double> room_;  // bytes on the device beside the working sets, by moment
  double host_room_ = 0;
  Good device_{0, 0}, host_{0, 0};                   // ns per byte and moment
  Good load_{moments_, 0.2}, store_{moments_, 0.1};  // ns per ns
  std::vector<double> again_ns_, under_way_;         // by moment
  std::vector<double> device_sum_, host_sum_;
  // Per byte that is loaded by the begin of a moment or stored from there on, and when that is cheapest.
  Transfers load_cost_{moments_, true}, store_cost_{moments_, false};
  // Sums over rounds of trade, by moment.
  struct Recorded {
    std::vector<double> device, host, load, store, again, under_way;
  };
  Recorded recorded_;
};

PriceFinder::PriceFinder(const DeviceSchedule& s, const std::vector<RecomputeUnit>& units,
                         const Profile& profile, const Limits& limits, int64_t target_bytes)
    : s_(s),
      moments_(moments_of(s)),
      moment_ns_(s.start_ns.back() / moments_),
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
      traders_[trader_of[unit]].loaded += bytes;
      traders_[trader_of[unit]].stored += stored;
      continue;
    }
    if (unit != kNoUse) trader_of[unit] = uint32_t(traders_.size());
    const Instant begin = instant_of(g.first),
                  end = g.last == kNoUse ? Instant(0, moments_) : instant_of(g.last + 1);
    traders_.push_back({begin, end, bytes, double(v.load_bytes()), stored,
                        unit == kNoUse ? 0 : units[unit].ns, end < begin, !v.circular && !v.given});
  }
  supply(limits, target_bytes);
}

void PriceFinder::supply(const Limits& limits, int64_t target_bytes) {
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
    if ((v.circular || v.given) && !v.on_disk) on_host += double(v.bytes);
  }
  for (double& bytes : working) bytes += pinned;
  const double device = double(target_bytes), host = double(limits.bytes[kHost]);
  std::vector<double> taken(moments_ + 2, 0);
  for (uint32_t p = 0; p < s_.size(); ++p) {
    change(taken, instant_of(p), working[p]);
    change(taken, instant_of(p + 1), -working[p]);
  }
  std::partial_sum(taken.begin(), taken.end(), taken.begin());
  for (uint32_t m = 0; m < moments_; ++m) room_.push_back(std::max(kLeast * device, device - taken[m]));
  host_room_ = std::max(kLeast * host, host - on_host);
  // Where all that could be away at once has room, more of the host must not make another plan.
  std::vector<double> away(moments_ + 2, 0);
  for (const Trader& t : traders_) hold(away, t, t.pays_host ? t.bytes : 0);
  std::partial_sum(away.begin(), away.end(), away.begin());
  if (*std::ranges::max_element(away) <= host_room_) host_room_ = std::numeric_limits<double>::infinity();
  // First prices of about the right size: all room is worth half of what travelling costs at a third of the
  // links' time.
  double cost = 0;
  for (const Trader& t : traders_) {
    const double travel = 0.3 * (t.loaded * load_ns_ + t.stored * store_ns_);
    cost += t.again_ns > 0 ? std::min(travel, t.again_ns) : travel;
  }
  const double room = std::accumulate(room_.begin(), room_.end(), 0.0);
  device_ = Good(moments_, 0.5 * cost / room);
  host_ = Good(moments_, 0.01 * cost / room);
}

void PriceFinder::price_transfers() {
  device_sum_.assign(moments_ + 1, 0);
  host_sum_.assign(moments_ + 1, 0);
  std::partial_sum(device_.price.begin(), device_.price.end(), device_sum_.begin() + 1);
  std::partial_sum(host_.price.begin(), host_.price.end(), host_sum_.begin() + 1);
  load_cost_.find(device_.price, load_.price, load_ns_);
  store_cost_.find(device_.price, store_.price, store_ns_);
}

// Everyone takes what is cheapest.
void PriceFinder::trade() {
  for (Good* good : {&device_, &host_, &load_, &store_}) good->forget();
  again_ns_.assign(moments_, 0);
  under_way_.assign(moments_ + 2, 0);
  for (const Trader& t : traders_) {
    const uint32_t from = t.begin.next, to = t.end.next;
    const double keep = t.bytes * between(device_sum_, t);
    double travel = t.loaded * load_cost_.cost()[to] + t.stored * store_cost_.cost()[from];
    if (t.pays_host) travel += t.bytes * between(host_sum_, t);
    const double again = t.again_ns > 0 ? t.again_ns * again_price(t.end.moment) : kNever;
    if (keep <= travel && keep <= again) {
      hold(device_.asked, t, t.bytes);
    } else if (travel <= again) {
      const uint32_t load = load_cost_.at(to), store = store_cost_.at(from);
      load_.asked[load] += t.loaded * load_ns_;
      hold(under_way_, load, to == 0 ? moments_ : to, t.bytes);
      if (t.stored > 0) {
        store_.asked[store] += t.stored * store_ns_;
        hold(under_way_, from % moments_, store + 1, t.stored);
      }
      if (t.pays_host) hold(host_.asked, t, t.bytes);
    } else {
      again_ns_[t.end.moment] += t.again_ns;
    }
  }
  for (auto* sums : {&device_.asked, &host_.asked, &under_way_})
    std::partial_sum(sums->begin(), sums->end(), sums->begin());
  for (uint32_t m = 0; m < moments_; ++m) device_.asked[m] += under_way_[m];
}

void PriceFinder::record() {
  const auto add = [](std::vector<double>& sum, const std::vector<double>& one) {
    for (uint32_t m = 0; m < sum.size(); ++m) sum[m] += one[m];
  };
  add(recorded_.device, device_sum_);
  add(recorded_.host, host_sum_);
  add(recorded_.load, load_cost_.cost());
  add(recorded_.store, store_cost_.cost());
  add(recorded_.under_way, under_way_);
  for (uint32_t m = 0; m < moments_; ++m) recorded_.again[m] += again_price(m);
}

Prices PriceFinder::average(size_t rounds) const {
  Prices out;
  const double part = 1.0 / double(rounds);
  for (uint32_t p = 0; p <= s_.size(); ++p) {
    const Instant t = instant_of(p);
    out.device.push_back(part * at(recorded_.device, t));
    out.host.push_back(part * at(recorded_.host, t));
    out.load.push_back(part * recorded_.load[t.next]);
    out.store.push_back(part * recorded_.store[t.next]);
    out.again.push_back(part * recorded_.again[t.moment]);
    out.under_way.push_back(int64_t(part * recorded_.under_way[t.moment]));
  }
  return out;
}

Prices PriceFinder::run() {
  for (auto* sum : {&recorded_.device, &recorded_.host, &recorded_.load, &recorded_.store})
    sum->assign(moments_ + 1, 0);
  for (auto* sum : {&recorded_.again, &recorded_.under_way}) sum->assign(moments_, 0);
  const size_t rounds = std::clamp(kTrades / (traders_.size() + 1), kLeastRounds, kMostRounds);
  std::vector<double> again(moments_, 0);
  for (size_t round = 0; round < rounds; ++round) {
    price_transfers();
    trade();
    // The first half finds about where prices are, the second counts.
    if (2 * round >= rounds) record();
    const double part = 1.0 / double(1 + round % (rounds / 2));
    for (Good* good : {&device_, &host_, &load_, &store_}) good->learn(part);
    approach(again, again_ns_, part);
    const double least = 1e-4 * device_sum_.back() / moments_;
    device_.move(least, kNever, [room = room_.data()](size_t m) { return room[m]; });
    host_.move(1e-2 * least, kNever, [room = host_room_](size_t) { return room; });
    // A ns of waiting has room for a ns of transfer.
    for (Good* link : {&load_, &store_})
      link->move(1e-3, 1, [waited = again.data(), ns = moment_ns_](size_t m) { return ns + waited[m]; });
  }
  return average(rounds - (rounds + 1) / 2);
}

}  // namespace

Prices find_prices(const DeviceSchedule& plain, const std::vector<RecomputeUnit>& units,
                   const Profile& profile, const Limits& limits, int64_t target_bytes) {
  return PriceFinder(plain, units, profile, limits, target_bytes).run();
}

}  // namespace sluice::core
