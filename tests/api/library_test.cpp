// SPDX-License-Identifier: Apache-2.0
// The public headers: what a program that holds models, plans and sessions relies on.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <vector>

#include "api/rig.h"

namespace sluice {
namespace {

using namespace api_rig;

TEST(Models, SayWhatTheyAre) {
  const Model model = tiny();
  EXPECT_EQ(model.family(), "llama");
  EXPECT_EQ(model.vocabulary(), 256);
  EXPECT_EQ(model.layers(), 2);
  EXPECT_EQ(model.width(), 32);
  EXPECT_TRUE(model.notices().empty());
  const auto part = Model::from_config(R"({"model_type": "qwen3", "hidden_size": 1024})");
  ASSERT_TRUE(part.ok()) << part.message();
  ASSERT_EQ(part->notices().size(), 1u);
  EXPECT_NE(part->notices()[0].find("leaves sizes out"), std::string::npos) << part->notices()[0];
  const auto again = Model::from_config(model.config());
  ASSERT_TRUE(again.ok()) << again.message();
  EXPECT_EQ(again->parameters(), model.parameters());
  EXPECT_EQ(Model::preset("llama3-8b")->parameters(), 8'030'261'248);
}

TEST(Models, RefuseWhatTheyAreNot) {
  expect_error(Model::preset("llama9").error(), ErrorKind::Invalid, "llama3-8b");
  expect_error(Model::from_config("{").error(), ErrorKind::Invalid, "");
  expect_error(Model::from_pretrained("/nonexistent").error(), ErrorKind::NotFound, "/nonexistent");
}

TEST(Machines, ArePresetsOrThisOne) {
  const auto card = Machine::preset("rtx4090");
  ASSERT_TRUE(card.ok()) << card.message();
  EXPECT_FALSE(card->runs_models());
  EXPECT_TRUE(here().runs_models());
  EXPECT_FALSE(Machine::presets().empty());
  expect_error(Machine::preset("abacus").error(), ErrorKind::Invalid, "h200");
}

TEST(Machines, MayBeSeveralDevices) {
  const auto two = Machine::preset("h100", 2);
  ASSERT_TRUE(two.ok()) << two.message();
  EXPECT_EQ(two->devices(), 2);
  expect_error(Machine::preset("h100", 65).error(), ErrorKind::Invalid, "from 1 to 64");
  const auto alone = plan(tiny(), small_step(), {}, *Machine::preset("h100"));
  const auto both = plan(tiny(), small_step(), {}, *two);
  ASSERT_TRUE(both.ok()) << both.message();
  EXPECT_LT(both->device_bytes(), alone->device_bytes());
  MachineOptions options;
  options.backend = "cpu";
  options.devices = "0,0";
  expect_error(Machine::here(options).error(), ErrorKind::Invalid, "run.devices = 0,0");
}

TEST(Plans, AreValues) {
  const auto first = plan(tiny(), small_step(), {}, *Machine::preset("rtx4090"));
  ASSERT_TRUE(first.ok()) << first.message();
  EXPECT_GT(first->step_seconds(), 0);
  EXPECT_EQ(first->tokens_per_step(), 64);
  EXPECT_NE(first->text().find("parameters"), std::string::npos);
  EXPECT_NE(first->html().find("</html>"), std::string::npos);
  StepOptions twice = small_step();
  twice.tokens_per_step = 128;
  const auto second = plan(tiny(), twice, {}, *Machine::preset("rtx4090"));
  ASSERT_TRUE(second.ok()) << second.message();
  EXPECT_GT(second->tokens_per_second(), first->tokens_per_second());
  const auto diff = Plan::diff(first->json(), second->json());
  ASSERT_TRUE(diff.ok()) << diff.message();
  EXPECT_FALSE(diff->empty());
  expect_error(Plan::diff("{}", second->json()).error(), ErrorKind::Invalid, "");
}

TEST(Plans, AreSavedWithTheirModel) {
  const TempDir dir;
  const auto made = plan(tiny(), small_step(), {}, *Machine::preset("rtx4090"));
  ASSERT_TRUE(made.ok()) << made.message();
  const Status saved = made->save(dir / "run");
  ASSERT_TRUE(saved.ok()) << saved.message();
  for (const char* file : {"config.toml", "model.json", "plan.txt", "plan.json", "timeline.svg"})
    EXPECT_TRUE(std::filesystem::exists(dir / "run" / file)) << file;
}

TEST(Plans, RefuseOptionsByName) {
  const Machine machine = *Machine::preset("rtx4090");
  const auto refused = [&](auto change, std::string_view part) {
    StepOptions options = small_step();
    change(options);
    const auto made = plan(tiny(), options, {}, machine);
    ASSERT_FALSE(made.ok()) << part;
    expect_error(made.error(), ErrorKind::Invalid, part);
  };
  refused([](StepOptions& o) { o.seq_len = 1; }, "seq_len = 1");
  refused([](StepOptions& o) { o.tokens_per_step = 65; }, "tokens_per_step = 65");
  refused([](StepOptions& o) { o.optimizer = "adamm"; }, "optimizer = adamm");
  refused([](StepOptions& o) { o.hyperparameters["beta3"] = 0; }, "beta3");
  refused([](StepOptions& o) { o.hyperparameters["beta1"] = 1.5; }, "beta1");
  refused([](StepOptions& o) { o.clip_norm = -1; }, "clip_norm = -1");
  refused([](StepOptions& o) { o.sample_window = 17; }, "sample_window = 17");
  refused([](StepOptions& o) { o.sample_window = 16, o.sample_rows = 0; }, "sample_rows = 0");
  refused([](StepOptions& o) { o.sample_rows = 2; }, "sample_rows = 2: nothing is sampled");
  refused([](StepOptions& o) { o.settings = {"train.clip_norm=-1"}; }, "train.clip_norm = -1");
  refused([](StepOptions& o) { o.settings = {"train.steps=5"}; }, "train.steps: this is no option here");
  refused([](StepOptions& o) { o.settings = {"train.clipnorm=1"}; }, "'train.clip_norm'");
  Caps caps;
  caps.host_bytes = 0;
  expect_error(plan(tiny(), small_step(), caps, machine).error(), ErrorKind::Invalid, "host_bytes = 0");
  caps.host_bytes = {};
  caps.device_bytes = 1000;
  const auto tight = plan(tiny(), small_step(), caps, machine);
  ASSERT_FALSE(tight.ok());
  expect_error(tight.error(), ErrorKind::DoesNotFit, "device");
  ASSERT_TRUE(tight.error().shortage);
  EXPECT_EQ(tight.error().shortage->tier, "device");
  EXPECT_EQ(tight.error().shortage->given_bytes, 1000);
}

TEST(Sessions, LearnFromBatchesOfTheCaller) {
  Running r;
  const Rows rows(64);
  for (int i = 0; i < 5; ++i) {
    const auto stepped = r.session.step(rows.batch(), 1e-2);
    ASSERT_TRUE(stepped.ok()) << stepped.message();
    EXPECT_EQ(stepped->step, i + 1);
    EXPECT_EQ(stepped->learning_rate, 1e-2);
  }
  ASSERT_EQ(r.recorder.losses.size(), 5u);
  EXPECT_LT(r.recorder.losses.back(), r.recorder.losses.front() - 0.5);
  EXPECT_GT(r.session.memory().peak_host_bytes, 0);
}

TEST(Sessions, HaveEqualBitsUnderAnyCap) {
  Running whole;
  Caps tight;
  tight.device_bytes = whole.plan.device_bytes() * 2 / 3;
  StepOptions options = small_step();
  Running squeezed(options, tight);
  EXPECT_LE(squeezed.plan.device_bytes(), *tight.device_bytes);
  for (int i = 0; i < 3; ++i) {
    (void)whole.session.step(Rows(64, i).batch(), 1e-2);
    (void)squeezed.session.step(Rows(64, i).batch(), 1e-2);
  }
  EXPECT_EQ(whole.recorder.losses, squeezed.recorder.losses);
}

TEST(Sessions, GoOnFromWhatTheySaved) {
  const TempDir dir;
  Running first;
  for (int i = 0; i < 4; ++i) {
    if (i == 2) {
      ASSERT_TRUE(first.session.save_state(dir / "saved").ok());
    }
    (void)first.session.step(Rows(64, i).batch(), 1e-2);
  }
  ASSERT_EQ(first.recorder.saves, std::vector{dir / "saved"});
  Running second;
  const Status restored = second.session.load_state(dir / "saved");
  ASSERT_TRUE(restored.ok()) << restored.message();
  EXPECT_EQ(second.session.steps_done(), 2);
  for (int i = 2; i < 4; ++i) (void)second.session.step(Rows(64, i).batch(), 1e-2);
  EXPECT_EQ(second.recorder.losses,
            std::vector(first.recorder.losses.begin() + 2, first.recorder.losses.end()));

  StepOptions other = small_step();
  other.seed = 2;
  Running third(other);
  expect_error(third.session.load_state(dir / "saved").error(), ErrorKind::Invalid, "train.seed");
}

// A bit of a tensor is seen once others have been read.
TEST(Sessions, AreWithoutAStateAfterALoadThatFailed) {
  const TempDir dir;
  for (const bool deferred : {false, true}) {
    StepOptions options = small_step();
    options.deferred_updates = deferred;
    options.sample_window = 16;
    Running r(options);
    const std::filesystem::path good = dir / (deferred ? "good" : "good, too"),
                                bad = dir / (deferred ? "bad" : "bad, too");
    ASSERT_TRUE(r.session.step(Rows(64).batch(), 1e-2).ok());
    ASSERT_TRUE(r.session.save_state(good).ok());
    std::filesystem::copy(good, bad, std::filesystem::copy_options::recursive);
    {
      std::fstream file(bad / "model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(-3, std::ios::end);
      file.put('\x7f');
    }
    ASSERT_TRUE(r.session.step(Rows(64, 1).batch(), 1e-2).ok());
    // What is seen beforehand changes nothing.
    expect_error(r.session.load_state(dir / "none").error(), ErrorKind::NotFound, "none");
    const auto before = r.session.evaluate(Rows(64).batch());
    ASSERT_TRUE(before.ok()) << before.message();
    expect_error(r.session.load_state(bad).error(), ErrorKind::Io, "damaged");
    const auto refused = [](const Error& e) {
      expect_error(e, ErrorKind::Invalid, "the session has no state");
    };
    refused(r.session.step(Rows(64, 2).batch(), 1e-2).error());
    refused(r.session.evaluate(Rows(64).batch()).error());
    refused(r.session.sample(std::vector<int32_t>{1}).error());
    refused(r.session.save_state(dir / "of-none").error());
    refused(r.session.save_weights(dir / "of-none").error());
    refused(r.session.weight("model.norm.weight").error());
    refused(r.session.set_weight("model.norm.weight", std::vector<float>(32, 1.0f)).error());
    EXPECT_FALSE(std::filesystem::exists(dir / "of-none"));
    ASSERT_TRUE(r.session.load_state(good).ok());
    Running other(options);
    ASSERT_TRUE(other.session.load_state(good).ok());
    EXPECT_EQ(r.session.step(Rows(64, 3).batch(), 1e-2)->loss,
              other.session.step(Rows(64, 3).batch(), 1e-2)->loss);
  }
}

TEST(Sessions, StopSamplingWhenAsked) {
  StepOptions options = small_step();
  options.sample_window = 16;
  Running r(options);
  std::stop_source stop;
  stop.request_stop();
  expect_error(r.session.sample(std::vector<int32_t>{1}, {.tokens = 1 << 20}, stop.get_token()).error(),
               ErrorKind::Cancelled, "sample(): stopped after 0 of 1048576 tokens");
  expect_error(r.session.sample(std::vector<int32_t>{1}, {.tokens = int64_t{1} << 40}).error(),
               ErrorKind::Invalid, "tokens = 1099511627776; allowed are numbers from 0 to 16777216");
}

TEST(Sessions, EvaluateAnyNumberOfSequences) {
  Running r;
  const Rows rows(5 * 16);
  const auto whole = r.session.evaluate(rows.batch());
  ASSERT_TRUE(whole.ok()) << whole.message();
  double sum = 0;
  for (size_t row = 0; row < 5; ++row) {
    const auto part = [&](const std::vector<int32_t>& all) { return std::span(all).subspan(row * 16, 16); };
    sum += *r.session.evaluate({part(rows.tokens), part(rows.targets), {}});
  }
  EXPECT_NEAR(*whole, sum / 5, 1e-6);
  EXPECT_EQ(r.recorder.evaluations.size(), 6u);
  EXPECT_EQ(r.session.steps_done(), 0);
}

TEST(Sessions, RefuseBatchesThatDoNotFit) {
  Running r;
  const auto refused = [&](const Rows& rows, std::string_view part) {
    const auto stepped = r.session.step(rows.batch(), 1e-3);
    ASSERT_FALSE(stepped.ok()) << part;
    expect_error(stepped.error(), ErrorKind::Invalid, part);
  };
  refused(Rows(80), "80 tokens; the plan's step has 64");
  refused(Rows(50), "50 tokens; allowed are whole sequences of 16");
  Rows rows(64);
  rows.targets.pop_back();
  refused(rows, "63 targets");
  rows = Rows(64);
  rows.tokens[3] = 256;
  refused(rows, "tokens[3] is 256");
  rows = Rows(64);
  rows.targets[9] = -2;
  refused(rows, "targets[9] is -2");
  rows = Rows(64);
  for (int i = 0; i < 64; ++i) rows.positions.push_back(i % 8);
  refused(rows, "the option packed");
  rows.positions[5] = 3;
  refused(rows, "positions[5] is 3");
  expect_error(r.session.step(Rows(64).batch(), std::numeric_limits<double>::quiet_NaN()).error(),
               ErrorKind::Invalid, "learning_rate");
  EXPECT_EQ(r.session.steps_done(), 0);
  expect_error(r.session.evaluate(Rows(17).batch()).error(), ErrorKind::Invalid, "17 tokens");
  expect_error(r.session.sample(Rows(2).tokens).error(), ErrorKind::Invalid, "sample_window");
}

TEST(Sessions, TakeDocumentsInsideSequencesWhenPlannedSo) {
  StepOptions options = small_step();
  options.packed = true;
  Running r(options);
  Rows rows(64);
  for (int i = 0; i < 64; ++i) rows.positions.push_back(i % 8);
  const auto stepped = r.session.step(rows.batch(), 1e-3);
  EXPECT_TRUE(stepped.ok()) << stepped.message();
}

TEST(Sessions, TrainOnADatasetUntilAskedToStop) {
  const TempDir dir;
  std::ofstream text(dir / "text.txt");
  for (int i = 0; i < 400; ++i) text << "line " << i << " of a text to learn\n";
  text.close();
  Running r;
  TextOptions options;
  options.paths = {dir / "text.txt"};
  options.cache = dir / "cache";
  const auto data = Dataset::text(r.plan, options);
  ASSERT_TRUE(data.ok()) << data.message();
  EXPECT_TRUE(data->has_heldout());
  EXPECT_TRUE(data->notices().empty());
  Schedule schedule;
  schedule.steps = 6;
  schedule.warmup_steps = 2;
  schedule.evaluate_every = 2;
  schedule.evaluate_rows = 4;
  schedule.checkpoint_every = 3;
  std::stop_source stop;
  r.recorder.after_step = [&] {
    if (r.recorder.losses.size() == 4) stop.request_stop();
  };
  ASSERT_TRUE(r.session.train(*data, schedule, dir.path(), stop.get_token()).ok());
  EXPECT_EQ(r.session.steps_done(), 4);
  ASSERT_TRUE(r.session.train(*data, schedule, dir.path()).ok());
  EXPECT_EQ(r.session.steps_done(), 6);
  // Whoever asks to stop does not wait for the evaluation after step 4; the run that goes on makes it first.
  EXPECT_EQ(r.recorder.evaluations.size(), 3u);
  EXPECT_EQ(r.recorder.saves, (std::vector{dir / "step-3", dir / "step-6"}));
}

TEST(Sessions, SampleTheSameForOneSeed) {
  StepOptions options = small_step();
  options.sample_window = 16;
  Running r(options);
  const std::vector<int32_t> prompt{1, 2, 3};
  const auto first = r.session.sample(prompt, {20, 0.9, 7});
  ASSERT_TRUE(first.ok()) << first.message();
  EXPECT_EQ(first->tokens.size(), 20u);
  EXPECT_EQ(first->tokens, r.session.sample(prompt, {20, 0.9, 7})->tokens);
  EXPECT_NE(first->tokens, r.session.sample(prompt, {20, 0.9, 8})->tokens);
  expect_error(r.session.sample({}, {}).error(), ErrorKind::Invalid, "empty");
  expect_error(r.session.sample(std::vector<int32_t>{300}, {}).error(), ErrorKind::Invalid, "300");
}

// Samples of several prompts: the same tokens for any number of rows and under a cap, after steps that leave
// an update pending; log p is what forward() says of them.
TEST(Sessions, SampleManyTheSameForAllRowsAndCaps) {
  const std::vector<std::vector<int32_t>> prompts{{1, 2, 3}, {9, 8, 7, 6, 5, 4, 3, 2}, {200}};
  std::vector<std::vector<int32_t>> expected;
  for (const auto& [rows, capped] : {std::pair{2, false}, {20, false}, {20, true}}) {
    StepOptions options = small_step();
    options.sample_window = 16;
    options.sample_rows = rows;
    const auto free = plan(tiny(), options, {}, here());
    ASSERT_TRUE(free.ok()) << free.message();
    const auto small = free->under({free->device_bytes() * 3 / 4, {}});
    ASSERT_TRUE(small.ok()) << small.message();
    auto session = Session::open(capped ? *small : *free);
    ASSERT_TRUE(session.ok()) << session.message();
    for (int step = 0; step < 2; ++step) ASSERT_TRUE(session->step(Rows(64, step).batch(), 1e-2).ok());
    const auto drawn = session->sample_many(prompts, 4, {.tokens = 8, .temperature = 1, .seed = 5});
    ASSERT_TRUE(drawn.ok()) << drawn.message();
    ASSERT_EQ(drawn->size(), 3u);
    std::vector<std::vector<int32_t>> tokens;
    for (size_t p = 0; p < prompts.size(); ++p) {
      ASSERT_EQ((*drawn)[p].size(), 4u);
      for (const Sample& sample : (*drawn)[p]) {
        EXPECT_EQ(sample.finish, "length");
        EXPECT_EQ(sample.log_probabilities, sample.drawn_log_probabilities);
        tokens.push_back(sample.tokens);
        Rows rows_of(16);
        std::ranges::fill(rows_of.targets, -1);
        std::vector<int32_t> text = prompts[p];
        text.insert(text.end(), sample.tokens.begin(), sample.tokens.end());
        std::copy(text.begin(), text.end(), rows_of.tokens.begin());
        for (size_t i = prompts[p].size(); i < text.size(); ++i) rows_of.targets[i - 1] = text[i];
        const auto log_p = session->forward(rows_of.batch());
        ASSERT_TRUE(log_p.ok()) << log_p.message();
        for (size_t i = 0; i < sample.tokens.size(); ++i)
          EXPECT_NEAR(sample.log_probabilities[i], (*log_p)[prompts[p].size() - 1 + i], 1e-4);
      }
    }
    EXPECT_NE(tokens[0], tokens[1]);
    if (expected.empty()) expected = tokens;
    EXPECT_EQ(tokens, expected) << rows << " rows";
    // What is sampled beside another plan of the same step is the same.
    if (capped || rows < 20) continue;
    EXPECT_NE(small->text().find("20 texts at once of up to 16 tokens"), std::string::npos) << small->text();
    ASSERT_TRUE(session->adopt(*small).ok());
    const auto again = session->sample_many(prompts, 4, {.tokens = 8, .temperature = 1, .seed = 5});
    ASSERT_TRUE(again.ok()) << again.message();
    for (size_t i = 0; i < tokens.size(); ++i) EXPECT_EQ((*again)[i / 4][i % 4].tokens, tokens[i]) << i;
  }
}

// Pearson's statistic of 4,000 first tokens against the probabilities that they are said to have, with a
// fixed seed. With k cells it has mean k - 1 and variance 2 (k - 1).
TEST(Sessions, SampledFrequenciesAreTheProbabilities) {
  StepOptions options = small_step();
  options.sample_window = 16;
  options.sample_rows = 64;
  Running r(options);
  const std::vector<std::vector<int32_t>> prompts{{1, 2, 3}};
  constexpr int64_t kSamples = 4000;
  for (const double temperature : {1.0, 0.5}) {
    const auto drawn =
        r.session.sample_many(prompts, kSamples, {.tokens = 1, .temperature = temperature, .seed = 11});
    ASSERT_TRUE(drawn.ok()) << drawn.message();
    std::map<int32_t, std::pair<int64_t, double>> cells;  // how often, and how likely
    for (const Sample& sample : drawn->front()) {
      auto& [count, p] = cells[sample.tokens.at(0)];
      ++count, p = std::exp(double{sample.drawn_log_probabilities.at(0)});
    }
    double statistic = 0, others_p = 1;
    int64_t others = kSamples;
    int cell_count = 1;
    for (const auto& [token, cell] : cells) {
      const auto& [count, p] = cell;
      if (kSamples * p < 10) continue;
      statistic += std::pow(double(count) - kSamples * p, 2) / (kSamples * p);
      others -= count, others_p -= p, ++cell_count;
    }
    if (others_p * kSamples > 1)
      statistic += std::pow(double(others) - kSamples * others_p, 2) / (kSamples * others_p);
    const double freedom = cell_count - 1;
    ASSERT_GT(freedom, 20);
    EXPECT_NEAR(statistic, freedom, 4 * std::sqrt(2 * freedom)) << temperature;
  }
}

// A stop token is part of its sample, a string and what is behind it no part of its text, and the row goes to
// the next sample.
TEST(Sessions, SamplesEndOneByOne) {
  StepOptions options = small_step();
  options.sample_window = 16;
  options.sample_rows = 3;
  Running r(options);
  const std::vector<std::vector<int32_t>> prompts{{1, 2, 3}, {4}};
  SampleOptions rule{.tokens = 10, .temperature = 1, .seed = 2};
  rule.text = true;
  const auto whole = r.session.sample_many(prompts, 5, rule);
  ASSERT_TRUE(whole.ok()) << whole.message();
  const Sample& one = (*whole)[1][2];
  rule.stop_tokens = {one.tokens[4]};
  rule.stop = {(*whole)[0][3].text.substr((*whole)[0][3].text.size() / 2)};
  const auto cut = r.session.sample_many(prompts, 5, rule);
  ASSERT_TRUE(cut.ok()) << cut.message();
  EXPECT_EQ((*cut)[1][2].finish, "stop");
  for (size_t p = 0; p < 2; ++p) {
    for (size_t i = 0; i < 5; ++i) {
      const Sample &now = (*cut)[p][i], &before = (*whole)[p][i];
      EXPECT_EQ(before.finish, "length");
      const auto at = std::ranges::find(before.tokens, rule.stop_tokens[0]);
      if (p == 0 && i == 3) {
        EXPECT_EQ(now.text, before.text.substr(0, before.text.find(rule.stop[0])));
        continue;
      }
      if (now.finish == "length") {
        EXPECT_EQ(at, before.tokens.end());
        EXPECT_EQ(now.tokens, before.tokens);
      } else if (now.tokens.back() == rule.stop_tokens[0]) {
        EXPECT_EQ(now.tokens, std::vector<int32_t>(before.tokens.begin(), at + 1));
      }
    }
  }
  const auto error_of = [&](int64_t n, SampleOptions o) {
    return r.session.sample_many(prompts, n, o).error();
  };
  expect_error(error_of(0, {}), ErrorKind::Invalid, "samples = 0");
  expect_error(error_of(1, {.tokens = 0}), ErrorKind::Invalid, "tokens = 0");
  expect_error(error_of(1, {.tokens = 15}), ErrorKind::Invalid,
               "prompts[0]: its 3 tokens and tokens = 15 take a window of 17, and sample_window is 16");
}

TEST(Sessions, NeedAMachineThatIsHere) {
  const auto made = plan(tiny(), small_step(), {}, *Machine::preset("rtx4090"));
  ASSERT_TRUE(made.ok()) << made.message();
  expect_error(Session::open(*made).error(), ErrorKind::Invalid, "simulated");
}

TEST(Sessions, DatasetsSayWhatWasNoticed) {
  const TempDir dir;
  const std::string line = R"({"text": "USER: q\nASSISTANT: a"})"
                           "\n";
  dir.add("a.jsonl", line + line);
  Running r;
  TextOptions options;
  options.paths = {dir / "a.jsonl"};
  options.cache = dir / "cache";
  options.heldout = 0;
  const auto data = Dataset::text(r.plan, options);
  ASSERT_TRUE(data.ok()) << data.message();
  ASSERT_EQ(data->notices().size(), 1u);
  EXPECT_NE(data->notices().front().find("rendered elsewhere: a.jsonl:1"), std::string::npos)
      << data->notices().front();
}

TEST(Sessions, RefuseAScheduleThatRises) {
  const TempDir dir;
  std::ofstream(dir / "text.txt") << std::string(4000, 'a');
  Running r;
  TextOptions options;
  options.paths = {dir / "text.txt"};
  options.cache = dir / "cache";
  const auto data = Dataset::text(r.plan, options);
  ASSERT_TRUE(data.ok()) << data.message();
  Schedule schedule;
  schedule.learning_rate = 1e-5;
  schedule.min_learning_rate = 1e-4;
  const auto trained = r.session.train(*data, schedule, {});
  ASSERT_FALSE(trained.ok());
  expect_error(trained.error(), ErrorKind::Invalid,
               "min_learning_rate = 0.0001: must be at most learning_rate = 1e-05");
  EXPECT_EQ(r.session.steps_done(), 0);
}

TEST(Schedules, WarmUpAndComeDownOnACosine) {
  Schedule s;
  s.steps = 110;
  s.warmup_steps = 10;
  s.learning_rate = 1;
  s.min_learning_rate = 0.1;
  EXPECT_DOUBLE_EQ(s.rate_at(1), 0.1);
  EXPECT_DOUBLE_EQ(s.rate_at(10), 1);
  EXPECT_DOUBLE_EQ(s.rate_at(60), 0.55);
  EXPECT_DOUBLE_EQ(s.rate_at(110), 0.1);
}

// Whatever is known already: an answer never depends on when somebody asked.
TEST(Plans, AreNotMadeWhenAskedToStop) {
  struct Stopping : Observer {
    std::stop_source stop;
    int told = 0;
    void progress(const Progress&) override {
      ++told;
      stop.request_stop();
    }
  };
  ASSERT_TRUE(plan(tiny(), small_step(), {}, here()).ok());
  Stopping stopping;
  const auto stopped = plan(tiny(), small_step(), {}, here(), stopping, stopping.stop.get_token());
  ASSERT_FALSE(stopped.ok());
  expect_error(stopped.error(), ErrorKind::Cancelled, "asked to stop");
  EXPECT_EQ(stopping.told, 1) << "it went on";
}

}  // namespace
}  // namespace sluice
