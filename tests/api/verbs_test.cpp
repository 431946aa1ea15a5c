// SPDX-License-Identifier: Apache-2.0
// A loop of one's own: rows queued by any number of calls, and the one step that they run as.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>

#include "api/rig.h"

namespace sluice {
namespace {

using namespace api_rig;

StepOptions every_verb() {
  StepOptions options = small_step();
  options.weighted = options.log_probabilities = true;
  options.sample_window = 16;
  return options;
}

Rows some_rows(int32_t salt = 0) {
  Rows rows(64, salt);
  for (size_t i = 0; i < 64; i += 5) rows.targets[i] = -1;
  return rows;
}

// Sequences [first, first + count).
Batch part(const Rows& rows, size_t first, size_t count) {
  const auto cut = [&](const auto& all) {
    return all.empty() ? std::span(all) : std::span(all).subspan(16 * first, 16 * count);
  };
  return {cut(rows.tokens), cut(rows.targets), cut(rows.positions), cut(rows.weights)};
}

// All weights, to compare bits.
std::vector<float> all_weights(Session& session) {
  std::vector<float> out;
  for (const WeightInfo& w : session.weights()) {
    const auto values = session.weight(w.name);
    EXPECT_TRUE(values.ok()) << values.message();
    out.insert(out.end(), values->begin(), values->end());
  }
  return out;
}

TEST(Verbs, ComeToTheStepHoweverItsRowsAreSplit) {
  Running whole, split(every_verb());
  for (int step = 0; step < 3; ++step) {
    const Rows rows = some_rows(step);
    const auto expected = whole.session.step(rows.batch(), 1e-2);
    for (const auto& [first, count] : {std::pair{0, 1}, {1, 2}, {3, 1}}) {
      const auto queued = split.session.forward_backward(part(rows, size_t(first), size_t(count)));
      ASSERT_TRUE(queued.ok()) << queued.message();
      EXPECT_EQ(split.session.queued_tokens(), 16 * (first + count));
    }
    const auto stepped = split.session.optim_step(1e-2);
    ASSERT_TRUE(stepped.ok()) << stepped.message();
    EXPECT_EQ(stepped->loss, expected->loss);
    EXPECT_EQ(stepped->gradient_norm, expected->gradient_norm);
    EXPECT_EQ(stepped->tokens, 64);
    EXPECT_EQ(split.session.queued_tokens(), 0);
  }
  EXPECT_EQ(all_weights(split.session), all_weights(whole.session));
}

// The loop of Session::train() is that of the command line.
TEST(Verbs, TakeTheStepsThatTrainTakes) {
  Running trained, own;
  const Dataset data = Dataset::random(trained.plan);
  Schedule schedule;
  schedule.steps = 4;
  ASSERT_TRUE(trained.session.train(data, schedule).ok());
  for (int64_t step = 0; step < schedule.steps; ++step) {
    const BatchRows rows = data.batch(step);
    ASSERT_TRUE(own.session.step(rows.batch(), schedule.rate_at(step + 1)).ok());
  }
  ASSERT_EQ(own.recorder.losses.size(), 4u);
  EXPECT_EQ(own.recorder.losses, trained.recorder.losses);
  EXPECT_EQ(all_weights(own.session), all_weights(trained.session));
}

TEST(Verbs, CountNoRowsThatAreMissing) {
  Running few, full;
  Rows rows = some_rows();
  ASSERT_TRUE(few.session.forward_backward(part(rows, 0, 3)).ok());
  std::fill(rows.targets.begin() + 48, rows.targets.end(), -1);
  const auto expected = full.session.step(rows.batch(), 1e-2), stepped = few.session.optim_step(1e-2);
  ASSERT_TRUE(stepped.ok()) << stepped.message();
  EXPECT_EQ(stepped->loss, expected->loss);
  EXPECT_EQ(stepped->gradient_norm, expected->gradient_norm);
  EXPECT_EQ(stepped->tokens, 48);
  EXPECT_EQ(all_weights(few.session), all_weights(full.session));
}

// The evaluation's chunk is the step's: the same sums.
TEST(Verbs, TellLogProbabilitiesWhenTheStepRan) {
  Running r(every_verb());
  const Rows rows = some_rows();
  const auto forward = r.session.forward(rows.batch());
  ASSERT_TRUE(forward.ok()) << forward.message();
  const auto first = r.session.forward_backward(part(rows, 0, 1)),
             rest = r.session.forward_backward(part(rows, 1, 3));
  expect_error(first->log_probabilities().error(), ErrorKind::Invalid, "wait for optim_step()");
  const auto stepped = r.session.optim_step(1e-2);
  ASSERT_TRUE(stepped.ok()) << stepped.message();
  std::vector<float> all = *first->log_probabilities();
  const auto others = *rest->log_probabilities();
  all.insert(all.end(), others.begin(), others.end());
  EXPECT_EQ(all, *forward);
  double sum = 0;
  for (size_t i = 0; i < 64; ++i) {
    EXPECT_EQ(all[i] == 0, rows.targets[i] < 0) << i;
    sum -= double{all[i]};
  }
  EXPECT_NEAR(sum / double(stepped->learnt_tokens), stepped->loss, 1e-6);
  EXPECT_NEAR(stepped->loss, *Running().session.evaluate(rows.batch()), 1e-6);
}

// Of the mean loss, seeds are -1 / targets: weights turned round, under a scale of 1.
TEST(Verbs, TakeTheSeedsOfAnyLoss) {
  Running built_in(every_verb()), own(every_verb());
  Rows rows = some_rows();
  // As many targets as a power of two: then the scale is exact, and so are all bits.
  std::ranges::fill(rows.targets, -1);
  for (size_t i = 0; i < 64; i += 2) rows.targets[i] = int32_t(3 * i);
  const auto expected = built_in.session.step(rows.batch(), 1e-2);
  Batch batch = rows.batch();
  const std::vector<float> seeds(64, -1.0f / 32);
  batch.seeds = seeds;
  const auto log_probs = *own.session.forward(rows.batch());
  ASSERT_TRUE(own.session.forward_backward(batch).ok());
  const auto stepped = own.session.optim_step(1e-2);
  ASSERT_TRUE(stepped.ok()) << stepped.message();
  EXPECT_EQ(stepped->gradient_norm, expected->gradient_norm);
  EXPECT_EQ(all_weights(own.session), all_weights(built_in.session));
  double sum = 0;
  for (size_t i = 0; i < 64; ++i) sum += double{seeds[i]} * double{log_probs[i]};
  EXPECT_NEAR(stepped->loss, sum, 1e-6);
}

TEST(Verbs, RefuseHyperparametersThatDoNotGoTogether) {
  StepOptions options = every_verb();
  options.optimizer = "adafactor";
  Running r(options);
  ASSERT_TRUE(r.session.forward_backward(some_rows().batch()).ok());
  for (const double rate : {-1.0, 11.0, 1e308, std::numeric_limits<double>::infinity(), std::nan("")})
    expect_error(r.session.optim_step(rate).error(), ErrorKind::Invalid, "allowed are numbers from 0 to 10");
  expect_error(r.session.optim_step(1e-2, {{"warmup_init", 1}}).error(), ErrorKind::Invalid, "relative_step");
  expect_error(r.session.optim_step(1e-2, {{"relative_step", 0.5}}).error(), ErrorKind::Invalid,
               "hyperparameters[relative_step] = 0.5: allowed are 0 and 1");
  EXPECT_TRUE(r.session.optim_step(1e-2, {{"relative_step", 1}, {"warmup_init", 1}}).ok());
}

// d(sum of s * log p)/dw along a direction, by central differences through the weights themselves.
TEST(Verbs, MakeTheGradientsThatDifferencesShow) {
  StepOptions options = every_verb();
  options.compute = options.gradients = options.state = Format::F32;
  options.optimizer = "sgd";
  options.hyperparameters = {{"momentum", 0}, {"weight_decay", 0}};
  options.clip_norm = 0;
  Running r(options);
  const Rows rows = some_rows();
  Batch batch = rows.batch();
  std::vector<float> seeds(64);
  for (size_t i = 0; i < 64; ++i) seeds[i] = 0.25f * float(int(i % 9) - 4);
  batch.seeds = seeds;
  const std::string name = "model.layers.1.mlp.down_proj.weight";
  const std::vector<float> before = *r.session.weight(name);
  const auto loss_at = [&](size_t i, float by) {
    std::vector<float> moved = before;
    moved[i] += by;
    EXPECT_TRUE(r.session.set_weight(name, moved).ok());
    const auto log_probs = *r.session.forward(batch);
    double sum = 0;
    for (size_t t = 0; t < 64; ++t) sum += double{seeds[t]} * double{log_probs[t]};
    return sum;
  };
  std::vector<std::pair<size_t, double>> slopes;
  for (const size_t i : {size_t(0), size_t(77), size_t(500)})
    slopes.emplace_back(i, (loss_at(i, 0x1p-5f) - loss_at(i, -0x1p-5f)) / 0x1p-4);
  ASSERT_TRUE(r.session.set_weight(name, before).ok());
  ASSERT_TRUE(r.session.forward_backward(batch).ok());
  ASSERT_TRUE(r.session.optim_step(0.5).ok());
  const std::vector<float> after = *r.session.weight(name);
  for (const auto& [i, slope] : slopes)
    EXPECT_NEAR((double{before[i]} - double{after[i]}) / 0.5, slope, 1e-3) << "element " << i;
}

TEST(Verbs, TakeWeightsWhenPlannedSo) {
  Running plain, weighted(every_verb());
  Rows rows(64);
  const auto expected = plain.session.step(rows.batch(), 1e-2),
             none = weighted.session.step(rows.batch(), 1e-2);
  ASSERT_TRUE(none.ok()) << none.message();
  EXPECT_EQ(none->loss, expected->loss);
  rows.weights.assign(64, 0.5f);
  EXPECT_EQ(*weighted.session.evaluate(rows.batch()), 0.5 * *plain.session.evaluate(Rows(64).batch()));
  const auto refused = [&](Session& session, const Batch& batch, std::string_view says) {
    expect_error(session.forward_backward(batch).error(), ErrorKind::Invalid, says);
    EXPECT_EQ(session.queued_tokens(), 0);
  };
  refused(plain.session, rows.batch(), "it has weights; plan with the option weighted");
  const std::vector<float> seeds(64, 1.0f);
  Batch both = rows.batch();
  both.seeds = seeds;
  refused(weighted.session, both, "weights and seeds");
  both.weights = {};
  refused(plain.session, both, "it has seeds; plan with the option weighted");
  rows.weights[7] = std::numeric_limits<float>::infinity();
  refused(weighted.session, rows.batch(), "weights[7] is inf");
  rows.weights.pop_back();
  refused(weighted.session, rows.batch(), "63 weights");
}

// The values of a step are those that a plan with them has, bit by bit, whenever its update runs.
TEST(Verbs, StepWithTheHyperparametersThatTheyName) {
  const std::map<std::string, double> values{
      {"beta1", 0.5}, {"beta2", 0.8}, {"eps", 1e-3}, {"weight_decay", 0.3}, {"clip_norm", 0.25}};
  for (const bool deferred : {false, true}) {
    SCOPED_TRACE(deferred);
    StepOptions options = every_verb(), same = every_verb();
    options.deferred_updates = same.deferred_updates = deferred;
    same.hyperparameters = values;
    same.clip_norm = same.hyperparameters.extract("clip_norm").mapped();
    Running named(options), planned(same);
    for (int step = 0; step < 3; ++step) {
      const Rows rows = some_rows(step);
      ASSERT_TRUE(named.session.forward_backward(rows.batch()).ok());
      const auto stepped = named.session.optim_step(1e-2, values),
                 expected = planned.session.step(rows.batch(), 1e-2);
      ASSERT_TRUE(stepped.ok()) << stepped.message();
      EXPECT_EQ(stepped->loss, expected->loss);
      // A pending update is applied with the values that it was asked with.
      if (step == 1) {
        EXPECT_EQ(*named.session.forward(rows.batch()), *planned.session.forward(rows.batch()));
      }
    }
    EXPECT_EQ(all_weights(named.session), all_weights(planned.session));
    // Those that a step does not name are planned ones.
    Running plain(options);
    (void)plain.session.step(some_rows().batch(), 1e-2);
    ASSERT_TRUE(plain.session.forward_backward(some_rows(1).batch()).ok());
    ASSERT_TRUE(plain.session.optim_step(1e-2, {{"weight_decay", 0}}).ok());
    const auto third = plain.session.step(some_rows(2).batch(), 1e-2);
    Running other(options);
    (void)other.session.step(some_rows().batch(), 1e-2);
    ASSERT_TRUE(other.session.forward_backward(some_rows(1).batch()).ok());
    ASSERT_TRUE(other.session.optim_step(1e-2, {{"weight_decay", 0}, {"beta1", 0.9}}).ok());
    const TempDir dir;
    ASSERT_TRUE(other.session.save_state(dir / "saved").ok());
    Running again(options);
    ASSERT_TRUE(again.session.load_state(dir / "saved").ok());
    EXPECT_EQ(again.session.step(some_rows(2).batch(), 1e-2)->loss, third->loss);
    EXPECT_EQ(all_weights(again.session), all_weights(plain.session));
  }
}

TEST(Verbs, RefuseWhatIsNoStep) {
  Running r(every_verb());
  const Rows rows = some_rows();
  Session& s = r.session;
  expect_error(s.optim_step(1e-2).error(), ErrorKind::Invalid, "no rows wait");
  const auto queued = s.forward_backward(part(rows, 0, 3));
  ASSERT_TRUE(queued.ok()) << queued.message();
  expect_error(s.forward_backward(part(rows, 0, 2)).error(), ErrorKind::Invalid,
               "32 tokens, with 48 that wait for optim_step(); the plan's step has 64");
  Batch seeded = part(rows, 0, 1);
  const std::vector<float> seeds(16, 1.0f);
  seeded.seeds = seeds;
  expect_error(s.forward_backward(seeded).error(), ErrorKind::Invalid, "all of a step, or none");
  expect_error(s.optim_step(-1).error(), ErrorKind::Invalid, "learning_rate = -1");
  expect_error(s.optim_step(1e-2, {{"beta1", 2}}).error(), ErrorKind::Invalid,
               "hyperparameters[beta1] = 2: allowed are numbers from 0 to 0.99999");
  expect_error(s.optim_step(1e-2, {{"clip_norm", -1}}).error(), ErrorKind::Invalid, "[clip_norm] = -1");
  expect_error(s.optim_step(1e-2, {{"momentum", 0.5}}).error(), ErrorKind::Invalid, "adamw has beta1");
  const TempDir dir;
  expect_error(s.train(Dataset::random(r.plan), {}).error(), ErrorKind::Invalid, "48 tokens wait");
  EXPECT_EQ(s.queued_tokens(), 48);
  s.discard();
  EXPECT_EQ(s.queued_tokens(), 0);
  expect_error(queued->log_probabilities().error(), ErrorKind::Invalid, "discard()");
  EXPECT_EQ(s.steps_done(), 0);
  ASSERT_TRUE(s.forward_backward(rows.batch()).ok());
  EXPECT_TRUE(s.optim_step(1e-2, {{"beta1", 0.9}}).ok());
  Running plain;
  const auto silent = plain.session.forward_backward(rows.batch());
  ASSERT_TRUE(plain.session.optim_step(1e-2).ok());
  expect_error(silent->log_probabilities().error(), ErrorKind::Invalid, "the option log_probabilities");
}

// What runs between forward_backward() and optim_step() changes nothing of the step.
TEST(Verbs, LeaveWaitingRowsAlone) {
  Running busy(every_verb()), plain(every_verb());
  const TempDir dir;
  for (int step = 0; step < 2; ++step) {
    const Rows rows = some_rows(step);
    ASSERT_TRUE(busy.session.forward_backward(rows.batch()).ok());
    ASSERT_TRUE(busy.session.forward(some_rows(9).batch()).ok());
    ASSERT_TRUE(busy.session.sample(std::vector<int32_t>{1, 2}, {3}).ok());
    ASSERT_TRUE(busy.session.save_state(dir / std::to_string(step)).ok());
    const auto expected = plain.session.step(rows.batch(), 1e-2), stepped = busy.session.optim_step(1e-2);
    ASSERT_TRUE(stepped.ok()) << stepped.message();
    EXPECT_EQ(stepped->loss, expected->loss);
  }
  EXPECT_EQ(all_weights(busy.session), all_weights(plain.session));
}

TEST(Verbs, DiscardWhatWaitsWhenStateIsLoaded) {
  Running r(every_verb());
  const TempDir dir;
  ASSERT_TRUE(r.session.save_state(dir / "saved").ok());
  const auto queued = r.session.forward_backward(some_rows().batch());
  ASSERT_TRUE(r.session.load_state(dir / "saved").ok());
  EXPECT_EQ(r.session.queued_tokens(), 0);
  expect_error(queued->log_probabilities().error(), ErrorKind::Invalid, "load_state()");
}

// Two orders of f32 sums over at most 48 terms of a few units, in two layers and the head.
TEST(Verbs, SampleWhatForwardFindsAsLikely) {
  Running r(every_verb());
  ASSERT_TRUE(r.session.step(some_rows().batch(), 1e-2).ok());
  const std::vector<int32_t> prompt{5, 6, 7};
  const auto drawn = r.session.sample(prompt, {13, 0.8, 3});
  ASSERT_TRUE(drawn.ok()) << drawn.message();
  ASSERT_EQ(drawn->log_probabilities.size(), 13u);
  Rows rows(16);
  std::ranges::fill(rows.targets, -1);
  std::ranges::copy(prompt, rows.tokens.begin());
  std::ranges::copy(drawn->tokens, rows.tokens.begin() + 3);
  for (size_t i = 0; i < 13; ++i) rows.targets[2 + i] = drawn->tokens[i];
  const auto log_probs = r.session.forward(rows.batch());
  ASSERT_TRUE(log_probs.ok()) << log_probs.message();
  for (size_t i = 0; i < 13; ++i)
    EXPECT_NEAR((*log_probs)[2 + i], drawn->log_probabilities[i], 1e-4) << "token " << i;
}

TEST(Verbs, TellNothingWhenTheSessionEnded) {
  std::optional<Queued> waits, ran;
  {
    Running r(every_verb());
    ran = *r.session.forward_backward(some_rows().batch());
    ASSERT_TRUE(r.session.optim_step(1e-2).ok());
    waits = *r.session.forward_backward(some_rows().batch());
  }
  EXPECT_TRUE(ran->log_probabilities().ok());
  expect_error(waits->log_probabilities().error(), ErrorKind::Invalid, "the session ended");
}

StepOptions late_updates() {
  StepOptions options = every_verb();
  options.deferred_updates = true;
  options.compute = Format::F32;  // others have masters
  return options;
}

// AdamW's first step from what is read: m is a tenth of the clipped gradient.
TEST(Verbs, ReadGradientsAndStateByName) {
  Running looked(late_updates()), plain(late_updates());
  const std::string name = "model.layers.1.self_attn.v_proj.weight";
  EXPECT_EQ(looked.session.state_slots(), (std::vector<std::string>{"m", "v"}));
  EXPECT_EQ(*looked.session.state_slots(name), looked.session.state_slots());
  EXPECT_EQ(looked.session.state_slots("none").error().kind, ErrorKind::NotFound);
  for (int step = 0; step < 2; ++step) {
    const Rows rows = some_rows(step);
    const auto queued = looked.session.forward_backward(rows.batch());
    const auto gradient = looked.session.gradient(name);
    ASSERT_TRUE(gradient.ok()) << gradient.message();
    ASSERT_EQ(gradient->size(), 512u);
    EXPECT_TRUE(queued->log_probabilities().ok());
    expect_error(looked.session.forward_backward(rows.batch()).error(), ErrorKind::Invalid,
                 "the gradients of 64 tokens were made");
    // What runs between steps leaves them alone.
    EXPECT_EQ(*looked.session.evaluate(rows.batch()), *plain.session.evaluate(rows.batch()));
    EXPECT_EQ(*looked.session.gradient(name), *gradient);
    const auto stepped = looked.session.optim_step(1e-2), expected = plain.session.step(rows.batch(), 1e-2);
    ASSERT_TRUE(stepped.ok()) << stepped.message();
    EXPECT_EQ(stepped->loss, expected->loss);
    EXPECT_EQ(stepped->step, expected->step);
    EXPECT_EQ(stepped->gradient_norm, expected->gradient_norm);
    if (step > 0) continue;
    const double scale = std::min(1.0, 1 / (stepped->gradient_norm + 1e-6));
    const auto m = looked.session.state("m", name), v = looked.session.state("v", name);
    ASSERT_TRUE(m.ok() && v.ok()) << m.message();
    for (size_t i = 0; i < 512; ++i) {
      const double g = scale * double{(*gradient)[i]};
      EXPECT_NEAR((*m)[i], 0.1 * g, 1e-6 * std::abs(g)) << i;
      EXPECT_NEAR((*v)[i], 0.05 * g * g, 1e-6 * g * g) << i;
    }
  }
  EXPECT_EQ(all_weights(looked.session), all_weights(plain.session));
}

// What compact state keeps of AdamW's first step: within half of the largest distance between two of its
// numbers, which are those of a group of 32.
TEST(Verbs, ReadAndWriteCompactState) {
  StepOptions options = late_updates();
  options.state = Format::I8;
  Running r(options);
  const std::string name = "model.layers.1.self_attn.v_proj.weight";
  const Rows rows = some_rows();
  ASSERT_TRUE(r.session.forward_backward(rows.batch()).ok());
  const std::vector<float> gradient = *r.session.gradient(name);
  const auto stepped = r.session.optim_step(1e-2);
  ASSERT_TRUE(stepped.ok()) << stepped.message();
  const double clip = std::min(1.0, 1 / (stepped->gradient_norm + 1e-6));
  const std::vector<float> m = *r.session.state("m", name), v = *r.session.state("v", name);
  const auto expect_near = [](const std::vector<float>& kept, const auto& exact, const char* what) {
    for (size_t first = 0; first < kept.size(); first += 32) {
      double most = 0;
      for (size_t i = first; i < first + 32; ++i) most = std::max(most, std::abs(exact(i)));
      for (size_t i = first; i < first + 32; ++i)
        EXPECT_NEAR(kept[i], exact(i), most * 1.01 * 2 / 254) << what << " " << i;
    }
  };
  expect_near(
      m, [&](size_t i) { return 0.1 * clip * double{gradient[i]}; }, "m");
  const std::vector<float> root = [&] {
    std::vector<float> out;
    for (const float x : v) out.push_back(std::sqrt(x));
    return out;
  }();
  expect_near(
      root, [&](size_t i) { return std::sqrt(0.05) * clip * std::abs(double{gradient[i]}); }, "v");

  std::vector<float> mine(m.size());
  std::iota(mine.begin(), mine.end(), -200.0f);
  ASSERT_TRUE(r.session.set_state("m", name, mine).ok());
  const std::vector<float> kept = *r.session.state("m", name);
  expect_near(
      kept, [&](size_t i) { return double{mine[i]}; }, "written");
  EXPECT_EQ(*r.session.state("v", name), v);
  // One object holds K and V.
  const std::string other = "model.layers.1.self_attn.k_proj.weight";
  const std::vector<float> beside = *r.session.state("v", other);
  ASSERT_TRUE(r.session.set_state("v", name, std::vector<float>(v.size(), 0.5f)).ok());
  const std::vector<float> written = *r.session.state("v", name);
  for (const float x : written) EXPECT_NEAR(x, 0.5f, 1e-6);
  EXPECT_EQ(*r.session.state("v", other), beside);
}

// q, k and v of one tensor are matrices of their own: Adafactor's first step keeps the means of each one's
// squares. Rows are told as the tensor has them, columns matrix by matrix.
TEST(Verbs, TellFactorsOfMatricesThatShareATensor) {
  struct Case {
    const char *config, *name;
    bool turned, by_head;  // the tensor has a row for each input; each head has rows of q, k and v
  };
  const Case cases[] = {
      {R"({"model_type": "phi3", "vocab_size": 256, "hidden_size": 32, "num_hidden_layers": 1,
           "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 48})",
       "model.layers.0.self_attn.qkv_proj.weight", false, false},
      {R"({"model_type": "gpt_neox", "vocab_size": 256, "hidden_size": 32, "num_hidden_layers": 1,
           "num_attention_heads": 4, "intermediate_size": 48})",
       "gpt_neox.layers.0.attention.query_key_value.weight", false, true},
      {R"({"model_type": "gpt2", "vocab_size": 256, "n_embd": 32, "n_layer": 1, "n_head": 4})",
       "transformer.h.0.attn.c_attn.weight", true, false}};
  constexpr size_t kIn = 32, kOut = 96, kHead = 8;
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    StepOptions options = small_step();
    options.optimizer = "adafactor";
    options.clip_norm = 0;
    options.deferred_updates = true;
    const auto model = Model::from_config(c.config);
    ASSERT_TRUE(model.ok()) << model.message();
    const auto planned = plan(*model, options, {}, here());
    ASSERT_TRUE(planned.ok()) << planned.message();
    Recorder recorder;
    Session session = *Session::open(*planned, recorder);
    ASSERT_TRUE(session.forward_backward(some_rows().batch()).ok());
    const auto gradient = session.gradient(c.name);
    ASSERT_TRUE(gradient.ok()) << gradient.message();
    const auto stepped = session.optim_step(1e-2);
    ASSERT_TRUE(stepped.ok()) << stepped.message();
    std::vector<double> rows(kOut), columns(3 * kIn);
    for (size_t r = 0; r < kOut; ++r) {
      const size_t matrix = c.by_head ? r / kHead % 3 : r / (kOut / 3);
      for (size_t i = 0; i < kIn; ++i) {
        const double g = double{(*gradient)[c.turned ? i * kOut + r : r * kIn + i]};
        rows[r] += g * g / kIn;
        columns[matrix * kIn + i] += g * g / (kOut / 3);
      }
    }
    const auto row = session.state("row", c.name), column = session.state("col", c.name);
    ASSERT_TRUE(row.ok() && column.ok()) << row.message() << column.message();
    ASSERT_EQ(row->size(), rows.size());
    ASSERT_EQ(column->size(), columns.size());
    for (size_t r = 0; r < rows.size(); ++r) EXPECT_NEAR((*row)[r], rows[r], 1e-5 * rows[r]) << r;
    for (size_t i = 0; i < columns.size(); ++i) EXPECT_NEAR((*column)[i], columns[i], 1e-5 * columns[i]) << i;
    std::vector<float> mine(rows.size());
    std::iota(mine.begin(), mine.end(), 1.0f);
    ASSERT_TRUE(session.set_state("row", c.name, mine).ok());
    EXPECT_EQ(*session.state("row", c.name), mine);
    EXPECT_EQ(*session.state("col", c.name), *column);
  }
}

TEST(Verbs, WriteGradientsAndStateByName) {
  const std::string name = "model.layers.0.mlp.up_proj.weight";
  Running doubled(late_updates()), none(late_updates()), restored(late_updates());
  const Rows rows = some_rows();
  const auto write = [&](Running& r, float factor) {
    EXPECT_TRUE(r.session.forward_backward(rows.batch()).ok());
    std::vector<float> values = *r.session.gradient(name);
    for (float& v : values) v *= factor;
    ASSERT_TRUE(r.session.set_gradient(name, values).ok());
    EXPECT_EQ(*r.session.gradient(name), values);
  };
  write(doubled, 2);
  write(none, 0);
  const auto twice = doubled.session.optim_step(1e-2, {{"clip_norm", 0}}),
             without = none.session.optim_step(1e-2, {{"clip_norm", 0}});
  ASSERT_TRUE(twice.ok() && without.ok()) << twice.message();
  const std::vector<float> m = *doubled.session.state("m", name);
  double squares = 0;
  for (const float v : m) squares += std::pow(10 * double{v} / 2, 2);
  // The norm is that of the gradients as they were written.
  EXPECT_NEAR(std::pow(twice->gradient_norm, 2), std::pow(without->gradient_norm, 2) + 4 * squares, 1e-4);
  EXPECT_EQ(*none.session.state("m", name), std::vector<float>(m.size()));

  std::vector<float> v = *doubled.session.state("v", name);
  ASSERT_TRUE(restored.session.set_state("v", name, v).ok());
  EXPECT_EQ(*restored.session.state("v", name), v);
  v[7] = -1;
  expect_error(restored.session.set_state("v", name, v).error(), ErrorKind::Invalid, "element 7 is");
  expect_error(restored.session.set_state("master", name, v).error(), ErrorKind::Invalid,
               "set with the weight");
  expect_error(restored.session.state("momentum", name).error(), ErrorKind::Invalid, "allowed are m, v");
  expect_error(restored.session.state("m", "lm_head").error(), ErrorKind::NotFound, "lm_head");
  expect_error(restored.session.gradient(name).error(), ErrorKind::Invalid, "no rows wait");
}

TEST(Verbs, RefuseNamesAndValuesBeforeAnythingIsComputed) {
  const std::string name = "model.layers.0.mlp.up_proj.weight";
  Running refused(late_updates()), plain(late_updates());
  const Rows rows = some_rows();
  ASSERT_TRUE(refused.session.forward_backward(part(rows, 0, 2)).ok());
  expect_error(refused.session.gradient("lm_head").error(), ErrorKind::NotFound, "lm_head");
  expect_error(refused.session.set_gradient(name, std::vector<float>(3)).error(), ErrorKind::Invalid,
               "3 values");
  const std::vector<float> strange(1536, std::numeric_limits<float>::infinity());
  expect_error(refused.session.set_gradient(name, strange).error(), ErrorKind::Invalid, "element 0 is inf");
  EXPECT_TRUE(refused.session.forward_backward(part(rows, 2, 2)).ok()) << "no passes were made";
  expect_error(refused.session.set_gradient(name, std::vector<float>(3)).error(), ErrorKind::Invalid,
               "3 values");
  EXPECT_EQ(refused.session.optim_step(1e-2)->gradient_norm,
            plain.session.step(rows.batch(), 1e-2)->gradient_norm);
  EXPECT_EQ(all_weights(refused.session), all_weights(plain.session));
}

TEST(Verbs, ApplyWrittenGradientsWhereNoTokenIsLearnt) {
  const std::string name = "model.norm.weight";
  Running r(late_updates());
  Rows rows = some_rows();
  rows.targets.assign(rows.targets.size(), -1);
  const std::vector<float> before = *r.session.weight(name);
  ASSERT_TRUE(r.session.forward_backward(rows.batch()).ok());
  ASSERT_TRUE(r.session.set_gradient(name, std::vector<float>(before.size(), 1)).ok());
  const auto stepped = r.session.optim_step(1e-2);
  ASSERT_TRUE(stepped.ok()) << stepped.message();
  EXPECT_EQ(stepped->skipped, "");
  const std::vector<float> after = *r.session.weight(name);
  for (size_t i = 0; i < before.size(); ++i) EXPECT_LT(after[i], before[i]);
}

TEST(Verbs, HaveMasterWeightsAmongTheState) {
  StepOptions options = every_verb();
  options.compute = Format::BF16;
  options.state = Format::F32;
  options.master_weights = MasterWeights::F32;
  Running r(options);
  EXPECT_EQ(r.session.state_slots(), (std::vector<std::string>{"m", "v", "master"}));
  const std::vector<float> values(32, 1.0009765625f);
  ASSERT_TRUE(r.session.set_weight("model.norm.weight", values).ok());
  EXPECT_EQ(*r.session.state("master", "model.norm.weight"), values);
  EXPECT_EQ(*r.session.weight("model.norm.weight"), std::vector<float>(32, 1));
}

// A master of 24 bits has twice the digits of what the weight has, and both are set together.
TEST(Verbs, HaveMasterWeightsOf24Bits) {
  StepOptions options = every_verb();
  options.compute = Format::BF16;
  options.master_weights = MasterWeights::I8;
  Running r(options);
  EXPECT_EQ(r.session.state_slots(), (std::vector<std::string>{"m", "v", "master"}));
  const std::string name = "lm_head.weight";
  std::vector<float> values = *r.session.weight(name);
  ASSERT_GT(values.size(), 4000u);  // matrices that are small have f32 masters
  const float rounded[] = {1.0f + 0x1p-9f, -1.0f - 0x1p-14f, 1.0f - 0x1p-10f, 3.0f + 0x1p-20f};
  std::copy(std::begin(rounded), std::end(rounded), values.begin());
  ASSERT_TRUE(r.session.set_weight(name, values).ok());
  const std::vector<float> masters = *r.session.state("master", name), weights = *r.session.weight(name);
  EXPECT_EQ(masters[0], 1.0f + 0x1p-9f);
  EXPECT_EQ(masters[1], -1.0f - 0x1p-14f);
  EXPECT_EQ(masters[2], 1.0f - 0x1p-10f);
  EXPECT_EQ(masters[3], 3.0f);  // 2^-20 is below half of what 24 bits distinguish
  EXPECT_EQ(std::vector<float>(weights.begin(), weights.begin() + 4), (std::vector<float>{1, -1, 1, 3}));
  EXPECT_FALSE(r.session.set_state("master", name, values).ok());
}

TEST(Verbs, CallOffAStepWhoseGradientsWereMade) {
  Running called_off(late_updates()), plain(late_updates());
  for (Running* r : {&called_off, &plain}) (void)r->session.step(some_rows().batch(), 1e-2);
  ASSERT_TRUE(called_off.session.forward_backward(some_rows(1).batch()).ok());
  ASSERT_TRUE(called_off.session.gradient("lm_head.weight").ok());
  called_off.session.discard();
  EXPECT_EQ(called_off.session.queued_tokens(), 0);
  EXPECT_EQ(called_off.session.step(some_rows(2).batch(), 1e-2)->loss,
            plain.session.step(some_rows(2).batch(), 1e-2)->loss);
  EXPECT_EQ(all_weights(called_off.session), all_weights(plain.session));
}

TEST(Verbs, SayWhereThereAreNoGradients) {
  StepOptions options = every_verb();
  options.deferred_updates = false;
  options.freeze = {"model.embed_tokens"};
  Running r(options);
  ASSERT_TRUE(r.session.forward_backward(some_rows().batch()).ok());
  expect_error(r.session.gradient("lm_head.weight").error(), ErrorKind::Invalid,
               "plan with the option deferred_updates = true");
  EXPECT_EQ(r.session.queued_tokens(), 64);
  expect_error(r.session.state("m", "model.embed_tokens.weight").error(), ErrorKind::Invalid, "not trained");
}

TEST(Verbs, TrainAdaptersInPlaceOfWeights) {
  StepOptions options = every_verb();
  options.adapter = Adapter{.rank = 4, .targets = {"v_proj", "mlp"}, .ranks = {{"down_proj", 2}}};
  Running r(options);
  const std::string base = "model.layers.0.self_attn.v_proj.weight",
                    b = "model.layers.0.self_attn.v_proj.lora_B.weight";
  const std::vector<WeightInfo> infos = r.session.weights();
  const auto it = std::ranges::find(infos, "model.layers.0.mlp.down_proj.lora_A.weight", &WeightInfo::name);
  ASSERT_NE(it, infos.end());
  EXPECT_EQ(it->shape.front(), 2);
  const std::vector<float> before = *r.session.weight(base), zeros = *r.session.weight(b);
  ASSERT_TRUE(r.session.step(some_rows().batch(), 1e-2).ok());
  EXPECT_EQ(*r.session.weight(base), before);
  EXPECT_NE(*r.session.weight(b), zeros);
  expect_error(r.session.state("m", base).error(), ErrorKind::Invalid, "not trained");
  const TempDir dir;
  ASSERT_TRUE(r.session.save_weights(dir / "adapter").ok());
  EXPECT_TRUE(std::filesystem::exists(dir / "adapter/adapter_model.safetensors"));
  EXPECT_FALSE(std::filesystem::exists(dir / "adapter/model.safetensors"));
  options.adapter->targets = {"q"};
  const auto refused = plan(*Model::preset("tiny"), options, {}, here());
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.message().find("adapter.targets: 'q' names no tensor"), std::string::npos)
      << refused.message();
}

TEST(Verbs, ReadAndWriteWeightsByName) {
  Running r(every_verb());
  const std::vector<WeightInfo> infos = r.session.weights();
  const auto it = std::ranges::find(infos, "model.layers.0.self_attn.v_proj.weight", &WeightInfo::name);
  ASSERT_NE(it, infos.end());
  EXPECT_EQ(it->shape, (std::vector<int64_t>{16, 32}));
  std::vector<float> values = *r.session.weight(it->name);
  ASSERT_EQ(values.size(), 512u);
  std::iota(values.begin(), values.end(), -256.0f);
  ASSERT_TRUE(r.session.set_weight(it->name, values).ok());
  EXPECT_EQ(*r.session.weight(it->name), values);
  expect_error(r.session.weight("lm_head").error(), ErrorKind::NotFound, "weight lm_head");
  values[3] = std::numeric_limits<float>::quiet_NaN();
  expect_error(r.session.set_weight(it->name, values).error(), ErrorKind::Invalid, "element 3 is nan");
  values.pop_back();
  expect_error(r.session.set_weight(it->name, values).error(), ErrorKind::Invalid, "511 values; it has 512");

  const TempDir dir;
  ASSERT_TRUE(r.session.save_weights(dir / "model").ok());
  expect_error(r.session.save_weights(dir / "model").error(), ErrorKind::Io, "model");
  const auto model = Model::from_pretrained(dir / "model");
  ASSERT_TRUE(model.ok()) << model.message();
  const auto again = plan(*model, every_verb(), {}, here());
  auto session = Session::open(*again);
  ASSERT_TRUE(session.ok()) << session.message();
  EXPECT_EQ(all_weights(*session), all_weights(r.session));
}

// Between steps, with rows that wait, gradients that were read, and an update that is pending.
TEST(Verbs, GoOnUnderOtherPlansWithTheSameBits) {
  StepOptions options = every_verb();
  options.sample_window = 16;
  options.deferred_updates = true;
  Running fixed(options), changing(options);
  const Plan tight = *fixed.plan.under({fixed.plan.device_bytes() * 2 / 3, {}});
  ASSERT_LT(tight.device_bytes(), fixed.plan.device_bytes());
  int64_t moved = 0;
  const auto adopt = [&](const Plan& plan) {
    const auto adopted = changing.session.adopt(plan);
    ASSERT_TRUE(adopted.ok()) << adopted.message();
    moved += adopted->moved_bytes;
    EXPECT_EQ(adopted->after_seconds, plan.step_seconds());
    EXPECT_EQ(adopted->step, changing.session.steps_done());
  };
  const std::vector<int32_t> prompt{3, 1, 4};
  for (int32_t step = 0; step < 4; ++step) {
    const Rows rows(32, step), more(32, step + 9);
    for (Running* r : {&fixed, &changing}) {
      ASSERT_TRUE(r->session.forward_backward(rows.batch()).ok());
      if (r == &changing) adopt(step % 2 == 0 ? tight : fixed.plan);
      ASSERT_TRUE(r->session.forward_backward(more.batch()).ok());
      if (step > 1) {
        ASSERT_TRUE(r->session.gradient("model.norm.weight").ok());
      }
      if (step == 2 && r == &changing) adopt(fixed.plan);
      ASSERT_TRUE(r->session.optim_step(1e-2).ok());
    }
    if (step != 1) continue;
    const Rows heldout(64, 77);
    EXPECT_EQ(*changing.session.evaluate(heldout.batch()), *fixed.session.evaluate(heldout.batch()));
    EXPECT_EQ(changing.session.sample(prompt)->tokens, fixed.session.sample(prompt)->tokens);
  }
  EXPECT_GT(moved, 0);
  EXPECT_EQ(changing.recorder.losses, fixed.recorder.losses);
  EXPECT_EQ(all_weights(changing.session), all_weights(fixed.session));

  // It asks, searches beside the steps, and may end while it does.
  expect_error(changing.session.replan(0).error(), ErrorKind::Invalid,
               "steps = 0: allowed are numbers from 1");
  ASSERT_TRUE(changing.session.replan(100).ok());
  for (int32_t step = 4; step < 8; ++step) {
    for (Running* r : {&fixed, &changing}) {
      ASSERT_TRUE(r->session.forward_backward(Rows(64, step).batch()).ok());
      ASSERT_TRUE(r->session.optim_step(1e-2).ok());
    }
  }
  EXPECT_EQ(changing.recorder.losses, fixed.recorder.losses);
  EXPECT_EQ(all_weights(changing.session), all_weights(fixed.session));

  options.clip_norm = 2;
  expect_error(changing.session.adopt(*plan(tiny(), options, {}, here())).error(), ErrorKind::Invalid,
               "another step");
  options = every_verb();
  options.seed = 9;
  expect_error(changing.session.adopt(*plan(tiny(), options, {}, here())).error(), ErrorKind::Invalid,
               "seed 9");
  expect_error(changing.session.adopt(*plan(tiny(), options, {}, *Machine::preset("rtx4090"))).error(),
               ErrorKind::Invalid, "only simulated");
  EXPECT_EQ(all_weights(changing.session), all_weights(fixed.session));
}

}  // namespace
}  // namespace sluice
