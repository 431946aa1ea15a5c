// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "run_op.h"

namespace sluice::core::testing {
namespace {

// Attention of one op in doubles, from its definition.
struct Reference {
  AttnShape s;
  Values q, kv, pos;

  double key(int64_t row, int64_t j, int64_t head, int64_t d, bool value) const {
    const int64_t cols = s.kv_heads * s.head_dim;
    return kv[size_t((row * s.kv_len + j) * 2 * cols + (value ? cols : 0) +
                     head / (s.q_heads / s.kv_heads) * s.head_dim + d)];
  }
  size_t q_index(int64_t row, int64_t i, int64_t head, int64_t d) const {
    return size_t(((row * s.q_len + i) * s.q_heads + head) * s.head_dim + d);
  }
  bool visible(int64_t row, int64_t i, int64_t j) const {
    const int64_t query = s.distance + i;
    return j <= query && j >= query - int64_t(pos[size_t(row * s.q_len + i)]);
  }
  double score(int64_t row, int64_t i, int64_t j, int64_t head) const {
    double dot = 0;
    for (int64_t d = 0; d < s.head_dim; ++d) dot += q[q_index(row, i, head, d)] * key(row, j, head, d, false);
    return dot / std::sqrt(double(s.head_dim));
  }
  void forward(Values& o, Values& lse) const {
    o.assign(q.size(), 0);
    lse.assign(size_t(s.rows * s.q_heads * s.q_len), -INFINITY);
    for (int64_t r = 0; r < s.rows; ++r)
      for (int64_t h = 0; h < s.q_heads; ++h)
        for (int64_t i = 0; i < s.q_len; ++i) {
          double total = 0;
          for (int64_t j = 0; j < s.kv_len; ++j) {
            if (!visible(r, i, j)) continue;
            const double p = std::exp(score(r, i, j, h));
            total += p;
            for (int64_t d = 0; d < s.head_dim; ++d) o[q_index(r, i, h, d)] += p * key(r, j, h, d, true);
          }
          if (total == 0) continue;
          for (int64_t d = 0; d < s.head_dim; ++d) o[q_index(r, i, h, d)] /= total;
          lse[size_t((r * s.q_heads + h) * s.q_len + i)] = std::log(total);
        }
  }
  void backward(const Values& o, const Values& lse, const Values& grad, Values& dq, Values& dkv) const {
    dq.assign(q.size(), 0);
    dkv.assign(kv.size(), 0);
    const int64_t cols = s.kv_heads * s.head_dim, group = s.q_heads / s.kv_heads;
    const double scale = 1 / std::sqrt(double(s.head_dim));
    for (int64_t r = 0; r < s.rows; ++r)
      for (int64_t h = 0; h < s.q_heads; ++h)
        for (int64_t i = 0; i < s.q_len; ++i)
          for (int64_t j = 0; j < s.kv_len; ++j) {
            if (!visible(r, i, j)) continue;
            const double p = std::exp(score(r, i, j, h) - lse[size_t((r * s.q_heads + h) * s.q_len + i)]);
            double dp = 0;
            for (int64_t d = 0; d < s.head_dim; ++d) {
              dp += grad[q_index(r, i, h, d)] * (key(r, j, h, d, true) - o[q_index(r, i, h, d)]);
            }
            const size_t k0 = size_t((r * s.kv_len + j) * 2 * cols + h / group * s.head_dim);
            for (int64_t d = 0; d < s.head_dim; ++d) {
              const size_t at = q_index(r, i, h, d);
              dq[at] += p * dp * scale * key(r, j, h, d, false);
              dkv[k0 + size_t(d)] += p * dp * scale * q[at];
              dkv[k0 + size_t(cols + d)] += p * grad[at];
            }
          }
  }
};

// Positions of documents of the given lengths, over and over, row after row.
Values positions(const AttnShape& s, std::vector<int64_t> documents) {
  Values pos;
  for (int64_t r = 0; r < s.rows; ++r) {
    size_t document = 0;
    for (int64_t i = 0, p = 0; i < s.q_len; ++i, ++p) {
      if (s.packed && p == documents[document % documents.size()]) p = 0, ++document;
      pos.push_back(double(s.packed ? p : s.distance + i));
    }
  }
  return pos;
}

Reference make(const AttnShape& s, std::vector<int64_t> documents) {
  return {s, rounded(s.dtype, random_values(s.tokens() * s.q_heads * s.head_dim, 1)),
          rounded(s.dtype, random_values(s.rows * s.kv_len * 2 * s.kv_heads * s.head_dim, 2)),
          positions(s, std::move(documents))};
}

class Attention : public ::testing::TestWithParam<AttnShape> {};

TEST_P(Attention, ForwardMatchesDefinition) {
  const AttnShape s = GetParam();
  const Reference reference = make(s, {50, 3, 170});
  Values o, lse;
  reference.forward(o, lse);
  const Contents after = run_op(AttnFwd{s, s.dtype, false}, {reference.q, reference.kv, reference.pos});
  EXPECT_LT(relative_error(after[AttnFwd::kO], o), tolerance(s.dtype));
  EXPECT_LT(relative_error(after[AttnFwd::kLse], lse), tolerance(DType::F32));
}

TEST_P(Attention, BackwardMatchesDefinition) {
  const AttnShape s = GetParam();
  const Reference reference = make(s, {50, 3, 170});
  Values o, lse, dq, dkv;
  reference.forward(o, lse);
  o = rounded(s.dtype, o);
  const Values grad = rounded(s.dtype, random_values(int64_t(o.size()), 3));
  reference.backward(o, lse, grad, dq, dkv);
  for (const DType type : {s.dtype, DType::F32}) {
    const Contents after =
        run_op(AttnBwd{s, type, false, false}, {reference.q, reference.kv, reference.pos, o, lse, grad});
    // In bf16 the probabilities and their gradients are rounded before the products, whatever the results'
    // type.
    EXPECT_LT(relative_error(after[AttnBwd::kDq], dq), tolerance(s.dtype));
    EXPECT_LT(relative_error(after[AttnBwd::kDkv], dkv), tolerance(s.dtype));
  }
}

TEST_P(Attention, DoesNotDependOnThreads) {
  const AttnShape s = GetParam();
  const Reference reference = make(s, {50, 3, 170});
  Values o, lse;
  reference.forward(o, lse);
  const Contents contents{reference.q, reference.kv, reference.pos,
                          o,           lse,          random_values(int64_t(o.size()), 3)};
  const Op op = AttnBwd{s, s.dtype, false, false};
  const Contents one = run_op(op, contents, {.threads = 1}), three = run_op(op, contents, {.threads = 3});
  EXPECT_EQ(one[AttnBwd::kDq], three[AttnBwd::kDq]);
  EXPECT_EQ(one[AttnBwd::kDkv], three[AttnBwd::kDkv]);
}

INSTANTIATE_TEST_SUITE_P(Shapes, Attention,
                         ::testing::Values(AttnShape{2, 130, 130, 4, 2, 32, 0, false, DType::F32},
                                           AttnShape{1, 330, 330, 2, 1, 64, 0, true, DType::F32},
                                           AttnShape{2, 5, 5, 2, 2, 8, 0, false, DType::F32},
                                           AttnShape{1, 100, 70, 2, 2, 48, 90, false, DType::F32},
                                           AttnShape{2, 330, 330, 2, 2, 64, 0, true, DType::BF16},
                                           AttnShape{1, 129, 129, 3, 1, 128, 0, false, DType::BF16}));

// A block of keys before the queries, of which documents see a part, one key, or nothing.
TEST(Attention, EarlierBlockOfPackedDocuments) {
  const AttnShape s{1, 70, 100, 2, 1, 16, 100, true, DType::F32};
  Reference reference = make(s, {1000});
  for (int64_t i = 0; i < s.q_len; ++i)
    reference.pos[size_t(i)] = double(i < 20 ? i + 30 : i < 40 ? i + 1 : i - 40);
  Values o, lse;
  reference.forward(o, lse);
  const Contents after = run_op(AttnFwd{s, DType::F32, false}, {reference.q, reference.kv, reference.pos});
  EXPECT_LT(relative_error(after[AttnFwd::kO], o), tolerance(DType::F32));
  EXPECT_EQ(after[AttnFwd::kLse].back(), -INFINITY);
  EXPECT_EQ(after[AttnFwd::kO].back(), 0);
}

// Two blocks merged are one block.
TEST(Attention, MergeOfBlocksIsTheWhole) {
  const AttnShape whole{1, 200, 200, 2, 1, 16, 0, false, DType::F32};
  const Reference reference = make(whole, {});
  Values o, lse;
  reference.forward(o, lse);
  AttnShape late{1, 100, 100, 2, 1, 16, 0, false, DType::F32};
  const auto half = [](const Values& v, bool second) {
    const auto middle = v.begin() + std::ptrdiff_t(v.size() / 2);
    return second ? Values(middle, v.end()) : Values(v.begin(), middle);
  };
  const Values q = half(reference.q, true), pos = half(reference.pos, true);
  const Contents first = run_op(AttnFwd{late, DType::F32, false}, {q, half(reference.kv, true), pos});
  late.distance = 100;
  const Contents both = run_op(AttnFwd{late, DType::F32, true},
                               {q, half(reference.kv, false), pos, first[AttnFwd::kO], first[AttnFwd::kLse]});
  EXPECT_LT(relative_error(both[AttnFwd::kO], half(o, true)), tolerance(DType::F32));
}

}  // namespace
}  // namespace sluice::core::testing
