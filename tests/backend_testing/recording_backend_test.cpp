// SPDX-License-Identifier: Apache-2.0
#include "backend/testing/recording_backend.h"

#include "backend_testing/fake_backend.h"
#include "ops/op.h"
#include "support/one_device.h"

namespace sluice::core {
namespace {

TEST(RecordingBackend, NotesCommandsOfEveryStep) {
  FakeBackend inner;
  RecordingBackend backend(inner);
  const Op op = Cast{};
  const std::vector<Buffer> operands{{nullptr, 10}, {nullptr, 20}};
  const std::vector<uint32_t> waits{0};

  ASSERT_TRUE(backend.begin(2, true).ok());
  ASSERT_TRUE(backend.submit(copy_command(0, kLoad, 4096)).ok());
  ASSERT_TRUE(
      backend.submit({.id = 1, .lane = kCompute, .waits = waits, .work = Launch{&op, operands, {}}}).ok());
  EXPECT_FALSE(backend.finish(nullptr));
  ASSERT_TRUE(backend.begin(1, true).ok());
  ASSERT_TRUE(backend.submit(copy_command(0, kStore, 7)).ok());

  EXPECT_EQ(backend.records(), (std::vector<RecordedCommand>{{0, 0, "load", {}, "copy", 4096},
                                                             {0, 1, "compute", {0}, "cast", 30},
                                                             {1, 0, "store", {}, "copy", 7}}));
}

TEST(RecordingBackend, PassesCommandsOn) {
  FakeBackend inner;
  RecordingBackend backend(inner);
  ASSERT_TRUE(backend.begin(1, true).ok());
  ASSERT_TRUE(backend.submit(copy_command(0, kLoad, 4096)).ok());
  EXPECT_EQ(inner.commands.at(0).bytes, 4096);
}

TEST(RecordingBackend, RecordsACommandThatFails) {
  FakeBackend inner;
  inner.fault_at = 0;
  RecordingBackend backend(inner);
  ASSERT_TRUE(backend.begin(1, true).ok());
  EXPECT_FALSE(backend.submit(copy_command(0, kLoad, 1)).ok());
  EXPECT_EQ(backend.records().size(), 1u);
}

TEST(RecordingBackend, WritesARecordInOneLine) {
  EXPECT_EQ(to_text(RecordedCommand{2, 3, "compute", {1, 2}, "linear", 4096}),
            "step 2 #3 compute linear 4096 bytes waits 1 2");
}

}  // namespace
}  // namespace sluice::core
