// SPDX-License-Identifier: Apache-2.0
// A backend that fails at any call: the step ends with an error that says where, no thread is left. What
// hangs, CTest's timeout ends.
#include <gtest/gtest.h>

#include <filesystem>

#include "backend/testing/failing_backend.h"
#include "equivalence/small_runs.h"

namespace sluice::core {
namespace {

using Mode = FailingBackend::Mode;

int64_t threads_of_process() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return std::distance(begin(tasks), end(tasks));
}

// A capped program, so that all lanes are in use.
Question capped_request() {
  Question request = small_request({16, 8, 2, 1, 8, true}, {});
  const auto backend = rig::small_backend();
  request.caps[kDevice] =
      rig::must(make_stages(request, rig::profile_of(*backend))).arena_bytes()[kDevice] / 2;
  return request;
}

rig::Tokens tokens_for(const Question& request) {
  return rig::random_tokens(request.shape, request.model.vocab, 1);
}

class Failures : public testing::TestWithParam<Mode> {};

TEST_P(Failures, EndTheStepWithAnErrorThatNamesTheTask) {
  const Question request = capped_request();
  rig::Rig run(request);
  run.initialize();
  const double expected = run.step(1, tokens_for(request)).loss;
  const auto actions = int64_t(run.plan().actions.size());
  // The calls of a step: begin(), every submit(), finish().
  for (int64_t call = 1; call <= actions + 2; call += kOneIn) {
    FailingBackend failing(run.backend(), call, GetParam());
    Executor executor(run.model().program, run.plan(), failing, run.arenas());
    const Status status = executor.step();
    ASSERT_FALSE(status.ok()) << "call " << call;
    const bool submit = call > 1 && call < actions + 2;
    const std::string name =
        submit ? describe(run.model().program, run.plan().actions[size_t(call - 2)]) + ": " : "";
    EXPECT_EQ(status.message(), name + "injected failure at call " + std::to_string(call));
    EXPECT_EQ(status.error().kind, ErrorKind::Device);
  }
  // The process and the backend go on as if nothing had happened.
  run.initialize();
  EXPECT_EQ(run.step(1, tokens_for(request)).loss, expected);
}

TEST_P(Failures, LeaveNoThread) {
  const Question request = capped_request();
  const int64_t before = threads_of_process();
  {
    rig::Rig run(request);
    run.initialize();
    FailingBackend failing(run.backend(), 40, GetParam());
    Executor executor(run.model().program, run.plan(), failing, run.arenas());
    EXPECT_FALSE(executor.step().ok());
    EXPECT_GT(threads_of_process(), before);
  }
  EXPECT_EQ(threads_of_process(), before);
}

TEST_P(Failures, OfReservingPreparingAndUploadingAreErrors) {
  const Question request = capped_request();
  const Stages stages = rig::must(make_stages(request, rig::profile_of(*rig::small_backend())));
  const int64_t before = threads_of_process();
  for (int64_t call = 1; call <= 10; ++call) {
    const auto open = [&] {
      rig::Rig run(request, stages, std::make_unique<FailingBackend>(rig::small_backend(), call, GetParam()));
      run.initialize();
    };
    EXPECT_THROW(open(), std::runtime_error) << "call " << call;
  }
  EXPECT_EQ(threads_of_process(), before);
}

// A command that fails by itself, on a compute thread and late.
TEST(FailuresOfKernels, NameTheTask) {
  const Question request = capped_request();
  rig::Rig run(request);
  run.initialize();
  rig::Tokens tokens = tokens_for(request);
  tokens.targets.back() = int32_t(request.model.vocab);
  try {
    (void)run.step(1, tokens);
    FAIL() << "a target outside the vocabulary went through";
  } catch (const std::runtime_error& e) {
    EXPECT_NE(std::string(e.what()).find("head_loss"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("61"), std::string::npos) << e.what();
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, Failures, testing::Values(Mode::Synchronous, Mode::Asynchronous),
                         [](const auto& test) {
                           return test.param == Mode::Synchronous ? "synchronous" : "asynchronous";
                         });

}  // namespace
}  // namespace sluice::core
