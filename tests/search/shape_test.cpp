// SPDX-License-Identifier: Apache-2.0
// The search for the shape of a step, and the ways to estimate one.
#include "search/shape.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <map>
#include <mutex>
#include <string>
#include <tuple>

#include "search/test_machine.h"
#include "setup/stages.h"

namespace sluice::core {
namespace {

const ModelSpec kModel = model_of({256, 2, 4, 2, 64, 704, 512});

ShapeSubject subject() {
  return subject_of(kModel, {}, {});
}

Profile machine() {
  return test_machine(1e9);
}

struct Asked : Cut, Effort {
  BytesByTier caps = BytesByTier(kUnlimited);
  std::stop_token hurry = {};
};
Result<ShapeChoice> chosen(const ShapeSubject& subject, const Asked& asked, const Profile& profile) {
  return choose_shape(subject, asked, asked.caps, asked, profile, asked.hurry);
}

Asked request_for(int64_t tokens_per_step) {
  Asked request;
  request.seq_len = 1024;
  request.tokens_per_step = tokens_per_step;
  return request;
}

TEST(Shape, KeepsWhatWasGiven) {
  Asked request = request_for(16384);
  request.chunk_tokens = 2048;
  request.rounds = 3;
  request.first_round_chunks = 4;
  request.head_tokens = 512;
  const auto choice = chosen(subject(), request, machine());
  ASSERT_TRUE(choice.ok()) << choice.error().message;
  EXPECT_EQ(choice->shape.chunk_tokens, 2048);
  EXPECT_EQ(choice->shape.head_tokens, 512);
  EXPECT_EQ(choice->shape.rounds, 3);
  EXPECT_EQ(choice->shape.chunks_in(0), 4);
}

// At once: no program is made any more. What was found by then does not count.
TEST(Shape, IsNotSearchedForWhenSomebodyAsksToStop) {
  ShapeSubject counted = subject();
  int made = 0;
  std::stop_source stop;
  counted.program = [&, inner = counted.program](const StepShape& shape, bool late_moments) {
    if (++made == 5) stop.request_stop();
    return inner(shape, late_moments);
  };
  Asked request = request_for(16384);
  request.stop = stop.get_token();
  const auto choice = chosen(counted, request, machine());
  ASSERT_FALSE(choice.ok());
  EXPECT_EQ(choice.error().kind, ErrorKind::Cancelled) << choice.error().message;
  EXPECT_EQ(made, 5);
}

// In a hurry, the fastest so far is chosen, and what was told of the search ends with it.
TEST(Shape, IsTheFastestSoFarWhenSomebodyIsInAHurry) {
  std::stop_source hurry;
  std::vector<SearchProgress> seen;
  Asked request = request_for(16384);
  request.hurry = hurry.get_token();
  request.watch = [&](const SearchProgress& p) {
    EXPECT_GE(p.tried, seen.empty() || seen.back().what != p.what ? 0 : seen.back().tried);
    EXPECT_TRUE(p.at_most == 0 || p.tried <= p.at_most) << p.what;
    seen.push_back(p);
    if (p.best_ns > 0) hurry.request_stop();
  };
  const auto choice = chosen(subject(), request, machine());
  ASSERT_TRUE(choice.ok()) << choice.error().message;
  EXPECT_GT(seen.back().best_ns, 0);
  const int64_t tried = seen.back().tried;
  hurry = std::stop_source();
  seen.clear();
  request.hurry = {};
  request.watch = [&](const SearchProgress& p) { seen.push_back(p); };
  const auto whole = chosen(subject(), request, machine());
  ASSERT_TRUE(whole.ok());
  EXPECT_LT(tried, seen.back().tried);
}

// Where the link takes long for all experts, the search begins with rounds of enough tokens for that, too.
TEST(Shape, BeginsWithRoundsThatHideTheLoadsOfExperts) {
  ModelSpec model = kModel;
  model.layers.resize(1);
  model.layers.front().feed_forward =
      Experts{.each = model.layers.front().mlp(), .count = 256, .top_k = 2, .group = 16};
  constexpr int64_t kTokens = 65536;
  const auto begins_with_one_round = [&](double link_bytes_per_s) {
    ShapeSubject counted = subject_of(model, {}, {});
    std::mutex mutex;
    bool one_round = false;
    counted.program = [&, inner = counted.program](const StepShape& shape, bool late_moments) {
      const std::lock_guard lock(mutex);
      one_round |= shape.tokens() == kTokens && shape.rounds == 1;
      return inner(shape, late_moments);
    };
    std::stop_source hurry;
    Asked request = request_for(kTokens);
    request.chunk_tokens = 4096;
    request.caps[kDevice] = 192 * kMiB;
    request.hurry = hurry.get_token();
    request.watch = [&](const SearchProgress& p) {
      if (p.best_ns > 0) hurry.request_stop();
    };
    const auto choice = chosen(counted, request, test_machine(link_bytes_per_s));
    EXPECT_TRUE(choice.ok()) << choice.error().message;
    return one_round;
  };
  EXPECT_TRUE(begins_with_one_round(1e6));
  EXPECT_FALSE(begins_with_one_round(1e12));
}

// What is decided before there is a Program goes by as many tasks as it then has.
TEST(TaskCount, IsThatOfThePrograms) {
  constexpr int64_t kSequence = 1024, kTokens = 8192;
  constexpr int64_t kNoAttention = -1;
  for (const int64_t window : {kNoAttention, int64_t{0}, int64_t{200}, int64_t{700}}) {
    ModelSpec model = kModel;
    if (window == kNoAttention) {
      model.layers.back().mixer = Convolution{.width = 3};
    } else {
      model.layers.back().attention()->window = window;
    }
    for (const bool deferred : {false, true}) {
      OptimizerConfig optimizer;
      optimizer.deferred = deferred;
      const ShapeSubject of = subject_of(model, {}, optimizer);
      const TaskCount count(of, kSequence, false);
      for (const int64_t chunk : {128, 512, 1024, 2048, 8192}) {
        StepShape shape{kSequence, chunk, 1, 1, 128, false};
        spread(shape, kTokens / kSequence, chunk < kTokens ? 2 : 1);
        EXPECT_EQ(count.of(kTokens, chunk), int64_t(of.program(shape, false).tasks().size()))
            << "window " << window << " chunks of " << chunk << (deferred ? " deferred" : "");
      }
    }
  }
}

TEST(Shape, CoversTheStepOnce) {
  for (const int64_t tokens : {1024, 3072, 16384, 40960}) {
    const auto choice = chosen(subject(), request_for(tokens), machine());
    ASSERT_TRUE(choice.ok()) << choice.error().message;
    EXPECT_EQ(choice->shape.tokens(), tokens);
  }
}

// Whatever number of sequences of whatever length somebody types: there are shapes of it, and they are valid.
// Of more than eight sequences a fifth is tried, other numbers with each length; all where SLUICE_SWEEP is
// set.
TEST(Shape, ThereIsOneForEveryBatch) {
  const bool all = std::getenv("SLUICE_SWEEP") != nullptr;
  // Most programs are of one sequence, however many a step has: they are made once for all steps.
  ShapeSubject any = subject();
  std::mutex mutex;
  std::map<std::tuple<std::string, int64_t, bool>, Program> made;
  any.program = [&, make = any.program](const StepShape& shape, bool late_moments) {
    const std::tuple key(to_text(shape), shape.head_tokens, late_moments);
    const std::lock_guard lock(mutex);
    const auto known = made.find(key);
    return known != made.end() ? known->second : made.emplace(key, make(shape, late_moments)).first->second;
  };
  const Profile profile = machine();
  Asked request;
  request.least = true;
  for (request.seq_len = 2; request.seq_len <= 4096; ++request.seq_len) {
    made.clear();
    // Of long ones those that chunks divide, and others by an odd stride.
    if (request.seq_len > 512 && request.seq_len % 64 != 0 && request.seq_len % 7 != 0) continue;
    for (int64_t rows = 1; rows <= 64; ++rows) {
      if (!all && rows > 8 && (rows + request.seq_len) % 5 != 0) continue;
      request.tokens_per_step = rows * request.seq_len;
      const auto choice = chosen(any, request, profile);
      ASSERT_TRUE(choice.ok()) << request.seq_len << " x " << rows << ": " << choice.error().message;
      ASSERT_EQ(choice->shape.tokens(), request.tokens_per_step) << rows << ": " << to_text(choice->shape);
    }
  }
}

// What sequences of a step are left over when chunks are as long as somebody says is one more chunk.
TEST(Shape, MayEndInAShortChunk) {
  Asked request = request_for(7 * 1024);
  request.chunk_tokens = 2048;
  request.rounds = 2;
  const auto choice = chosen(subject(), request, machine());
  ASSERT_TRUE(choice.ok()) << choice.error().message;
  EXPECT_EQ(to_text(choice->shape), "2048 x 2 x 2 - 1024");
}

// Where a cap forbids a batch, the refusal names the least cap under which a shape of it is found, and a
// sixteenth less is too little.
TEST(Shape, ThatACapForbidsIsRefusedWithTheOneThatWorks) {
  for (const auto& [seq_len, rows] : {std::pair<int64_t, int64_t>{512, 3}, {700, 5}, {37, 50}, {1000, 25}}) {
    SCOPED_TRACE(testing::Message() << seq_len << " x " << rows);
    Asked request;
    request.seq_len = seq_len;
    request.tokens_per_step = seq_len * rows;
    request.caps[kDevice] = 64 * 1024;
    const auto refused = chosen(subject(), request, machine());
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().kind, ErrorKind::DoesNotFit);
    const auto& shortage = refused.error().shortage;
    ASSERT_TRUE(shortage && shortage->need_bytes) << refused.error().message;
    request.caps[kDevice] = *shortage->need_bytes;
    const auto choice = chosen(subject(), request, machine());
    EXPECT_TRUE(choice.ok()) << choice.error().message;
    request.caps[kDevice] -= request.caps[kDevice] / 16;
    EXPECT_FALSE(chosen(subject(), request, machine()).ok());
  }
}

TEST(Shape, OfSmallerChunksHasToGainWhatItsTasksCost) {
  // Without a cap nothing moves, and without launches every cut of the step takes the same time. Half the
  // chunk makes a hundred tasks more of a step of 0.1 s.
  const auto chosen_when_half_is = [](double faster) {
    Profile profile = machine();
    profile.rates.product_flops = 1e13;
    profile.rates.attention_forward_flops = profile.rates.attention_backward_flops = 1e13;
    profile.rates.memory_bytes = 1e12;
    const Program half = build_training(kModel, {1024, 16384, 1, 4, 4096}, {}, {}).program;
    for (const Op& op : distinct_ops(half)) profile.measured_ns[cost_key(op)] = profile.cost(op).ns / faster;
    const auto choice = chosen(subject(), request_for(65536), profile);
    EXPECT_TRUE(choice.ok());
    return choice.ok() ? choice->shape.chunk_tokens : 0;
  };
  EXPECT_EQ(chosen_when_half_is(1.004), 32768);
  EXPECT_EQ(chosen_when_half_is(1.04), 16384);
}

// A window bounds the blocks of attention, and so how small chunks may be before their tasks are too many.
TEST(Shape, OfWindowsHasSmallChunksOfLongSequences) {
  ModelSpec model = model_of({256, 30, 4, 2, 64, 704, 512});
  Asked request;
  request.seq_len = request.tokens_per_step = 1 << 20;
  request.least = true;
  const auto chunk_of = [&] {
    const auto choice = chosen(subject_of(model, {}, {}), request, machine());
    EXPECT_TRUE(choice.ok());
    return choice.ok() ? choice->shape.chunk_tokens : 0;
  };
  EXPECT_EQ(chunk_of(), 32768);
  for (LayerSpec& layer : model.layers) layer.attention()->window = 4096;
  EXPECT_EQ(chunk_of(), 8192);
}

TEST(Shape, DoesNotDependOnThreads) {
  Asked request = request_for(8192);
  request.chunk_tokens = 1024;
  request.caps[kDevice] = 32 * kMiB;
  request.threads = 1;
  const auto one = chosen(subject(), request, machine());
  request.threads = 16;
  const auto many = chosen(subject(), request, machine());
  ASSERT_TRUE(one.ok()) << one.error().message;
  ASSERT_TRUE(many.ok()) << many.error().message;
  EXPECT_EQ(to_text(one->shape), to_text(many->shape));
  EXPECT_EQ(one->why, many->why);
  EXPECT_NE(one->why.find("planned in full"), std::string::npos) << one->why;
}

TEST(Shape, ThatCannotBeCutIsRefusedWithWhatWasGiven) {
  Asked request = request_for(16384);
  request.chunk_tokens = 1500;
  const auto choice = chosen(subject(), request, machine());
  ASSERT_FALSE(choice.ok());
  EXPECT_NE(choice.error().message.find("chunk_tokens 1500"), std::string::npos) << choice.error().message;
  request.chunk_tokens = 32768;  // more than the step
  EXPECT_FALSE(chosen(subject(), request, machine()).ok());
}

// A quick plan is the faster of the quick plans made in either way.
TEST(Ways, BothAreAsFastAsTheFasterOne) {
  const Program program = build_training(kModel, {1024, 2048, 3, 4, 512}, {}, {}).program;
  int held = 0, differ = 0;
  for (const int64_t cap : {24 * kMiB, 32 * kMiB, 48 * kMiB, 64 * kMiB}) {
    PlanRequest request;
    request.quick = true;
    request.caps[kDevice] = cap;
    double ns[3];
    for (const Ways ways : {Ways::Both, Ways::Weights, Ways::Prices}) {
      request.ways = ways;
      const auto plan = make_plan(program, machine(), request);
      ns[size_t(ways)] = plan.ok() ? plan->makespan_ns : std::numeric_limits<double>::infinity();
    }
    const double both = ns[size_t(Ways::Both)];
    if (both == std::numeric_limits<double>::infinity()) continue;
    ++held;
    differ += ns[size_t(Ways::Weights)] != ns[size_t(Ways::Prices)];
    EXPECT_EQ(both, std::min(ns[size_t(Ways::Weights)], ns[size_t(Ways::Prices)])) << cap;
  }
  EXPECT_GE(held, 2);
  EXPECT_GE(differ, 1);
}

}  // namespace
}  // namespace sluice::core
