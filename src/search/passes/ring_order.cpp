// SPDX-License-Identifier: Apache-2.0
// The order of tasks over several devices: list scheduling of groups of tasks under a rule, then justified.
// The group that ends last begins last, scheduled back from the end. The one that begins first then comes
// first, scheduled from the begin. A list knows only what can begin now; this way it learns what the rest of
// the step waits for. Where rounds and heads of chunks follow one another that ends a step up to a sixth
// earlier, with as much in memory. (Li and Willis 1992, for projects with bounded resources.)
//
// A group is what the program has next to each other of one layer, round, chunk, phase and device. It runs in
// one piece; what it makes for another device is there a hand-over later.
#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <memory>
#include <queue>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "search/passes/grouped.h"
#include "search/passes/passes.h"

namespace sluice::core {
namespace {

struct Group {
  uint32_t begin, end;  // tasks
  size_t device;
  Phase phase;
  int32_t round, chunk;
  uint32_t stage = 0;  // groups of a pass that follow one another on one device, counted per round and phase
  double ns = 0;
};

// By group those that cannot begin before it has ended, and how much later; 0 on the same device. Or those
// that it follows.
class Edges {
 public:
  struct Edge {
    uint32_t to;
    double later_ns;
  };
  struct Ends {
    uint32_t from, to;
    double later_ns;
  };
  Edges() = default;
  Edges(size_t groups, std::span<const Ends> ends) : begin_(groups + 1, 0), edges_(ends.size()) {
    for (const Ends& e : ends) ++begin_[e.from + 1];
    for (size_t g = 0; g < groups; ++g) begin_[g + 1] += begin_[g];
    std::vector<uint32_t> next(begin_.begin(), begin_.end() - 1);
    for (const Ends& e : ends) edges_[next[e.from]++] = {e.to, e.later_ns};
  }
  std::span<const Edge> of(uint32_t group) const {
    return {edges_.data() + begin_[group], edges_.data() + begin_[group + 1]};
  }

 private:
  std::vector<uint32_t> begin_;  // by group, of its edges
  std::vector<Edge> edges_;
};

class Ring {
 public:
  Ring(const Program& program, const Placement& placement, const TaskCosts& costs, const Profile& profile)
      : program_(program), placement_(placement), costs_(costs), profile_(profile) {
    find_groups();
    find_edges();
    find_objects();
  }

  // The groups in the order in which they begin under a rule, and when the last one ends.
  struct Order {
    std::vector<uint32_t> groups;
    std::vector<double> begin_ns;  // by group
    double end_ns = 0;
  };
  // The one that ends first so far, while attempts to end earlier are made.
  struct Attempts {
    int32_t chunks_at_once;
    Order best, last;
    int made = 0, in_vain = 0;
  };
  Attempts begun(RingRule rule, int32_t chunks_at_once) {
    if (rule != RingRule::AsOne) {
      Order first = list(ranks_by(rule), chunks_at_once);
      return {chunks_at_once, first, first};
    }
    find_turns(chunks_at_once > chunks_of_round_);
    return {chunks_at_once, list(ranks_by(rule), chunks_at_once, patience_ns()), {}, kMostAttempts};
  }
  // Goes on; who is past `hopeful_ns` after a few attempts makes no more.
  void justify(Attempts& of, double hopeful_ns) const;
  // Chunks of the longest round, and of all rounds.
  int32_t chunks_of_round() const { return chunks_of_round_; }
  int32_t chunks() const { return int32_t(backward_groups_.size()); }

  // Bytes of the fullest device at its fullest moment.
  int64_t most_bytes(const Order& order) const;

  std::vector<TaskId> tasks(const Order& order) const {
    std::vector<TaskId> out;
    for (const uint32_t g : order.groups) {
      for (uint32_t t = groups_[g].begin; t < groups_[g].end; ++t) out.push_back(TaskId(t));
    }
    return out;
  }

 private:
  void find_groups();
  void find_edges();
  void find_objects();
  void find_turns(bool overlap_rounds);
  // How long a device waits for what comes first under a rule before it begins something else.
  double patience_ns() const;
  // The earlier key is smaller.
  using Key = std::array<double, 4>;
  using Ranks = std::vector<uint32_t>;  // by group: how many come first
  // Among equal keys the Program's order decides.
  template <typename KeyOf>
  Ranks ranks(KeyOf&& key_of) const {
    std::vector<std::pair<decltype(key_of(0u)), uint32_t>> sorted(groups_.size());
    for (uint32_t g = 0; g < groups_.size(); ++g) sorted[g] = {key_of(g), g};
    std::ranges::sort(sorted);
    Ranks out(groups_.size());
    for (uint32_t rank = 0; rank < sorted.size(); ++rank) out[sorted[rank].second] = rank;
    return out;
  }
  // The groups of each device, in that order.
  Grouped by_device(const Order& order) const {
    return Grouped(placement_.devices, [&](auto&& add) {
      for (const uint32_t g : order.groups) add(groups_[g].device, g);
    });
  }
  // By when they end in an order.
  Ranks last_first(const Order& order) const;
  Ranks ranks_by(RingRule rule) const {
    return ranks([&](uint32_t g) { return key(rule, g); });
  }
  Key key(RingRule rule, uint32_t g) const {
    const Group& group = groups_[g];
    const double forward = group.phase == Phase::Forward ? 1 : 0, round = group.round, stage = group.stage;
    switch (rule) {
      case RingRule::Stages:
        return {forward, round, stage, chunk_turn_[g]};
      case RingRule::Chunks:
        return {forward, round, chunk_turn_[g], stage};
      case RingRule::ForwardFirst:
        return {1 - forward, round, stage, chunk_turn_[g]};
      case RingRule::AsOne:
        return {turn_as_one_[g], 0, 1 - forward};
    }
    return {};
  }
  static constexpr int32_t kAllChunks = std::numeric_limits<int32_t>::max() / 2;
  // `backwards`: time runs from the end of the step to its begin.
  Order list(const Ranks& ranks, int32_t chunks_at_once, double patience_ns = 0,
             bool backwards = false) const;
  static constexpr int kMostAttempts = 12, kMostInVain = 4, kFewAttempts = 2;

  const Program& program_;
  const Placement& placement_;
  const TaskCosts& costs_;
  const Profile& profile_;
  std::vector<Group> groups_;
  Edges next_, before_;
  // Objects of each group, once each: by group where its part begins.
  std::vector<uint32_t> objects_begin_, objects_;
  std::vector<double> chunk_turn_;         // by group: which chunk of its pass it is, in the program's order
  std::vector<int32_t> layers_;            // by group
  std::vector<double> turn_as_one_;        // by group: its place in the order of one device
  std::vector<int32_t> chunk_of_;          // by group: the chunk's number in the step; none has kNoChunk
  std::vector<uint32_t> backward_groups_;  // by chunk: of its backward pass
  int32_t chunks_of_round_ = 1;
  static constexpr int32_t kNoChunk = -1;
};

void Ring::find_groups() {
  using Chunk = std::tuple<int32_t, Phase, int32_t>;
  std::map<Chunk, double> turns;
  // The last stage of a round and phase, and the stages of each layer on its devices.
  struct Stages {
    size_t device;
    uint32_t number;
    int32_t layer;
    std::map<size_t, uint32_t> of_device;
  };
  std::map<std::pair<int32_t, Phase>, Stages> stages;
  for (uint32_t t = 0; t < program_.tasks().size(); ++t) {
    const Task& task = program_.tasks()[t];
    const size_t device = placement_.of(TaskId(t)).index();
    const auto joins = [&](const Group& g) {
      return g.device == device && g.phase == task.phase && g.round == task.round && g.chunk == task.chunk &&
             layers_.back() == task.layer;
    };
    if (groups_.empty() || !joins(groups_.back())) {
      groups_.push_back({t, t, device, task.phase, task.round, task.chunk});
      layers_.push_back(task.layer);
      Stages& s =
          stages.try_emplace({task.round, task.phase}, Stages{device, 0, task.layer, {}}).first->second;
      if (s.layer != task.layer) s.layer = task.layer, s.of_device.clear();
      // A layer on two devices has a stage on each, however often chunks go from one to the other.
      const auto [stage, fresh] = s.of_device.try_emplace(device, s.number);
      if (fresh && s.device != device) s.device = device, stage->second = ++s.number;
      groups_.back().stage = stage->second;
      const auto [turn, first] =
          turns.try_emplace({task.round, task.phase, task.chunk}, double(turns.size()));
      chunk_turn_.push_back(turn->second);
    }
    groups_.back().end = t + 1;
    groups_.back().ns += costs_.ns[t];
  }
  std::map<std::pair<int32_t, int32_t>, int32_t> numbers;  // by round and chunk
  for (const Group& g : groups_) {
    if (g.round >= 0 && g.chunk >= 0) numbers.try_emplace({g.round, g.chunk}, 0);
    chunks_of_round_ = std::max(chunks_of_round_, g.chunk + 1);
  }
  int32_t number = 0;
  for (auto& [chunk, of] : numbers) of = number++;
  backward_groups_.assign(numbers.size(), 0);
  for (const Group& g : groups_) {
    const bool of_chunk = g.round >= 0 && g.chunk >= 0;
    chunk_of_.push_back(of_chunk ? numbers.at({g.round, g.chunk}) : kNoChunk);
    if (of_chunk) backward_groups_[size_t(chunk_of_.back())] += g.phase == Phase::Backward;
  }
}

// Data flows as in the program's order: who reads comes after who wrote before, and who writes after all who
// used it before. Processes exchange in that order, too, whatever the plans of each are.
void Ring::find_edges() {
  struct Last {
    uint32_t writer = UINT32_MAX;
    std::vector<uint32_t> readers;  // since
  };
  std::vector<Last> last(program_.objects().size());
  std::vector<Edges::Ends> edges;
  // Keeps the longest of the edges between two groups: by group, where its edge to the current one is.
  std::vector<size_t> edge_from(groups_.size(), 0);
  size_t first = 0;
  const bool exchanges = profile_.network.bytes_per_s > 0;
  uint32_t exchanged = UINT32_MAX;  // by this group last
  const auto after = [&](uint32_t from, uint32_t to, double later) {
    if (from == to) return;
    size_t& at = edge_from[from];
    if (at >= first && at < edges.size() && edges[at].from == from) {
      edges[at].later_ns = std::max(edges[at].later_ns, later);
    } else {
      at = edges.size();
      edges.push_back({from, to, later});
    }
  };
  for (uint32_t g = 0; g < groups_.size(); ++g) {
    first = edges.size();
    for (uint32_t t = groups_[g].begin; t < groups_[g].end; ++t) {
      if (exchanges && lane_of(program_.tasks()[t].op) == LaneKind::Network) {
        if (exchanged != UINT32_MAX) after(exchanged, g, 0);
        exchanged = g;
      }
      for (const Use& u : program_.tasks()[t].uses) {
        Last& l = last[u.object.value];
        if (l.writer != UINT32_MAX) {
          const size_t from = groups_[l.writer].device, to = groups_[g].device;
          after(l.writer, g,
                from == to ? 0
                           : profile_.hand_over_ns(program_.object(u.object).bytes, Tier::device(from),
                                                   Tier::device(to)));
        }
        if (u.access != Access::Read) {
          for (const uint32_t reader : l.readers) after(reader, g, 0);
          l.writer = g;
          l.readers.clear();
        } else if (l.readers.empty() || l.readers.back() != g) {
          l.readers.push_back(g);
        }
      }
    }
  }
  next_ = Edges(groups_.size(), edges);
  for (Edges::Ends& e : edges) std::swap(e.from, e.to);
  before_ = Edges(groups_.size(), edges);
}

void Ring::find_objects() {
  constexpr uint32_t kNoGroup = UINT32_MAX;
  std::vector<uint32_t> last(program_.objects().size(), kNoGroup);  // by object: the group that has it last
  for (uint32_t g = 0; g < groups_.size(); ++g) {
    objects_begin_.push_back(uint32_t(objects_.size()));
    for (uint32_t t = groups_[g].begin; t < groups_[g].end; ++t) {
      for (const Use& u : program_.tasks()[t].uses) {
        if (std::exchange(last[u.object.value], g) != g) objects_.push_back(u.object.value);
      }
    }
  }
  objects_begin_.push_back(uint32_t(objects_.size()));
}

// As in the order of one device (order.cpp), but each device by itself. It has done the same part of its time
// of a round's forward pass and of the backward pass beside it at any moment. The first device, which has the
// head, so runs ahead in the forward pass meanwhile, and what it makes is there for the others.
void Ring::find_turns(bool overlap_rounds) {
  std::map<std::pair<size_t, int32_t>, std::pair<double, double>> passes;  // by device: time, and that before
  std::vector<int32_t> pass_of;
  int32_t pass = 0;
  for (const Group& g : groups_) {
    // Updates belong to the pass in which they are written.
    if (g.round >= 0) pass = 2 * g.round + (g.phase == Phase::Backward);
    pass_of.push_back(pass);
    passes[{g.device, pass}].first += g.ns;
  }
  turn_as_one_.clear();
  struct Turn {
    int32_t layer, pass;
    double turn;
  };
  std::map<size_t, Turn> last;  // by device
  for (uint32_t g = 0; g < groups_.size(); ++g) {
    auto& [all_ns, before_ns] = passes[{groups_[g].device, pass_of[g]}];
    const auto [at, fresh] = last.try_emplace(groups_[g].device);
    Turn& turn = at->second;
    // All chunks of a layer have the turn of the first.
    if (fresh || turn.layer != layers_[g] || turn.pass != pass_of[g]) {
      const int32_t beside = overlap_rounds ? (pass_of[g] + 1) / 2 : pass_of[g];
      turn = {layers_[g], pass_of[g], beside + before_ns / std::max(all_ns, 1.0)};
    }
    turn_as_one_.push_back(turn.turn);
    before_ns += groups_[g].ns;
  }
}

// One device runs a layer for all chunks before it goes on to the next. Whoever does not wait for a chunk
// that is about to arrive, but begins something else, soon has weights and activations of several layers at
// once.
double Ring::patience_ns() const {
  double sum = 0, groups = 0;
  for (const Group& g : groups_) {
    if (g.phase == Phase::Forward) sum += g.ns, ++groups;
  }
  return sum / std::max(1.0, groups);
}

Ring::Order Ring::list(const Ranks& ranks, int32_t chunks_at_once, double patience_ns, bool backwards) const {
  Order out;
  out.begin_ns.resize(groups_.size());
  out.groups.reserve(groups_.size());
  struct Waits {
    double ready_ns = 0;
    uint32_t before;  // so many groups
  };
  std::vector<Waits> waits;
  waits.reserve(groups_.size());
  const Edges &to = backwards ? before_ : next_, &from = backwards ? next_ : before_;
  for (uint32_t g = 0; g < groups_.size(); ++g) waits.push_back({.before = uint32_t(from.of(g).size())});
  // Groups that each device can begin now, and those that it can begin later, by time.
  using Open = std::priority_queue<uint32_t, std::vector<uint32_t>, std::greater<>>;
  std::vector<Open> open(placement_.devices);
  std::vector<uint32_t> of_rank(groups_.size());
  for (uint32_t g = 0; g < groups_.size(); ++g) of_rank[ranks[g]] = g;
  using Event = std::pair<double, uint32_t>;
  std::vector<std::priority_queue<Event, std::vector<Event>, std::greater<>>> later(placement_.devices);
  std::vector<double> free_ns(placement_.devices, 0);
  std::vector<uint32_t> backward_left = backward_groups_;
  std::map<int32_t, std::vector<uint32_t>> held;  // by chunk: forward groups that may not begin yet
  // One without a backward pass holds nothing up.
  auto done = int32_t(std::ranges::count(backward_left, 0u));
  double done_ns = 0;
  const auto release = [&](uint32_t g) { later[groups_[g].device].emplace(waits[g].ready_ns, g); };
  const auto reached = [&](uint32_t g) {
    const Group& group = groups_[g];
    if (group.phase == Phase::Forward && chunk_of_[g] >= done + chunks_at_once) {
      held[chunk_of_[g]].push_back(g);
    } else {
      release(g);
    }
  };
  for (uint32_t g = 0; g < groups_.size(); ++g) {
    if (waits[g].before == 0) reached(g);
  }
  while (out.groups.size() < groups_.size()) {
    // The device that can begin something first.
    size_t device = 0;
    double now = std::numeric_limits<double>::infinity();
    for (size_t d = 0; d < placement_.devices; ++d) {
      const double at = !open[d].empty()    ? free_ns[d]
                        : !later[d].empty() ? std::max(free_ns[d], later[d].top().first)
                                            : std::numeric_limits<double>::infinity();
      if (at < now) now = at, device = d;
    }
    while (!later[device].empty() && later[device].top().first <= now + patience_ns) {
      const uint32_t g = later[device].top().second;
      later[device].pop();
      open[device].push(ranks[g]);
    }
    const uint32_t g = of_rank[open[device].top()];
    open[device].pop();
    const Group& group = groups_[g];
    out.begin_ns[g] = std::max(now, waits[g].ready_ns);
    const double end_ns = out.begin_ns[g] + group.ns;
    free_ns[device] = end_ns;
    out.groups.push_back(g);
    out.end_ns = std::max(out.end_ns, end_ns);
    for (const auto& [next, later_ns] : to.of(g)) {
      Waits& of_next = waits[next];
      of_next.ready_ns = std::max(of_next.ready_ns, end_ns + later_ns);
      if (--of_next.before == 0) reached(next);
    }
    if (group.phase != Phase::Backward || chunk_of_[g] == kNoChunk) continue;
    if (--backward_left[size_t(chunk_of_[g])] > 0) continue;
    ++done;
    done_ns = std::max(done_ns, end_ns);
    while (!held.empty() && held.begin()->first < done + chunks_at_once) {
      for (const uint32_t waiting : held.begin()->second) {
        waits[waiting].ready_ns = std::max(waits[waiting].ready_ns, done_ns);
        release(waiting);
      }
      held.erase(held.begin());
    }
  }
  return out;
}

// A device ends its groups one after the other: what is sorted are the devices' parts.
Ring::Ranks Ring::last_first(const Order& order) const {
  using Ended = std::pair<double, uint32_t>;  // the time from the end of all, and the group
  const Grouped of_device = by_device(order);
  std::vector<Ended> sorted;
  sorted.reserve(order.groups.size());
  std::vector<size_t> begin = {0};  // by device, of its part
  for (size_t d = 0; d < placement_.devices; ++d) {
    const std::span<const uint32_t> part = of_device[d];
    std::for_each(part.rbegin(), part.rend(),
                  [&](uint32_t g) { sorted.emplace_back(-(order.begin_ns[g] + groups_[g].ns), g); });
    begin.push_back(sorted.size());
  }
  const auto at = [&](size_t device) {
    return sorted.begin() + long(begin[std::min(device, placement_.devices)]);
  };
  for (size_t width = 1; width < placement_.devices; width *= 2) {
    for (size_t d = 0; d < placement_.devices; d += 2 * width)
      std::inplace_merge(at(d), at(d + width), at(d + 2 * width),
                         [](const Ended& a, const Ended& b) { return a.first < b.first; });
  }
  for (size_t i = 0, end; i < sorted.size(); i = end) {
    for (end = i + 1; end < sorted.size() && sorted[end].first == sorted[i].first;) ++end;
    if (end > i + 1) std::sort(sorted.begin() + long(i), sorted.begin() + long(end));
  }
  Ranks out(groups_.size());
  for (uint32_t rank = 0; rank < sorted.size(); ++rank) out[sorted[rank].second] = rank;
  return out;
}

void Ring::justify(Attempts& of, double hopeful_ns) const {
  for (; of.made < kMostAttempts && of.in_vain < kMostInVain; ++of.made, ++of.in_vain) {
    if (of.made >= kFewAttempts && of.best.end_ns > hopeful_ns) return;
    const Order back = list(last_first(of.last), kAllChunks, 0, true);
    of.last = list(last_first(back), of.chunks_at_once);
    if (of.last.end_ns < of.best.end_ns) of.best = of.last, of.in_vain = -1;
  }
}

int64_t Ring::most_bytes(const Order& order) const {
  constexpr uint32_t kUnused = UINT32_MAX;
  const Grouped of_device = by_device(order);
  // By object, of the device's groups.
  std::vector<std::pair<uint32_t, uint32_t>> lives(program_.objects().size(), {kUnused, 0});
  std::vector<uint32_t> used;
  std::vector<int64_t> change;
  int64_t most = 0;
  for (size_t d = 0; d < placement_.devices; ++d) {
    const std::span<const uint32_t> groups = of_device[d];
    const auto end = uint32_t(groups.size());
    used.clear();
    for (uint32_t i = 0; i < end; ++i) {
      for (uint32_t k = objects_begin_[groups[i]]; k < objects_begin_[groups[i] + 1]; ++k) {
        auto& [first, last] = lives[objects_[k]];
        if (first == kUnused) first = i, used.push_back(objects_[k]);
        last = i;
      }
    }
    change.assign(end + 1, 0);
    for (const uint32_t o : used) {
      const Object& object = program_.objects()[o];
      const auto [first, last] = std::exchange(lives[o], {kUnused, 0});
      change[object.persistent ? 0 : first] += object.bytes;
      change[object.persistent ? end : last + 1] -= object.bytes;
    }
    int64_t bytes = 0;
    for (const int64_t c : change) most = std::max(most, bytes += c);
  }
  return most;
}

// The order by the placement's own rule.
Ring::Order order_of(Ring& ring, const Placement& placement, bool overlap_rounds) {
  const int32_t one = ring.chunks_of_round();
  const int32_t two = placement.chunks_at_once > 0 ? placement.chunks_at_once : 2 * one;
  Ring::Attempts attempts = ring.begun(placement.rule, overlap_rounds ? two : one);
  ring.justify(attempts, std::numeric_limits<double>::infinity());
  return std::move(attempts.best);
}

}  // namespace

std::vector<TaskId> ring_order(const Program& program, const Placement& placement, const TaskCosts& costs,
                               const Profile& profile, bool overlap_rounds) {
  Ring ring(program, placement, costs, profile);
  return ring.tasks(order_of(ring, placement, overlap_rounds));
}

double ring_order_ns(const Program& program, const Placement& placement, const TaskCosts& costs,
                     const Profile& profile) {
  Ring ring(program, placement, costs, profile);
  return order_of(ring, placement, true).end_ns;
}

class RingEstimates::Orders {
 public:
  Orders(const Program& program, const Placement& placement, const TaskCosts& costs, const Profile& profile)
      : ring_(program, placement, costs, profile) {
    for (const RingRule rule : kRingRules) {
      // The more are under way, the less a device waits, and the more it has in memory.
      for (const int32_t half_rounds : {3, 4, 6, 8}) {
        const int32_t round = ring_.chunks_of_round(), chunks = (half_rounds * round + 1) / 2;
        // The order of one device keeps rounds apart; a third one fills what the end of the first would leave
        // idle.
        if (rule == RingRule::AsOne ? half_rounds != 6 : half_rounds > 4 && chunks - round >= ring_.chunks())
          continue;
        attempts_.push_back(ring_.begun(rule, chunks));
        estimates_.push_back({rule, chunks, 0, 0});
      }
    }
    go_on(0);
  }
  void go_on(double hopeful_ns) {
    for (size_t i = 0; i < attempts_.size(); ++i) {
      const int made = attempts_[i].made;
      ring_.justify(attempts_[i], hopeful_ns);
      if (estimates_[i].ns > 0 && attempts_[i].made == made) continue;
      estimates_[i].ns = attempts_[i].best.end_ns;
      estimates_[i].bytes = ring_.most_bytes(attempts_[i].best);
    }
  }
  const std::vector<RingEstimate>& estimates() const { return estimates_; }

 private:
  Ring ring_;
  std::vector<Ring::Attempts> attempts_;
  std::vector<RingEstimate> estimates_;
};

RingEstimates::RingEstimates(const Program& program, const Placement& placement, const TaskCosts& costs,
                             const Profile& profile)
    : orders_(std::make_unique<Orders>(program, placement, costs, profile)) {}
RingEstimates::~RingEstimates() = default;
RingEstimates::RingEstimates(RingEstimates&&) noexcept = default;
RingEstimates& RingEstimates::operator=(RingEstimates&&) noexcept = default;

void RingEstimates::go_on(double hopeful_ns) {
  orders_->go_on(hopeful_ns);
}

const std::vector<RingEstimate>& RingEstimates::get() const {
  return orders_->estimates();
}

}  // namespace sluice::core
