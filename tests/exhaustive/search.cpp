// SPDX-License-Identifier: Apache-2.0
#include "search.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <unordered_map>

namespace sluice::core::exhaustive {
namespace {

using Mask = uint32_t;
constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr uint32_t kNone = UINT32_MAX;

Mask bit(uint32_t o) {
  return Mask{1} << o;
}
template <class F>
void each(Mask mask, F&& f) {
  for (; mask != 0; mask &= mask - 1) f(uint32_t(std::countr_zero(mask)));
}

// An instance as the search sees it. "Position" p is the moment before task p; position n is the end.
struct Problem {
  struct Task {
    Mask needs = 0;   // contents that must be there: read or accumulated into
    Mask writes = 0;  // overwritten or accumulated into
    double ns = 0;
    std::string name;
  };
  struct Object {
    std::string name;
    int64_t bytes = 0;
    double load_ns = 0, store_ns = 0;
    uint32_t again = kNone;  // the task that makes this activation, when it may run again
    bool written = false;
  };
  int64_t capacity = 0;
  std::vector<Task> tasks;
  std::vector<Object> objects;
  Mask persistent = 0, inputs = 0;
  std::vector<Mask> needed;   // by position: contents that a task from there on, or the next step, needs
  std::vector<Mask> sources;  // by position: and what these could be computed from again
  std::vector<std::vector<uint32_t>>
      next_need;                // by position and object: the task that needs the content; kNone: the end
  std::vector<double> left_ns;  // by position: of computing
  std::vector<uint32_t> last_write;            // by object
  std::vector<std::vector<uint32_t>> version;  // by position and object: writes so far
};

Problem problem_of(const Instance& instance) {
  const Program& program = instance.program;
  const size_t n = program.tasks().size(), count = program.objects().size();
  SLUICE_CHECK(count <= 32, "{} objects", count);
  Problem p;
  p.capacity = instance.device_bytes;
  p.objects.resize(count);
  p.last_write.assign(count, kNone);
  p.version.assign(n + 1, std::vector<uint32_t>(count, 0));
  for (uint32_t o = 0; o < count; ++o) {
    const sluice::core::Object& object = program.objects()[o];
    p.objects[o].name = object.name;
    p.objects[o].bytes = align_up(object.bytes, instance.profile.alignment);
    p.objects[o].load_ns = instance.profile.load_ns(object.bytes);
    p.objects[o].store_ns = instance.profile.store_ns(object.bytes);
    if (object.persistent) p.persistent |= bit(o);
    if (object.kind == ObjectKind::Input) p.inputs |= bit(o);
  }
  const TaskCosts costs = cost_of(program, instance.profile);
  for (uint32_t t = 0; t < n; ++t) {
    Problem::Task task;
    task.ns = costs.ns[t];
    task.name = program.tasks()[t].name;
    p.version[t + 1] = p.version[t];
    for (const Use& u : program.tasks()[t].uses) {
      const uint32_t o = u.object.value;
      if (u.access != Access::Write) task.needs |= bit(o);
      if (u.access == Access::Read) continue;
      task.writes |= bit(o);
      p.objects[o].written = true;
      p.last_write[o] = t;
      ++p.version[t + 1][o];
      if (program.objects()[o].kind == ObjectKind::Activation) p.objects[o].again = t;
    }
    p.tasks.push_back(task);
  }
  p.needed.assign(n + 1, p.persistent);
  p.sources = p.needed;
  p.next_need.assign(n + 1, std::vector<uint32_t>(count, kNone));
  p.left_ns.assign(n + 1, 0);
  for (size_t t = n; t-- > 0;) {
    const Problem::Task& task = p.tasks[t];
    p.needed[t] = (p.needed[t + 1] & ~task.writes) | task.needs;
    p.next_need[t] = p.next_need[t + 1];
    each(task.writes & ~task.needs, [&](uint32_t o) { p.next_need[t][o] = kNone; });
    each(task.needs, [&](uint32_t o) { p.next_need[t][o] = uint32_t(t); });
    p.left_ns[t] = p.left_ns[t + 1] + task.ns;
  }
  for (size_t t = 0; t <= n; ++t) {
    Mask all = p.needed[t];
    for (Mask fresh = all; fresh != 0;) {
      Mask from = 0;
      each(fresh, [&](uint32_t o) {
        if (p.objects[o].again != kNone && p.objects[o].again < t) from |= p.tasks[p.objects[o].again].needs;
      });
      fresh = from & ~all;
      all |= from;
    }
    p.sources[t] = all;
  }
  return p;
}

// Where something is on the device without interruption, in ns.
struct Stay {
  uint32_t object;
  double begin, end;
};

// Whether places exist such that no two stays overlap in both time and space. The stays that begin with the
// step and end with it are one, when they are of one object.
class Places {
 public:
  Places(const Problem& problem, const std::vector<Stay>& stays) : p_(problem) {
    for (const Stay& stay : stays) {
      const auto same = std::find_if(things_.begin(), things_.end(), [&](const Thing& t) {
        return t.object == stay.object &&
               ((stay.begin == -kNever && t.ends) || (stay.end == kNever && t.begins));
      });
      Thing& thing = same == things_.end() ? things_.emplace_back(Thing{stay.object}) : *same;
      thing.stays.push_back(stay);
      thing.begins |= stay.begin == -kNever;
      thing.ends |= stay.end == kNever;
    }
  }

  bool exist() { return place(0, 0); }

 private:
  struct Thing {
    uint32_t object;
    bool begins = false, ends = false, placed = false;
    int64_t offset = 0;
    std::vector<Stay> stays;
  };
  static bool meet(const Thing& a, const Thing& b) {
    for (const Stay& x : a.stays) {
      for (const Stay& y : b.stays) {
        if (x.begin < y.end - 1e-6 && y.begin < x.end - 1e-6) return true;
      }
    }
    return false;
  }
  // From the bottom up: each thing on top of those placed before that it meets.
  bool place(size_t placed, int64_t lowest) {
    if (placed == things_.size()) return true;
    if (--left_ < 0) return false;
    for (Thing& thing : things_) {
      if (thing.placed) continue;
      int64_t offset = 0;
      for (const Thing& other : things_) {
        if (other.placed && meet(thing, other))
          offset = std::max(offset, other.offset + p_.objects[other.object].bytes);
      }
      // Nothing that is not placed yet can go lower later.
      if (offset + p_.objects[thing.object].bytes > p_.capacity) return false;
      if (offset < lowest) continue;
      thing.placed = true;
      thing.offset = offset;
      if (place(placed + 1, offset)) return true;
      thing.placed = false;
    }
    return false;
  }

  const Problem& p_;
  std::vector<Thing> things_;
  int left_ = 2000;  // placements to try
};

// All actions are started in the order of their start times; each starts as early as what came before it
// allows. Room is made at the last moment, by any choice of what can go that is not larger than necessary.
class Search {
 public:
  // With `all`, also ways to a state that are slower than one seen before are followed.
  Search(const Problem& problem, Room room, bool all, double bound_ns, int64_t most_states)
      : p_(problem),
        room_(room),
        all_(all),
        n_(uint32_t(problem.tasks.size())),
        most_states_(most_states),
        bound_ns_(bound_ns) {}

  Best run() {
    choose_homes(p_.persistent, 0, 0);
    return {found_ns_, states_ < most_states_, states_, std::move(found_)};
  }

 private:
  struct State {
    uint32_t position = 0;
    Mask device = 0, host = 0;  // contents that are there, or on their way
    int64_t free = 0;
    double now = 0;              // when the last action started
    double lane[3] = {0, 0, 0};  // when compute, load and store are free
    double ready[32] = {};       // when the content on the device is there
    double idle[32] = {};        // when nothing is at work on it any more
    double begin[32] = {};       // since when its place is taken
    std::vector<Stay> stays;     // that have ended
  };
  enum { kCompute, kLoad, kStore };

  // Contents between steps: on the device, on the host or both, in every combination.
  void choose_homes(Mask left, Mask device, Mask host) {
    if (left == 0) {
      home_device_ = device;
      home_host_ = host;
      seen_.clear();
      State s;
      s.device = device;
      s.host = host | p_.inputs;
      s.free = p_.capacity;
      each(device, [&](uint32_t o) {
        s.free -= p_.objects[o].bytes;
        s.begin[o] = -kNever;
      });
      if (s.free >= 0) visit(s);
      return;
    }
    const Mask one = left & (~left + 1);
    const uint32_t o = uint32_t(std::countr_zero(one));
    // A copy of what is never written costs nothing.
    if (p_.objects[o].written) choose_homes(left & ~one, device | one, host);
    choose_homes(left & ~one, device | one, host | one);
    choose_homes(left & ~one, device, host | one);
  }

  bool has_places(const State& s) const {
    std::vector<Stay> stays = s.stays;
    each(s.device, [&](uint32_t o) {
      stays.push_back({o, s.begin[o], (home_device_ & bit(o)) ? kNever : s.idle[o]});
    });
    return Places(p_, stays).exist();
  }
  double bound_of(const State& s) const;
  bool dominated(const State& s);
  void visit(const State& s);
  void follow(const State& next, std::string_view what, std::string_view which, double start_ns) {
    actions_.push_back(fmt::format("{:.0f} {}{}", start_ns, what, which));
    visit(next);
    actions_.pop_back();
  }
  void run_task(const State& s, uint32_t t, bool again);
  void load(const State& s, uint32_t o);
  void store(const State& s, uint32_t o);
  // Calls `then` with a state in which `bytes` are free at its `now`, not before `start_ns`, for every way to
  // make room without touching `keep`.
  template <class Then>
  void with_room(const State& s, int64_t bytes, double start_ns, Mask keep, Then&& then);

  bool may_drop(const State& s, uint32_t o) const {
    if (s.host & bit(o)) return true;
    if (!(p_.sources[s.position] & bit(o))) return true;
    return p_.objects[o].again != kNone;
  }
  // Of no use any more.
  bool dead(const State& s, uint32_t o) const {
    if (!(p_.sources[s.position] & bit(o))) return true;
    if (p_.next_need[s.position][o] != kNone) return false;
    if ((p_.persistent & bit(o)) && !source_of_other(s, o))
      return !(home_device_ & bit(o)) && (s.host & bit(o));
    return false;
  }
  bool source_of_other(const State& s, uint32_t o) const {
    for (uint32_t a = 0; a < p_.objects.size(); ++a) {
      const uint32_t t = p_.objects[a].again;
      if (t != kNone && t < s.position && (p_.tasks[t].needs & bit(o)) && (p_.sources[s.position] & bit(a)))
        return true;
    }
    return false;
  }
  // The content must still get to the host.
  bool owed_to_host(const State& s, uint32_t o) const {
    if (!(home_host_ & bit(o)) || !p_.objects[o].written) return !(s.host & bit(o)) && (home_host_ & bit(o));
    return s.position <= p_.last_write[o] || !(s.host & bit(o));
  }

  const Problem& p_;
  const Room room_;
  const bool all_;
  const uint32_t n_;
  const int64_t most_states_;
  int64_t states_ = 0;
  double bound_ns_;
  double found_ns_ = kNever;
  Mask home_device_ = 0, home_host_ = 0;
  std::vector<std::string> actions_, found_;  // that lead to the current state; to the shortest step
  // By position, device and host: the times of states seen there that none is as good as.
  struct Key {
    uint32_t position;
    Mask device, host;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    size_t operator()(const Key& k) const {
      return (size_t(k.position) * 0x9E3779B97F4A7C15u) ^ (size_t(k.device) * 0xC2B2AE3D27D4EB4Fu) ^
             (size_t(k.host) * 0x165667B19E3779F9u);
    }
  };
  std::unordered_map<Key, std::vector<std::vector<double>>, KeyHash> seen_;
};

double Search::bound_of(const State& s) const {
  const double compute = std::max(s.now, s.lane[kCompute]);
  double loads = std::max(s.now, s.lane[kLoad]), stores = std::max(s.now, s.lane[kStore]);
  double bound = std::max({compute + p_.left_ns[s.position], s.lane[kLoad], s.lane[kStore]});
  const double load_begin = loads;
  for (uint32_t o = 0; o < p_.objects.size(); ++o) {
    const Problem::Object& object = p_.objects[o];
    const uint32_t need = p_.next_need[s.position][o];
    // An activation may be computed again instead.
    if (!(s.device & bit(o)) && object.again == kNone) {
      if (need != kNone) {
        loads += object.load_ns;
        bound = std::max(bound, load_begin + object.load_ns + p_.left_ns[need]);
      } else if ((home_device_ & bit(o)) && (p_.needed[s.position] & bit(o))) {
        loads += object.load_ns;
      }
    }
    if (!owed_to_host(s, o)) continue;
    stores += object.store_ns;
    const uint32_t last = p_.last_write[o];
    if (last != kNone && last >= s.position) {
      bound = std::max(bound, compute + p_.left_ns[s.position] - p_.left_ns[last + 1] + object.store_ns);
    }
  }
  return std::max({bound, loads, stores});
}

bool Search::dominated(const State& s) {
  std::vector<double> times{s.now, std::max(s.now, s.lane[0]), std::max(s.now, s.lane[1]),
                            std::max(s.now, s.lane[2])};
  each(s.device, [&](uint32_t o) {
    times.push_back(std::max(s.now, s.ready[o]));
    times.push_back(std::max(s.now, s.idle[o]));
  });
  auto& others = seen_[{s.position, s.device, s.host}];
  const auto covers = [](const std::vector<double>& a, const std::vector<double>& b) {
    for (size_t i = 0; i < a.size(); ++i) {
      if (a[i] > b[i]) return false;
    }
    return true;
  };
  for (const auto& other : others) {
    if (covers(other, times)) return true;
  }
  std::erase_if(others, [&](const auto& other) { return covers(times, other); });
  others.push_back(std::move(times));
  return false;
}

void Search::visit(const State& s) {
  if (states_ >= most_states_) return;
  if (bound_of(s) > bound_ns_ || (!all_ && dominated(s))) return;
  ++states_;
  if (s.position == n_ && (home_device_ & ~s.device) == 0 && (home_host_ & ~s.host) == 0) {
    const double end = std::max({s.lane[0], s.lane[1], s.lane[2]});
    if (end <= bound_ns_ && (room_ == Room::Bytes || has_places(s))) {
      found_ns_ = end;
      bound_ns_ = end * (1 - 1e-12) - 1e-6;
      found_ = actions_;
    }
    return;
  }
  if (s.position < n_) run_task(s, s.position, false);
  for (uint32_t o = 0; o < p_.objects.size(); ++o) {
    const Mask b = bit(o);
    const bool here = s.device & b, useful = (p_.sources[s.position] & b) && !dead(s, o);
    if (!here && (s.host & b) && useful) load(s, o);
    if (here && !(s.host & b) && (useful || owed_to_host(s, o)) && (p_.sources[s.position] & b)) store(s, o);
    const uint32_t t = p_.objects[o].again;
    if (!here && t != kNone && t < s.position && useful) run_task(s, t, true);
  }
}

template <class Then>
void Search::with_room(const State& from, int64_t bytes, double start_ns, Mask keep, Then&& then) {
  State s = from;
  s.now = std::max(s.now, start_ns);
  const auto drop = [&](State& state, uint32_t o) {
    if (room_ == Room::Addresses) state.stays.push_back({o, state.begin[o], state.idle[o]});
    state.device &= ~bit(o);
    state.free += p_.objects[o].bytes;
  };
  std::vector<uint32_t> can_go;
  each(s.device & ~keep, [&](uint32_t o) {
    if (dead(s, o) && s.idle[o] <= s.now) return drop(s, o);
    if (may_drop(s, o)) can_go.push_back(o);
  });
  if (s.free >= bytes) return then(s);
  for (Mask subset = 1; subset < (Mask{1} << can_go.size()); ++subset) {
    int64_t freed = 0, least = INT64_MAX;
    each(subset, [&](uint32_t i) {
      freed += p_.objects[can_go[i]].bytes;
      least = std::min(least, p_.objects[can_go[i]].bytes);
    });
    if (s.free + freed < bytes || s.free + freed - least >= bytes) continue;
    State next = s;
    each(subset, [&](uint32_t i) {
      next.now = std::max(next.now, s.idle[can_go[i]]);
      drop(next, can_go[i]);
    });
    then(next);
  }
}

void Search::run_task(const State& s, uint32_t t, bool again) {
  const Problem::Task& task = p_.tasks[t];
  if ((task.needs & ~s.device) != 0) return;
  double start = s.lane[kCompute];
  int64_t bytes = 0;
  each(task.needs, [&](uint32_t o) { start = std::max(start, s.ready[o]); });
  each(task.writes, [&](uint32_t o) {
    if (s.device & bit(o)) {
      start = std::max(start, s.idle[o]);
    } else {
      bytes += p_.objects[o].bytes;
    }
  });
  if (again) {
    // Only from the same contents as the first time.
    bool same = true;
    each(task.needs, [&](uint32_t o) { same &= p_.version[t][o] == p_.version[s.position][o]; });
    if (!same) return;
  }
  with_room(s, bytes, start, task.needs | task.writes, [&](State next) {
    const double end = next.now + task.ns;
    next.lane[kCompute] = end;
    each(task.needs, [&](uint32_t o) { next.idle[o] = std::max(next.idle[o], end); });
    each(task.writes, [&](uint32_t o) {
      if (!(next.device & bit(o))) {
        next.free -= p_.objects[o].bytes;
        next.begin[o] = next.now;
      }
      next.device |= bit(o);
      if (!again) next.host &= ~bit(o);
      next.ready[o] = next.idle[o] = end;
    });
    if (!again) ++next.position;
    follow(next, p_.tasks[t].name, again ? " (again)" : "", end - task.ns);
  });
}

void Search::load(const State& s, uint32_t o) {
  with_room(s, p_.objects[o].bytes, std::max(s.lane[kLoad], s.idle[o]), bit(o), [&](State next) {
    const double end = next.now + p_.objects[o].load_ns;
    next.lane[kLoad] = next.ready[o] = next.idle[o] = end;
    next.device |= bit(o);
    next.begin[o] = next.now;
    next.free -= p_.objects[o].bytes;
    follow(next, "load ", p_.objects[o].name, next.now);
  });
}

void Search::store(const State& s, uint32_t o) {
  State next = s;
  next.now = std::max({s.now, s.lane[kStore], s.ready[o]});
  const double end = next.now + p_.objects[o].store_ns;
  next.lane[kStore] = end;
  next.idle[o] = std::max(next.idle[o], end);
  next.host |= bit(o);
  follow(next, "store ", p_.objects[o].name, next.now);
}

}  // namespace

Best shortest_step(const Instance& instance, Room room, double bound_ns, int64_t most_states) {
  const Problem problem = problem_of(instance);
  Best best = Search(problem, room, false, bound_ns, most_states).run();
  if (room == Room::Bytes) return best;
  // Of two ways to the same state the slower one may leave the better places: all are followed, too, as far
  // as the states go.
  if (std::isfinite(best.makespan_ns)) bound_ns = best.makespan_ns * (1 - 1e-9);
  Best other = Search(problem, room, true, bound_ns, most_states).run();
  if (!std::isfinite(other.makespan_ns)) {
    other.makespan_ns = best.makespan_ns;
    other.actions = std::move(best.actions);
  }
  other.states += best.states;
  return other;
}

}  // namespace sluice::core::exhaustive
