// SPDX-License-Identifier: Apache-2.0
// Saving in a run: beside it or while it waits, when, and what happens when it fails.
#include "run/training/saver.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "run/small_session.h"
#include "run/training/training.h"

namespace sluice::core {
namespace {

class Saves : public Observer {
 public:
  void stepped(const StepEvent& e) override {
    if (after_step) after_step(e.step);
  }
  void saved(const SaveEvent& e) override { events.push_back(e); }
  void warned(const std::string& message) override { warnings.push_back(message); }

  std::function<void(int64_t)> after_step;
  std::vector<SaveEvent> events;
  std::vector<std::string> warnings;
};

// A run of six steps.
struct Training {
  explicit Training(std::vector<std::string> settings = {}) : prepared(must(prepare_small(dir, settings))) {}

  // A host cap that leaves room for so much beside what is planned.
  void leave_room(int64_t bytes) {
    prepared.config.caps[kHost] =
        prepared.stages.arena_bytes()[kHost] + prepared.machine.profile.overhead_bytes[kHost] + bytes;
  }
  Result<Saver> open(const SaveSchedule& schedule, const std::string& name, int64_t last_step = 6) {
    CheckpointStore store = must(CheckpointStore::open(dir / name, schedule.keep));
    return Saver::open(prepared, std::move(store), schedule, last_step, saves);
  }
  // Saves into `name`, at last too.
  Status run(const SaveSchedule& schedule, const std::string& name, std::function<bool()> asked = {}) {
    Saver saver = must(open(schedule, name));
    beside = saver.forecast().beside_run;
    session = must(Session::open(prepared));
    TrainingOptions options;
    options.saver = &saver;
    options.stop = [] { return false; };
    options.save = std::move(asked);
    const auto end = train(*session, saves, options);
    if (!end.ok()) return end.error();
    return saver.finish(*session);
  }
  std::vector<int64_t> steps_saved() const {
    std::vector<int64_t> out;
    for (const SaveEvent& e : saves.events) out.push_back(e.step);
    return out;
  }

  const TempDir dir;
  Prepared prepared;
  Saves saves;
  bool beside = false;
  std::unique_ptr<Session> session;
};

constexpr Retention kAll{100, 0};
const std::vector<int64_t> kEveryStep{1, 2, 3, 4, 5, 6};

// The state goes on changing while its copy is written: what is saved is that of the step all the same.
TEST(Saver, SavesBesideTheRunWhatItSavesWhileTheRunWaits) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer's own memory counts under so tight a cap";
#endif
  Training r({"train.deferred_update=on"});
  must(r.run({1, 0, kAll}, "beside"));
  EXPECT_TRUE(r.beside);
  EXPECT_EQ(r.steps_saved(), kEveryStep);
  r.saves.events.clear();
  r.leave_room(100 << 10);  // the state takes 300 KiB
  must(r.run({1, 0, kAll}, "waits"));
  EXPECT_FALSE(r.beside);
  EXPECT_EQ(r.steps_saved(), kEveryStep);
  for (const int64_t step : kEveryStep) {
    for (const char* file : {"model.safetensors", "optimizer.safetensors", "checkpoint.json"}) {
      const std::string name = fmt::format("step-{}/{}", step, file);
      EXPECT_FALSE(file_bytes(r.dir / "waits" / name).empty()) << name;
      EXPECT_TRUE(file_bytes(r.dir / "beside" / name) == file_bytes(r.dir / "waits" / name)) << name;
    }
  }
}

TEST(Saver, SavesByStepsForGoodWhenAskedAndAtTheEnd) {
  Training r;
  bool ask = false;
  r.saves.after_step = [&](int64_t step) { ask = step == 4; };
  must(r.run({3, 0, {1, 2}}, "store", [&] { return ask; }));
  EXPECT_EQ(r.steps_saved(), (std::vector<int64_t>{2, 3, 4, 6}));
  EXPECT_EQ(must(CheckpointStore::open(r.dir / "store")).steps(), (std::vector<int64_t>{2, 4, 6}));
}

// Once a save has shown that it takes too much of the run at this pace, the next comes later.
TEST(Saver, SavesByTimeNoMoreThanItsShare) {
  constexpr double kMinutes = 1e-9;
  Training r;
  must(r.run({0, kMinutes, kAll}, "store"));
  ASSERT_FALSE(r.saves.events.empty());
  for (const SaveEvent& e : r.saves.events) {
    EXPECT_GE(e.next_seconds, e.waited_seconds / Saver::kMostShare);
    EXPECT_EQ(e.delayed, e.next_seconds > 60 * kMinutes);
  }
}

// A moment becomes negative, as by a bit that flips: the weights of rare rows would be no numbers from then
// on, while the loss of others stays finite.
TEST(Saver, AFailureBesideTheRunEndsItAndNamesTheLastGoodCheckpoint) {
  Training r({"train.compute=f32"});
  const BuiltProgram& model = r.prepared.stages.main.model;
  const ObjectId squares = model.params.front().parts[0].state[1];
  const float negative = -1;
  r.saves.after_step = [&](int64_t step) {
    if (step == 3)
      must(r.session->engine().training().write(squares, std::as_bytes(std::span(&negative, 1)), 0));
  };
  const Status ended = r.run({1, 0, kAll}, "store");
  ASSERT_FALSE(ended.ok());
  const std::string name = model.program.object(squares).name;
  for (const std::string& part : {std::string("checkpoint of step 3"), "tensor " + name + ": element 0 is -1",
                                  "the last good one is " + (r.dir / "store/step-2").string()})
    EXPECT_NE(ended.message().find(part), std::string::npos) << ended.message();
  EXPECT_EQ(ended.error().detail("unsaved"), name);
  EXPECT_EQ(r.steps_saved(), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(must(CheckpointStore::open(r.dir / "store", kAll)).steps(), (std::vector<int64_t>{1, 2}));
}

TEST(Saver, ADiskWithoutRoomIsRefusedBeforeTheFirstStep) {
  Training r;
  const auto refused = r.open({0, 0, {1, 1}}, "store", 1'000'000'000'000);
  ASSERT_FALSE(refused.ok());
  for (const std::string& part : {(r.dir / "store").string(), std::string("need "), std::string("are free"),
                                  std::string("run.keep_every")})
    EXPECT_NE(refused.message().find(part), std::string::npos) << refused.message();
}

// As many checkpoints as the disk has room for leave none for the best model, which is two at times: one is
// written before the other goes.
TEST(Saver, RoomForTheBestModelIsCountedBeforeTheFirstStep) {
  const TempDir model;
  auto config =
      nlohmann::json::parse(file_bytes(std::filesystem::path(SLUICE_FIXTURES) / "llama_tiny/config.json"));
  config["vocab_size"] = 300'000;  // far more bytes than what others write to the disk meanwhile
  model.add("config.json", config.dump());
  Training r({"model.config=" + (model / "config.json").string(), "train.optimizer=sgd", "train.momentum=0",
              "train.compute=f32"});
  const auto opened = [&](KeepBest best, int64_t checkpoints) {
    r.saves.warnings.clear();
    return r.open({1, 0, {checkpoints - 1, 0}, best}, "store", checkpoints);
  };
  int64_t some = 1, many = int64_t{1} << 40;
  must(opened(KeepBest::Off, some));
  while (many - some > 1) {
    const int64_t middle = some + (many - some) / 2;
    (opened(KeepBest::Off, middle).ok() ? some : many) = middle;
  }
  ASSERT_GT(some, 8);
  must(opened(KeepBest::On, some - 6));
  const auto refused = opened(KeepBest::On, some);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.message().find(" and the best model (run.keep_best), "), std::string::npos)
      << refused.message();
  must(opened(KeepBest::Auto, some - 6));
  EXPECT_TRUE(r.saves.warnings.empty()) << r.saves.warnings.front();
  must(opened(KeepBest::Auto, some));
  ASSERT_EQ(r.saves.warnings.size(), 1u);
  EXPECT_NE(r.saves.warnings[0].find("the model with the lowest held-out loss is not kept"),
            std::string::npos)
      << r.saves.warnings[0];
}

}  // namespace
}  // namespace sluice::core
