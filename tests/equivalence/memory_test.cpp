// SPDX-License-Identifier: Apache-2.0
// What the executor hands out, and the homes of objects between steps.
#include <gtest/gtest.h>

#include <cstring>

#include "backend/cpu/cpu_backend.h"
#include "equivalence/small_runs.h"

namespace sluice::core {
namespace {

class Memory : public testing::TestWithParam<double> {
 protected:
  // A run whose device arena is at most GetParam() of what it would take without a cap.
  static Question request() {
    Question request = small_request({16, 8, 4, 1, 8}, {});
    const auto backend = rig::small_backend();
    const int64_t all = rig::must(make_stages(request, rig::profile_of(*backend))).arena_bytes()[kDevice];
    request.caps[kDevice] = align_up(int64_t(GetParam() * double(all)), backend->alignment());
    return request;
  }
};

TEST_P(Memory, LedgerIsThePlansArenas) {
  rig::Rig run(request());
  run.initialize();
  (void)run.step(1, rig::random_tokens(run.request().shape, run.request().model.vocab, 1));
  const Ledger& ledger = run.training().ledger();
  EXPECT_EQ(ledger, run.plan().arena_bytes());
  EXPECT_LE(run.plan().arenas[kDevice].bytes, run.request().caps[kDevice]);
}

// Bytes written to any persistent object come back, whole and in part, and touch no other object.
TEST_P(Memory, HomesKeepWhatIsWritten) {
  rig::Rig run(request());
  const auto& objects = run.model().program.objects();
  const auto pattern = [](uint32_t object, int64_t bytes) {
    std::vector<std::byte> out;
    for (int64_t i = 0; i < bytes; ++i) out.push_back(std::byte((i * 7 + object * 13) & 0xff));
    return out;
  };
  for (uint32_t o = 0; o < objects.size(); ++o) {
    if (objects[o].persistent) rig::must(run.training().write(ObjectId(o), pattern(o, objects[o].bytes)));
  }
  for (uint32_t o = 0; o < objects.size(); ++o) {
    if (!objects[o].persistent) continue;
    const auto expected = pattern(o, objects[o].bytes);
    EXPECT_TRUE(rig::read_bytes(run.training(), ObjectId(o)) == expected) << objects[o].name;
    std::vector<std::byte> part(8);
    rig::must(run.training().read(ObjectId(o), part, 4));
    EXPECT_TRUE(std::equal(part.begin(), part.end(), expected.begin() + 4)) << objects[o].name;
  }
}

// A weight with a home in both tiers has the same bytes in both after a step.
TEST_P(Memory, HomesInBothTiersAgree) {
  rig::Rig run(request());
  run.initialize();
  (void)run.step(1, rig::random_tokens(run.request().shape, run.request().model.vocab, 1));
  const auto& objects = run.model().program.objects();
  for (size_t o = 0; o < objects.size(); ++o) {
    const Home& home = run.plan().homes[o];
    if (!objects[o].persistent || !home.on(kDevice) || !home.on(kHost)) continue;
    EXPECT_EQ(std::memcmp(run.arenas()[kDevice] + home.offset(kDevice),
                          run.arenas()[kHost] + home.offset(kHost), size_t(objects[o].bytes)),
              0)
        << objects[o].name;
  }
}

INSTANTIATE_TEST_SUITE_P(Shares, Memory, testing::Values(1.0, 0.7, 0.5, 0.3),
                         [](const auto& test) { return std::to_string(int(100 * test.param)) + "_percent"; });

// A step reports when every action ran, in an order that respects the plan's waits.
TEST(Timeline, RespectsWaits) {
  Question request = small_request({16, 8, 4, 1, 8}, {});
  request.caps[kDevice] = 300 << 10;
  rig::Rig run(request);
  run.initialize();
  rig::write_tokens(run.training(), run.model(), rig::random_tokens(request.shape, 61, 1));
  rig::write_args(run.training(), run.model(), rig::args_for(1, 50));
  std::vector<Interval> timeline;
  rig::must(run.training().step(&timeline));
  ASSERT_EQ(timeline.size(), run.plan().actions.size());
  for (size_t i = 0; i < timeline.size(); ++i) {
    EXPECT_LE(timeline[i].start_ns, timeline[i].end_ns);
    for (const uint32_t w : run.plan().waits_of(run.plan().actions[i])) {
      EXPECT_LE(timeline[w].end_ns, timeline[i].start_ns) << "action " << i << " waits for " << w;
    }
  }
}

// Results do not depend on the number of threads.
TEST(Threads, DoNotChangeResults) {
  const Question request = small_request({16, 8, 4, 1, 8}, {});
  rig::Rig one(request);
  const rig::History expected = rig::run_steps(one, 2);
  for (const int threads : {2, 3}) {
    CpuOptions options;
    options.threads = threads;
    rig::Rig run(request, make_cpu_backend(options));
    SCOPED_TRACE(threads);
    expect_same(rig::run_steps(run, 2), expected);
  }
}

}  // namespace
}  // namespace sluice::core
