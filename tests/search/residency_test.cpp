// SPDX-License-Identifier: Apache-2.0
// Residency: from when to when a value is on the device, and where its transfers begin.
#include <gtest/gtest.h>

#include "search/six_tasks.h"

namespace sluice::core {
namespace {

struct Case {
  const char* name;
  const char* value;
  const char* cut;
  double link_ns;
  int64_t room;  // objects that may be there
  const char* skipped;
  const char* spans;  // positions, and after which one it is stored
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.name;
}

// Objects there with a away: 2 3 3 4 3 3 1; with x away: 2 2 3 4 3 2 0. a leaves after position 1, at 20 ns,
// and is needed at position 5, at 50 ns.
const Case kCases[] = {
    {"a_weight_stays", "x", "", 15, 5, "", "always"},
    {"an_activation_stays_from_its_first_to_its_last_use", "a", "", 15, 5, "", "0-5"},
    {"without_room_it_leaves_at_once_and_comes_at_the_last_moment", "a", "a", 15, 0, "",
     "0-1 stored 1, loaded 5-5"},
    {"with_room_it_lingers_until_stored_and_comes_in_time", "a", "a", 15, 5, "", "0-3 stored 1, loaded 4-5"},
    {"no_longer_than_there_is_room", "a", "a", 15, 4, "", "0-2 stored 1, loaded 4-5"},
    {"no_longer_than_the_link_takes", "a", "a", 5, 5, "", "0-2 stored 1, loaded 4-5"},
    {"without_drain_it_does_not_linger", "a", "a", 15, 5, "drain", "0-1 stored 1, loaded 3-5"},
    {"without_early_it_comes_at_the_last_moment", "a", "a", 15, 5, "early", "0-3 stored 1, loaded 5-5"},
    {"a_weight_comes_at_the_end_of_the_step_before", "x", "x", 5, 5, "", "loaded 5-0"},
    {"or_as_the_step_begins_where_there_is_no_room", "x", "x", 5, 0, "", "loaded 0-0"},
};

class Resident : public testing::TestWithParam<Case> {};

TEST_P(Resident, WhereLinksAndRoomAllow) {
  const Case& c = GetParam();
  const SixTasks six;
  const DeviceSchedule s = six.schedule();
  const Limits limits = SixTasks::room(100);
  PassRunner passes;
  ASSERT_TRUE(passes.skip(c.skipped).ok());
  auto cuts = cuts_of(s, six.gaps(s, c.cut), limits);
  ASSERT_TRUE(cuts);
  const Residency r = decide_residency(s, SixTasks::link(c.link_ns), limits, std::move(*cuts),
                                       c.room * SixTasks::kBytes, passes);
  EXPECT_TRUE(verify(s, r).ok());
  std::string spans;
  for (const Span& span : r.spans) {
    if (six.name(s, span.value) != c.value) continue;
    spans += spans.empty() ? "" : ", ";
    if (span.load) spans += "loaded ";
    spans += span.always ? "always" : fmt::format("{}-{}", span.begin, span.end);
    if (span.store) spans += fmt::format(" stored {}", span.store_at);
  }
  EXPECT_EQ(spans, c.spans);
}

INSTANTIATE_TEST_SUITE_P(Spans, Resident, testing::ValuesIn(kCases),
                         [](const auto& test) { return std::string(test.param.name); });

// A value that outlives the step, used at these positions of a step of ten and away in between; the gap
// before the use number `overwritten` is dead.
struct Circle {
  DeviceSchedule schedule;
  std::vector<Gap> gaps;

  Circle(std::vector<uint32_t> positions, size_t overwritten, bool around) {
    Value v;
    v.bytes = SixTasks::kBytes;
    v.circular = v.given = true;
    for (const uint32_t p : positions) v.uses.push_back({p, true, v.uses.size() == overwritten});
    schedule.values = {v};
    for (uint32_t p = 0; p < 10; ++p) schedule.runs.push_back({TaskId(p), false, 0});
    for (uint32_t p = 0; p <= 10; ++p) schedule.start_ns.push_back(1000 * p);
    schedule.workspace_bytes.assign(11, 0);
    for (Gap& g : gaps_of(schedule, SixTasks::link(5), Limits())) {
      g.cut = around || !g.around;
      gaps.push_back(g);
    }
  }
  // On a host that is short, or has room.
  HostSlot slot(bool is_short = true) const {
    Limits limits;
    limits.host_is_short = is_short;
    return split_at(schedule, limits, gaps).slots.at(0);
  }
};

TEST(HostSlots, AreFreeFromTheLastLoadBeforeAllIsOverwrittenToTheNextStore) {
  // As a gradient: read by the deferred update at 1, made anew at 5, added to at 8, at home on the host.
  const HostSlot slot = Circle({1, 5, 8}, 1, true).slot();
  EXPECT_TRUE(slot.home && !slot.always);
  EXPECT_EQ(slot.begin, 5u);
  EXPECT_EQ(slot.end, 1u);
  EXPECT_TRUE(slot.covers(10) && slot.covers(0) && !slot.covers(3));
  EXPECT_TRUE(Circle({1, 5, 8}, 1, true).slot(false).always);
}

TEST(HostSlots, OfWhatIsAtHomeOnTheDeviceLastFromTheFirstStoreToTheLastLoad) {
  const HostSlot slot = Circle({1, 5, 8}, 9, false).slot();
  EXPECT_FALSE(slot.home || slot.always);
  EXPECT_EQ(slot.begin, 1u);
  EXPECT_EQ(slot.end, 8u);
}

TEST(HostSlots, OfWhatIsOnlyReadLastAlways) {
  Circle read({1, 5, 8}, 9, true);
  for (ValueUse& u : read.schedule.values[0].uses) u.writes = false;
  EXPECT_TRUE(read.slot().always);
}

// As a frozen weight that stays on the device around the boundary: it lies in both tiers, where the host has
// room.
TEST(HostSlots, OfWhatIsNeverWrittenTakeNoStore) {
  Circle read({1, 5, 8}, 9, false);
  for (ValueUse& u : read.schedule.values[0].uses) u.writes = false;
  for (const bool is_short : {false, true}) {
    Limits limits;
    limits.host_is_short = is_short;
    const Residency r = split_at(read.schedule, limits, read.gaps);
    EXPECT_EQ(r.slots.at(0).home, !is_short);
    EXPECT_EQ(r.slots.at(0).always, !is_short);
    EXPECT_EQ(std::ranges::count_if(r.spans, &Span::store), is_short);
  }
}

TEST(HostSlots, LastFromTheStoreToTheLoadAndForWeightsAlways) {
  const SixTasks six;
  const DeviceSchedule s = six.schedule();
  const Residency r = split_at(s, SixTasks::room(100), six.gaps(s, "x a"));
  ASSERT_EQ(r.slots.size(), 2u);
  EXPECT_EQ(six.name(s, r.slots[0].value), "x");
  EXPECT_TRUE(r.slots[0].always && r.slots[0].home);
  EXPECT_EQ(six.name(s, r.slots[1].value), "a");
  EXPECT_FALSE(r.slots[1].always || r.slots[1].home);
  EXPECT_EQ(r.slots[1].begin, 1u);
  EXPECT_EQ(r.slots[1].end, 5u);
}

TEST(VerifyResidency, RejectsAUseThatNoSpanCoversAndOneThatTwoCover) {
  const SixTasks six;
  const DeviceSchedule s = six.schedule();
  const Residency good = split_at(s, SixTasks::room(100), six.gaps(s, "a"));
  ASSERT_TRUE(verify(s, good).ok());
  Residency bad = good;
  bad.spans.pop_back();
  EXPECT_FALSE(verify(s, bad).ok());
  bad = good;
  bad.spans.push_back(good.spans.back());
  EXPECT_FALSE(verify(s, bad).ok());
  bad = good;
  bad.spans.back().begin = bad.spans.back().end = 3;
  EXPECT_FALSE(verify(s, bad).ok());
}

}  // namespace
}  // namespace sluice::core
