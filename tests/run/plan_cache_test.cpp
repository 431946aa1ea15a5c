// SPDX-License-Identifier: Apache-2.0
// Plans that were kept are found for the same request and only for it, and only whole.
#include "run/prepare/plan_cache.h"

#include <gtest/gtest.h>

#include <functional>
#include <tuple>

#include "equivalence/small_runs.h"
#include "io/file.h"
#include "plan/store.h"
#include "run/prepare/prepare.h"
#include "search/coarse_search.h"
#include "support/temp_dir.h"

namespace sluice::core {
namespace {

using rig::must;

Question tiny_request() {
  Question request = small_request({16, 8, 2, 2, 8}, {}, Updates::Deferred);  // a second stage: the flush
  request.caps[kDevice] = 200 << 10;
  return request;
}

struct Warnings : Observer {
  void warned(const std::string& what) override { said.push_back(what); }
  std::vector<std::string> said;
};

class PlanCacheTest : public testing::Test {
 protected:
  Stages made() { return must(make_stages(tiny_request(), profile_, &cache_)); }
  // Programs without plans.
  Stages programs() {
    Stages out = made();
    out.main.plan = out.find(kFlush)->plan = Plan();
    return out;
  }
  std::vector<std::filesystem::path> files() {
    std::vector<std::filesystem::path> out;
    for (const auto& file : must(list_files(dir_ / "plans"))) out.push_back(dir_ / "plans" / file);
    return out;
  }

  TempDir dir_;
  PlanCache cache_{dir_ / "plans", 3};
  std::unique_ptr<Backend> backend_ = rig::small_backend();
  Profile profile_ = rig::profile_of(*backend_);
};

TEST_F(PlanCacheTest, FindsWhatItKept) {
  const Stages first = made();
  Stages again = programs();
  ASSERT_TRUE(cache_.find(tiny_request(), profile_, again));
  EXPECT_EQ(to_text(again.main.model.program, again.main.plan),
            to_text(first.main.model.program, first.main.plan));
  EXPECT_EQ(to_text(again.find(kFlush)->model.program, again.find(kFlush)->plan),
            to_text(first.at(kFlush).model.program, first.at(kFlush).plan));
  EXPECT_EQ(again.main.plan.lower_bound_ns, first.main.plan.lower_bound_ns);
  EXPECT_EQ(again.main.plan.speedup_with_more, first.main.plan.speedup_with_more);
}

TEST_F(PlanCacheTest, KnowsOtherRequestsAndProfiles) {
  Stages stages = programs();
  Question request = tiny_request();
  request.caps[kDevice] += 4096;
  EXPECT_FALSE(cache_.find(request, profile_, stages));
  Profile profile = profile_;
  profile.measured_ns[cost_key(stages.main.model.program.tasks().front().op)] = 12345;
  EXPECT_FALSE(cache_.find(tiny_request(), profile, stages));
  profile = profile_;
  profile.set_bytes_per_s(kDevice, kHost, 0.5 * profile.bytes_per_s(kDevice, kHost));
  EXPECT_FALSE(cache_.find(tiny_request(), profile, stages));
  profile = profile_;
  profile.peak_flops += 1;  // no field of a machine is left out of the key
  EXPECT_FALSE(cache_.find(tiny_request(), profile, stages));
  EXPECT_TRUE(cache_.find(tiny_request(), profile_, stages));
}

TEST_F(PlanCacheTest, DoesNotTakeWhatIsCutShortOrChanged) {
  Stages stages = programs();
  ASSERT_EQ(files().size(), 1u);
  const std::string whole = must(read_file(files().front()));
  for (const size_t size : {size_t{0}, size_t{5}, whole.size() / 2, whole.size() - 1}) {
    must(write_file(files().front(), whole.substr(0, size)));
    Warnings warnings;
    EXPECT_FALSE(cache_.find(tiny_request(), profile_, stages, warnings)) << size << " bytes";
    ASSERT_EQ(warnings.said.size(), 1u);
    EXPECT_NE(warnings.said.front().find(files().front().string()), std::string::npos)
        << warnings.said.front();
    EXPECT_TRUE(warnings.said.front().ends_with("; it is made anew")) << warnings.said.front();
  }
  for (size_t at = 0; at < whole.size(); at += whole.size() / 50) {
    std::string changed = whole;
    changed[at] = char(changed[at] ^ 0x40);
    must(write_file(files().front(), changed));
    EXPECT_FALSE(cache_.find(tiny_request(), profile_, stages)) << "byte " << at;
  }
  EXPECT_TRUE(stages.main.plan.actions.empty());
}

// Nothing is said of what is not there.
TEST_F(PlanCacheTest, AnEmptyFolderIsNoNews) {
  Stages stages = must(make_stages(tiny_request(), profile_));
  Warnings warnings;
  EXPECT_FALSE(cache_.find(tiny_request(), profile_, stages, warnings));
  EXPECT_TRUE(warnings.said.empty());
}

// Others' plans become its own.
TEST_F(PlanCacheTest, TakesWhatItLacksFromASharedFolder) {
  const SealedRequest request("plans 0");
  const PlanCache first(dir_ / "first", 3, dir_ / "shared"), second(dir_ / "second", 3, dir_ / "shared");
  first.keep(request, "kept");
  EXPECT_EQ(must(second.find(request)), "kept");
  for (const auto& file : must(list_files(dir_ / "shared")))
    must(write_file(dir_ / "shared" / file, "damaged"));
  EXPECT_EQ(must(second.find(request)), "kept");
  EXPECT_FALSE(PlanCache(dir_ / "third", 3, dir_ / "shared").find(request).ok());
  EXPECT_EQ(PlanCache({}, 3, dir_ / "shared").find(request).error().kind, ErrorKind::NotFound);
}

// data.cache = "": no file is written to the working directory.
TEST_F(PlanCacheTest, KeepsNothingWithoutAFolder) {
  const SealedRequest request("plans 0");
  cache_.keep(request, "kept");
  EXPECT_EQ(must(cache_.find(request)), "kept");
  RunConfig config;
  config.data.cache.clear();
  const PlanCache none = plan_cache_of(config);
  none.keep(request, "kept");
  const auto found = none.find(request);
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().kind, ErrorKind::NotFound);
}

// A checksum can be right and the plan wrong.
TEST_F(PlanCacheTest, ProvesWhatItFinds) {
  const auto refused = [&](const char* why, const std::function<void(Stages&)>& spoil) {
    Stages stages = must(make_stages(tiny_request(), profile_));
    spoil(stages);
    cache_.keep(tiny_request(), profile_, stages);
    Warnings warnings;
    EXPECT_FALSE(cache_.find(tiny_request(), profile_, stages, warnings)) << why;
    ASSERT_EQ(warnings.said.size(), 1u) << why;
    EXPECT_NE(warnings.said.front().find(why), std::string::npos) << warnings.said.front();
  };
  refused("does not wait for", [](Stages& s) {
    for (Action& action : s.main.plan.actions) action.wait_count = 0;
  });
  refused("arena of 21474836480 bytes does not fit",
          [](Stages& s) { s.main.plan.arenas[kDevice].bytes = int64_t{20} << 30; });
  refused("for another machine", [](Stages& s) { s.main.plan.machine = "\x1b[31mred"; });
  refused("for another machine", [](Stages& s) { s.main.plan.alignment = 1; });
  refused("words", [](Stages& s) { s.main.plan.policy = "\xff<script>"; });
  // Right by itself, but all of its host arena lies a little further on than the training plan's.
  refused("is not where a step leaves it", [](Stages& s) {
    Plan& plan = s.find(kFlush)->plan;
    const int64_t further = plan.alignment;
    plan.arenas[kHost].bytes += further;
    for (Home& home : plan.homes) {
      if (home.on(kHost)) home.set(kHost, home.offset(kHost) + further);
    }
    for (Action& a : plan.actions) {
      for (Location* place : {&a.from, &a.to}) {
        if (a.kind == ActionKind::Copy && place->tier == kHost) place->offset += further;
      }
    }
  });
}

// What the process holds differs by pages from start to start.
TEST_F(PlanCacheTest, TakesWhatWasMadeForALittleMore) {
  profile_.overhead_bytes[kHost] = 24 * kMiB;
  Question request = tiny_request();
  Stages stages = programs();
  ASSERT_EQ(files().size(), 1u);
  for (const int64_t held : {20 * kMiB, 23 * kMiB, 24 * kMiB}) {
    request.held_bytes[kHost] = held;
    EXPECT_TRUE(cache_.find(request, profile_, stages)) << held;
  }
  request.held_bytes[kHost] = 24 * kMiB + 4096;
  EXPECT_FALSE(cache_.find(request, profile_, stages)) << "the plan may not fit beside that";
  request.held_bytes[kHost] = 0;
  profile_.overhead_bytes[kHost] = 20 * kMiB;
  EXPECT_TRUE(cache_.find(request, profile_, stages));
  profile_.overhead_bytes[kHost] = 16 * kMiB;
  EXPECT_FALSE(cache_.find(request, profile_, stages)) << "a better plan may fit";
}

TEST_F(PlanCacheTest, KeepsTheNewestFiles) {
  Question request = tiny_request();
  for (int i = 0; i < 6; ++i, request.caps[kDevice] += 8192)
    (void)must(make_stages(request, profile_, &cache_));
  EXPECT_EQ(files().size(), 3u);
  request.caps[kDevice] -= 8192;
  Stages last = programs();
  EXPECT_TRUE(cache_.find(request, profile_, last));
}

TEST_F(PlanCacheTest, FindsShapes) {
  const Question r = tiny_request();
  Question request;
  request.cut = {.seq_len = 16, .tokens_per_step = 128};
  const ShapeSubject subject = subject_of(r.model, r.numerics, r.optimizer);
  EXPECT_FALSE(cache_.find(subject, request, profile_));
  const ShapeChoice choice = must(choose_shape(subject, request.cut, request.caps, request, profile_));
  cache_.keep(subject, request, profile_, choice);
  const auto found = cache_.find(subject, request, profile_);
  ASSERT_TRUE(found);
  EXPECT_EQ(to_text(found->shape), to_text(choice.shape));
  EXPECT_EQ(found->shape.head_tokens, choice.shape.head_tokens);
  EXPECT_EQ(found->why, choice.why);
  request.cut.tokens_per_step = 256;
  EXPECT_FALSE(cache_.find(subject, request, profile_));
}

// The search for a plan begins with them: it must find the same whether its shape was kept or not.
TEST_F(PlanCacheTest, KeepsTheSettingsThatWereTriedForAShape) {
  const Question r = tiny_request();
  Question request;
  request.cut = {.seq_len = 16, .tokens_per_step = 128};
  const ShapeSubject subject = subject_of(r.model, r.numerics, r.optimizer);
  ShapeChoice choice = must(choose_shape(subject, request.cut, request.caps, request, profile_));
  const Policy policy{.rule = SaveRule::Prices,
                      .reserve = 0.1,
                      .overlap = true,
                      .lag = 4,
                      .under_way = 1.0 / 3,
                      .pinned_bytes = 12345,
                      .device_share = 0.96,
                      .host_share = 0.9975};
  choice.settings = std::make_shared<KnownSettings>(KnownSettings{~0ull, true, {{policy, 1e9 / 3}, {{}, 5}}});
  cache_.keep(subject, request, profile_, choice);
  const auto found = cache_.find(subject, request, profile_);
  ASSERT_TRUE(found && found->settings != nullptr);
  EXPECT_EQ(found->settings->subject, ~0ull);
  EXPECT_TRUE(found->settings->brief);
  ASSERT_EQ(found->settings->found.size(), 2u);
  EXPECT_EQ(found->settings->found.front().step_ns, 1e9 / 3);
  const Policy& p = found->settings->found.front().policy;
  EXPECT_EQ(std::tuple(p.reserve, p.again_weight, p.lag, p.under_way, p.device_share, p.host_share),
            std::tuple(0.1, 1.0, 4.0, 1.0 / 3, 0.96, 0.9975));
  EXPECT_EQ(std::tuple(p.rule, p.overlap, p.pinned_bytes), std::tuple(SaveRule::Prices, true, 12345));
  for (const Policy& wrong : {Policy{.reserve = -1},
                              {.rule = SaveRule::LeastHost},
                              {.lag = 1e9},
                              {.pinned_bytes = -1},
                              {.host_share = 2}}) {
    choice.settings = std::make_shared<KnownSettings>(KnownSettings{1, true, {{wrong, 1}}});
    cache_.keep(subject, request, profile_, choice);
    Warnings warnings;
    EXPECT_FALSE(cache_.find(subject, request, profile_, warnings));
    EXPECT_EQ(warnings.said.size(), 1u);
  }
}

// Each would train another number of tokens, end the program or never end.
TEST_F(PlanCacheTest, DoesNotTakeShapesOfOtherSteps) {
  const Question r = tiny_request();
  Question request;
  request.cut = {.seq_len = 16, .tokens_per_step = 128};
  const ShapeSubject subject = subject_of(r.model, r.numerics, r.optimizer);
  const ShapeChoice choice = must(choose_shape(subject, request.cut, request.caps, request, profile_));
  const std::vector<std::function<void(StepShape&)>> changes{
      [](StepShape& s) { s.rounds *= 3; },
      [](StepShape& s) { s.chunk_tokens /= 2; },
      [](StepShape& s) { s.seq_len *= 2; },
      [](StepShape& s) { s.seq_len /= 2, s.chunks_per_round *= 2; },
      [](StepShape& s) { s.rounds = 1000000000; },
      [](StepShape& s) { s.rounds = s.chunks_per_round = s.first_chunks = INT64_MAX; },
      [](StepShape& s) { s.head_tokens = INT64_MAX; },
      [](StepShape& s) { s.packed = true; },
      [](StepShape& s) { s.rounds = -1; },
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    ShapeChoice changed = choice;
    changes[i](changed.shape);
    cache_.keep(subject, request, profile_, changed);
    Warnings warnings;
    EXPECT_FALSE(cache_.find(subject, request, profile_, warnings)) << i;
    EXPECT_EQ(warnings.said.size(), 1u) << i;
  }
  cache_.keep(subject, request, profile_, choice);
  EXPECT_TRUE(cache_.find(subject, request, profile_));
  Question given = request;
  given.cut.head_tokens = choice.shape.head_tokens / 2;
  ShapeChoice other = choice;
  cache_.keep(subject, given, profile_, other);
  EXPECT_FALSE(cache_.find(subject, given, profile_)) << "not what was asked for";
  given.cut.head_tokens = 4 * choice.shape.chunk_tokens;
  other.shape = must(choose_shape(subject, given.cut, given.caps, given, profile_)).shape;
  cache_.keep(subject, given, profile_, other);
  EXPECT_TRUE(cache_.find(subject, given, profile_)) << "more rows than a chunk has are all of them";
  Question first = request;
  first.cut.chunk_tokens = 16, first.cut.rounds = 2, first.cut.first_round_chunks = 5;
  other.shape = must(choose_shape(subject, first.cut, first.caps, first, profile_)).shape;
  cache_.keep(subject, first, profile_, other);
  EXPECT_TRUE(cache_.find(subject, first, profile_));
  other.shape.first_chunks = 0;
  cache_.keep(subject, first, profile_, other);
  EXPECT_FALSE(cache_.find(subject, first, profile_)) << "not the first round that was asked for";
}

}  // namespace
}  // namespace sluice::core
