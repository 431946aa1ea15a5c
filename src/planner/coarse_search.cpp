// SPDX-License-Identifier: Apache-2.0
#include "planner/coarse_search.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <mutex>
#include <utility>

#include "base/parallel.h"

namespace sluice::core {
namespace {

// The settings that a way's fastest plan so far was made by, and the shares with which it packed.
struct Leader {
  Policy policy;
  double ns = std::numeric_limits<double>::infinity();
};

constexpr int64_t kMostAtOnce = 8;  // settings that are tried around those that were fastest

class CoarseSearch {
 public:
  CoarseSearch(PlanBuilder& plans, const PlanRequest& request, std::optional<Candidate>* best)
      : plans_(plans),
        request_(request),
        pins_(plans.pin_range(plans.limits.device_bytes())),
        best_(best),
        by_weights_(request.ways != Ways::Prices),
        by_prices_(request.ways != Ways::Weights),
        tried_(request.watch, "planning") {}

  std::vector<FoundSettings> run() {
    const KnownSettings* known = request_.known.get();
    if (known != nullptr && known->subject == plans_.subject()) {
      for (const FoundSettings& found : known->found) take(found);
    }
    known_ = found_.size();
    if (pins_.tight) {
      request_.quick ? quick_with_pins() : with_pins();
    } else if (known_ == 0) {
      request_.quick ? quick() : all();
    }
    build_fastest_of_known();
    return std::move(found_);
  }

 private:
  void quick();
  void all();
  void quick_with_pins();
  void with_pins();
  // Whether the host has no room for everything that could be pinned. If it has, plans as for a roomy host
  // may be fastest.
  bool must_pin() const { return pins_.least > 0; }
  // Builds what was added, before so many more lists of kMostAtOnce at most.
  void consider(int more = 0);
  void build(const std::vector<Policy>& policies);
  void take(const FoundSettings& found);
  void build_fastest_of_known();
  void add_weights(bool overlap) {
    policies_.push_back({.reserve = 0.35, .again_weight = 2, .overlap = overlap});
  }
  void add_prices(bool overlap, int64_t pinned) {
    // Shares of the bytes that are not pinned.
    policies_.push_back({.reserve = pinned > 0 ? 0.17 : 0.08,
                         .overlap = overlap,
                         .market = true,
                         .lag = 4,
                         .pinned_bytes = pinned});
  }
  // Rounds that do not overlap leave most room.
  void add_roomy(int64_t pinned) {
    policies_.push_back({.reserve = 0.2, .again_weight = 2, .pinned_bytes = pinned});
  }
  // Shares that pack for one mostly pack for the others of its way, and an attempt that does not pack costs
  // as much as one that does. So where a way has several, the one in the middle goes before them.
  void vary(const Leader& leader, auto&& change) {
    policies_.push_back(leader.policy);
    change(policies_.back());
  }

  PlanBuilder& plans_;
  const PlanRequest& request_;
  const PinRange pins_;
  std::optional<Candidate>* const best_;
  const bool by_weights_, by_prices_;
  Leader weights_, prices_;
  std::vector<Policy> policies_;
  std::vector<FoundSettings> found_;
  size_t known_ = 0;  // of these, before anything was tried
  Candidates tried_;
};

void CoarseSearch::take(const FoundSettings& found) {
  found_.push_back(found);
  Leader& leader = found.policy.market ? prices_ : weights_;
  if (found.step_ns < leader.ns) leader = {found.policy, found.step_ns};
}

// Builds the fastest settings that are known and have no plan yet.
void CoarseSearch::build_fastest_of_known() {
  const auto fastest = std::ranges::min_element(found_, {}, &FoundSettings::step_ns);
  if (best_ == nullptr || known_ == 0 || fastest - found_.begin() >= std::ptrdiff_t(known_)) return;
  build_settings(plans_, {fastest->policy}, request_.threads, best_);
}

void CoarseSearch::build(const std::vector<Policy>& policies) {
  for (const FoundSettings& found : build_settings(plans_, policies, request_.threads, best_, &tried_))
    take(found);
}

// Shares that pack for one mostly pack for the others of its way, and an attempt that does not pack costs as
// much as one that does: where a way has several, the one in the middle goes before them.
void CoarseSearch::consider(int more) {
  tried_.expect(tried_.tried() + std::ssize(policies_) + more * kMostAtOnce);
  std::vector<Policy> first, others;
  for (const auto& [market, overlap] :
       {std::pair(true, true), {true, false}, {false, true}, {false, false}}) {
    std::vector<Policy> alike;
    std::ranges::copy_if(policies_, std::back_inserter(alike),
                         [market = market, overlap = overlap](const Policy& p) {
                           return p.market == market && p.overlap == overlap;
                         });
    if (alike.empty()) continue;
    const bool fresh = std::ranges::all_of(alike, [](const Policy& p) { return p.device_share == 1; });
    const auto middle = alike.begin() + std::ssize(alike) / 2;
    if (fresh) first.push_back(*middle), alike.erase(middle);
    std::ranges::copy(alike, std::back_inserter(others));
  }
  policies_.clear();
  const size_t before = found_.size();
  build(first);
  for (Policy& p : others) {
    const auto same_way = [&](const FoundSettings& f) {
      return f.policy.market == p.market && f.policy.overlap == p.overlap;
    };
    const auto packed = std::find_if(found_.begin() + long(before), found_.end(), same_way);
    if (packed == found_.end()) continue;
    p.device_share = packed->policy.device_share;
    p.host_share = packed->policy.host_share;
  }
  build(others);
}

void CoarseSearch::quick() {
  if (by_weights_) add_weights(true);
  // The other order never won by them.
  if (by_prices_) add_prices(true, 0);
  consider();
  // Where this does not pack, weights may, and the order as written leaves most room.
  if (found_.empty() && !by_weights_) add_weights(true), consider();
  if (found_.empty()) add_weights(false), consider();
}

void CoarseSearch::all() {
  if (by_weights_) add_weights(false), add_weights(true);
  if (by_prices_) add_prices(true, 0);
  consider(2);
  if (prices_.ns < weights_.ns) {
    for (const double reserve : {0.04, 0.08, 0.12}) {
      for (const double lag : {1.3, 4.}) {
        if (reserve != prices_.policy.reserve || lag != prices_.policy.lag)
          vary(prices_, [&](Policy& p) { p.reserve = reserve, p.lag = lag; });
      }
    }
    // Where links have little to do, weights with less held back for them may get ahead.
    if (std::isfinite(weights_.ns)) vary(weights_, [&](Policy& p) { p.reserve = 0.1; });
  } else {
    for (const double reserve : {0.1, 0.2, 0.5, 0.65})
      vary(weights_, [&](Policy& p) { p.reserve = reserve; });
  }
  consider(1);
  if (prices_.ns < weights_.ns) {
    for (const double more : {-0.02, -0.01, 0.01, 0.02}) vary(prices_, [&](Policy& p) { p.reserve += more; });
    for (const double under_way : {0.15, 0.2, 0.3, 0.35})
      vary(prices_, [&](Policy& p) { p.under_way = under_way; });
  } else {
    for (const auto& [weight, priced] :
         {std::pair{0.5, true}, {1., true}, {4., true}, {8., true}, {2., false}, {8., false}}) {
      vary(weights_,
           [&weight = weight, &priced = priced](Policy& p) { p.again_weight = weight, p.priced = priced; });
    }
  }
  consider();
}

void CoarseSearch::quick_with_pins() {
  for (const double part : {must_pin() ? 0.75 : 0, 0.5}) {
    if (by_prices_) add_prices(true, pins_.at(part));
    if (by_weights_) add_roomy(pins_.at(part));
  }
  if (by_weights_ && !must_pin()) add_weights(false);
  consider();
  if (by_prices_)
    add_prices(false, std::isfinite(prices_.ns) ? prices_.policy.pinned_bytes : pins_.at(0.5)), consider();
  if (!found_.empty() || !request_.resort) return;
  for (const double part : {0.65, 0.85}) add_roomy(pins_.at(part));
  consider();
}

// How much is pinned decides most, and the fastest plan's neighbours are fast: settings are tried closer and
// closer around it.
void CoarseSearch::with_pins() {
  std::vector<double> parts = {0.3, 0.5, 0.75, 0.9};  // with those of a quick search among them
  if (!must_pin()) parts.insert(parts.begin(), 0);
  for (const double part : parts) {
    if (known_ > 0) break;
    if (by_prices_) add_prices(true, pins_.at(part)), add_prices(false, pins_.at(part));
    if (by_weights_) add_roomy(pins_.at(part));
  }
  if (by_weights_ && !must_pin() && known_ == 0) add_weights(false);
  const bool alone = request_.brief || (known_ > 0 && !request_.known->brief);
  consider(alone ? 0 : 2);
  if (alone) return;
  for (const double range : {1.0, 0.5}) {
    const Leader from = prices_.ns <= weights_.ns ? prices_ : weights_;
    if (!std::isfinite(from.ns)) return;
    for (const double by : {-0.1, 0.1}) {
      const int64_t more = pins_.at(range * by) - pins_.least;
      vary(from,
           [&](Policy& p) { p.pinned_bytes = std::clamp(p.pinned_bytes + more, pins_.least, pins_.most); });
      vary(from, [&](Policy& p) { p.reserve *= 1 + 4 * range * by; });
      vary(from, [&](Policy& p) { p.under_way *= 1 + 5 * range * by; });
    }
    vary(from, [&](Policy& p) { p.reserve *= 1 + 0.7 * range; });
    // Budgets are lowered in steps until a plan packs.
    vary(from, [&](Policy& p) { p.device_share = std::min(1.0, p.device_share + 0.02 * range); });
    consider(range == 1 ? 1 : 0);
  }
}

}  // namespace

std::vector<FoundSettings> search_coarse(PlanBuilder& plans, const PlanRequest& request,
                                         std::optional<Candidate>* best) {
  return CoarseSearch(plans, request, best).run();
}

std::vector<FoundSettings> build_settings(PlanBuilder& plans, const std::vector<Policy>& settings,
                                          int threads, std::optional<Candidate>* best, Candidates* tried) {
  for (const bool overlap : {false, true}) {
    std::vector<int64_t> pinned;
    for (const Policy& p : settings) {
      if (p.market && p.overlap == overlap) pinned.push_back(p.pinned_bytes);
    }
    plans.find_prices(overlap, std::move(pinned), threads);
  }
  std::vector<Policy> possible = settings;
  std::erase_if(possible, [&](const Policy& p) {
    const bool none = p.market && !plans.has_prices(p);
    if (none && tried != nullptr) tried->count();
    return none;
  });
  std::vector<std::optional<FoundSettings>> found(possible.size());
  std::optional<Candidate> fastest;
  int64_t of = 0;
  std::mutex mutex;
  for_each_parallel(int64_t(possible.size()), threads, [&](int64_t i) {
    auto made = plans.build(possible[size_t(i)], plans.limits.device_bytes());
    if (tried != nullptr) tried->count();
    if (!made) return;
    FoundSettings& one = found[size_t(i)].emplace(FoundSettings{possible[size_t(i)], made->step_ns});
    one.policy.device_share = made->device_share;
    one.policy.host_share = made->host_share;
    if (best == nullptr) return;
    // A plan takes memory like the search for it: of those alike in time the first is kept, whoever is done
    // first.
    const std::lock_guard lock(mutex);
    if (fastest && std::pair(fastest->step_ns, of) < std::pair(made->step_ns, i)) return;
    fastest = std::move(made);
    of = i;
  });
  if (fastest) take_faster(std::move(*fastest), *best);
  std::vector<FoundSettings> out;
  for (const auto& one : found) {
    if (one) out.push_back(*one);
  }
  return out;
}

}  // namespace sluice::core
