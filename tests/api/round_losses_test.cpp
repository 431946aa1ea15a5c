// SPDX-License-Identifier: Apache-2.0
// Losses of one's own that are called while the step runs, round by round.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "api/rig.h"

namespace sluice {
namespace {

using namespace api_rig;

StepOptions with_round_losses(std::optional<bool> deferred = {}) {
  StepOptions options = small_step();
  options.round_losses = true;
  options.deferred_updates = deferred;
  return options;
}

StepOptions with_seeds(std::optional<bool> deferred = {}) {
  StepOptions options = small_step();
  options.weighted = options.log_probabilities = true;
  options.deferred_updates = deferred;
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
  return {cut(rows.tokens), cut(rows.targets), cut(rows.positions), {}};
}

std::vector<float> all_weights(Session& session) {
  std::vector<float> out;
  for (const WeightInfo& w : session.weights()) {
    const auto values = session.weight(w.name);
    EXPECT_TRUE(values.ok()) << values.message();
    out.insert(out.end(), values->begin(), values->end());
  }
  return out;
}

// Of the sum of p^2 / 16 - p / 8 over all targets.
void derive(std::span<const float> log_probs, std::span<float> seeds) {
  for (size_t t = 0; t < seeds.size(); ++t) seeds[t] = log_probs[t] * 0.125f - 0.125f;
}
Status curved(const RoundRows& rows, std::span<float> seeds) {
  derive(rows.log_probabilities, seeds);
  return {};
}

// The same loss by a forward pass before the step.
Result<StepEvent> step_after_forward(Session& session, const Rows& rows) {
  Batch batch = rows.batch();
  const auto log_probs = session.forward(batch);
  EXPECT_TRUE(log_probs.ok()) << log_probs.message();
  std::vector<float> seeds(log_probs->size());
  derive(*log_probs, seeds);
  batch.seeds = seeds;
  return session.step(batch, 1e-2);
}

TEST(RoundLosses, MakeTheStepsOfTheirSeeds) {
  for (const bool deferred : {false, true}) {
    SCOPED_TRACE(deferred);
    Running rounds(with_round_losses(deferred)), whole(with_seeds(deferred));
    for (int step = 0; step < 3; ++step) {
      const Rows rows = some_rows(step);
      const auto queued = rounds.session.forward_backward(rows.batch(), curved);
      ASSERT_TRUE(queued.ok()) << queued.message();
      const auto stepped = rounds.session.optim_step(1e-2),
                 expected = step_after_forward(whole.session, rows);
      ASSERT_TRUE(stepped.ok()) << stepped.message();
      EXPECT_EQ(stepped->loss, expected->loss);
      EXPECT_EQ(stepped->gradient_norm, expected->gradient_norm);
      EXPECT_TRUE(queued->log_probabilities().ok());
    }
    EXPECT_EQ(all_weights(rounds.session), all_weights(whole.session));
  }
}

// As many targets as a power of two: then the scale of the mean is exact, and so are all bits.
TEST(RoundLosses, OfCrossEntropyMakeTheBuiltInStep) {
  Running rounds(with_round_losses()), built_in;
  Rows rows = some_rows();
  std::ranges::fill(rows.targets, -1);
  for (size_t i = 0; i < 64; i += 2) rows.targets[i] = int32_t(3 * i);
  const auto cross_entropy = [](const RoundRows&, std::span<float> seeds) {
    std::ranges::fill(seeds, -1.0f / 32);
    return Status();
  };
  ASSERT_TRUE(rounds.session.forward_backward(rows.batch(), cross_entropy).ok());
  const auto stepped = rounds.session.optim_step(1e-2), expected = built_in.session.step(rows.batch(), 1e-2);
  ASSERT_TRUE(stepped.ok()) << stepped.message();
  EXPECT_EQ(stepped->gradient_norm, expected->gradient_norm);
  EXPECT_NEAR(stepped->loss, expected->loss, 1e-6);
  EXPECT_EQ(all_weights(rounds.session), all_weights(built_in.session));
}

// A step of several calls, of which one brings seeds; every loss sees its own rows, once.
TEST(RoundLosses, SeeTheRowsOfTheirBatch) {
  Running rounds(with_round_losses()), whole(with_seeds());
  Rows rows = some_rows();
  std::fill(rows.targets.begin() + 48, rows.targets.end(), -1);
  std::vector<float> seen(32, 1);
  const auto own = [&](const RoundRows& round, std::span<float> seeds) {
    EXPECT_EQ(round.targets.size(), round.log_probabilities.size());
    for (size_t t = 0; t < seeds.size(); ++t) {
      const auto at = size_t(round.first) + t;
      EXPECT_EQ(round.targets[t], rows.targets[16 + at]);
      EXPECT_EQ(round.log_probabilities[t] == 0, round.targets[t] < 0);
      EXPECT_EQ(seeds[t], 0);
      EXPECT_EQ(std::exchange(seen[at], round.log_probabilities[t]), 1) << at;
    }
    return curved(round, seeds);
  };
  const auto never = [](const RoundRows&, std::span<float>) {
    return Status(Error{"no target counts", ErrorKind::Invalid, {}});
  };
  const auto log_probs = *whole.session.forward(rows.batch());
  std::vector<float> seeds(64);
  derive(log_probs, seeds);
  Batch first = part(rows, 0, 1), all = rows.batch();
  first.seeds = std::span(seeds).first(16);
  all.seeds = seeds;
  ASSERT_TRUE(rounds.session.forward_backward(first).ok());
  ASSERT_TRUE(rounds.session.forward_backward(part(rows, 1, 2), own).ok());
  ASSERT_TRUE(rounds.session.forward_backward(part(rows, 3, 1), never).ok());
  const auto stepped = rounds.session.optim_step(1e-2), expected = whole.session.step(all, 1e-2);
  ASSERT_TRUE(stepped.ok()) << stepped.message();
  EXPECT_EQ(stepped->loss, expected->loss);
  EXPECT_EQ(seen, std::vector<float>(log_probs.begin() + 16, log_probs.begin() + 48));
  EXPECT_EQ(all_weights(rounds.session), all_weights(whole.session));
}

// The step that it ends was none: what follows is what follows without it, bit by bit.
TEST(RoundLosses, LeaveTheStateAsItWasWhereTheyFail) {
  for (const bool deferred : {false, true}) {
    SCOPED_TRACE(deferred);
    Running failed(with_round_losses(deferred)), never(with_round_losses(deferred));
    for (Running* r : {&failed, &never}) {
      ASSERT_TRUE(r->session.forward_backward(some_rows().batch(), curved).ok());
      ASSERT_TRUE(r->session.optim_step(1e-2).ok());
    }
    const auto fails = [](const RoundRows&, std::span<float>) {
      return Status(Error{"no loss today", ErrorKind::Invalid, {}});
    };
    const auto queued = failed.session.forward_backward(some_rows(1).batch(), fails);
    expect_error(failed.session.optim_step(1e-2).error(), ErrorKind::Invalid, "no loss today");
    EXPECT_EQ(failed.session.queued_tokens(), 0);
    EXPECT_EQ(failed.session.steps_done(), 1);
    expect_error(queued->log_probabilities().error(), ErrorKind::Invalid, "no loss today");
    const auto infinite = [](const RoundRows&, std::span<float> seeds) {
      seeds[3] = std::numeric_limits<float>::infinity();
      return Status();
    };
    ASSERT_TRUE(failed.session.forward_backward(some_rows(1).batch(), infinite).ok());
    expect_error(failed.session.optim_step(1e-2).error(), ErrorKind::Invalid, "log-probability 3 is inf");
    EXPECT_EQ(all_weights(failed.session), all_weights(never.session));
    for (Running* r : {&failed, &never}) {
      ASSERT_TRUE(r->session.forward_backward(some_rows(2).batch(), curved).ok());
      ASSERT_TRUE(r->session.optim_step(1e-2).ok());
    }
    EXPECT_EQ(failed.recorder.losses, never.recorder.losses);
    EXPECT_EQ(all_weights(failed.session), all_weights(never.session));
  }
}

TEST(RoundLosses, AreCalledForGradients) {
  Running rounds(with_round_losses(true)), whole(with_seeds(true));
  const Rows rows = some_rows();
  int calls = 0;
  ASSERT_TRUE(rounds.session
                  .forward_backward(rows.batch(),
                                    [&](const RoundRows& round, std::span<float> seeds) {
                                      ++calls;
                                      return curved(round, seeds);
                                    })
                  .ok());
  EXPECT_EQ(calls, 0);
  const auto log_probs = *whole.session.forward(rows.batch());
  std::vector<float> seeds(64);
  derive(log_probs, seeds);
  Batch batch = rows.batch();
  batch.seeds = seeds;
  ASSERT_TRUE(whole.session.forward_backward(batch).ok());
  const std::string name = "model.layers.0.mlp.up_proj.weight";
  EXPECT_EQ(*rounds.session.gradient(name), *whole.session.gradient(name));
  const int made = calls;
  EXPECT_GT(made, 0);
  ASSERT_TRUE(rounds.session.optim_step(1e-2).ok());
  EXPECT_EQ(calls, made);
}

TEST(RoundLosses, AreRefusedWhereTheyCannotBe) {
  Running plain(with_seeds()), rounds(with_round_losses());
  Rows rows = some_rows();
  const auto refused = [&](Session& session, const Batch& batch, const RoundLoss& loss,
                           std::string_view says) {
    expect_error(session.forward_backward(batch, loss).error(), ErrorKind::Invalid, says);
    EXPECT_EQ(session.queued_tokens(), 0);
  };
  refused(plain.session, rows.batch(), curved, "plan with the option round_losses");
  refused(rounds.session, rows.batch(), {}, "loss: it is empty");
  rows.weights.assign(64, 1);
  refused(rounds.session, rows.batch(), curved, "it has weights and a loss");
  ASSERT_TRUE(rounds.session.forward_backward(part(rows, 0, 1)).ok());
  expect_error(rounds.session.forward_backward(part(rows, 1, 1), curved).error(), ErrorKind::Invalid,
               "all of a step, or none");
}

}  // namespace
}  // namespace sluice
