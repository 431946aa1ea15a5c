// SPDX-License-Identifier: Apache-2.0
// Pieces go to their new places as these become free. Where all that are left are in each other's way, the
// pieces that lie on one new place move to spare room. They go on from there when their own places are free.
#include "search/migrate.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <optional>

#include "base/bytes.h"
#include "exec/migrate.h"
#include "search/refusal.h"

namespace sluice::core {
namespace {

constexpr size_t kAtHome = SIZE_MAX;

// A stretch of an object on its way.
struct Piece {
  ObjectId object;
  int64_t begin, bytes;
  Location at;
  bool home = false;  // it lies at one of its new places, which no other piece needs
  int64_t copy = -1;  // the copy that brought it there
};

// A place where a piece has to be in the end.
struct Target {
  size_t piece;
  Location to;
  int blockers = 0;  // other pieces that lie there and are not at home
  bool done = false;
};

// Room that a piece did not find.
struct Lack {
  Tier tier;
  int64_t bytes;
};

bool overlap(int64_t a, int64_t a_bytes, int64_t b, int64_t b_bytes) {
  return a < b + b_bytes && b < a + a_bytes;
}

class MigrationSearch {
 public:
  MigrationSearch(const Program& program, const Plan& before, const Plan& after, const BytesByTier& room,
                  const Profile& profile, const MigrationOptions& options)
      : program_(program), before_(before), after_(after), room_(room), profile_(profile), options_(options) {
    out_.lanes = migration_lanes(before.lanes);
  }

  // With pieces of at most so many bytes. Nothing: done.
  std::optional<Lack> run(int64_t piece_bytes);
  Migration take() { return std::move(out_); }

 private:
  struct Held {
    int64_t end;
    size_t piece;  // kAtHome: something that stays
  };
  using Arena = std::map<int64_t, Held>;  // what lies there, by offset

  void add(ObjectId object, int64_t piece_bytes);
  int64_t piece_bytes_of(ObjectId object, int64_t most) const;
  // Calls f with each target that is not reached, of other pieces than `own`, which covers some of a place.
  template <class F>
  void each_target(Location place, int64_t bytes, size_t own, F&& f);
  void hold(Location place, int64_t bytes, size_t piece);
  void release(size_t piece);
  bool go(size_t target);
  std::optional<Lack> make_way(size_t target);
  std::optional<Location> spare(Tier tier, int64_t bytes, Location but, int64_t but_bytes,
                                bool off_targets) const;
  bool joined(Tier from, Tier to) const { return out_.lanes.find(from, to).has_value(); }
  void copy(size_t piece, Location to, bool to_spare);
  double cost_ns(Tier from, Tier to, int64_t bytes) const;

  const Program& program_;
  const Plan &before_, &after_;
  const BytesByTier& room_;
  const Profile& profile_;
  const MigrationOptions& options_;
  Migration out_;
  std::vector<Piece> pieces_;
  std::vector<Target> targets_;
  ByTier<Arena> arenas_;
  ByTier<std::map<int64_t, size_t>> targets_at_;  // by offset
  std::deque<size_t> ready_;                      // targets
  int64_t longest_ = 0;
  // Places that pieces have left, by offset. One that a later one covers is not kept.
  struct Left {
    int64_t end;
    uint32_t copy;  // the last that read it
  };
  ByTier<std::multimap<int64_t, Left>> left_;
};

double MigrationSearch::cost_ns(Tier from, Tier to, int64_t bytes) const {
  if (from != to) return profile_.transfer_ns(bytes, from, to);
  const double rate = from == kHost ? options_.host_bytes_per_s : profile_.rates.memory_bytes / 2;
  return profile_.transfer_latency_ns + 1e9 * double(bytes) / rate;
}

// A piece that shifts by less than its length would cover its own source. Shorter ones do not; where these
// would be many, pieces go by spare room.
int64_t MigrationSearch::piece_bytes_of(ObjectId object, int64_t most) const {
  int64_t bytes = most;
  for (const Location& to : after_.homes[object.value].places()) {
    const int64_t from = before_.homes[object.value].offset(to.tier);
    const int64_t shift = std::abs(to.offset - from);
    if (from != kNowhere && 4 * shift >= most) bytes = std::min(bytes, shift);
  }
  return bytes;
}

void MigrationSearch::add(ObjectId object, int64_t piece_bytes) {
  const auto &old = before_.homes[object.value].places(), &now = after_.homes[object.value].places();
  const auto stays = [&](const Location& place) {
    return std::find(old.begin(), old.end(), place) != old.end();
  };
  const int64_t all = program_.object(object).bytes;
  for (const Location& place : now) {
    if (stays(place)) hold(place, all, kAtHome);
  }
  if (std::all_of(now.begin(), now.end(), stays)) return;
  // It is copied from a place that stays, else from a tier in which it has a new place, else from any.
  const auto same = std::find_if(now.begin(), now.end(), stays);
  const bool home = same != now.end();
  Location at = home ? *same : old.front();
  for (const Location& place : old) {
    const auto in_tier = [&](const Location& to) { return to.tier == place.tier; };
    if (!home && std::any_of(now.begin(), now.end(), in_tier)) at = place;
  }
  const int64_t step = piece_bytes_of(object, piece_bytes);
  for (int64_t begin = 0; begin < all; begin += step) {
    const size_t p = pieces_.size();
    const int64_t bytes = std::min(step, all - begin);
    pieces_.push_back({object, begin, bytes, {at.tier, at.offset + begin}, home});
    longest_ = std::max(longest_, bytes);
    for (const Location& place : now) {
      if (stays(place)) continue;
      const Location to{place.tier, place.offset + begin};
      targets_at_[to.tier].emplace(to.offset, targets_.size());
      targets_.push_back({p, to});
    }
  }
}

template <class F>
void MigrationSearch::each_target(Location place, int64_t bytes, size_t own, F&& f) {
  const auto& there = targets_at_[place.tier];
  for (auto it = there.lower_bound(place.offset - longest_ + 1);
       it != there.end() && it->first < place.offset + bytes; ++it) {
    Target& t = targets_[it->second];
    if (!t.done && t.piece != own && overlap(it->first, pieces_[t.piece].bytes, place.offset, bytes))
      f(it->second);
  }
}

void MigrationSearch::hold(Location place, int64_t bytes, size_t piece) {
  arenas_[place.tier].emplace(place.offset, Held{place.offset + bytes, piece});
  if (piece == kAtHome) return;
  each_target(place, bytes, piece, [&](size_t t) { ++targets_[t].blockers; });
}

// The last copy took the piece from its place, which others may now have.
void MigrationSearch::release(size_t piece) {
  const Piece& p = pieces_[piece];
  arenas_[p.at.tier].erase(p.at.offset);
  each_target(p.at, p.bytes, piece, [&](size_t t) {
    if (--targets_[t].blockers == 0) ready_.push_back(t);
  });
}

void MigrationSearch::copy(size_t piece, Location to, bool to_spare) {
  Piece& p = pieces_[piece];
  const auto id = uint32_t(out_.copies.size());
  MigrationCopy c{.object = p.object, .begin = p.begin, .bytes = p.bytes, .from = p.at, .to = to};
  c.lane = out_.lanes.copy(p.at.tier, to.tier);
  c.cost_ns = cost_ns(p.at.tier, to.tier, p.bytes);
  // It waits for the copy that brought the piece, and for those that left the place: the last of each lane.
  std::vector<int64_t> last(out_.lanes.size(), -1);
  const auto await = [&](int64_t earlier) {
    if (earlier < 0 || out_.copies[size_t(earlier)].lane == c.lane) return;
    int64_t& newest = last[out_.copies[size_t(earlier)].lane.index()];
    newest = std::max(newest, earlier);
  };
  await(p.copy);
  auto& left = left_[to.tier];
  for (auto it = left.lower_bound(to.offset - longest_ + 1);
       it != left.end() && it->first < to.offset + p.bytes; ++it) {
    if (it->second.end > to.offset) await(it->second.copy);
  }
  c.first_wait = uint32_t(out_.waits.size());
  for (const int64_t earlier : last) {
    if (earlier >= 0) out_.waits.push_back(uint32_t(earlier));
  }
  c.wait_count = uint32_t(out_.waits.size()) - c.first_wait;
  out_.copies.push_back(c);
  if (to_spare) out_.spare_bytes += p.bytes;
  if (!p.home) {
    auto& from = left_[p.at.tier];
    const int64_t end = p.at.offset + p.bytes;
    for (auto it = from.lower_bound(p.at.offset); it != from.end() && it->first < end;)
      it = it->second.end <= end ? from.erase(it) : std::next(it);
    from.emplace(p.at.offset, Left{end, id});
    release(piece);
  }
  p.copy = id;
}

// A free place for some bytes that covers none of `but`, nor, if asked, a place where a piece has to go.
std::optional<Location> MigrationSearch::spare(Tier tier, int64_t bytes, Location but, int64_t but_bytes,
                                               bool off_targets) const {
  const Arena& arena = arenas_[tier];
  const auto& targets = targets_at_[tier];
  auto held = arena.begin();
  auto target = off_targets ? targets.begin() : targets.end();
  for (int64_t at = 0; at <= room_[tier] - bytes;) {
    int64_t next = at;
    for (; held != arena.end() && held->first < at + bytes; ++held) next = std::max(next, held->second.end);
    for (; target != targets.end() && target->first < at + bytes; ++target) {
      const Target& t = targets_[target->second];
      if (!t.done) next = std::max(next, target->first + pieces_[t.piece].bytes);
    }
    if (but.tier == tier && overlap(at, bytes, but.offset, but_bytes))
      next = std::max(next, but.offset + but_bytes);
    if (next <= at) return Location{tier, at};
    at = align_up(next, before_.alignment);
  }
  return std::nullopt;
}

// Copies a piece to its free new place. It goes by spare room where it would cover its own source, or where
// no lane joins the tiers. False: there is no such room.
bool MigrationSearch::go(size_t target) {
  const size_t piece = targets_[target].piece;
  const Location to = targets_[target].to;
  Piece& p = pieces_[piece];
  const bool covers = p.at.tier == to.tier && overlap(p.at.offset, p.bytes, to.offset, p.bytes);
  if (covers || !joined(p.at.tier, to.tier)) {
    std::optional<Location> by;
    for (const Tier tier : {covers ? p.at.tier : kHost, kHost, kDevice}) {
      if (!by && joined(p.at.tier, tier) && joined(tier, to.tier))
        by = spare(tier, p.bytes, to, p.bytes, false);
    }
    if (!by) return false;
    copy(piece, *by, true);
    p.home = false;
    p.at = *by;
    hold(p.at, p.bytes, piece);
  }
  copy(piece, to, false);
  p.at = to;
  p.home = true;
  targets_[target].done = true;
  hold(to, p.bytes, kAtHome);
  return true;
}

std::optional<Lack> MigrationSearch::make_way(size_t target) {
  const Location to = targets_[target].to;
  const int64_t bytes = pieces_[targets_[target].piece].bytes;
  std::vector<size_t> in_the_way;
  for (auto it = arenas_[to.tier].lower_bound(to.offset - longest_ + 1);
       it != arenas_[to.tier].end() && it->first < to.offset + bytes; ++it) {
    if (it->second.piece != kAtHome && it->second.piece != targets_[target].piece &&
        it->second.end > to.offset)
      in_the_way.push_back(it->second.piece);
  }
  for (const size_t piece : in_the_way) {
    Piece& p = pieces_[piece];
    std::optional<Location> place;
    for (const bool off_targets : {true, false}) {
      for (const Tier tier : before_.lanes.tiers()) {
        // Its own tier comes first: that is the least work.
        const Tier in = tier == kDevice ? p.at.tier : tier == p.at.tier ? kDevice : tier;
        if (!place && joined(p.at.tier, in)) place = spare(in, p.bytes, to, bytes, off_targets);
      }
    }
    if (!place) return Lack{to.tier, p.bytes};
    copy(piece, *place, true);
    p.at = *place;
    hold(p.at, p.bytes, piece);
  }
  return std::nullopt;
}

std::optional<Lack> MigrationSearch::run(int64_t piece_bytes) {
  for (uint32_t o = 0; o < program_.objects().size(); ++o) {
    if (program_.objects()[o].persistent) add(ObjectId(o), piece_bytes);
  }
  // Once all targets are known, pieces at their places block those that they lie on.
  for (size_t p = 0; p < pieces_.size(); ++p) {
    if (!pieces_[p].home) hold(pieces_[p].at, pieces_[p].bytes, p);
  }
  for (size_t t = 0; t < targets_.size(); ++t) {
    if (targets_[t].blockers == 0) ready_.push_back(t);
  }
  std::vector<size_t> stuck;  // their places are free, but they need spare room
  // Every way that is made lets a piece go home, or adds a stuck one: so the number of ways is bounded.
  for (size_t ways = 0; ways <= 4 * targets_.size();) {
    const size_t before = out_.copies.size();
    while (!ready_.empty()) {
      const size_t t = ready_.front();
      ready_.pop_front();
      if (!targets_[t].done && targets_[t].blockers == 0 && !go(t)) stuck.push_back(t);
    }
    if (out_.copies.size() > before && !stuck.empty()) {
      ready_.insert(ready_.end(), stuck.begin(), stuck.end());
      stuck.clear();
      continue;
    }
    const Target* least = nullptr;
    for (const Target& t : targets_) {
      if (!t.done && t.blockers > 0 && (least == nullptr || t.blockers < least->blockers)) least = &t;
    }
    if (least == nullptr) break;
    ++ways;
    if (const auto lack = make_way(size_t(least - targets_.data()))) return lack;
  }
  for (const Target& t : targets_) {
    if (!t.done) return Lack{t.to.tier, pieces_[t.piece].bytes};
  }
  return std::nullopt;
}

}  // namespace

Result<Migration> plan_migration(const Program& program, const Plan& before, const Plan& after,
                                 const BytesByTier& arena_bytes, const Profile& profile,
                                 const MigrationOptions& options) {
  if (before.program_hash != after.program_hash || before.lanes != after.lanes)
    return error("the plan is of another program, or for other devices, than the one that it would replace");
  std::optional<Lack> lack;
  for (int64_t bytes = options.most_bytes;; bytes = std::max(bytes / 4, options.least_bytes)) {
    MigrationSearch search(program, before, after, arena_bytes, profile, options);
    lack = search.run(align_up(bytes, before.alignment));
    if (!lack) {
      Migration found = search.take();
      predict(found);
      return found;
    }
    if (bytes <= options.least_bytes) break;
  }
  const int64_t room = arena_bytes[lack->tier];
  return does_not_fit(name_of(lack->tier), room, room + lack->bytes,
                      fmt::format("the plans' homes fill the {} arena of {}: moving from one to the other "
                                  "takes {} bytes more of spare room",
                                  name_of(lack->tier), exact_bytes(room), lack->bytes));
}

}  // namespace sluice::core
