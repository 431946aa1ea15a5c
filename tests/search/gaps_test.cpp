// SPDX-License-Identifier: Apache-2.0
// Gaps: what leaves the device. Worth is held time over transfer time: x 50 ns for a load, a 30 ns for a
// store and a load, b 10 ns for both; so x goes first, then a, then b.
#include <gtest/gtest.h>

#include "search/six_tasks.h"

namespace sluice::core {
namespace {

struct Case {
  const char* name;
  int64_t target;     // objects that may be there
  const char* saved;  // sent to the host by decision
  const char* cheap;  // takes next to no time to compute again
  const char* away;
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.name;
}

const Case kCases[] = {
    {"what_fits_stays", 5, "", "", ""},
    {"what_fits_stays_whatever_was_decided", 5, "a b", "", ""},
    {"the_longest_leaves_first", 4, "", "", "x"},
    {"then_the_next", 3, "", "", "x a"},
    {"down_to_the_working_sets", 2, "", "", "x a b"},
    {"no_further_than_the_working_sets", 0, "", "", "x a b"},
    {"what_is_cheap_to_compute_again_leaves_before", 4, "", "b", "b"},
    {"what_was_decided_leaves_before", 4, "b", "", "b"},
    {"what_left_needlessly_is_given_back_the_dearest_first", 4, "a b", "", "a"},
};

class Gaps : public testing::TestWithParam<Case> {};

TEST_P(Gaps, LeaveInTheOrderOfTheirWorth) {
  const Case& c = GetParam();
  const SixTasks six;
  const DeviceSchedule s = six.schedule();
  GapCosts costs;
  costs.again.assign(s.values.size(), 0);
  for (uint32_t v = 0; v < s.values.size(); ++v) {
    if (SixTasks::has(c.cheap, six.name(s, v))) costs.again[v] = 0.1;
  }
  const auto cuts = cut_gaps(s, s.start_ns, SixTasks::link(5), SixTasks::room(100),
                             c.target * SixTasks::kBytes, six.saves(c.saved, Save::Host), costs);
  ASSERT_TRUE(cuts);
  EXPECT_EQ(six.away(s, cuts->gaps), c.away);
}

INSTANTIATE_TEST_SUITE_P(Targets, Gaps, testing::ValuesIn(kCases),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(GapsOf, ThePressureIsWhatIsThereAtEachPosition) {
  const SixTasks six;
  const DeviceSchedule s = six.schedule();
  const auto cuts = cuts_of(s, six.gaps(s, "a"), SixTasks::room(100));
  ASSERT_TRUE(cuts);
  std::vector<int64_t> objects;
  for (const int64_t bytes : cuts->pressure) objects.push_back(bytes / SixTasks::kBytes);
  EXPECT_EQ(objects, (std::vector<int64_t>{2, 3, 3, 4, 3, 3, 1}));
}

TEST(GapsOf, CutsThatLeaveTooMuchAreNone) {
  const SixTasks six;
  const DeviceSchedule s = six.schedule();
  EXPECT_TRUE(cuts_of(s, six.gaps(s, "x a"), SixTasks::room(3)));
  EXPECT_FALSE(cuts_of(s, six.gaps(s, "x a"), SixTasks::room(2)));
}

TEST(GapsOf, AWorkingSetBeyondTheDeviceIsRefused) {
  const SixTasks six;
  const DeviceSchedule s = six.schedule();
  const auto cut = [&](int64_t objects) {
    return cut_gaps(s, s.start_ns, SixTasks::link(5), SixTasks::room(objects), 0, {}, {});
  };
  EXPECT_TRUE(cut(2));
  EXPECT_FALSE(cut(1));
}

TEST(GapsOf, ThatEndWithAnOverwriteMoveNothingAndAreCutWhereRoomIsShort) {
  const SixTasks six;
  DeviceSchedule s = six.schedule();
  s.values[0].uses.push_back({5, true, true});  // the step ends with a new x
  const auto cuts =
      cut_gaps(s, s.start_ns, SixTasks::link(5), SixTasks::room(100), 4 * SixTasks::kBytes, {}, {});
  ASSERT_TRUE(cuts);
  EXPECT_EQ(six.away(s, cuts->gaps), "x");
  const Residency r = split_at(s, SixTasks::room(100), cuts->gaps);
  for (const Span& span : r.spans) EXPECT_FALSE(span.load || span.store) << six.name(s, span.value);
}

TEST(Gaps, OfWhatIsPinnedAreNone) {
  const SixTasks six;
  const DeviceSchedule s = six.schedule();
  Limits limits = SixTasks::room(3);
  auto pinned = std::make_shared<std::vector<bool>>(six.program.objects().size(), false);
  (*pinned)[0] = true;  // x
  limits.pinned = pinned;
  const auto cuts = cut_gaps(s, s.start_ns, SixTasks::link(5), limits, 0, {}, {});
  ASSERT_TRUE(cuts.has_value());
  EXPECT_EQ(six.away(s, cuts->gaps), "a b");
  EXPECT_EQ(*std::ranges::max_element(cuts->pressure), 3 * SixTasks::kBytes);
  // What a task works on has no room beside it.
  limits.set_device_bytes(2 * SixTasks::kBytes);
  EXPECT_FALSE(cut_gaps(s, s.start_ns, SixTasks::link(5), limits, 0, {}, {}).has_value());
}

}  // namespace
}  // namespace sluice::core
