// SPDX-License-Identifier: Apache-2.0
// Proof of a Migration: its copies are replayed over a map of every arena that says which bytes of which
// object lie where, and who touched them last.
#include "plan/migration.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "plan/clock.h"

namespace sluice::core {
namespace {

constexpr int64_t kFromBefore = -1;

// Bytes of an object, the first of them its byte `begin`.
struct MovedStretch {
  int64_t end;
  ObjectId object;
  int64_t begin;
  int64_t writer;  // the copy that brought them; kFromBefore: they were there before
  Clock touched;   // newest access per lane
};
using MovedArena = std::map<int64_t, MovedStretch>;  // by offset

class MigrationVerifier {
 public:
  MigrationVerifier(const Program& program, const Migration& migration, const BytesByTier& arena_bytes)
      : program_(program), m_(migration), arena_bytes_(arena_bytes), last_(migration.lanes, kFromBefore) {}

  Status run(const Plan& before, const Plan& after) {
    if (m_.lanes != migration_lanes(before.lanes) || before.lanes != after.lanes)
      return error("the migration has other lanes than the plans");
    place(before);
    clocks_.reserve(m_.copies.size());
    for (uint32_t id = 0; id < m_.copies.size(); ++id) SLUICE_TRY(copy(id));
    return check_end(after);
  }

 private:
  void place(const Plan& plan) {
    for (uint32_t o = 0; o < plan.homes.size(); ++o) {
      const Object& object = program_.objects()[o];
      if (!object.persistent) continue;
      for (const auto& [tier, offset] : plan.homes[o].places())
        put({tier, offset}, object.bytes, ObjectId(o), 0);
    }
  }
  void put(Location place, int64_t bytes, ObjectId object, int64_t begin, int64_t writer = kFromBefore) {
    arenas_[place.tier].insert_or_assign(
        place.offset, MovedStretch{place.offset + bytes, object, begin, writer, Clock(m_.lanes)});
  }

  Status copy(uint32_t id) {
    const MigrationCopy& c = m_.copies[id];
    SLUICE_TRY(well_formed(id));
    Clock clock(m_.lanes);
    const auto join = [&](uint32_t earlier) {
      clock.join(clocks_[earlier]);
      clock.add(m_.copies[earlier].lane, earlier);
    };
    if (last_[c.lane] != kFromBefore) join(uint32_t(last_[c.lane]));
    for (const uint32_t wait : m_.waits_of(c)) {
      if (wait >= id) return error("{} waits for copy {}, which does not come before it", who(id), wait);
      join(wait);
    }
    clocks_.push_back(std::move(clock));
    last_[c.lane] = id;
    SLUICE_TRY(read(id));
    return write(id);
  }

  Status well_formed(uint32_t id) const {
    const MigrationCopy& c = m_.copies[id];
    if (c.lane.index() >= m_.lanes.size()) return error("copy {} is on lane {}", id, c.lane.index());
    if (c.object.value >= program_.objects().size() || !program_.object(c.object).persistent)
      return error("copy {} moves what does not outlive a step", id);
    const int64_t all = program_.object(c.object).bytes;
    if (c.bytes <= 0 || c.begin < 0 || c.bytes > all || c.begin > all - c.bytes)
      return error("{} moves {} bytes from {} on, of {}", who(id), c.bytes, c.begin, all);
    const LaneEnds& ends = m_.lanes[c.lane];
    if (ends.network || ends.from != c.from.tier || ends.to != c.to.tier)
      return error("{} goes from {} to {} on lane {}", who(id), name_of(c.from.tier), name_of(c.to.tier),
                   name_of(ends));
    for (const Location& place : {c.from, c.to}) {
      const int64_t room = arena_bytes_[place.tier];
      if (place.offset < 0 || c.bytes > room || place.offset > room - c.bytes)
        return error("{}: {} bytes from {} on lie outside the {} arena of {}", who(id), c.bytes, place.offset,
                     name_of(place.tier), room);
    }
    if (c.from.tier == c.to.tier && std::abs(c.from.offset - c.to.offset) < c.bytes)
      return error("{} covers its own source", who(id));
    if (uint64_t{c.first_wait} + c.wait_count > m_.waits.size())
      return error("copy {} has waits {} to {} of {}", id, c.first_wait,
                   uint64_t{c.first_wait} + c.wait_count, m_.waits.size());
    return {};
  }

  // Splits the stretch that goes across an offset.
  void cut(Tier tier, int64_t offset) {
    MovedArena& arena = arenas_[tier];
    auto it = arena.lower_bound(offset);
    if (it == arena.begin() || (--it)->second.end <= offset) return;
    MovedStretch rest = it->second;
    rest.begin += offset - it->first;
    it->second.end = offset;
    arena.emplace(offset, std::move(rest));
  }
  // The stretches in `bytes` bytes at a place, cut where these begin and end.
  std::pair<MovedArena::iterator, MovedArena::iterator> within(Location place, int64_t bytes) {
    cut(place.tier, place.offset);
    cut(place.tier, place.offset + bytes);
    MovedArena& arena = arenas_[place.tier];
    return {arena.lower_bound(place.offset), arena.lower_bound(place.offset + bytes)};
  }

  // Checks that a place has an object's bytes from `begin` on, and calls f(stretch) with each of their
  // stretches.
  template <class F>
  Status holds(Location place, int64_t bytes, ObjectId object, int64_t begin, F&& f) {
    int64_t known = place.offset;
    const auto [first, last] = within(place, bytes);
    for (auto it = first; it != last; ++it) {
      MovedStretch& s = it->second;
      if (it->first != known || s.object != object || s.begin - known != begin - place.offset) break;
      known = s.end;
      SLUICE_TRY(f(s));
    }
    if (known == place.offset + bytes) return {};
    return error("byte {} is not at {} offset {}", begin + known - place.offset, name_of(place.tier), known);
  }

  Status read(uint32_t id) {
    const MigrationCopy& c = m_.copies[id];
    const Status there = holds(c.from, c.bytes, c.object, c.begin, [&](MovedStretch& s) -> Status {
      SLUICE_TRY(after(s.writer, id, "it reads"));
      s.touched.add(c.lane, id);
      return {};
    });
    return there.ok() ? there : Status(error_at(who(id), there.error()));
  }

  Status write(uint32_t id) {
    const MigrationCopy& c = m_.copies[id];
    const auto [first, last] = within(c.to, c.bytes);
    for (auto it = first; it != last; ++it) {
      SLUICE_TRY(after(it->second.writer, id, "it overwrites"));
      for (const Lane lane : m_.lanes) {
        if (const auto access = it->second.touched.newest(lane))
          SLUICE_TRY(after(*access, id, "it overwrites"));
      }
    }
    arenas_[c.to.tier].erase(first, last);
    put(c.to, c.bytes, c.object, c.begin, id);
    return {};
  }

  Status after(int64_t earlier, uint32_t id, std::string_view why) const {
    if (earlier == kFromBefore) return {};
    const Lane lane = m_.copies[size_t(earlier)].lane;
    if (lane == m_.copies[id].lane || clocks_[id].has(lane, uint32_t(earlier))) return {};
    return error("{} does not wait for {}: {} its bytes", who(id), who(uint32_t(earlier)), why);
  }

  Status check_end(const Plan& plan) {
    for (uint32_t o = 0; o < plan.homes.size(); ++o) {
      const Object& object = program_.objects()[o];
      if (!object.persistent) continue;
      for (const Location& place : plan.homes[o].places()) {
        const Status there =
            holds(place, object.bytes, ObjectId(o), 0, [](MovedStretch&) { return Status(); });
        if (!there.ok()) return error_at(fmt::format("after the migration, {}", object.name), there.error());
      }
    }
    return {};
  }

  std::string who(uint32_t id) const {
    return fmt::format("copy {} (of {})", id, program_.object(m_.copies[id].object).name);
  }

  const Program& program_;
  const Migration& m_;
  const BytesByTier& arena_bytes_;
  ByTier<MovedArena> arenas_;
  std::vector<Clock> clocks_;  // what has happened before a copy
  ByLane<int64_t> last_;
};

}  // namespace

int64_t Migration::bytes() const {
  int64_t sum = 0;
  for (const MigrationCopy& c : copies) sum += c.bytes;
  return sum;
}

LaneTable migration_lanes(const LaneTable& lanes) {
  LaneTable out = lanes;
  out.add(kHost, kHost);
  return out;
}

Status verify(const Program& program, const Migration& migration, const Plan& before, const Plan& after,
              const BytesByTier& arena_bytes) {
  SLUICE_CHECK(before.homes.size() == program.objects().size() && after.homes.size() == before.homes.size(),
               "{} and {} homes for {} objects", before.homes.size(), after.homes.size(),
               program.objects().size());
  return MigrationVerifier(program, migration, arena_bytes).run(before, after);
}

}  // namespace sluice::core
