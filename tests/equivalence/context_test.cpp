// SPDX-License-Identifier: Apache-2.0
// Chunks and rounds in which nothing is learnt change results under no plan.
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "equivalence/small_runs.h"

namespace sluice::core {
namespace {

// Three steps, of which the second chunk and all of the last round is context: of chats whose questions are
// long, that is what rows look like.
rig::History run_with_context(rig::Rig& run) {
  run.initialize();
  const Question& r = run.request();
  const auto chunk = r.shape.chunk_tokens, round = r.shape.tokens() / r.shape.rounds;
  rig::History out;
  for (int64_t step = 1; step <= 3; ++step) {
    rig::Tokens tokens = rig::random_tokens(r.shape, r.model.vocab, uint64_t(step));
    for (int64_t i = 0; i < r.shape.tokens(); ++i) {
      const bool last_round = r.shape.rounds > 1 && i / round == r.shape.rounds - 1;
      if (i / chunk == 1 || last_round) tokens.targets[size_t(i)] = -1;
    }
    const rig::Losses losses = run.step(step, tokens);
    EXPECT_TRUE(std::isfinite(losses.loss));
    out.losses.push_back(losses.loss);
    out.norms.push_back(losses.norm);
  }
  run.flush(3);
  out.state = rig::read_state(run.training(), {ObjectKind::Param, ObjectKind::OptState});
  return out;
}

// Every numerics with every shape, and every shape with every way to update.
TEST(Context, OfWholeChunksAndRoundsChangesNothingUnderAnyCap) {
  const std::array shapes{StepShape{16, 4, 4, 2, 4}, StepShape{16, 8, 4, 1, 8, true}};
  const std::array ways{Updates::AtTheEnd, Updates::Deferred, Updates::LateMoments};
  const auto numerics = numerics_under_test();
  for (size_t n = 0; n < numerics.size(); ++n) {
    for (size_t s = 0; s < shapes.size(); ++s) {
      const Updates updates = ways[(n + s) % ways.size()];
      SCOPED_TRACE(testing::Message() << numerics[n].name << ", chunks of " << shapes[s].chunk_tokens << ", "
                                      << name_of(updates));
      const auto request = [&](Updates way) { return small_request(shapes[s], numerics[n].numerics, way); };
      rig::Rig plain(request(Updates::AtTheEnd)), run(tightest(request(updates), *rig::small_backend()));
      expect_same(run_with_context(run), run_with_context(plain));
    }
  }
}

}  // namespace
}  // namespace sluice::core
