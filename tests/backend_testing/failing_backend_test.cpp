// SPDX-License-Identifier: Apache-2.0
#include "backend/testing/failing_backend.h"

#include <algorithm>

#include "backend_testing/fake_backend.h"
#include "ops/op.h"
#include "support/one_device.h"

namespace sluice::core {
namespace {

using Mode = FailingBackend::Mode;

// One call of each kind, three submits: nine calls. The messages of those that failed, as "call: message".
std::vector<std::string> run_all(FailingBackend& backend) {
  std::vector<std::string> failures;
  const auto note = [&](std::string_view call, const Status& status) {
    if (!status.ok()) failures.push_back(fmt::format("{}: {}", call, status.message()));
  };
  const Result<Arenas> arenas = backend.reserve(BytesByTier(1));
  note("reserve", arenas.ok() ? Status() : Status(arenas.error()));
  note("prepare", backend.prepare({}));
  note("begin", backend.begin(3, true));
  for (uint32_t id = 0; id < 3; ++id) note("submit", backend.submit(copy_command(id, kLoad, id)));
  if (const std::optional<Fault> fault = backend.finish(nullptr)) {
    failures.push_back(fmt::format("finish: {} command {}", fault->error.message,
                                   fault->command ? fmt::format("{}", *fault->command) : "unknown"));
  }
  note("upload", backend.upload({}, nullptr, 0));
  note("download", backend.download(nullptr, {}, 0));
  return failures;
}

std::vector<std::string> failures_at(int64_t call, Mode mode) {
  FakeBackend inner;
  FailingBackend backend(inner, call, mode);
  return run_all(backend);
}

using Strings = std::vector<std::string>;

TEST(FailingBackend, FailsAtTheChosenCallOnly) {
  for (const Mode mode : {Mode::Synchronous, Mode::Asynchronous}) {
    EXPECT_EQ(failures_at(1, mode), Strings{"reserve: injected failure at call 1"});
    EXPECT_EQ(failures_at(2, mode), Strings{"prepare: injected failure at call 2"});
    EXPECT_EQ(failures_at(3, mode), Strings{"begin: injected failure at call 3"});
    EXPECT_EQ(failures_at(7, mode), Strings{"finish: injected failure at call 7 command unknown"});
    EXPECT_EQ(failures_at(8, mode), Strings{"upload: injected failure at call 8"});
    EXPECT_EQ(failures_at(9, mode), Strings{"download: injected failure at call 9"});
    EXPECT_EQ(failures_at(10, mode), Strings{});
  }
}

TEST(FailingBackend, ASynchronousSubmitFailsAndSoDoLaterOnesAndFinish) {
  EXPECT_EQ(failures_at(5, Mode::Synchronous),
            (Strings{"submit: injected failure at call 5", "submit: injected failure at call 5",
                     "finish: injected failure at call 5 command 1"}));
}

TEST(FailingBackend, AnAsynchronousSubmitIsToldByFinishAlone) {
  EXPECT_EQ(failures_at(5, Mode::Asynchronous), Strings{"finish: injected failure at call 5 command 1"});
}

TEST(FailingBackend, RunsNothingAfterAFailedSubmit) {
  for (const Mode mode : {Mode::Synchronous, Mode::Asynchronous}) {
    FakeBackend inner;
    FailingBackend backend(inner, 5, mode);
    run_all(backend);
    EXPECT_EQ(inner.commands.size(), 1u);
  }
}

TEST(FailingBackend, WaitsForTheStepWhenFinishFails) {
  FakeBackend inner;
  FailingBackend backend(inner, 7, Mode::Synchronous);
  run_all(backend);
  EXPECT_EQ(std::ranges::count(inner.calls, "finish"), 1);
}

TEST(FailingBackend, WorksAgainInTheNextStep) {
  FakeBackend inner;
  FailingBackend backend(inner, 5, Mode::Asynchronous);
  run_all(backend);
  EXPECT_TRUE(backend.failed());
  EXPECT_EQ(backend.calls(), 9);
  EXPECT_EQ(run_all(backend), Strings{});
  EXPECT_EQ(inner.commands.size(), 3u);
}

TEST(FailingBackend, PassesOnAFaultOfTheInnerBackend) {
  FakeBackend inner;
  inner.fault_at = 2;
  FailingBackend backend(inner, 100, Mode::Synchronous);
  EXPECT_EQ(run_all(backend), (Strings{"submit: fault", "finish: fault command 2"}));
}

TEST(FailingBackend, MayOwnTheInnerBackend) {
  FailingBackend backend(std::make_unique<FakeBackend>(), 1, Mode::Synchronous);
  EXPECT_EQ(backend.name(), "fake");
  EXPECT_EQ(backend.alignment(), 32);
  EXPECT_EQ(backend.workspace_bytes(Cast{}), 16);
  EXPECT_EQ(backend.memory()[kHost], 2);
}

}  // namespace
}  // namespace sluice::core
