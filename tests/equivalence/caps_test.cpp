// SPDX-License-Identifier: Apache-2.0
// A cap changes the plan and nothing else: losses, norms, weights and optimizer state are the same bits.
#include <gtest/gtest.h>

#include <tuple>

#include "equivalence/small_runs.h"

namespace sluice::core {
namespace {

class Caps : public testing::TestWithParam<std::tuple<NamedShape, NamedNumerics>> {
 protected:
  static constexpr int64_t kSteps = 3;

  Question request(Updates updates) const {
    return named_request(std::get<0>(GetParam()).shape, std::get<1>(GetParam()), updates);
  }
  // The run without caps, updates at the end of the step: what all others must equal.
  rig::History plain() const {
    rig::Rig run(request(Updates::AtTheEnd));
    return rig::run_steps(run, kSteps);
  }
};

void run_under_caps(const Question& unlimited, const rig::History& expected) {
  int64_t device_bytes = 0;
  {
    SCOPED_TRACE("no cap");
    rig::Rig run(unlimited);
    device_bytes = run.plan().arenas[kDevice].bytes;
    expect_same(rig::run_steps(run, 3), expected);
  }
  const Question least = tightest(unlimited, *rig::small_backend());
  EXPECT_LT(least.caps[kDevice], device_bytes);
  for (const double share : {0.8, 0.5, 0.0}) {
    Question capped = unlimited;
    capped.caps[kDevice] = std::max(int64_t(share * double(device_bytes)), least.caps[kDevice]);
    SCOPED_TRACE(testing::Message() << "device cap " << capped.caps[kDevice] << " of " << device_bytes);
    rig::Rig run(capped);
    EXPECT_LE(run.plan().arenas[kDevice].bytes, capped.caps[kDevice]);
    EXPECT_GT(totals(run.model().program, run.plan()).loads.actions, 0);
    expect_same(rig::run_steps(run, 3), expected);
    EXPECT_LE(run.training().ledger()[kDevice], capped.caps[kDevice]);
  }
}

TEST_P(Caps, DoNotChangeResults) {
  run_under_caps(request(Updates::AtTheEnd), plain());
}

TEST_P(Caps, DoNotChangeResultsOfDeferredUpdates) {
  run_under_caps(request(Updates::Deferred), plain());
}

TEST_P(Caps, DoNotChangeResultsOfLateMoments) {
  run_under_caps(request(Updates::LateMoments), plain());
}

const Numerics kStochastic{DType::BF16, DType::BF16, DType::BF16, MasterWeights::Off, true};

// The head writes the embedding's gradient first.
TEST(TiedEmbeddings, DoNotChangeResultsOfLateMoments) {
  const auto request = [](Updates updates) {
    Question r = small_request({16, 16, 1, 2, 16, true}, kStochastic, updates);
    r.model.tied_embeddings = true;
    return r;
  };
  rig::Rig plain(request(Updates::AtTheEnd)),
      run(tightest(request(Updates::LateMoments), *rig::small_backend()));
  expect_same(rig::run_steps(run, 3), rig::run_steps(plain, 3));
}

// Chunks have other blocks in layers with a window, and gradients another way where nothing is rotated.
TEST(Windows, DoNotChangeResultsUnderCaps) {
  Question request = small_request({16, 4, 4, 2, 4}, kStochastic, Updates::AtTheEnd);
  request.model.layers[0].attention()->window = 6;
  request.model.layers[1].attention()->rotated = false;
  rig::Rig plain(request);
  run_under_caps(request, rig::run_steps(plain, 3));
}

// Applying a pending update early leaves nothing for the next step to apply.
TEST(FlushesInTheMiddle, DoNotChangeResults) {
  const auto request = [](Updates updates) {
    return small_request({16, 16, 1, 2, 16, true}, kStochastic, updates);
  };
  rig::Rig plain(request(Updates::AtTheEnd));
  const rig::History expected = rig::run_steps(plain, 4);
  for (const Updates updates : {Updates::Deferred, Updates::LateMoments}) {
    SCOPED_TRACE(name_of(updates));
    rig::Rig run(tightest(request(updates), *rig::small_backend()));
    expect_same(rig::run_steps(run, 4, {1, 2}), expected);
  }
}

std::string name_of(const testing::TestParamInfo<Caps::ParamType>& test) {
  return std::string(std::get<0>(test.param).name) + "_" + std::get<1>(test.param).name;
}
INSTANTIATE_TEST_SUITE_P(Runs, Caps,
                         testing::Combine(testing::ValuesIn(kShapes),
                                          testing::ValuesIn(numerics_under_test())),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Narrow, Caps,
                         testing::Combine(testing::ValuesIn(kShapes), testing::ValuesIn(fp8_under_test())),
                         name_of);

}  // namespace
}  // namespace sluice::core
