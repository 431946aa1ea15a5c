// SPDX-License-Identifier: Apache-2.0
// Gated delta rules over packed documents: each has the bits that it has alone, and a state that goes on
// where it should not is seen.
#include <gtest/gtest.h>

#include <numeric>

#include "run_op.h"

namespace sluice::core::testing {
namespace {

constexpr DeltaSizes kSizes{2, 4, 24, 8};
// Shorter and longer than a block, one of them of a block's tokens.
constexpr int64_t kDocuments[] = {37, 1, 64, 130, 68};

struct Row {
  Contents contents;  // qkv, gates, pos, do
  int64_t tokens = 0;

  // Tokens [first, first + count) alone.
  Row part(int64_t first, int64_t count) const {
    Row out{{}, count};
    for (const Values& all : contents) {
      const auto each = int64_t(all.size()) / tokens;
      out.contents.emplace_back(all.begin() + first * each, all.begin() + (first + count) * each);
    }
    return out;
  }
};

Row packed_row() {
  Row row;
  for (const int64_t length : kDocuments) row.tokens += length;
  Values gates = random_values(row.tokens * 2 * kSizes.value_heads, 2), pos;
  for (double& gate : gates) gate = 0.5 + 0.4 * gate;
  for (const int64_t length : kDocuments) {
    for (int64_t i = 0; i < length; ++i) pos.push_back(double(i));
  }
  row.contents = {random_values(row.tokens * kSizes.columns(), 1), gates, pos,
                  random_values(row.tokens * kSizes.values(), 3)};
  return row;
}

// o, dqkv and dgates, token after token.
Contents run(const Row& row, DType dtype, const CpuOptions& options = {.threads = 2}) {
  const Contents& c = row.contents;
  const Contents forward = run_op(DeltaRule{row.tokens, kSizes, dtype}, {c[0], c[1], c[2]}, options);
  const Contents backward =
      run_op(DeltaRuleBwd{row.tokens, kSizes, dtype}, {c[0], c[1], c[2], c[3]}, options);
  return {forward[DeltaRule::kO], backward[DeltaRuleBwd::kDqkv], backward[DeltaRuleBwd::kDgates]};
}

Contents part_of(const Contents& all, int64_t tokens, int64_t first, int64_t count) {
  return Row{all, tokens}.part(first, count).contents;
}

TEST(Delta, ADocumentHasTheBitsOfItselfAlone) {
  const Row row = packed_row();
  for (const DType dtype : {DType::F32, DType::BF16}) {
    const Contents packed = run(row, dtype);
    int64_t first = 0;
    for (const int64_t length : kDocuments) {
      EXPECT_EQ(run(row.part(first, length), dtype), part_of(packed, row.tokens, first, length)) << length;
      first += length;
    }
    EXPECT_EQ(run(row, dtype, {.threads = 1}), packed);
  }
}

// As if a document's first token were not its first: what leaks then is seen by the test above.
TEST(Delta, AStateThatLeaksIsSeen) {
  Row row = packed_row();
  const Contents packed = run(row, DType::F32);
  const int64_t first = std::accumulate(kDocuments, kDocuments + 3, int64_t{0});
  row.contents[2][size_t(first)] = 64;
  const Contents leaky = run(row, DType::F32);
  for (size_t i = 0; i < packed.size(); ++i)
    EXPECT_NE(part_of(leaky, row.tokens, first, 8)[i], part_of(packed, row.tokens, first, 8)[i]) << i;
}

}  // namespace
}  // namespace sluice::core::testing
