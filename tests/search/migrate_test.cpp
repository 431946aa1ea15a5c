// SPDX-License-Identifier: Apache-2.0
// Between any two placements of some objects there is a migration, which the proof takes and which moves
// every byte, or a refusal that says what is lacking.
#include "search/migrate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace sluice::core {
namespace {

constexpr int64_t kAlign = 64;
constexpr int64_t kPiece = 256;  // the longest: objects are of several

struct Case {
  LaneTable lanes;
  Program program;
  Plan before, after;
  BytesByTier room;
};

using Random = std::mt19937_64;
int64_t draw(Random& random, int64_t least, int64_t most) {
  return std::uniform_int_distribution<int64_t>(least, most)(random);
}

// Objects in a random order at random places of tiers, with gaps as long as there is room for any.
Plan placed(const Case& c, Random& random) {
  Plan plan;
  plan.program_hash = c.program.hash();
  plan.lanes = c.lanes;
  plan.alignment = kAlign;
  plan.homes.resize(c.program.objects().size());
  std::vector<uint32_t> order(c.program.objects().size());
  for (uint32_t o = 0; o < order.size(); ++o) order[o] = o;
  std::shuffle(order.begin(), order.end(), random);
  BytesByTier used;
  const std::vector<Tier> tiers = c.lanes.tiers();
  const auto place = [&](uint32_t o, Tier tier) {
    const int64_t bytes = c.program.objects()[o].bytes, gap = draw(random, 0, 3) == 0 ? kAlign : 0;
    if (used[tier] + gap + bytes > c.room[tier]) return false;
    plan.homes[o].set(tier, used[tier] + gap);
    used[tier] = align_up(used[tier] + gap + bytes, kAlign);
    return true;
  };
  for (const uint32_t o : order) {
    size_t first = size_t(draw(random, 0, int64_t(tiers.size()) - 1));
    for (size_t i = 0; i < tiers.size() && !plan.homes[o].anywhere(); ++i)
      place(o, tiers[(first + i) % tiers.size()]);
    if (draw(random, 0, 3) == 0) place(o, tiers[size_t(draw(random, 0, int64_t(tiers.size()) - 1))]);
  }
  return plan;
}
bool all_placed(const Plan& plan) {
  return std::all_of(plan.homes.begin(), plan.homes.end(), [](const Home& h) { return h.anywhere(); });
}

// `room`: of each tier, of what all objects take.
Case random_case(uint64_t seed, double room) {
  Random random(seed);
  Case c;
  const auto devices = size_t(draw(random, 1, 3));
  c.lanes = devices == 1 ? LaneTable() : LaneTable::of_devices(devices, draw(random, 0, 1) == 1);
  int64_t all = 0;
  for (int o = 0; o < 12; ++o) {
    Object object;
    object.name = object.role = "o" + std::to_string(o);
    object.kind = ObjectKind::Param;
    object.format = DType::F32;
    object.bytes = 4 * draw(random, 1, 600);
    object.persistent = true;
    all += align_up(object.bytes, kAlign);
    c.program.add(std::move(object));
  }
  for (const Tier tier : c.lanes.tiers()) c.room[tier] = align_up(int64_t(room * double(all)), kAlign);
  c.before = placed(c, random);
  c.after = placed(c, random);
  return c;
}

Profile profile_for(const Case& c) {
  Profile profile;
  profile.set_lanes(c.lanes, 1e9);
  return profile;
}
MigrationOptions small_pieces() {
  return {.most_bytes = kPiece, .least_bytes = kAlign};
}

std::byte content(uint32_t object, int64_t at) {
  return std::byte((object * 37 + at * 11 + at / 256) & 0xff);
}

// True: the copies, made one after the other, bring every object to all of its new homes.
bool moves_all(const Case& c, const Migration& m) {
  ByTier<std::vector<std::byte>> arenas;
  for (const Tier tier : c.lanes.tiers()) arenas[tier].resize(size_t(c.room[tier]));
  for (uint32_t o = 0; o < c.before.homes.size(); ++o) {
    for (const auto& [tier, offset] : c.before.homes[o].places()) {
      for (int64_t i = 0; i < c.program.objects()[o].bytes; ++i)
        arenas[tier][size_t(offset + i)] = content(o, i);
    }
  }
  for (const MigrationCopy& copy : m.copies) {
    std::copy_n(arenas[copy.from.tier].begin() + copy.from.offset, copy.bytes,
                arenas[copy.to.tier].begin() + copy.to.offset);
  }
  for (uint32_t o = 0; o < c.after.homes.size(); ++o) {
    for (const auto& [tier, offset] : c.after.homes[o].places()) {
      for (int64_t i = 0; i < c.program.objects()[o].bytes; ++i) {
        if (arenas[tier][size_t(offset + i)] != content(o, i)) return false;
      }
    }
  }
  return true;
}

TEST(Migrations, MoveEverythingOrSayWhatIsLacking) {
  for (const double room : {1.0, 0.6, 0.45}) {
    int found = 0, by_spare = 0, refused = 0;
    for (uint64_t seed = 0; seed < 200; ++seed) {
      const Case c = random_case(seed, room);
      if (!all_placed(c.before) || !all_placed(c.after)) continue;
      SCOPED_TRACE(testing::Message() << "room " << room << " seed " << seed);
      const auto m = plan_migration(c.program, c.before, c.after, c.room, profile_for(c), small_pieces());
      if (!m.ok()) {
        EXPECT_EQ(m.error().kind, ErrorKind::DoesNotFit) << m.message();
        ++refused;
        continue;
      }
      ++found, by_spare += m->spare_bytes > 0;
      const Status proved = verify(c.program, *m, c.before, c.after, c.room);
      ASSERT_TRUE(proved.ok()) << proved.message();
      ASSERT_TRUE(moves_all(c, *m));
    }
    EXPECT_GT(found, 20) << room;
    EXPECT_GT(by_spare, 0) << room;
    EXPECT_LT(refused, found / 10 + 1) << room;
  }
}

// Two objects that fill an arena change places, where no byte more is free anywhere.
TEST(Migrations, OfFullArenasAreRefusedWithWhatTheyLack) {
  Case c;
  for (const char* name : {"a", "b"}) {
    Object object;
    object.name = object.role = name;
    object.kind = ObjectKind::Param;
    object.format = DType::F32;
    object.bytes = 1024;
    object.persistent = true;
    c.program.add(std::move(object));
  }
  c.room[kDevice] = 2048;
  for (Plan* plan : {&c.before, &c.after}) {
    plan->program_hash = c.program.hash();
    plan->alignment = kAlign;
    plan->homes.resize(2);
    for (const int64_t o : {0, 1})
      plan->homes[size_t(o)].set(kDevice, 1024 * (plan == &c.before ? o : 1 - o));
  }
  const auto refused = plan_migration(c.program, c.before, c.after, c.room, profile_for(c), small_pieces());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(
      refused.message(),
      "the plans' homes fill the device arena of 2KiB: moving from one to the other takes 64 bytes more "
      "of spare room");
  // So many bytes of the host are enough.
  c.room[kHost] = 64;
  const auto found = plan_migration(c.program, c.before, c.after, c.room, profile_for(c), small_pieces());
  ASSERT_TRUE(found.ok()) << found.message();
  EXPECT_TRUE(verify(c.program, *found, c.before, c.after, c.room).ok());
  EXPECT_TRUE(moves_all(c, *found));
}

// The proof rejects what is changed by one wait, one place or one copy, if it was needed.
TEST(Migrations, ThatAreBrokenAreRejected) {
  int waits = 0, places = 0, copies = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const Case c = random_case(seed, 0.6);
    if (!all_placed(c.before) || !all_placed(c.after)) continue;
    const auto m = plan_migration(c.program, c.before, c.after, c.room, profile_for(c), small_pieces());
    if (!m.ok()) continue;
    const auto proved = [&](const Migration& changed) {
      return verify(c.program, changed, c.before, c.after, c.room).ok();
    };
    for (size_t i = 0; i < m->copies.size(); ++i) {
      Migration changed = *m;
      if (changed.copies[i].wait_count > 0) {
        changed.copies[i].wait_count = 0;
        waits += proved(changed) ? 0 : 1;
      }
      changed = *m;
      changed.copies[i].to.offset += kAlign;
      places += 1;
      EXPECT_FALSE(proved(changed)) << "seed " << seed << " copy " << i;
      changed = *m;
      changed.copies.erase(changed.copies.begin() + int64_t(i));
      if (i + 1 == m->copies.size()) {
        copies += 1;
        EXPECT_FALSE(proved(changed)) << "seed " << seed << " copy " << i;
      }
    }
  }
  EXPECT_GT(waits, 20);
  EXPECT_GT(places, 20);
  EXPECT_GT(copies, 5);
}

}  // namespace
}  // namespace sluice::core
