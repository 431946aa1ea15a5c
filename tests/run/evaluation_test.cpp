// SPDX-License-Identifier: Apache-2.0
// What the held-out loss is, and what follows from it.
#include "run/loaded/evaluation.h"

#include <fmt/format.h>

#include <cmath>
#include <map>

#include "config/files/load_config.h"
#include "run/small_session.h"
#include "run/training/training.h"

namespace sluice::core {
namespace {

// A run on seven held-out rows and a bit: 119 bytes of one file.
class HeldOut : public testing::Test {
 protected:
  HeldOut() {
    std::string text;
    for (int i = 0; i < 90; ++i) text += fmt::format("line {} of the text. ", i * i);
    dir_.add("a.txt", text);
    dir_.add("b.txt", text.substr(700, 119));
  }
  Prepared prepare(std::vector<std::string> more = {}) const {
    std::vector<std::string> settings{"model.preset=tiny",
                                      "model.config=" + (dir_ / "config.json").string(),
                                      "data.paths=[\"" + (dir_ / "a.txt").string() + "\"]",
                                      "data.heldout_paths=[\"" + (dir_ / "b.txt").string() + "\"]",
                                      "data.cache=" + (dir_ / "cache").string(),
                                      "run.dir=" + (dir_ / "run").string(),
                                      "train.seq_len=16",
                                      "train.tokens_per_step=128",
                                      "train.steps=12",
                                      "train.learning_rate=1e-2",
                                      "train.compute=f32",
                                      "sample.tokens=0",
                                      "run.backend=cpu",
                                      "run.threads=1"};
    settings.insert(settings.end(), more.begin(), more.end());
    return must(sluice::core::prepare(must(load_config("", settings)), "", true));
  }
  Evaluation evaluate(const std::vector<std::string>& more) const {
    const Prepared prepared = prepare(more);
    return must(must(Session::open(prepared))->evaluate());
  }
  TempDir dir_;

 private:
  void SetUp() override {
    dir_.add("config.json", R"({"hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 48,
        "vocab_size": 256, "num_attention_heads": 4, "num_key_value_heads": 2})");
  }
};

// It was 16 rows of the seven that there were: some three times, some twice.
TEST_F(HeldOut, IsTheMeanOverEveryRowOnce) {
  const Evaluation all = evaluate({"eval.rows=16"}), some = evaluate({"eval.rows=5"});
  EXPECT_EQ(all.rows.size(), 8u);
  EXPECT_EQ(all.total().targets, 118) << "each but the first token";
  EXPECT_EQ(some.rows.size(), 5u);
  EXPECT_TRUE(std::equal(some.rows.begin(), some.rows.end(), all.rows.begin()));
  double loss = 0;
  for (const RowLoss& row : all.rows) loss += row.loss;
  EXPECT_EQ(all.loss(), loss / 118);
  EXPECT_EQ(evaluate({"eval.rows=8"}).loss(), all.loss());
}

// It was over whole chunks: 5 and 7 rows were the same number at chunks of 8.
TEST_F(HeldOut, DoesNotDependOnTheShape) {
  const Evaluation first = evaluate({"eval.rows=5", "shape.chunk_tokens=16"});
  for (const char* chunk : {"4", "64"}) {
    const Evaluation other = evaluate({"eval.rows=5", std::string("shape.chunk_tokens=") + chunk});
    ASSERT_EQ(other.rows.size(), 5u);
    EXPECT_EQ(other.total().targets, first.total().targets);
    EXPECT_EQ(other.total().hits, first.total().hits);
    EXPECT_NEAR(other.loss(), first.loss(), 1e-6 * first.loss()) << chunk;
  }
}

TEST_F(HeldOut, HasTheSameBitsUnderEveryCap) {
  const std::vector<std::string> shape{"shape.chunk_tokens=32", "shape.rounds=2", "shape.head_tokens=16"};
  const auto under = [&](const char* device) {
    std::vector<std::string> settings = shape;
    settings.push_back(std::string("memory.device=") + device);
    return evaluate(settings).rows;
  };
  const std::vector<RowLoss> free = under("none");
  for (const char* device : {"400KiB", "250KiB"}) EXPECT_EQ(under(device), free) << device;
}

// A machine whose weights take long to come. Its other costs are no measured ones, which depend on what runs
// beside.
Profile with_slow_loads(Profile profile) {
  profile.measured_ns.clear();
  profile.copy_slowdown = 0.5;
  profile.set_bytes_per_s(1e10);
  profile.set_bytes_per_s(kHost, kDevice, 1e7);
  return profile;
}

// Where weights take longer to come than to compute with, a pass brings them once for several chunks, and the
// rows that are left are taken chunk by chunk.
TEST_F(HeldOut, IsTheSameInLongPasses) {
  Prepared prepared = prepare({"shape.chunk_tokens=32", "eval.rows=8", "memory.device=190KiB"});
  const std::vector<RowLoss> expected = must(must(Session::open(prepared))->evaluate()).rows;
  const Profile slow = with_slow_loads(prepared.machine.profile);
  Question request{{prepared.model, prepared.numerics, prepared.optimizer}, {}, prepared.shape};
  request.caps = prepared.config.caps;
  request.between.push_back({kEvaluation});
  prepared.stages = must(make_stages(request, slow));
  const Stages& stages = prepared.stages;
  ASSERT_NE(stages.find(kLongEvaluation), nullptr);
  EXPECT_EQ(evaluation_of(stages, 8).model.shape.sequences(), 8);
  EXPECT_EQ(evaluation_of(stages, 7).model.shape.sequences(), 2);
  EXPECT_EQ(must(must(Session::open(prepared))->evaluate()).rows, expected);
  prepared.config.eval.rows = 7;  // which fill no long pass
  const std::vector<RowLoss> seven = must(must(Session::open(prepared))->evaluate()).rows;
  EXPECT_EQ(seven, std::vector(expected.begin(), expected.end() - 1));

  request.caps[kDevice] = kUnlimited;
  EXPECT_EQ(must(make_stages(request, slow)).find(kLongEvaluation), nullptr)
      << "the weights are there already";
}

// A pending update is made with the first long pass, where that saves time: nothing else changes, in this
// evaluation nor in the steps behind it.
TEST_F(HeldOut, IsTheSameWhereTheUpdateIsMadeOnItsWay) {
  Prepared prepared =
      prepare({"shape.chunk_tokens=32", "eval.rows=8", "memory.device=185KiB", "train.deferred_update=on"});
  const auto run = [&] {
    const auto session = must(Session::open(prepared));
    std::vector<double> losses;
    for (int step = 0; step < 6; ++step) {
      losses.push_back(must(session->step()).loss);
      if (step % 2 > 0) losses.push_back(must(session->evaluate()).loss());
      if (step == 3) losses.push_back(must(session->evaluate()).loss());  // nothing is pending
    }
    return losses;
  };
  const Profile slow = with_slow_loads(prepared.machine.profile);
  Question request{{prepared.model, prepared.numerics, prepared.optimizer}, {}, prepared.shape};
  request.caps = prepared.config.caps;
  request.between.push_back({kEvaluation});
  prepared.stages = must(make_stages(request, slow));
  ASSERT_NE(prepared.stages.find(kUpdatingEvaluation), nullptr);
  const std::vector<double> found = run();
  std::erase_if(prepared.stages.beside, [](const Stage& s) { return s.name == kUpdatingEvaluation; });
  EXPECT_EQ(found, run());
  request.caps[kDevice] = kUnlimited;
  EXPECT_EQ(must(make_stages(request, slow)).find(kUpdatingEvaluation), nullptr)
      << "the weights are there already";
}

// The share of right tokens that a step tells is that of the model before it.
TEST_F(HeldOut, StepsFindTheSameTokensRight) {
  const Prepared prepared = prepare({"eval.every=1", "train.deferred_update=off"});
  const auto session = must(Session::open(prepared));
  for (int step = 0; step < 12; ++step) (void)must(session->step());
  const BatchSource& source = *session->data().train;
  const auto all = size_t(prepared.shape.tokens());
  Rows rows(kPlainBatch, int64_t(all));
  fill_rows(source, 0, 0, rows.part(0, rows.tokens()));
  const auto targets = rows.column(BatchColumn::Targets);
  for (size_t t = 0; t < all; t += 3) targets[t] = -1;
  ASSERT_EQ(evaluation_shape(prepared.shape).tokens(), int64_t(all));
  Engine& engine = session->engine();
  const TokenLosses losses = *must(engine.evaluate(rows));
  int64_t right = 0;
  for (size_t t = 0; t < all; ++t) right += targets[t] >= 0 && losses.is_top[t] > 0 ? 1 : 0;
  const StepResult step = must(engine.step(rows, 0));
  EXPECT_EQ(step.hits, right);
  EXPECT_GT(step.hits, 0);
  EXPECT_LT(step.hits, step.targets);
}

TEST_F(HeldOut, TellsThePathsApart) {
  dir_.add("c.txt", std::string(40, 'x'));
  const Evaluation e = evaluate(
      {"data.respect_documents=false", fmt::format("data.heldout_paths=[\"{}\", \"{}\"]",
                                                   (dir_ / "b.txt").string(), (dir_ / "c.txt").string())});
  ASSERT_EQ(e.paths.size(), 2u);
  EXPECT_EQ(e.paths[0].targets, 119) << "by the token that reads, not by the one that is said";
  EXPECT_EQ(e.paths[1].targets, 39);
  EXPECT_NEAR(e.paths[0].loss + e.paths[1].loss, e.total().loss, 1e-9);
}

TEST_F(HeldOut, ATextShorterThanARowIsARow) {
  dir_.add("b.txt", "A short");
  EXPECT_EQ(evaluate({}).total().targets, 6);
  dir_.add("b.txt", "A");
  const Prepared prepared = prepare();
  EXPECT_NE(Session::open(prepared).message().find("1 token in 1 document; a target needs a token before it"),
            std::string::npos)
      << Session::open(prepared).message();
}

// When to evaluate and what to keep is decided beside the run.
TEST_F(HeldOut, EvaluatingChangesNothingOfTheRun) {
  for (const char* deferred : {"off", "on"}) {
    std::vector<std::string> weights;
    for (const char* every : {"0", "1", "auto"}) {
      const Prepared prepared =
          prepare({std::string("eval.every=") + every, std::string("train.deferred_update=") + deferred,
                   "run.keep_best=on"});
      const auto session = must(Session::open(prepared));
      const std::string name = fmt::format("store-{}-{}", deferred, every);
      Saver saver = must(Saver::open(prepared, must(CheckpointStore::open(dir_ / name)),
                                     save_schedule_of(prepared.config), 12, silent_observer()));
      TrainingOptions options;
      options.saver = &saver;
      options.stop = [] { return false; };
      EXPECT_EQ(must(train(*session, silent_observer(), options)), TrainingEnd::Done);
      must(saver.finish(*session));
      weights.push_back(file_bytes(dir_ / name / "latest/model.safetensors") +
                        file_bytes(dir_ / name / "latest/optimizer.safetensors"));
      EXPECT_EQ(weights.back(), weights.front()) << deferred << " " << every;
    }
  }
}

// Products in 8 bits leave no copy behind: a checkpoint has the tensors of a run in bf16, and is evaluated as
// the run was.
TEST_F(HeldOut, IsTheSameFromACheckpointOfARunInEightBits) {
  std::map<std::string, std::vector<RowLoss>> rows;
  std::map<std::string, std::vector<std::string>> tensors;
  for (const std::string compute : {"fp8", "fp8 with the head", "bf16"}) {
    std::vector<std::string> settings{"train.compute=" + compute.substr(0, compute.find(' ')),
                                      "train.steps=3", "train.deferred_update=on"};
    if (compute.ends_with("head"))
      settings.insert(settings.end(), {"train.fp8_head=true", "shape.chunk_tokens=32"});
    const Prepared prepared = prepare(settings);
    const auto session = must(Session::open(prepared));
    Saver saver = must(Saver::open(prepared, must(CheckpointStore::open(dir_ / compute)),
                                   save_schedule_of(prepared.config), 3, silent_observer()));
    TrainingOptions options;
    options.saver = &saver;
    options.stop = [] { return false; };
    EXPECT_EQ(must(train(*session, silent_observer(), options)), TrainingEnd::Done);
    must(saver.finish(*session));
    rows[compute] = must(session->evaluate()).rows;
    const auto latest = latest_checkpoint(dir_ / compute);
    ASSERT_TRUE(latest);
    settings.push_back("run.resume=" + latest->string());
    EXPECT_EQ(evaluate(settings).rows, rows[compute]) << compute;
    const TensorFiles files = must(TensorFiles::open(*latest));
    for (const std::string_view name : files.names()) {
      const SafeTensor& tensor = *must(files.get(name));
      tensors[compute].push_back(
          fmt::format("{} {} {}", name, name_of(tensor.info.type), tensor.bytes.size()));
    }
  }
  EXPECT_NE(rows["fp8"], rows["bf16"]);
  EXPECT_NE(rows["fp8"], rows["fp8 with the head"]);
  EXPECT_EQ(tensors["fp8 with the head"], tensors["bf16"]);
  EXPECT_EQ(tensors["fp8"], tensors["bf16"]);
}

// Whoever asks to stop does not wait for an evaluation: the run that goes on makes it before its first step.
TEST_F(HeldOut, WhatWasNotWaitedForIsEvaluatedWhenTheRunGoesOn) {
  struct Seen : Observer {
    void stepped(const StepEvent& e) override { asked = asked || e.step == stop_at; }
    void evaluated(const EvaluationEvent& e) override { losses.emplace_back(e.step, e.loss); }
    std::vector<std::pair<int64_t, double>> losses;
    int64_t stop_at = 0;
    bool asked = false;
  };
  const auto run = [&](const std::string& store, int64_t stop_at, Seen& seen) {
    std::vector<std::string> settings{"eval.every=2", "train.steps=4"};
    if (const auto latest = latest_checkpoint(dir_ / store))
      settings.push_back("run.resume=" + latest->string());
    const Prepared prepared = prepare(settings);
    const auto session = must(Session::open(prepared));
    Saver saver = must(Saver::open(prepared, must(CheckpointStore::open(dir_ / store)), {}, 4, seen));
    TrainingOptions options;
    options.saver = &saver;
    options.stop = [&] { return seen.asked; };
    seen.asked = false;
    seen.stop_at = stop_at;
    (void)must(train(*session, seen, options));
    must(saver.finish(*session));
    return session->engine().heldout();
  };
  Seen whole, stopped;
  const HeldoutRecord expected = run("whole", 0, whole);
  (void)run("stopped", 2, stopped);
  EXPECT_TRUE(stopped.losses.empty());
  EXPECT_EQ(run("stopped", 0, stopped), expected);
  EXPECT_EQ(stopped.losses, whole.losses);
}

double square_of(double x) {
  return x * x;
}

// Steps are said to take as long as the test likes.
TEST_F(HeldOut, KeepingTheBestModelTakesNoMoreThanItsShare) {
  const Prepared prepared = prepare({"eval.every=1", "run.keep_best=auto"});
  const auto session = must(Session::open(prepared));
  SaveSchedule schedule = save_schedule_of(prepared.config);
  EXPECT_EQ(schedule.best, KeepBest::Auto);
  schedule.minutes = 0;
  const auto kept = [](Saver& saver) { return saver.store().best(); };
  const auto evaluate = [&](Saver& saver, double step_s) {
    (void)must(session->step());
    must(saver.after_step(*session, step_s, false));
    session->engine().heldout().best_step = session->steps_done();
    must(saver.after_evaluation(*session, 1.0 / double(session->steps_done()), 0));
    must(saver.wait());
  };
  // Of a run of a billion steps the first one may come early.
  Saver saver = must(Saver::open(prepared, must(CheckpointStore::open(dir_ / "store")), schedule,
                                 1'000'000'000, silent_observer()));
  evaluate(saver, 1e-9);
  EXPECT_EQ(kept(saver), 1);
  evaluate(saver, 1e-9);
  EXPECT_EQ(kept(saver), 1) << "the run has not lasted long enough for another one";
  evaluate(saver, 1e6);
  EXPECT_EQ(kept(saver), 3);
  schedule.best = KeepBest::On;
  Saver every =
      must(Saver::open(prepared, must(CheckpointStore::open(dir_ / "on")), schedule, 12, silent_observer()));
  for (int64_t step = 4; step <= 6; ++step) {
    evaluate(every, 1e-9);
    EXPECT_EQ(kept(every), step);
  }
  schedule.best = KeepBest::Off;
  Saver none =
      must(Saver::open(prepared, must(CheckpointStore::open(dir_ / "off")), schedule, 12, silent_observer()));
  evaluate(none, 1e6);
  EXPECT_EQ(kept(none), std::nullopt);
}

// It is there at once, in place of the one before, also where the run was stopped just after the save.
TEST_F(HeldOut, TheBestModelOfASavedStepSharesItsFiles) {
  const Prepared prepared = prepare({"eval.every=1", "run.keep_best=on"});
  const auto session = must(Session::open(prepared));
  const auto open = [&] {
    return must(Saver::open(prepared, must(CheckpointStore::open(dir_ / "store")),
                            save_schedule_of(prepared.config), 12, silent_observer()));
  };
  const auto expect_shared = [&](const Saver& saver, int64_t step) {
    EXPECT_EQ(saver.store().best(), step);
    for (const char* file : {"model.safetensors", "config.json"}) {
      EXPECT_TRUE(
          std::filesystem::equivalent(saver.store().best_at(step) / file, saver.store().at(step) / file))
          << file;
    }
  };
  const auto save_step = [&](Saver& saver) {
    (void)must(session->step());
    session->engine().heldout().best_step = session->steps_done();
    must(saver.after_step(*session, 1, /*asked=*/true));
  };
  {
    Saver saver = open();
    save_step(saver);
    must(saver.after_evaluation(*session, 5, 0));
    must(saver.wait());
    expect_shared(saver, 1);
    save_step(saver);
    must(saver.wait());
    EXPECT_EQ(saver.store().best(), 1);
  }
  expect_shared(open(), 2);
}

// A model that was too dear to save when it was best is lost; the last one, which is saved anyway, is better
// than the one that is kept.
TEST_F(HeldOut, TheLastModelIsKeptWhereItIsBetterThanTheKeptOne) {
  const Prepared prepared = prepare({"eval.every=1", "run.checkpoint_minutes=0"});
  const auto open = [&](int64_t last_step) {
    return must(Saver::open(prepared, must(CheckpointStore::open(dir_ / "store")),
                            save_schedule_of(prepared.config), last_step, silent_observer()));
  };
  const auto session = must(Session::open(prepared));
  HeldoutRecord& record = session->engine().heldout();
  const auto evaluate = [&](Saver& saver, double loss, double step_s) {
    (void)must(session->step());
    must(saver.after_step(*session, step_s, false));
    const int64_t step = record.last_step = session->steps_done();
    if (record.best_step < 0 || loss < record.best_loss) record.best_step = step, record.best_loss = loss;
    must(saver.after_evaluation(*session, loss, 0));
    must(saver.wait());
  };
  {
    Saver saver = open(1'000'000'000);
    evaluate(saver, 5, 1e-9);
    EXPECT_EQ(saver.best().step, 1);
    evaluate(saver, 3, 1e-9);
    evaluate(saver, 4, 1e-9);
    EXPECT_EQ(saver.best().step, 1);
    must(saver.finish(*session));
    EXPECT_EQ(saver.best().step, 3);
    EXPECT_EQ(saver.best().loss, 4);
    EXPECT_EQ(saver.best().missed_step, 2);
    EXPECT_GT(saver.best().missed_share, Saver::kMostShare);
    EXPECT_TRUE(std::filesystem::equivalent(saver.store().best_at(3) / "model.safetensors",
                                            saver.store().at(3) / "model.safetensors"));
    EXPECT_EQ(must(read_checkpoint_info(saver.store().at(3))).heldout, record) << "that is the run's";
  }
  // Whoever goes on compares with the kept one's own loss.
  Saver next = open(5);
  EXPECT_EQ(next.best().step, 3);
  EXPECT_EQ(next.best().loss, 4);
  evaluate(next, 4.5, 1e6);
  EXPECT_EQ(next.store().best(), 3);
  evaluate(next, 3.5, 1e6);
  must(next.finish(*session));
  EXPECT_EQ(next.store().best(), 5);
}

TEST(Evaluation, ErrorsAreOfRowsAndRisesOfTheirDifferences) {
  Evaluation e;
  e.rows = {{2, 1, 0}, {4, 1, 0}, {6, 1, 0}};
  EXPECT_EQ(e.loss(), 4);
  EXPECT_NEAR(*e.standard_error(), std::sqrt(4.0 / 3), 1e-12);  // s = 2, of three
  // Rows differ by far more than they rise: the rise is sure all the same.
  const std::vector<RowLoss> later{{2.1, 1, 0}, {4.1, 1, 0}, {6.1, 1, 0}};
  EXPECT_NEAR(*standard_error(later, e.rows), 0, 1e-12);
  // Of rows of several targets the longer ones count for more.
  e.rows = {{2, 2, 0}, {8, 4, 0}};
  EXPECT_NEAR(e.loss(), 10.0 / 6, 1e-12);
  EXPECT_NEAR(*e.standard_error(), std::sqrt(2 * (square_of(2 - 20.0 / 6) + square_of(8 - 40.0 / 6))) / 6,
              1e-12);
  e.rows.resize(1);
  EXPECT_FALSE(e.standard_error());
  EXPECT_FALSE(standard_error(later, e.rows));
}

TEST(Evaluation, TheLowestIsKeptAndCounted) {
  HeldoutRecord record;
  const auto judged = [&](int64_t step, double a, double b) {
    Evaluation e;
    e.rows = {{a, 1, 0}, {b, 1, 0}};
    return judge(e, step, record);
  };
  EXPECT_TRUE(judged(0, 4, 5).is_lowest);
  EXPECT_TRUE(judged(2, 3, 4).is_lowest);
  const Judgement same = judged(4, 3.4, 3.7);
  EXPECT_FALSE(same.is_lowest);
  EXPECT_NEAR(same.rise, 0.05, 1e-12);
  EXPECT_GT(*same.rise_error, 0.3) << "one row rose, the other fell";
  const Judgement risen = judged(6, 3.4, 4.5);
  EXPECT_NEAR(risen.rise, 0.45, 1e-12);
  EXPECT_NEAR(*risen.rise_error, 0.05, 1e-12);
  EXPECT_EQ(record.best_step, 2);
  EXPECT_EQ(record.best_loss, 3.5);
  EXPECT_EQ(record.since, 2);
  EXPECT_EQ(record.last_step, 6);
  EXPECT_TRUE(judged(8, 3, 3).is_lowest);
  EXPECT_EQ(record.since, 0);
  EXPECT_FALSE(judged(10, NAN, 3).is_lowest);
  EXPECT_EQ(record.since, 1);
  record = {};
  EXPECT_FALSE(judged(0, INFINITY, 3).is_lowest);
  EXPECT_EQ(record.best_step, -1) << "a checkpoint could not say it";
}

TEST(Evaluation, IsAsOftenAsItsShareAllowsButTenTimes) {
  // 3 % of 1000 s are 30 evaluations of a second, of which two are at the ends.
  const EvaluationInterval cheap = choose_interval(1000, 1, 1);
  EXPECT_EQ(cheap.every, 35);
  EXPECT_EQ(cheap.count, 30);
  EXPECT_LE(cheap.share, kEvaluationShare);
  // At least ten between the ends, whatever they take.
  for (const int64_t steps : {11, 12, 21, 22, 100, 1000, 12345}) {
    const EvaluationInterval dear = choose_interval(steps, 1, 50);
    EXPECT_GE(dear.count, 12) << steps;
    EXPECT_LE(dear.count, 2 + 20) << steps;
  }
  EXPECT_GT(choose_interval(100, 1, 1).share, kEvaluationShare);
  // After every step of a shorter run.
  for (const int64_t steps : {1, 2, 10}) {
    EXPECT_EQ(choose_interval(steps, 1, 50).every, 1);
    EXPECT_EQ(choose_interval(steps, 1, 50).count, steps + 1);
  }
  EXPECT_EQ(choose_interval(50, 1, 0).every, 1);
  EXPECT_EQ(choose_interval(0, 1, 1).every, 1);
}

}  // namespace
}  // namespace sluice::core
