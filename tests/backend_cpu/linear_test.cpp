// SPDX-License-Identifier: Apache-2.0
#include "run_op.h"

namespace sluice::core::testing {
namespace {

// C[m, n] = A B with the elements of A and B given by functions of (row, column).
Values product(int64_t m, int64_t n, int64_t k, auto a, auto b) {
  Values c(size_t(m * n));
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j)
      for (int64_t p = 0; p < k; ++p) c[size_t(i * n + j)] += a(i, p) * b(p, j);
  return c;
}

Values add(Values a, const Values& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

struct Shape {
  int64_t tokens, in, out;
  DType dtype;
};
// Without this, names of tests would show the bytes of a Shape, padding included.
void PrintTo(const Shape& s, std::ostream* out) {
  *out << s.tokens << " x " << s.in << " x " << s.out;
}

class LinearOps : public ::testing::TestWithParam<Shape> {
 protected:
  const int64_t tokens = GetParam().tokens, in = GetParam().in, out = GetParam().out;
  const DType dtype = GetParam().dtype;
  const Values x = rounded(dtype, random_values(tokens*in, 1)), w = rounded(dtype, random_values(out*in, 2));
  const Values dy = rounded(dtype, random_values(tokens* out, 3));
};

TEST_P(LinearOps, Forward) {
  const Values expected = product(
      tokens, out, in, [&](int64_t t, int64_t p) { return x[size_t(t * in + p)]; },
      [&](int64_t p, int64_t o) { return w[size_t(o * in + p)]; });
  EXPECT_LT(relative_error(run_op(Linear{tokens, in, out, dtype}, {x, w})[Linear::kY], expected),
            tolerance(dtype));
  const Contents with_residual = run_op(Linear{tokens, in, out, dtype, true}, {x, w, {}, dy});
  EXPECT_LT(relative_error(with_residual[Linear::kY], add(expected, dy)), tolerance(dtype));
}

TEST_P(LinearOps, Dgrad) {
  const Values expected = product(
      tokens, in, out, [&](int64_t t, int64_t p) { return dy[size_t(t * out + p)]; },
      [&](int64_t p, int64_t i) { return w[size_t(p * in + i)]; });
  const Contents plain = run_op(LinearDgrad{tokens, in, out, dtype, false}, {dy, w});
  EXPECT_LT(relative_error(plain[LinearDgrad::kDx], expected), tolerance(dtype));
  const Contents sum = run_op(LinearDgrad{tokens, in, out, dtype, true}, {dy, w, x});
  EXPECT_LT(relative_error(sum[LinearDgrad::kDx], add(expected, x)), tolerance(dtype));
}

TEST_P(LinearOps, Wgrad) {
  const Values expected = product(
      out, in, tokens, [&](int64_t o, int64_t t) { return dy[size_t(t * out + o)]; },
      [&](int64_t t, int64_t i) { return x[size_t(t * in + i)]; });
  for (const DType grad : {dtype, DType::F32}) {
    const Contents plain = run_op(LinearWgrad{tokens, in, out, dtype, grad, false}, {dy, x});
    EXPECT_LT(relative_error(plain[LinearWgrad::kDw], expected), tolerance(grad));
    const Contents sum = run_op(LinearWgrad{tokens, in, out, dtype, grad, true}, {dy, x, w});
    EXPECT_LT(relative_error(sum[LinearWgrad::kDw], add(expected, w)), tolerance(grad));
  }
}

TEST_P(LinearOps, DoNotDependOnThreads) {
  const Op forward = Linear{tokens, in, out, dtype},
           wgrad = LinearWgrad{tokens, in, out, dtype, DType::F32, false};
  EXPECT_EQ(run_op(forward, {x, w}, {.threads = 1}), run_op(forward, {x, w}, {.threads = 3}));
  EXPECT_EQ(run_op(wgrad, {dy, x}, {.threads = 1}), run_op(wgrad, {dy, x}, {.threads = 3}));
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, LinearOps,
    ::testing::Values(Shape{300, 96, 130, DType::F32}, Shape{1, 7, 3, DType::F32},
                      Shape{257, 64, 32, DType::BF16}, Shape{33, 40, 97, DType::BF16},
                      // Along k more than is packed together: of a row, a column, tokens.
                      Shape{37, 9001, 33, DType::F32}, Shape{37, 33, 9001, DType::F32},
                      Shape{9001, 37, 33, DType::F32}, Shape{37, 9001, 33, DType::BF16}),
    [](const auto& test) {
      const Shape& s = test.param;
      return fmt::format("{}x{}x{}_{}", s.tokens, s.in, s.out, name_of(s.dtype));
    });

TEST(Linear, RotatesTheFirstHeads) {
  const int64_t tokens = 40, heads = 2, head_dim = 24, out = 60, in = 16, half = head_dim / 2;
  const Values x = random_values(tokens * in, 1), w = random_values(out * in, 2);
  Values pos, inv_freq;
  for (int64_t t = 0; t < tokens; ++t) pos.push_back(double(t * 1003));
  for (int64_t i = 0; i < half; ++i)
    inv_freq.push_back(double(float(std::pow(10000.0, -double(i) / double(half)))));
  const Values plain = run_op(Linear{tokens, in, out, DType::F32}, {x, w})[Linear::kY];
  Values expected = plain;
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t i = 0; i < half; ++i) {
        const double angle = double(float(pos[size_t(t)]) * float(inv_freq[size_t(i)]));
        const size_t a = size_t(t * out + h * head_dim + i), b = a + size_t(half);
        expected[a] = plain[a] * std::cos(angle) - plain[b] * std::sin(angle);
        expected[b] = plain[b] * std::cos(angle) + plain[a] * std::sin(angle);
      }
  const Contents rotated =
      run_op(Linear{tokens, in, out, DType::F32, false, heads, head_dim}, {x, w, {}, pos, inv_freq});
  EXPECT_LT(relative_error(rotated[Linear::kY], expected), tolerance(DType::F32));
}

}  // namespace
}  // namespace sluice::core::testing
