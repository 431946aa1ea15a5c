// SPDX-License-Identifier: Apache-2.0
// Signals as requests, and which of them end the process.
#include "interrupt.h"

#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <string>
#include <thread>

namespace {

using sluice::core::Requests;

// Beyond what counts as one signal.
void let_time_pass() {
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
}

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
using InterruptOnce = Interrupt;

TEST_P(Interrupt, EndsWhatDoesNotHeedItYet) {
  EXPECT_EXIT(
      {
        watch_signals();
        std::raise(GetParam().first);
        std::_Exit(4);
      },
      testing::KilledBySignal(GetParam().first), "nothing to save");
}

TEST_P(Interrupt, FirstIsARequest) {
  EXPECT_EXIT(
      {
        Requests& asked = watch_signals();
        asked.stop_is_handled = true;
        if (asked.stop) std::_Exit(2);
        std::raise(GetParam().first);
        std::_Exit(asked.stop && !asked.save ? 0 : 3);
      },
      testing::ExitedWithCode(0), "");
}

TEST_P(Interrupt, SecondEndsTheProcess) {
  EXPECT_EXIT(
      {
        watch_signals().stop_is_handled = true;
        std::raise(GetParam().first);
        let_time_pass();
        std::raise(GetParam().second);
        std::_Exit(4);
      },
      testing::KilledBySignal(GetParam().second), "");
}

// `timeout` signals a process and then its group.
TEST_P(Interrupt, TwoAtOnceAreOne) {
  EXPECT_EXIT(
      {
        watch_signals().stop_is_handled = true;
        std::raise(GetParam().first);
        std::raise(GetParam().second);
        std::_Exit(0);
      },
      testing::ExitedWithCode(0), "");
}

TEST_P(Interrupt, EndsInTheNameOfTheFirst) {
  EXPECT_EXIT(
      {
        watch_signals().stop_is_handled = true;
        std::raise(GetParam().first);
        end_by_signal();
        std::_Exit(4);
      },
      testing::KilledBySignal(GetParam().first), "");
}

INSTANTIATE_TEST_SUITE_P(Pairs, Interrupt,
                         testing::Values(Signals{"int_int", SIGINT, SIGINT},
                                         Signals{"int_term", SIGINT, SIGTERM},
                                         Signals{"term_int", SIGTERM, SIGINT},
                                         Signals{"term_term", SIGTERM, SIGTERM},
                                         Signals{"hup_term", SIGHUP, SIGTERM}),
                         [](const auto& test) { return test.param.name; });

// A terminal that closes sends it from the shell and from the kernel; some batch systems send it after
// SIGTERM.
TEST(Hangup, NeverEndsARunThatIsStopping) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (const int first : {SIGHUP, SIGTERM}) {
    EXPECT_EXIT(
        {
          watch_signals().stop_is_handled = true;
          std::raise(first);
          let_time_pass();
          std::raise(SIGHUP);
          std::_Exit(0);
        },
        testing::ExitedWithCode(0), "");
  }
}

TEST(Hangup, StaysIgnored) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        std::signal(SIGHUP, SIG_IGN);
        const Requests& asked = watch_signals();
        std::raise(SIGHUP);
        std::_Exit(asked.stop ? 3 : 0);
      },
      testing::ExitedWithCode(0), "");
}

TEST(Signals, AskToSaveAndToPlanAgain) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const Requests& asked = watch_signals();  // before anything is heeded, too
        std::raise(SIGUSR1);
        std::raise(SIGPIPE);
        const bool saves = asked.save && !asked.stop && !asked.replan;
        std::raise(SIGUSR2);
        std::_Exit(saves && asked.replan && !asked.stop ? 0 : 3);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
