// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>

#include "ops/clip_norm.h"
#include "ops/rounding.h"
#include "run_op.h"

namespace sluice::core::testing {
namespace {

class Elementwise : public ::testing::TestWithParam<DType> {
 protected:
  const DType dtype = GetParam();
  Values random(int64_t count, uint32_t seed) const { return rounded(dtype, random_values(count, seed)); }
};
INSTANTIATE_TEST_SUITE_P(Types, Elementwise, ::testing::Values(DType::F32, DType::BF16),
                         [](const auto& type) { return std::string(name_of(type.param)); });

TEST_P(Elementwise, RmsNorm) {
  const int64_t tokens = 70, dim = 37;
  const Values x = random(tokens * dim, 1), w = random(dim, 2), dy = random(tokens * dim, 3),
               res = random(tokens * dim, 4);
  Values y(x.size()), dx = res, dw(w.size());
  for (int64_t t = 0; t < tokens; ++t) {
    const auto at = [&](int64_t i) { return size_t(t * dim + i); };
    double squares = 0, dot = 0;
    for (int64_t i = 0; i < dim; ++i) squares += x[at(i)] * x[at(i)];
    const double s = 1 / std::sqrt(squares / double(dim) + 1e-5);
    for (int64_t i = 0; i < dim; ++i) dot += x[at(i)] * s * w[size_t(i)] * dy[at(i)];
    for (int64_t i = 0; i < dim; ++i) {
      y[at(i)] = x[at(i)] * s * w[size_t(i)];
      dx[at(i)] += s * (w[size_t(i)] * dy[at(i)] - x[at(i)] * s * dot / double(dim));
      dw[size_t(i)] += dy[at(i)] * x[at(i)] * s;
    }
  }
  EXPECT_LT(relative_error(run_op(RmsNorm{tokens, dim, 1e-5f, dtype}, {x, w})[RmsNorm::kY], y),
            tolerance(dtype));
  const Contents after =
      run_op(RmsNormBwd{tokens, dim, 1e-5f, dtype, DType::F32, false, true}, {x, w, dy, {}, {}, res});
  EXPECT_LT(relative_error(after[RmsNormBwd::kDx], dx), tolerance(dtype));
  EXPECT_LT(relative_error(after[RmsNormBwd::kDw], dw), tolerance(DType::F32));
}

TEST_P(Elementwise, Swiglu) {
  const int64_t tokens = 11, dim = 29;
  const Values gu = random(tokens * 2 * dim, 1), dy = random(tokens * dim, 2);
  Values y(dy.size()), dgu(gu.size());
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t i = 0; i < dim; ++i) {
      const size_t g = size_t(t * 2 * dim + i), u = g + size_t(dim), o = size_t(t * dim + i);
      const double sig = 1 / (1 + std::exp(-gu[g]));
      y[o] = gu[g] * sig * gu[u];
      dgu[g] = dy[o] * gu[u] * sig * (1 + gu[g] * (1 - sig));
      dgu[u] = dy[o] * gu[g] * sig;
    }
  }
  const Contents forward = run_op(Swiglu{tokens, dim, dtype}, {gu});
  const Contents backward = run_op(SwigluBwd{tokens, dim, dtype}, {gu, dy});
  EXPECT_LT(relative_error(forward[Swiglu::kY], y), tolerance(dtype));
  EXPECT_LT(relative_error(backward[SwigluBwd::kDgu], dgu), tolerance(dtype));
  EXPECT_EQ(forward[Swiglu::kY], backward[SwigluBwd::kY]);
}

TEST_P(Elementwise, Embedding) {
  const int64_t tokens = 100, vocab = 17, dim = 19;
  Values ids;
  for (int64_t t = 0; t < tokens; ++t) ids.push_back(double(t * t % 11));
  const Values table = random(vocab * dim, 1), dy = random(tokens * dim, 2);
  Values y, dtable = table;
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t i = 0; i < dim; ++i) {
      const size_t entry = size_t(ids[size_t(t)]) * size_t(dim) + size_t(i);
      y.push_back(table[entry]);
      dtable[entry] += dy[size_t(t * dim + i)];
    }
  }
  EXPECT_EQ(run_op(Embed{tokens, vocab, dim, dtype}, {ids, table})[Embed::kY], y);
  const Contents after = run_op(EmbedBwd{tokens, vocab, dim, dtype, dtype, true}, {ids, dy, table});
  EXPECT_LT(relative_error(after[EmbedBwd::kDTable], dtable), tolerance(dtype));
}

TEST_P(Elementwise, RopeBwdUndoesRope) {
  const int64_t tokens = 20, heads = 2, head_dim = 20, cols = heads * head_dim;
  Values pos, inv_freq;
  for (int64_t t = 0; t < tokens; ++t) pos.push_back(double(7 * t));
  for (int64_t i = 0; i < head_dim / 2; ++i) inv_freq.push_back(1.0 / double(1 + i));
  const Values q = random(tokens * cols, 1), v = random(tokens * cols, 2);
  const Values turned = run_op(Rope{tokens, heads, head_dim, 0, dtype}, {q, pos, inv_freq})[Rope::kX];
  Values turned_kv, kv;
  for (int64_t t = 0; t < tokens; ++t) {
    const auto row = [&](const Values& from, Values& to) {
      to.insert(to.end(), from.begin() + t * cols, from.begin() + (t + 1) * cols);
    };
    row(turned, turned_kv), row(v, turned_kv), row(q, kv), row(v, kv);
  }
  const Contents after =
      run_op(RopeBwd{tokens, heads, heads, head_dim, dtype, dtype}, {turned, turned_kv, pos, inv_freq});
  EXPECT_LT(relative_error(after[RopeBwd::kDq], q), tolerance(dtype));
  EXPECT_LT(relative_error(after[RopeBwd::kDkv], kv), tolerance(dtype));
}

TEST_P(Elementwise, HeadLoss) {
  const int64_t tokens = 50, dim = 24, vocab = 37;
  const Values x = random(tokens * dim, 1), w = random(vocab * dim, 2);
  Values targets, dx(x.size()), dw(w.size());
  const StepArgs args{.loss_scale = 0.125f};
  double loss = 0;
  for (int64_t t = 0; t < tokens; ++t) {
    targets.push_back(t % 5 == 0 ? -1 : double(t % vocab));
    if (t % 5 == 0) continue;
    Values p(size_t(vocab), 0.0);
    for (int64_t v = 0; v < vocab; ++v) {
      for (int64_t i = 0; i < dim; ++i) p[size_t(v)] += x[size_t(t * dim + i)] * w[size_t(v * dim + i)];
      p[size_t(v)] = std::exp(p[size_t(v)]);
    }
    const double total = std::accumulate(p.begin(), p.end(), 0.0);
    loss -= std::log(p[size_t(t % vocab)] / total);
    for (int64_t v = 0; v < vocab; ++v) {
      const double d = 0.125 * (p[size_t(v)] / total - (v == t % vocab ? 1 : 0));
      for (int64_t i = 0; i < dim; ++i) {
        dx[size_t(t * dim + i)] += d * w[size_t(v * dim + i)];
        dw[size_t(v * dim + i)] += d * x[size_t(t * dim + i)];
      }
    }
  }
  const HeadLoss op{tokens, dim, vocab, 16, dtype, DType::F32, false, false, false};
  const Contents after = run_op(op, {x, w, targets, as_values(args)});
  EXPECT_NEAR(after[HeadLoss::kLoss][0], loss, 1e-5 * loss);
  EXPECT_LT(relative_error(after[HeadLoss::kDx], dx), tolerance(dtype));
  EXPECT_LT(relative_error(after[HeadLoss::kDw], dw), tolerance(dtype));
}

TEST_P(Elementwise, SumSqFillsItsSlot) {
  const Values g = random(200'000, 1);
  const double expected = std::inner_product(g.begin(), g.end(), g.begin(), 0.0);
  const Contents first = run_op(SumSq{200'000, 1, 3, dtype, true}, {g});
  EXPECT_NEAR(first[SumSq::kSums][1], expected, 1e-10 * expected);
  EXPECT_EQ(first[SumSq::kSums][2], 0);
  const Contents later = run_op(SumSq{200'000, 1, 3, dtype, false}, {g, {7, 8, 9}});
  EXPECT_EQ(later[SumSq::kSums], (Values{7, first[SumSq::kSums][1], 9}));
}

TEST(Cast, RoundsToNearestEven) {
  const Values x{1.0, 1.00390625, 1.01171875, -3.3, 1e30};
  EXPECT_EQ(run_op(Cast{5, DType::F32, DType::BF16}, {x})[Cast::kY], rounded(DType::BF16, x));
}

TEST(ClipScale, SkipsWhenNotFinite) {
  const Contents plain = run_op(ClipScale{2, 1.0f}, {{9, 16}});
  EXPECT_NEAR(plain[ClipScale::kClip][0], 5, 1e-6);
  EXPECT_NEAR(plain[ClipScale::kClip][1], 0.2, 1e-6);
  EXPECT_EQ(run_op(ClipScale{2, 0.0f}, {{9, 16}})[ClipScale::kClip][1], 1);
  EXPECT_EQ(run_op(ClipScale{2, 1.0f}, {{9, INFINITY}})[ClipScale::kClip][1], 0);
  EXPECT_EQ(run_op(ClipScale{2, 1.0f}, {{9, NAN}})[ClipScale::kClip][1], 0);
}

TEST(ClipScale, BlamesTheLastSlotThatIsNotFinite) {
  const auto blamed = [](const std::vector<double>& sums) {
    return blamed_slot({norm_that_blames(slot_to_blame(sums.data(), int64_t(sums.size()))), 0});
  };
  EXPECT_EQ(blamed({NAN, 1, 2}), 0);
  EXPECT_EQ(blamed({NAN, NAN, 2}), 1);
  EXPECT_EQ(blamed({NAN, INFINITY, 2}), 1);
  EXPECT_EQ(blamed({INFINITY, 1, NAN, 3}), 2);
  // Sums that f32 cannot hold as a norm.
  EXPECT_EQ(blamed({1e80, 3e80, 1e79}), 1);
  EXPECT_TRUE(std::isnan(norm_that_blames(3)));
}

struct AdamWCase {
  static constexpr int64_t kElements = 1000;
  Values p = random_values(kElements, 1), g = random_values(kElements, 2), m = random_values(kElements, 3), v;
  StepArgs args{.step = 3, .seed = 42, .learning_rate = 0.01f, .update = 1, .updates = 3};
  AdamW op{.elements = kElements,
           .first = 5,
           .object = 9,
           .beta1 = 0.9,
           .beta2 = 0.95,
           .eps = 1e-8f,
           .weight_decay = 0.1f,
           .dtype = DType::F32,
           .grad_dtype = DType::F32,
           .state_dtype = DType::F32,
           .master = MasterWeights::Off,
           .stochastic = false};

  AdamWCase() {
    for (const double x : random_values(kElements, 4)) v.push_back(x * x);
  }
  Contents run(double clip) const { return run_op(op, {p, g, m, v, {1, clip}, as_values(args)}); }
  // The new p, in doubles.
  Values expected(double clip) const {
    Values w = p;
    for (size_t i = 0; i < w.size(); ++i) {
      const double gc = clip * g[i], m1 = 0.9 * m[i] + 0.1 * gc, v1 = 0.95 * v[i] + 0.05 * gc * gc;
      w[i] -= 0.01 * ((m1 / 0.271) / (std::sqrt(v1 / 0.142625) + 1e-8) + 0.1 * w[i]);
    }
    return w;
  }
};

TEST(AdamW, FollowsTheFormula) {
  const AdamWCase c;
  EXPECT_LT(relative_error(c.run(0.5)[AdamW::kP], c.expected(0.5)), tolerance(DType::F32));
}

TEST(AdamW, LeavesEverythingWithoutUpdate) {
  AdamWCase c;
  EXPECT_EQ(c.run(0.0)[AdamW::kM], rounded(DType::F32, c.m));
  c.args.update = 0;
  EXPECT_EQ(c.run(0.5)[AdamW::kP], rounded(DType::F32, c.p));
}

TEST(AdamW, KeepsTheMasterCopy) {
  AdamWCase c;
  c.op.dtype = DType::BF16;
  c.op.master = MasterWeights::F32;
  const Contents after = run_op(c.op, {c.p, c.g, c.m, c.v, {1, 0.5}, as_values(c.args), c.p});
  EXPECT_LT(relative_error(after[AdamW::kMaster], c.expected(0.5)), tolerance(DType::F32));
  EXPECT_EQ(after[AdamW::kP], rounded(DType::BF16, after[AdamW::kMaster]));
}

// Without gradients the mean of squares falls as it would in f32, however slowly: a scale is not rounded to
// itself.
TEST(AdamW, CompactMeansOfSquaresFall) {
  constexpr int64_t kElements = 64;
  constexpr int kSteps = 300;
  AdamWCase c;
  c.op.elements = kElements, c.op.first = 0, c.op.beta2 = 0.999, c.op.state_dtype = DType::I8;
  const auto backend = make_cpu_backend({.threads = 1});
  const Operands schema = operands(Op(c.op));
  int64_t total = 0;
  for (const Operand& o : schema) total += align_up(o.bytes(), backend->alignment());
  const auto arenas = backend->reserve({{kDevice, total}});
  ASSERT_TRUE(arenas.ok());
  const std::vector<SharedOp> ops{c.op};
  ASSERT_TRUE(backend->prepare(ops).ok());
  std::byte* next = (*arenas)[kDevice];
  std::memset(next, 0, size_t(total));
  std::vector<Buffer> buffers;
  for (const Operand& o : schema) {
    buffers.push_back({next, o.bytes()});
    next += align_up(o.bytes(), backend->alignment());
  }
  c.args.learning_rate = 0;
  encode(DType::F32, {1, 1}, buffers[AdamW::kClip].data);
  std::memcpy(buffers[AdamW::kArgs].data, &c.args, sizeof c.args);
  std::byte* v = buffers[AdamW::kV].data;
  std::memset(v, 255, kElements);
  encode(DType::F32, {1, 0.25}, v + kElements);
  for (int step = 0; step < kSteps; ++step) {
    ASSERT_TRUE(backend->begin(1, true).ok());
    ASSERT_TRUE(backend->submit({0, kCompute, {}, Launch{&*ops[0], buffers, {}}, 0}).ok());
    ASSERT_FALSE(backend->finish(nullptr).has_value());
  }
  const Values scales = decode(DType::F32, v + kElements, 2);
  const double root = std::pow(0.999, kSteps / 2.0);
  EXPECT_NEAR(scales[0], root, 1e-3 * root);
  EXPECT_NEAR(scales[1], 0.25 * root, 1e-3 * root);
}

TEST(AdamW, RoundsByTheKeyedBits) {
  AdamWCase c;
  c.op.dtype = c.op.state_dtype = DType::BF16;
  c.op.stochastic = true;
  c.p = rounded(DType::BF16, c.p), c.m = rounded(DType::BF16, c.m), c.v = rounded(DType::BF16, c.v);
  const Contents after = c.run(1.0);
  const uint64_t key = rounding_key(42, 9);
  for (size_t i = 0; i < c.m.size(); ++i) {
    const int64_t element = int64_t(i) + 5;
    const RoundingBits bits = rounding_bits(rounding_pair(key, 3, element / 2), element % 2 != 0);
    const float g = float(c.g[i]), m = std::fma(0.9f, float(c.m[i]), g * (1.0f - 0.9f));
    // Whether a product and a sum are fused may move m by one ulp, hence the draw's carry.
    const float low = float(std::bit_cast<Bf16>(round_stochastic(std::bit_cast<uint32_t>(m) - 2, bits.m)));
    const float high = float(std::bit_cast<Bf16>(round_stochastic(std::bit_cast<uint32_t>(m) + 2, bits.m)));
    EXPECT_TRUE(after[AdamW::kM][i] == double{low} || after[AdamW::kM][i] == double{high}) << i;
  }
}

TEST(Faults, IdOutsideTheVocabulary) {
  std::optional<Fault> fault;
  run_op(Embed{3, 10, 4, DType::F32}, {{1, 10, 2}}, {.threads = 1}, &fault);
  ASSERT_TRUE(fault.has_value());
  EXPECT_NE(fault->error.message.find("token 1 has id 10"), std::string::npos) << fault->error.message;
}

}  // namespace
}  // namespace sluice::core::testing
