// SPDX-License-Identifier: Apache-2.0
// A device that is lost, or a way between two, whatever the others are doing then: the step ends with one
// error that names device and task. What hangs, CTest's timeout ends.
#include <gtest/gtest.h>

#include <map>

#include "backend/testing/delaying_backend.h"
#include "backend/testing/failing_backend.h"
#include "backend/testing/losing_backend.h"
#include "equivalence/small_runs.h"

namespace sluice::core {
namespace {

const NamedDevices kRings[] = {{"two", 2, true}, {"two_by_the_host", 2, false}, {"three", 3, true}};

class LostDevices : public testing::TestWithParam<NamedDevices> {
 protected:
  LostDevices() : run_(request(), rig::small_devices(GetParam().count, GetParam().joined)) {
    run_.initialize();
    expected_ = run_.step(1, tokens()).loss;
  }

  static Question request() { return small_request({16, 8, 2, 1, 8, true}, {}); }
  rig::Tokens tokens() const {
    return rig::random_tokens(run_.request().shape, run_.request().model.vocab, 1);
  }
  const LaneTable& lanes() const { return run_.plan().lanes; }

  // What a step's error may say: what the lanes are to do, and on which device.
  std::set<std::string> messages_of(const std::vector<Lane>& some) const {
    std::set<std::string> out;
    for (const Action& a : run_.plan().actions) {
      if (std::ranges::count(some, a.lane) == 0) continue;
      const LaneEnds& ends = lanes()[a.lane];
      const auto number = [](Tier tier) { return std::to_string(tier.index()); };
      std::string devices = "device " + number(ends.from == kHost ? ends.to : ends.from);
      if (a.hands_over()) devices += " to device " + number(ends.to);
      out.insert(devices + ", " + describe(run_.model().program, a) + ": injected loss");
    }
    return out;
  }
  int64_t commands_of(const std::vector<Lane>& some) const {
    return std::ranges::count_if(run_.plan().actions,
                                 [&](const Action& a) { return std::ranges::count(some, a.lane) > 0; });
  }

  // Loses it at the first command, the last, and some between, with lanes that run ahead and fall behind.
  void lose(const std::function<Loss(int64_t)>& loss) {
    const std::vector<Lane> some = loss(1).lanes;
    const int64_t commands = commands_of(some);
    ASSERT_GT(commands, 0);
    const std::set<std::string> allowed = messages_of(some);
    const int64_t stride = std::max<int64_t>(1, commands / 20 * kOneIn);
    for (int64_t at = 1; at <= commands; at += stride) {
      LosingBackend losing(run_.backend(), loss(at));
      DelayingBackend delaying(losing, {.seed = uint64_t(at), .window = size_t{1} << (at % 8)});
      Executor executor(run_.model().program, run_.plan(), delaying, run_.arenas());
      const Status status = executor.step();
      ASSERT_FALSE(status.ok()) << "command " << at;
      EXPECT_TRUE(allowed.contains(status.message())) << "command " << at << ": " << status.message();
      EXPECT_EQ(status.error().kind, ErrorKind::Device);
    }
    // The other devices and the backend are as they were.
    run_.initialize();
    EXPECT_EQ(run_.step(1, tokens()).loss, expected_);
  }

  rig::Rig run_;
  double expected_ = 0;
};

TEST_P(LostDevices, EndTheStepWithTheirNumberAndTheTask) {
  for (int d = 0; d < GetParam().count; ++d) {
    SCOPED_TRACE(testing::Message() << "device " << d);
    lose([&](int64_t at) { return Loss::of_device(lanes(), Tier::device(size_t(d)), at); });
  }
}

TEST_P(LostDevices, SoDoLanesBetweenThem) {
  int lost = 0;
  for (const Lane lane : lanes()) {
    const LaneEnds& ends = lanes()[lane];
    const bool between = GetParam().joined ? ends.from.is_device() && ends.to.is_device() : true;
    if (ends.computes() || !between || commands_of({lane}) == 0) continue;
    SCOPED_TRACE(name_of(ends));
    lose([&](int64_t at) { return Loss::of_lane(lane, at); });
    ++lost;
  }
  EXPECT_GT(lost, 1);
}

// A submit that fails by itself, on whichever device.
TEST_P(LostDevices, AFailedCommandHasItsDeviceInTheMessage) {
  std::set<std::string> devices;
  std::map<Lane, int> of_lane;  // commands so far: some of each, the first among them
  for (uint32_t id = 0; id < run_.plan().actions.size(); ++id) {
    if (of_lane[run_.plan().actions[id].lane]++ % (7 * kOneIn) != 0) continue;
    FailingBackend failing(run_.backend(), id + 2, FailingBackend::Mode::Asynchronous);
    const Status status = Executor(run_.model().program, run_.plan(), failing, run_.arenas()).step();
    ASSERT_FALSE(status.ok());
    const std::string& message = status.message();
    devices.insert(message.substr(0, message.find(',')));
    EXPECT_NE(message.find(describe(run_.model().program, run_.plan().actions[id])), std::string::npos)
        << message;
  }
  for (int d = 0; d < GetParam().count; ++d)
    EXPECT_TRUE(devices.contains("device " + std::to_string(d))) << d;
}

// A kernel that fails on its device's thread while the others wait for it or run ahead.
TEST_P(LostDevices, AFailedKernelToo) {
  rig::Tokens wrong = tokens();
  wrong.targets.back() = int32_t(run_.request().model.vocab);
  try {
    (void)run_.step(1, wrong);
    FAIL() << "a target outside the vocabulary went through";
  } catch (const std::runtime_error& e) {
    EXPECT_TRUE(std::string(e.what()).starts_with("device 0, head_loss")) << e.what();
  }
}

INSTANTIATE_TEST_SUITE_P(Rings, LostDevices, testing::ValuesIn(kRings),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace sluice::core
