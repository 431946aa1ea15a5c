// SPDX-License-Identifier: Apache-2.0
#include "search/coarse_search.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <mutex>
#include <span>
#include <utility>

#include "base/parallel.h"

namespace sluice::core {
namespace {

constexpr int64_t kMostAtOnce = 8;  // settings that are tried around those that were fastest

// Settings that are tried before a plan is known: by weights, by weights with less held back, or by prices.
enum class Kind : uint8_t { Weights, Roomy, Prices };
// Which ways the request has to ask for.
enum class If : uint8_t { Asked, NotAsked, Always };
constexpr double kNonePinned[] = {0};
struct Start {
  Kind kind;
  bool overlap = false;
  std::span<const double> pinned = kNonePinned;  // parts of what can be; where some must be, none is left out
  bool must = false;                             // only where some must be pinned
  If way = If::Asked;
};

// Other settings than those of the fastest plan so far, or of the fastest by weights or by prices.
enum class Fastest : uint8_t { Any, Weights, Prices };
struct Move {
  Fastest where = Fastest::Any;  // which has to be the fastest
  Fastest of = where;            // whose settings are varied
  std::optional<double> reserve = {}, lag = {}, under_way = {}, again_weight = {};
  std::optional<SaveRule> rule = {};
  double add_reserve = 0;
  // Times the range of the step: parts of a setting's own value, of what can be pinned, of the device's
  // share.
  double reserve_by = 0, under_way_by = 0, pinned_by = 0, share_by = 0;
};

// Parts of what is not pinned that starts hold back for transfers; and Policy::lag by prices.
constexpr double kHeldByWeights = 0.35, kHeldRoomy = 0.2, kHeldByPrices = 0.08, kHeldBesidePins = 0.17,
                 kLag = 4;

// Unknown: no settings were known before. Pinned: as NotBrief, and the fastest plan has something pinned.
enum class When : uint8_t { Always, NothingFound, LastResort, Unknown, NotBrief, Pinned };
struct Step {
  std::span<const Start> starts = {};
  std::span<const Move> moves = {};
  When when = When::Always;
  double range = 1;
};

// Rows of these tables were measured in 27 cells of 1B to 30B (bench/results/search_numbers.jsonl): whether
// the fastest plan came of them, and how much slower the others' is. Without the eight that gained 0.05 % at
// most, planning takes a fifth less, but 1B at 32,768 tokens within 1,650 MiB is 1.4 % slower.
//
// Where the host has room for all that outlives the step. The fastest quick plan is 0 to 5.1 % slower than
// the fastest of all, 0.2 % in the median.
constexpr Start kQuick[] = {{Kind::Weights, true}, {Kind::Prices, true}};
// Plans of small programs take little time, and rounds one after another are often faster there.
constexpr Start kQuickSmall[] = {{Kind::Weights, true},
                                 {Kind::Weights, false},
                                 {Kind::Roomy, false},
                                 {Kind::Prices, true},
                                 {Kind::Prices, false}};
// Where prices do not pack, weights may, and the order as written leaves most room.
constexpr Start kOtherWay[] = {{Kind::Weights, true, kNonePinned, false, If::NotAsked}};
constexpr Start kInOrder[] = {{Kind::Weights, false, kNonePinned, false, If::Always}};
// The fastest plan came of prices in 11 of 19 cells and of overlapping weights in 7. Without either it is up
// to 3 % slower.
constexpr Start kAll[] = {{Kind::Weights, false}, {Kind::Weights, true}, {Kind::Prices, true}};
// Without one of these up to 0.8 % slower, where less held back by weights gets ahead 2.3 %.
constexpr Move kFar[] = {{.where = Fastest::Prices, .reserve = 0.04, .lag = 1.3},
                         {.where = Fastest::Prices, .reserve = 0.04, .lag = 4},
                         {.where = Fastest::Prices, .reserve = 0.08, .lag = 1.3},
                         {.where = Fastest::Prices, .reserve = 0.12, .lag = 1.3},
                         {.where = Fastest::Prices, .reserve = 0.12, .lag = 4},
                         // Where links have little to do, less held back for them may get ahead.
                         {.where = Fastest::Prices, .of = Fastest::Weights, .reserve = 0.1},
                         // Where there is little but loads: 6.3 % in an evaluation that updates 8B.
                         {.where = Fastest::Weights, .reserve = 0.1},
                         {.where = Fastest::Weights, .reserve = 0.2},
                         {.where = Fastest::Weights, .reserve = 0.5},
                         {.where = Fastest::Weights, .reserve = 0.65}};
// Up to 0.5 % slower.
constexpr Move kNear[] = {{.where = Fastest::Prices, .add_reserve = -0.02},
                          {.where = Fastest::Prices, .add_reserve = -0.01},
                          {.where = Fastest::Prices, .add_reserve = 0.01},
                          {.where = Fastest::Prices, .add_reserve = 0.02},
                          {.where = Fastest::Prices, .under_way = 0.15},
                          {.where = Fastest::Prices, .under_way = 0.2},
                          {.where = Fastest::Prices, .under_way = 0.3},
                          {.where = Fastest::Prices, .under_way = 0.35},
                          {.where = Fastest::Weights, .again_weight = 0.5, .rule = SaveRule::Links},
                          {.where = Fastest::Weights, .again_weight = 1, .rule = SaveRule::Links},
                          {.where = Fastest::Weights, .again_weight = 4, .rule = SaveRule::Links},
                          {.where = Fastest::Weights, .again_weight = 8, .rule = SaveRule::Links},
                          {.where = Fastest::Weights, .again_weight = 2, .rule = SaveRule::Bytes},
                          {.where = Fastest::Weights, .again_weight = 8, .rule = SaveRule::Bytes}};
constexpr Step kQuickSteps[] = {{.starts = kQuick},
                                {.starts = kOtherWay, .when = When::NothingFound},
                                {.starts = kInOrder, .when = When::NothingFound}};
constexpr Step kQuickSmallSteps[] = {{.starts = kQuickSmall},
                                     {.starts = kOtherWay, .when = When::NothingFound}};
// As under smaller caps, where chance in packing may have done better: in 1 of 27 cells, by 0.2 %.
constexpr Move kLess[] = {{.share_by = -0.04}, {.share_by = -0.1}};

constexpr Move kAround[] = {{.pinned_by = -0.1},
                            {.reserve_by = -0.4},
                            {.under_way_by = -0.5},
                            {.pinned_by = 0.1},
                            {.reserve_by = 0.4},
                            {.under_way_by = 0.5},
                            {.reserve_by = 0.7},
                            // Budgets are lowered in steps until a plan packs.
                            {.share_by = 0.02}};
// Where what outlives the step crosses the links for long, it pays to pin the dearest of it, as if the host
// had no room. Measured on presets (search_numbers.jsonl), against plans without. OLMoE's shape on an H200
// with 24 GiB is 4.4 % faster. Llama-3 8B with 65,536 tokens a step is 0.8 %, with 131,072 in fp8 0.5 % and
// in bf16 as fast. 1B on an RTX 4090 with 8 GiB is 0.4 % faster. These move for 4.8, 1.2, 0.97, 1.01 and 1.9
// times their step.
constexpr double kMuchMoves = 0.9;
constexpr double kSomeParts[] = {0.3, 0.5, 0.75};
constexpr Start kPinnedToo[] = {{Kind::Prices, true, kSomeParts}};
constexpr Move kLessHeldBack[] = {{.reserve = 0.08}};
constexpr Step kRoomySteps[] = {{.starts = kAll},
                                {.moves = kFar, .when = When::Unknown},
                                {.moves = kNear, .when = When::Unknown},
                                {.starts = kPinnedToo, .when = When::NotBrief},
                                {.moves = kLessHeldBack, .when = When::Pinned},
                                {.moves = kAround, .when = When::Pinned},
                                {.moves = kAround, .when = When::Pinned, .range = 0.5},
                                {.moves = kLess, .when = When::NotBrief}};

// Where it has not. How much is pinned decides most, and the fastest plan's neighbours are fast: settings are
// tried closer and closer around it. Without any one row of kAround plans are up to 2 % slower, without
// prices in order 2.7 %.
constexpr double kNoneOrHalf[] = {0, 0.5}, kHalfOrMore[] = {0.5, 0.75}, kThreeQuarters[] = {0.75},
                 kAboveHalf[] = {0.65, 0.85}, kPinnedParts[] = {0, 0.3, 0.5, 0.75, 0.9};
constexpr double kAsFastest[] = {-1};  // as the fastest by prices, or else half
constexpr Start kQuickPinned[] = {{Kind::Prices, true, kThreeQuarters, true},
                                  {Kind::Roomy, false, kHalfOrMore, true},
                                  {Kind::Prices, true, kNoneOrHalf},
                                  {Kind::Roomy, false, kNoneOrHalf},
                                  {Kind::Weights, false}};
constexpr Start kQuickPricesInOrder[] = {{Kind::Prices, false, kAsFastest}};
constexpr Start kQuickMore[] = {{Kind::Roomy, false, kAboveHalf, false, If::Always}};
constexpr Start kPinned[] = {{Kind::Prices, true, kPinnedParts},
                             {Kind::Prices, false, kPinnedParts},
                             {Kind::Roomy, false, kPinnedParts},
                             {Kind::Weights, false}};
constexpr Step kQuickPinnedSteps[] = {{.starts = kQuickPinned},
                                      {.starts = kQuickPricesInOrder},
                                      {.starts = kQuickMore, .when = When::LastResort}};
constexpr Step kPinnedSteps[] = {{.starts = kPinned},
                                 {.moves = kAround, .when = When::NotBrief},
                                 {.moves = kAround, .when = When::NotBrief, .range = 0.5},
                                 {.moves = kLess, .when = When::NotBrief}};

// Where it has, and there is time for both. 1B is faster in 4 of 6 cells of an RTX 4090, by up to 1.7 %, and
// slower in none; in one more it is 1 % slower. Planning takes 2 to 4 s more.
constexpr double kHalf[] = {0.5}, kSomePinned[] = {0.3, 0.5, 0.75, 0.9};
constexpr Start kQuickPinnedToo[] = {{Kind::Prices, true, kHalfOrMore}, {Kind::Roomy, false, kHalf}};
constexpr Start kAllPinned[] = {
    {Kind::Prices, true, kSomePinned}, {Kind::Prices, false, kSomePinned}, {Kind::Roomy, false, kSomePinned}};
constexpr Step kQuickBothSteps[] = {
    {.starts = kQuickSmall}, {.starts = kQuickPinnedToo}, {.starts = kOtherWay, .when = When::NothingFound}};
constexpr Step kBothSteps[] = {{.starts = kAll},
                               {.moves = kFar, .when = When::Unknown},
                               {.moves = kNear, .when = When::Unknown},
                               {.starts = kAllPinned, .when = When::NotBrief},
                               {.moves = kLessHeldBack, .when = When::Pinned},
                               {.moves = kAround, .when = When::NotBrief},
                               {.moves = kAround, .when = When::NotBrief, .range = 0.5},
                               {.moves = kLess, .when = When::NotBrief}};

// The settings that a way's fastest plan so far was made by, and the shares with which it packed.
struct Leader {
  Policy policy;
  double ns = std::numeric_limits<double>::infinity();

  bool is_there() const { return std::isfinite(ns); }
};

bool by_prices(const Policy& p) {
  return p.rule == SaveRule::Prices;
}
bool same_way(const Policy& a, const Policy& b) {
  return by_prices(a) == by_prices(b) && a.overlap == b.overlap;
}

class CoarseSearch {
 public:
  CoarseSearch(PlanBuilder& plans, const PlanRequest& request, std::optional<Candidate>* best)
      : plans_(plans),
        request_(request),
        pins_(plans.pin_range(plans.limits.device_bytes())),
        best_(best),
        tried_(request.watch, "planning") {}

  std::vector<FoundSettings> run();

 private:
  std::span<const Step> steps() const;
  bool applies(When when) const;
  bool pinned_leads() const { return prices_.ns < weights_.ns && prices_.policy.pinned_bytes > 0; }
  // Adds settings to policies_.
  void add(const Start& start);
  void add(const Move& move, double range);
  // Builds what was added, before so many more lists of kMostAtOnce at most.
  void consider(int64_t more);
  void build(const std::vector<Policy>& policies);
  void take(const FoundSettings& found);
  void build_fastest_of_known();

  PlanBuilder& plans_;
  const PlanRequest& request_;
  const PinRange pins_;
  std::optional<Candidate>* const best_;
  Leader weights_, prices_;
  std::vector<Policy> policies_;
  std::vector<FoundSettings> found_;
  size_t known_ = 0;  // of these, before anything was tried
  Candidates tried_;
};

std::vector<FoundSettings> CoarseSearch::run() {
  const KnownSettings* known = request_.known.get();
  if (known != nullptr && known->subject == plans_.subject()) {
    for (const FoundSettings& found : known->found) take(found);
  }
  known_ = found_.size();
  const std::span<const Step> steps = this->steps();
  for (size_t i = 0; i < steps.size(); ++i) {
    const Step& step = steps[i];
    if (!applies(step.when)) continue;
    // A brief search has made none of the starts that come later.
    if (known_ == 0 || step.when == When::NotBrief) {
      for (const Start& start : step.starts) add(start);
    }
    for (const Move& move : step.moves) add(move, step.range);
    consider(std::ranges::count_if(steps.subspan(i + 1),
                                   [&](const Step& s) { return !s.moves.empty() && applies(s.when); }));
  }
  build_fastest_of_known();
  return std::move(found_);
}

std::span<const Step> CoarseSearch::steps() const {
  if (pins_.tight) return request_.quick ? std::span<const Step>(kQuickPinnedSteps) : kPinnedSteps;
  if (plans_.is_quick_in_full()) return request_.quick ? std::span<const Step>(kQuickBothSteps) : kBothSteps;
  if (!request_.quick) return kRoomySteps;
  return plans_.is_large() ? std::span<const Step>(kQuickSteps) : kQuickSmallSteps;
}

bool CoarseSearch::applies(When when) const {
  switch (when) {
    case When::Always:
      return true;
    case When::NothingFound:
      return found_.empty();
    case When::LastResort:
      return found_.empty() && request_.resort;
    case When::Unknown:
      return known_ == 0;
    case When::Pinned:
      return applies(When::NotBrief) && pinned_leads();
    case When::NotBrief:
      return !request_.brief && (known_ == 0 || request_.known->brief);
  }
  return false;
}

void CoarseSearch::add(const Start& start) {
  const bool is_asked = request_.ways != (start.kind == Kind::Prices ? Ways::Weights : Ways::Prices);
  if (start.way != If::Always && is_asked != (start.way == If::Asked)) return;
  const bool must = pins_.least > 0;
  if (start.must && !must) return;
  for (const double part : start.pinned) {
    if (part == 0 && must) continue;
    if (part > 0 && !pins_.tight && !plans_.is_quick_in_full() && plans_.moving_share() < kMuchMoves)
      continue;
    const int64_t pinned = part >= 0            ? pins_.at(part)
                           : prices_.is_there() ? prices_.policy.pinned_bytes
                                                : pins_.at(0.5);
    switch (start.kind) {
      case Kind::Weights:
        policies_.push_back({.reserve = kHeldByWeights, .again_weight = 2, .overlap = start.overlap});
        break;
      case Kind::Roomy:  // rounds that do not overlap leave most room
        policies_.push_back({.reserve = kHeldRoomy, .again_weight = 2, .pinned_bytes = pinned});
        break;
      case Kind::Prices:
        policies_.push_back({.rule = SaveRule::Prices,
                             .reserve = pinned > 0 ? kHeldBesidePins : kHeldByPrices,
                             .overlap = start.overlap,
                             .lag = kLag,
                             .pinned_bytes = pinned});
        break;
    }
  }
}

void CoarseSearch::add(const Move& move, double range) {
  const bool any = move.where == Fastest::Any;
  const bool prices_lead = prices_.ns < weights_.ns || (any && prices_.ns == weights_.ns);
  if (!any && prices_lead != (move.where == Fastest::Prices)) return;
  const bool of_prices = any ? prices_lead : move.of == Fastest::Prices;
  const Leader& from = of_prices ? prices_ : weights_;
  // Where nothing was found weights are varied all the same.
  if (!from.is_there() && (any || prices_lead)) return;
  Policy& p = policies_.emplace_back(from.policy);
  p.reserve = move.reserve.value_or(p.reserve) + move.add_reserve;
  p.lag = move.lag.value_or(p.lag);
  p.under_way = move.under_way.value_or(p.under_way);
  p.again_weight = move.again_weight.value_or(p.again_weight);
  p.rule = move.rule.value_or(p.rule);
  p.reserve *= 1 + range * move.reserve_by;
  p.under_way *= 1 + range * move.under_way_by;
  if (move.pinned_by != 0)
    p.pinned_bytes =
        std::clamp(p.pinned_bytes + pins_.at(range * move.pinned_by) - pins_.least, pins_.least, pins_.most);
  if (move.share_by != 0) p.device_share = std::min(1.0, p.device_share + range * move.share_by);
}

void CoarseSearch::take(const FoundSettings& found) {
  found_.push_back(found);
  Leader& leader = by_prices(found.policy) ? prices_ : weights_;
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
// much as one that does. Where a way has several, the one in the middle goes before them.
void CoarseSearch::consider(int64_t more) {
  tried_.expect(tried_.tried() + std::ssize(policies_) + more * kMostAtOnce);
  std::vector<Policy> first, others;
  for (const Policy& way : {Policy{.rule = SaveRule::Prices, .overlap = true},
                            {.rule = SaveRule::Prices},
                            {.overlap = true},
                            {}}) {
    std::vector<Policy> alike;
    std::ranges::copy_if(policies_, std::back_inserter(alike),
                         [&](const Policy& p) { return same_way(p, way); });
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
    const auto packed = std::find_if(found_.begin() + long(before), found_.end(),
                                     [&](const FoundSettings& f) { return same_way(f.policy, p); });
    if (packed == found_.end()) continue;
    p.device_share = packed->policy.device_share;
    p.host_share = packed->policy.host_share;
  }
  build(others);
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
      if (by_prices(p) && p.overlap == overlap) pinned.push_back(p.pinned_bytes);
    }
    plans.find_prices(overlap, std::move(pinned), threads);
  }
  std::vector<Policy> possible = settings;
  std::erase_if(possible, [&](const Policy& p) {
    const bool none = by_prices(p) && !plans.has_prices(p);
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
