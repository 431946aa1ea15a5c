// SPDX-License-Identifier: Apache-2.0
#include "search/shape.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <tuple>

#include "base/parallel.h"
#include "search/builder.h"
#include "search/refusal.h"

namespace sluice::core {
namespace {

// Larger chunks than this gain nothing on any machine: every kernel is long past its overheads.
constexpr int64_t kLargestChunk = 32768;
constexpr int64_t kSmallestChunk = 1024;
// Where the search begins: enough to amortise the traffic of weights and gradients.
constexpr int64_t kTokensPerRound = 32768;
// The length of a first round whose forward pass hides the update, while the others are as short as possible.
constexpr int64_t kTokensOfLongFirst = 40960;

int64_t head_tokens(const ShapeSubject& subject, const Cut& cut, int64_t chunk) {
  if (cut.head_tokens > 0) return std::min(cut.head_tokens, chunk);
  // Logits of a large vocabulary are the largest thing on the device; a thousand rows keep their product
  // efficient.
  const int64_t rows = subject.vocab > 16384 ? 1024 : 4096;
  return std::min(rows, chunk);
}

// A ring of devices is full when each has several chunks of a round: the smallest and the largest number
// tried.
constexpr int64_t kFewestInRing = 2, kMostInRing = 8;

int64_t ceil_div(int64_t n, int64_t by) {
  return (n + by - 1) / by;
}

// Chunk sizes, descending: what a sequence is halved into, and once, twice, four times ... so many sequences,
// less where the step is cut into as many chunks that are more alike. Empty: what is given does not cut the
// step.
std::vector<int64_t> chunk_sizes(const Cut& cut, int64_t devices) {
  const int64_t rows = cut.tokens_per_step / cut.seq_len;
  if (rows * cut.seq_len != cut.tokens_per_step) return {};
  if (const int64_t c = cut.chunk_tokens; c > 0) {
    const bool cuts =
        c <= cut.seq_len ? cut.seq_len % c == 0 : c % cut.seq_len == 0 && c <= cut.tokens_per_step;
    return cuts ? std::vector{c} : std::vector<int64_t>();
  }
  const int64_t smallest =
      devices == 1 ? kSmallestChunk : std::min(kSmallestChunk, cut.tokens_per_step / (kMostInRing * devices));
  std::vector<int64_t> chunks;
  for (int64_t c = cut.seq_len; !cut.whole && c > kSmallestChunk && c > kLargestChunk / 4 && c % 2 == 0;
       c /= 2) {
    if (c / 2 <= kLargestChunk) chunks.push_back(c / 2);
  }
  for (int64_t most = 1; most < 2 * rows; most *= 2) {
    const int64_t c = cut.seq_len * ceil_div(rows, ceil_div(rows, most));
    if (most > 1 && c > kLargestChunk) break;
    if (c >= smallest || c == cut.tokens_per_step) chunks.push_back(c);
  }
  std::sort(chunks.begin(), chunks.end(), std::greater());
  return chunks;
}

// Blocks of attention grow with the square of a sequence's chunks, unless a window bounds them. Programs of
// more tasks than this take longer to plan than smaller chunks can be worth.
constexpr int64_t kMostTasks = 150'000;

// A size that begins this much behind the fastest shape is followed up, too, if its programs have no more
// tasks than this.
constexpr double kBehind = 1.06;
constexpr int64_t kFewTasks = 20'000;

// Time of a task's run beside its kernel: 10 us were measured on an H200 with busy links, of which estimated
// costs have 4 as the time of a launch. Too little to plan by, but shapes of 8,000 and of 14,000 tasks are
// otherwise often alike. On a CPU, where tasks are long, it is next to nothing.
constexpr double kRunNs = 6000;

double estimated_ns(const StepEstimate& step) {
  return step.ns + kRunNs * step.runs;
}

constexpr std::string_view kOnly = "the only shape that fits what was given";

// Estimates are off by about this much, where the host is short and those of the last resort by more, and
// there those of small programs, too. Where a plan in full takes a second, five within kAlikeWhereShort are
// planned, each way to update moments by itself, and not briefly. In 17 cells of 1B and 8B on five cards
// three within a per cent were 0.5 % behind the fastest of all shapes in the mean, 3.1 % at most. These are
// 0.2 and 1.9 %.
constexpr double kAlikeWithin = 1.01, kAlikeWhereShort = 1.025, kAlikeByResort = 1.05;
// Where the fastest takes over twice its bound, a plan in full may take half of what a coarse one does.
constexpr double kFarOff = 2, kAlikeFarOff = 1.15;

constexpr int kFirstSizes = 2;  // of chunks that are planned before any is ruled out

// How a step is cut, in sequences (or chunks, where those hold several): what the search moves through.
struct Point {
  int64_t chunk, rounds, first;
  friend auto operator<=>(const Point&, const Point&) = default;
};

class ShapeSearch {
 public:
  ShapeSearch(const ShapeSubject& subject, const Cut& cut, const BytesByTier& caps, const Effort& effort,
              const Profile& profile, const std::stop_token& hurry)
      : subject_(subject),
        cut_(cut),
        caps_(caps),
        effort_(effort),
        profile_(profile),
        hurry_(hurry),
        tasks_(subject, cut.seq_len, cut.packed),
        tried_(effort.watch, "planning shapes") {}

  Result<ShapeChoice> run();

 private:
  struct Found {
    double ns = 0;  // of the plan, and kRunNs per run of a task; 0: does not fit
    double bound_ns = 0;
    Ways ways = Ways::Weights;
    bool late_moments = false;
    bool loads_moments = false;
    bool last_resort = false;  // of everything else nothing fits: planned in full it may be faster
    size_t tasks = 0;
    // Where it is the faster of both ways to update moments, of the slower one; 0: that does not fit.
    std::optional<double> slower_ns = {};
    bool hopeless = false;  // it takes at least so long, and was not planned
  };

  int64_t units(int64_t chunk) const { return ceil_div(cut_.tokens_per_step, std::max(chunk, cut_.seq_len)); }
  StepShape shape(const Point& p) const;
  std::optional<Point> point(int64_t chunk, int64_t rounds, int64_t first = 0) const;
  Program program(const Point& p, bool late_moments) const {
    return subject_.program(shape(p), late_moments);
  }
  // Whether no more shapes are tried.
  bool over() const { return effort_.stop.stop_requested() || hurry_.stop_requested(); }
  PlanRequest request(const Point& p) const;  // the limits; a refusal is not explained
  // A shape and a way to update moments, by their estimate.
  struct Estimated {
    double ns;
    Point shape;
    bool late_moments;
    friend auto operator<=>(const Estimated&, const Estimated&) = default;
  };
  // The fastest first.
  std::vector<Estimated> estimates() const;
  // The step's ns as in Found, and settings.
  std::pair<double, std::shared_ptr<const KnownSettings>> planned_in_full(const Estimated& one,
                                                                          int threads) const;
  bool is_quick_in_full(const Found& found) const {
    return core::is_quick_in_full(int64_t(found.tasks), profile_.devices());
  }
  // Makes it best_.
  void choose(const Estimated& one);
  // Makes the fastest plan among shapes with similar estimates best_.
  void settle();
  Found plan(const Point& p, Ways ways, bool late_moments, int threads, bool resort = true) const;
  // Who takes longer than this is not chosen whatever its plan, and not followed up.
  double hopeful_ns(size_t tasks) const;
  // The faster of both ways to update moments; what was `found` is one of them.
  Found other_moments(const Point& p, const Found& found, int threads, bool resort = true) const;
  // The first that the caps work for; otherwise the refusal that names the least.
  Result<Point> first_that_works(const std::vector<Point>& points) const;
  // The tokens of a round whose forward pass takes twice as long as loading all weights once: with experts
  // these are many. 0: weights find room on the devices. `one`: of a single sequence.
  int64_t tokens_that_hide_loads(const Program& one) const;
  // Plans those that are new, as the fastest so far, or with both ways to update moments. Whether one of them
  // is faster: it is best_ then.
  bool visit(const std::vector<std::optional<Point>>& points, bool both_moments = false);
  // Whether nothing is to come of the shape any more.
  bool excluded(const Point& p) const {
    return std::ranges::find(cut_.without, shape(p)) != cut_.without.end();
  }
  std::vector<std::optional<Point>> neighbours(const Point& of) const;
  // The fastest so far with these chunks.
  std::optional<Point> best_with(int64_t chunk) const;
  // Goes from there to neighbours as long as one is faster.
  void climb(int64_t chunk);

  const ShapeSubject& subject_;
  const Cut& cut_;
  const BytesByTier& caps_;
  const Effort& effort_;
  const Profile& profile_;
  const std::stop_token hurry_;
  const TaskCount tasks_;
  Candidates tried_;
  std::map<Point, Found> known_;
  std::optional<Point> best_;
  bool host_is_short_ = false;
  bool given_ = false;    // there is one shape, and only how moments are updated is to choose
  bool settled_ = false;  // plans in full decided
  std::shared_ptr<const KnownSettings> settings_;  // of the one that they chose
};

StepShape ShapeSearch::shape(const Point& p) const {
  StepShape s{cut_.seq_len, p.chunk, 1, 1, head_tokens(subject_, cut_, p.chunk), cut_.packed};
  spread(s, cut_.tokens_per_step / cut_.seq_len, p.rounds, p.first * s.chunks_per_sequence());
  return s;
}

// Empty when the step cannot be cut so, or the configuration wants it otherwise.
std::optional<Point> ShapeSearch::point(int64_t chunk, int64_t rounds, int64_t first) const {
  const int64_t all = units(chunk), whole = std::max<int64_t>(cut_.seq_len / chunk, 1);
  if (cut_.rounds > 0) rounds = cut_.rounds;
  if (cut_.first_round_chunks > 0) first = cut_.first_round_chunks / whole;
  if (rounds < 1 || rounds > all || cut_.first_round_chunks % whole != 0) return std::nullopt;
  const int64_t even = (all + rounds - 1) / rounds;
  if (first == 0) first = even;
  if (first > all - (rounds - 1) || (rounds == 1 && first != all)) return std::nullopt;
  if (cut_.first_round_chunks == 0 && first < even) return std::nullopt;
  return Point{chunk, rounds, first};
}

PlanRequest ShapeSearch::request(const Point& p) const {
  PlanRequest request;
  request.caps = caps_;
  if (subject_.room_between_steps) request.boundary_bytes = subject_.room_between_steps(shape(p));
  request.explain = false;
  request.stop = hurry_.stop_possible() ? hurry_ : effort_.stop;
  return request;
}

Result<Point> ShapeSearch::first_that_works(const std::vector<Point>& points) const {
  // More host memory helps before more of the device does; of one memory the least counts.
  const auto rank = [](const Error& refusal) {
    const Shortage s = refusal.shortage.value_or(Shortage());
    return std::tuple(s.tier != name_of(kHost), s.in_both_tiers, s.need_bytes.value_or(kUnlimited));
  };
  // Whatever fits in the end fits without a cap.
  if (caps_ == BytesByTier(kUnlimited)) return points.front();
  std::optional<Error> least;
  std::vector<BytesByTier> refused;
  for (const Point& p : points) {
    PlanRequest explained = request(p);
    // Larger chunks help only where evaluation takes less with them.
    const auto as_much = [&](const BytesByTier& room) { return within(room, explained.boundary_bytes); };
    if (std::ranges::any_of(refused, as_much)) continue;
    refused.push_back(explained.boundary_bytes);
    explained.explain = !effort_.least;
    explained.stop = effort_.stop;
    const Status works = caps_work(program(p, false), profile_, explained);
    if (works.ok()) return p;
    if (works.error().kind != ErrorKind::DoesNotFit) return works.error();
    if (!least || rank(works.error()) < rank(*least)) least = works.error();
  }
  return *least;
}

ShapeSearch::Found ShapeSearch::plan(const Point& p, Ways ways, bool late_moments, int threads,
                                     bool resort) const {
  if (over()) return {0, 0, ways, late_moments, true, false, 0};
  PlanRequest quick = request(p);
  quick.quick = true;
  quick.threads = threads;
  quick.resort = resort;
  quick.ways = ways;
  const Program program = this->program(p, late_moments);
  const size_t tasks = program.tasks().size();
  quick.hopeful_ns = hopeful_ns(tasks);
  const auto step = estimate_step(program, profile_, quick);
  if (!step.ok()) return {0, 0, ways, late_moments, true, false, tasks};
  return {.ns = estimated_ns(*step),
          .bound_ns = step->bound_ns,
          .ways = ways,
          .late_moments = late_moments,
          .loads_moments = step->loads_moments || step->hopeless,
          .last_resort = step->last_resort,
          .tasks = tasks,
          .hopeless = step->hopeless};
}

double ShapeSearch::hopeful_ns(size_t tasks) const {
  constexpr double kAny = std::numeric_limits<double>::infinity();
  if (!best_ || known_.at(*best_).last_resort) return kAny;
  const double most = int64_t(tasks) < kFewTasks ? kBehind : host_is_short_ ? kAlikeByResort : kAlikeWithin;
  return most * known_.at(*best_).ns - kRunNs * double(tasks) / double(profile_.devices());
}

ShapeSearch::Found ShapeSearch::other_moments(const Point& p, const Found& found, int threads,
                                              bool resort) const {
  // Moments that stay on the device have no traffic to spread.
  if (!subject_.may_be_late || !found.loads_moments) return found;
  if (found.slower_ns) return found;
  const Found other = plan(p, found.ways, !found.late_moments, threads, resort);
  const bool is_faster = other.ns > 0 && (found.ns == 0 || other.ns < found.ns * 0.999);
  Found faster = is_faster ? other : found;
  faster.slower_ns = is_faster ? found.ns : other.ns;
  return faster;
}

bool ShapeSearch::visit(const std::vector<std::optional<Point>>& points, bool both_moments) {
  std::vector<Point> fresh;
  for (const auto& p : points) {
    if (!p || known_.contains(*p) || std::find(fresh.begin(), fresh.end(), *p) != fresh.end()) continue;
    if (!excluded(*p)) fresh.push_back(*p);
  }
  // The best way for one shape is mostly the best for the others.
  std::vector<Ways> ways = {Ways::Weights, Ways::Prices};
  if (given_) ways = {Ways::Prices};
  bool late_moments = false;
  if (best_) {
    ways = {known_[*best_].ways};
    late_moments = known_[*best_].late_moments;
  }
  std::vector<Found> tried(fresh.size() * ways.size());
  const bool both_ways = ways.size() > 1, moments = !best_ || both_moments;
  // Shapes are planned beside each other, each by its part of the threads.
  const auto part_of = [&](size_t count) { return std::max(1, effort_.threads / std::max(1, int(count))); };
  const auto found_for = [&](const Point& p, Ways way, int threads, bool resort) {
    const Found one = plan(p, way, late_moments, threads, resort);
    return moments || is_quick_in_full(one) ? other_moments(p, one, threads, resort) : one;
  };
  for_each_parallel(int64_t(tried.size()), effort_.threads, [&](int64_t i) {
    const Point& p = fresh[size_t(i) / ways.size()];
    const Ways way = ways[size_t(i) % ways.size()];
    tried[size_t(i)] = found_for(p, way, part_of(tried.size()), !both_ways);
    if (way == ways.back()) tried_.count();
  });
  std::vector<Found> found;
  for (size_t i = 0; i < tried.size(); i += ways.size()) {
    found.push_back(tried[i]);
    for (size_t k = 1; k < ways.size(); ++k) {
      const Found& other = tried[i + k];
      if (other.ns > 0 && (found.back().ns == 0 || other.ns < found.back().ns)) found.back() = other;
    }
  }
  // The last resort is for shapes that neither way has a plan of.
  for_each_parallel(both_ways ? int64_t(fresh.size()) : 0, effort_.threads, [&](int64_t i) {
    Found& one = found[size_t(i)];
    if (one.ns == 0) one = found_for(fresh[size_t(i)], ways.front(), part_of(fresh.size()), true);
  });
  bool better = false;
  for (size_t i = 0; i < fresh.size(); ++i) {
    if (found[i].ns == 0 && over()) continue;
    known_[fresh[i]] = found[i];
    if (found[i].ns == 0) continue;
    if (!best_ || found[i].ns < known_[*best_].ns * 0.999) {  // the one that came first wins a tie
      best_ = fresh[i];
      better = true;
    }
  }
  if (best_) tried_.best(known_[*best_].ns);
  return better;
}

int64_t ShapeSearch::tokens_that_hide_loads(const Program& one) const {
  int64_t bytes = 0;
  for (const Object& o : one.objects()) bytes += o.kind == ObjectKind::Param ? o.bytes : 0;
  if (double(bytes) <= double(profile_.devices()) * double(caps_[kDevice])) return 0;
  const TaskCosts costs = cost_of(one, profile_);
  double ns = 1;
  for (size_t t = 0; t < costs.ns.size(); ++t) ns += one.tasks()[t].phase == Phase::Forward ? costs.ns[t] : 0;
  return int64_t(double(cut_.seq_len) * 2 * profile_.load_ns(bytes) / ns);
}

std::vector<std::optional<Point>> ShapeSearch::neighbours(const Point& of) const {
  const auto [chunk, rounds, first] = of;
  // One round more or less of many makes no difference.
  const int64_t step = std::max<int64_t>(1, rounds / 6), more = std::max<int64_t>(1, first / 6);
  // Rounds but the first as they are, some of them more or less.
  const int64_t other = rounds > 1 ? ceil_div(units(chunk) - first, rounds - 1) : 0,
                some = other > 0 ? std::max<int64_t>(1, more / other) : 0;
  return {point(chunk, rounds - step),
          point(chunk, rounds + step),
          point(chunk, rounds, first + more),
          point(chunk, rounds, first - more),
          point(chunk, rounds + step, first),
          point(chunk, rounds + step, first + more),
          point(chunk, rounds - some, first + some * other),
          point(chunk, rounds + some, first - some * other)};
}

std::optional<Point> ShapeSearch::best_with(int64_t chunk) const {
  std::optional<Point> best;
  for (const auto& [p, found] : known_) {
    if (p.chunk != chunk || found.ns == 0 || found.hopeless) continue;
    if (!best || found.ns < known_.at(*best).ns * 0.999) best = p;
  }
  return best;
}

void ShapeSearch::climb(int64_t chunk) {
  for (auto top = best_with(chunk), last = std::optional<Point>(); top && top != last;
       top = best_with(chunk)) {
    last = top;
    visit(neighbours(*top));
  }
}

std::pair<double, std::shared_ptr<const KnownSettings>> ShapeSearch::planned_in_full(const Estimated& one,
                                                                                     int threads) const {
  if (over()) return {0, nullptr};
  PlanRequest full = request(one.shape);
  full.threads = threads;
  full.brief = !is_quick_in_full(known_.at(one.shape));
  const auto step = estimate_step(program(one.shape, one.late_moments), profile_, full);
  if (!step.ok()) return {0, nullptr};
  return {estimated_ns(*step), step->settings};
}

std::vector<ShapeSearch::Estimated> ShapeSearch::estimates() const {
  std::vector<Estimated> out;
  for (const auto& [p, found] : known_) {
    if (found.ns == 0 || found.hopeless) continue;
    out.push_back({found.ns, p, found.late_moments});
    if (found.slower_ns.value_or(0) > 0 && is_quick_in_full(found))
      out.push_back({*found.slower_ns, p, !found.late_moments});
  }
  std::sort(out.begin(), out.end());
  return out;
}

void ShapeSearch::settle() {
  // Planning more shapes in full takes longer than the rest.
  const Found fastest = known_[*best_];
  const bool far_off = fastest.bound_ns > 0 && fastest.ns > kFarOff * fastest.bound_ns;
  const double alike_within = far_off ? kAlikeFarOff : host_is_short_ ? kAlikeWhereShort : kAlikeWithin;
  const auto is_alike = [&](const Estimated& one) {
    const Found& found = known_[one.shape];
    const bool loose = found.last_resort || (host_is_short_ && found.tasks <= kLargeProgram);
    const double most = loose ? kAlikeByResort : is_quick_in_full(found) ? kAlikeWhereShort : 0;
    return one.ns < std::max(most, alike_within) * fastest.ns;
  };
  std::vector<Estimated> order = estimates();
  if (order.size() < 2) return;
  // Those of few tasks are planned at every budget of a grid, and changed one by one: planning several takes
  // longer than such a difference is worth.
  const auto is_few = [&](const Estimated& one) { return known_[one.shape].tasks <= kFewItems; };
  const auto alike = std::stable_partition(order.begin(), order.end(), is_alike) - order.begin();
  const bool more = host_is_short_ || is_quick_in_full(known_[order.front().shape]);
  order.resize(std::min<size_t>(order.size(), more ? 5 : 3));
  const auto others = order.begin() + std::min(alike, std::ssize(order));
  if (order.size() < 2 || std::any_of(order.begin(), others, is_few)) return;
  // One plan has work for this many threads; a ring's is mostly made by one.
  const int width = profile_.devices() > 1 ? 1 : 5;
  Candidates in_full(effort_.watch, "planning the fastest shapes", others - order.begin());
  in_full.best(fastest.ns);
  double least = std::numeric_limits<double>::infinity();
  const auto plan_in_full = [&](auto from, auto to) {
    const int beside = std::clamp(effort_.threads / width, 1, int(to - from));
    std::vector<std::pair<double, std::shared_ptr<const KnownSettings>>> planned(size_t(to - from));
    for_each_parallel(to - from, beside, [&](int64_t i) {
      planned[size_t(i)] = planned_in_full(from[i], effort_.threads / beside);
      in_full.count();
    });
    for (const auto& [ns, settings] : planned) {
      const Estimated& one = *from++;
      if (ns == 0 || ns >= least) continue;
      least = ns;
      choose(one);
      settings_ = settings;
    }
  };
  plan_in_full(order.begin(), others);
  settled_ = others - order.begin() > 1;
  // Where an estimate was too fast, others that were behind it may be ahead of its plan.
  for (auto next = others; next != order.end() && next->ns < least && !is_few(*next); ++next) {
    in_full.expect(next - order.begin() + 1);
    plan_in_full(next, next + 1);
    settled_ = true;
  }
  // Where the host is short an estimate of late moments is the less certain one: they come twice.
  const Found& best = known_[*best_];
  if (!host_is_short_ || !std::isfinite(least) || !best.late_moments || is_quick_in_full(best)) return;
  const Estimated early{least, *best_, false};
  if (const auto [ns, settings] = planned_in_full(early, effort_.threads); ns > 0 && ns < least) {
    settings_ = settings;
    choose(early);
  }
}

void ShapeSearch::choose(const Estimated& one) {
  best_ = one.shape;
  Found& found = known_[one.shape];
  if (found.late_moments == one.late_moments) return;
  found.late_moments = one.late_moments;
  found.bound_ns = 0;  // that was of the other program
}

Result<ShapeChoice> ShapeSearch::run() {
  const auto devices = int64_t(profile_.devices());
  std::vector<int64_t> chunks = chunk_sizes(cut_, devices);
  while (chunks.size() > 1 && tasks_.of(cut_.tokens_per_step, chunks.back()) > kMostTasks) chunks.pop_back();
  const StepShape one{cut_.seq_len, cut_.seq_len, 1, 1, head_tokens(subject_, cut_, cut_.seq_len),
                      cut_.packed};
  const Program of_one = subject_.program(one, false);
  const int64_t hiding = tokens_that_hide_loads(of_one);
  std::vector<std::optional<Point>> starts;
  for (const int64_t c : chunks) {
    const int64_t per_round = std::max<int64_t>(1, kTokensPerRound / std::max(c, cut_.seq_len));
    starts.push_back(point(c, (units(c) + per_round - 1) / per_round));
    if (hiding > kTokensPerRound)
      starts.push_back(point(c, std::max<int64_t>(1, cut_.tokens_per_step / hiding)));
    for (int64_t in_ring = kFewestInRing; devices > 1 && in_ring <= kMostInRing; in_ring *= 2) {
      const int64_t of_round = std::max<int64_t>(1, in_ring * devices * c / std::max(c, cut_.seq_len));
      starts.push_back(point(c, (units(c) + of_round - 1) / of_round));
    }
    const int64_t first = std::clamp<int64_t>(kTokensOfLongFirst / std::max(c, cut_.seq_len), 1, units(c));
    if (first > 1) starts.push_back(point(c, units(c) - first + 1, first));
    // A sequence each takes the least memory.
    starts.push_back(point(c, units(c)));
  }
  std::erase(starts, std::nullopt);
  if (starts.empty()) {
    return error(
        "shape: a step of {} tokens in sequences of {} cannot be cut with chunk_tokens {}, rounds {} and "
        "first_round_chunks {} (0: chosen). Sequences are whole in a round, chunk_tokens divides seq_len or "
        "is a "
        "multiple of it, up to the step, and the first round is the longest",
        cut_.tokens_per_step, cut_.seq_len, cut_.chunk_tokens, cut_.rounds, cut_.first_round_chunks);
  }
  for (const auto& p : starts) SLUICE_TRY(validate(shape(*p)));
  given_ = std::all_of(starts.begin(), starts.end(), [&](const auto& p) { return p == starts.front(); });
  // A sequence each of the smallest chunks takes least, but for what evaluating chunks of a size takes.
  std::vector<Point> leanest;
  for (auto c = chunks.rbegin(); c != chunks.rend(); ++c) {
    if (const auto p = point(*c, units(*c))) leanest.push_back(*p);
  }
  if (leanest.empty() || given_) leanest = {*starts.back()};
  SLUICE_ASSIGN(const Point works, first_that_works(leanest));
  if (effort_.least) return ShapeChoice{shape(works), false, 1, "takes the least memory", nullptr};
  // Persistent objects do not depend on how a step is cut.
  const int64_t state = persistent_bytes(of_one);
  host_is_short_ = host_is_short(caps_[kHost] - state, int64_t(profile_.devices()), caps_[kDevice]);
  // From large chunks to small ones, whose programs have many tasks, as long as that pays or nothing fits.
  for (size_t size = kFirstSizes, from = 0; from < starts.size(); ++size) {
    const int64_t least = chunks[std::min(size, chunks.size()) - 1];
    size_t end = from;
    while (end < starts.size() && starts[end]->chunk >= least) ++end;
    // Where the host is short, which way to update moments is faster differs between sizes of chunks.
    const bool better = visit({starts.begin() + long(from), starts.begin() + long(end)}, host_is_short_);
    if (best_ && !better && !known_[*best_].last_resort) break;
    from = end;
  }
  if (!best_) {
    if (!excluded(works)) return ShapeChoice{shape(works), false, 1, std::string(kOnly), nullptr};
    return error(ErrorKind::DoesNotFit, "shape: of {} that were tried none has a plan", known_.size());
  }
  // A size of chunks that begins a little behind may end ahead.
  climb(best_->chunk);
  for (const int64_t chunk : chunks) {
    const auto top = best_with(chunk);
    if (top && known_[*top].ns < known_[*best_].ns * kBehind &&
        tasks_.of(cut_.tokens_per_step, chunk) < kFewTasks)
      climb(chunk);
  }
  known_[*best_] = other_moments(*best_, known_[*best_], effort_.threads);
  settle();
  const Found& found = known_[*best_];
  ShapeChoice choice{shape(*best_), found.late_moments, 1, std::string(kOnly), settings_};
  if (known_.size() == 1) return choice;
  for (const auto& [p, f] : known_) {
    if (f.ns > 0 && found.bound_ns > 0)
      choice.least_bound = std::min(choice.least_bound, f.bound_ns / found.bound_ns);
  }
  std::vector<std::pair<double, Point>> order;
  for (const auto& [p, f] : known_) {
    if (f.ns > 0 && !f.hopeless) order.emplace_back(f.ns, p);
  }
  std::sort(order.begin(), order.end());
  std::string others;
  for (size_t i = 0; i < std::min<size_t>(order.size(), 4); ++i) {
    others += fmt::format("{}{}: {:.0f}", i == 0 ? "" : ", ", to_text(shape(order[i].second)),
                          double(cut_.tokens_per_step) / order[i].first * 1e9);
  }
  choice.why =
      fmt::format("{} of {} estimates, tok/s: {}",
                  settled_ ? "of the best planned in full the fastest," : "fastest", known_.size(), others);
  return choice;
}

}  // namespace

TaskCount::TaskCount(const ShapeSubject& subject, int64_t seq_len, bool packed)
    : seq_len_(seq_len), layers_(subject.layers), earlier_blocks_(subject.earlier_blocks) {
  const Program one = subject.program({seq_len, seq_len, 1, 1, seq_len, packed}, false);
  for (const Task& task : one.tasks()) ++(task.phase == Phase::Update ? of_step_ : of_chunk_);
  if (seq_len % 2 != 0) return;
  const Program two = subject.program({seq_len, seq_len / 2, 2, 1, seq_len / 2, packed}, false);
  of_later_ = int64_t(two.tasks().size()) - of(seq_len, seq_len / 2);
}

// Each block of attention over an earlier chunk is a task in either pass.
int64_t TaskCount::of(int64_t tokens_per_step, int64_t chunk_tokens) const {
  const int64_t in_sequence = std::max<int64_t>(1, seq_len_ / chunk_tokens);
  const double earlier =
      earlier_blocks_ ? earlier_blocks_(seq_len_, chunk_tokens) : double(in_sequence - 1) / 2;
  const int64_t chunks = ceil_div(tokens_per_step, chunk_tokens);
  const int64_t later = chunks - chunks / in_sequence;
  return chunks * of_chunk_ + later * of_later_ + std::llround(double(2 * layers_ * chunks) * earlier) +
         of_step_;
}

Result<ShapeChoice> choose_shape(const ShapeSubject& subject, const Cut& cut, const BytesByTier& caps,
                                 const Effort& effort, const Profile& profile, std::stop_token hurry) {
  auto choice = ShapeSearch(subject, cut, caps, effort, profile, hurry).run();
  if (effort.stop.stop_requested()) return stopped_planning();
  return choice;
}

}  // namespace sluice::core
