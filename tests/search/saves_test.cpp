// SPDX-License-Identifier: Apache-2.0
// Saves: which activations travel and which are computed again. Of a and b, which cross into the backward
// pass, a is away from 20 to 50 ns and b from 30 to 40 ns.
#include <gtest/gtest.h>

#include "search/six_tasks.h"

namespace sluice::core {
namespace {

struct Case {
  const char* name;
  double link_ns;        // for an object, either way
  int64_t target, host;  // room, in objects; the weight takes one of the host's where it leaves the device
  const char* sent;
  const char* again;
  std::vector<double> task_ns = std::vector<double>(6, 10);
  double lag_ns = 0;
  double away_weight = 0;
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.name;
}

// a's gap is 60 ns long and b's 40 ns, inside of it. The weight's load for the next step takes the last 12 ns
// of the link, 2 of them when a's load would have to run.
const std::vector<double> kLong{10, 10, 10, 40, 10, 10};

const Case kCases[] = {
    {"what_fits_is_kept", 5, 5, 100, "", ""},
    {"what_the_links_carry_is_sent", 5, 2, 100, "a b", ""},
    {"what_would_come_back_late_is_computed_again", 6, 2, 100, "a", "b"},
    {"and_all_of_it_where_links_are_slow", 20, 2, 100, "", "a b"},
    {"what_the_host_has_no_room_for_is_computed_again", 5, 2, 1, "", "a b"},
    {"the_dearest_takes_the_room_there_is", 5, 2, 2, "b", "a", {10, 11, 10, 10, 10, 10}},
    {"of_equals_the_first", 5, 2, 2, "a", "b"},
    {"away_for_less_time_counts_where_it_is_told_to", 4, 2, 2, "b", "a", {11, 10, 10, 10, 10, 10}, 0, 1},
    {"without_a_lag_only_what_finds_its_link_free", 12, 2, 100, "b", "a", kLong, 0},
    {"with_a_lag_one_waits_for_the_other", 12, 2, 100, "a b", "", kLong, 5},
};

class Saved : public testing::TestWithParam<Case> {};

TEST_P(Saved, AsLinksAndHostAllow) {
  const Case& c = GetParam();
  SixTasks six;
  six.costs.ns = c.task_ns;
  const DeviceSchedule s = six.schedule();
  SavePolicy policy;
  policy.target_bytes = c.target * SixTasks::kBytes;
  policy.host_bytes = c.host * SixTasks::kBytes;
  policy.lag_ns = c.lag_ns;
  policy.away_weight = c.away_weight;
  policy.priced = false;
  const Saves saves = choose_saves(six.program, s, recompute_units(six.program, six.costs),
                                   SixTasks::link(c.link_ns), SixTasks::room(100), policy, {})
                          .saves;
  EXPECT_EQ(six.named(saves, Save::Host), c.sent);
  EXPECT_EQ(six.named(saves, Save::Again), c.again);
}

INSTANTIATE_TEST_SUITE_P(Links, Saved, testing::ValuesIn(kCases),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace sluice::core
