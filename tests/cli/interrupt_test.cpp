// SPDX-License-Identifier: Apache-2.0
// The first signal asks a run to end, the second ends the process.
#include "interrupt.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <string>

namespace {

struct Signals {
  const char* name;
  int first, second;
};
void PrintTo(const Signals& s, std::ostream* out) {
  *out << s.name;
}

class Interrupt : public testing::TestWithParam<Signals> {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_P(Interrupt, FirstRaisesTheFlag) {
  EXPECT_EXIT(
      {
        const std::atomic<bool>& flag = watch_interrupts();
        if (flag) std::_Exit(2);
        std::raise(GetParam().first);
        std::_Exit(flag ? 0 : 3);
      },
      testing::ExitedWithCode(0), "");
}

TEST_P(Interrupt, SecondEndsTheProcess) {
  EXPECT_EXIT(
      {
        watch_interrupts();
        std::raise(GetParam().first);
        std::raise(GetParam().second);
        std::_Exit(4);
      },
      testing::KilledBySignal(GetParam().second), "");
}

INSTANTIATE_TEST_SUITE_P(Pairs, Interrupt,
                         testing::Values(Signals{"int_int", SIGINT, SIGINT},
                                         Signals{"int_term", SIGINT, SIGTERM},
                                         Signals{"term_int", SIGTERM, SIGINT},
                                         Signals{"term_term", SIGTERM, SIGTERM}),
                         [](const auto& test) { return test.param.name; });

}  // namespace
