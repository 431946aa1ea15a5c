// SPDX-License-Identifier: Apache-2.0
#include "comm/sum_in_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <thread>

#include "bench/collectives.h"

namespace sluice::core {
namespace {

// Runs fn(group) of every rank in a thread of its own.
template <class F>
void on_ranks(int ranks, const F& fn) {
  const auto groups = groups_of_threads(ranks);
  std::vector<std::jthread> threads;
  for (const auto& group : groups) threads.emplace_back([&] { fn(*group); });
}

// Values that round differently in every order.
float value_of(int rank, size_t i) {
  return std::sin(float(i * 31 + size_t(rank) * 7 + 1)) * std::ldexp(1.0f, int(i + size_t(rank) * 5) % 24);
}

TEST(Tree, AddsNeighboursFirst) {
  // 2^24 + 1 is no f32, and becomes 2^24: one after the other none of the ones is there in the sum.
  std::vector<float> a{0x1p24f}, b{1}, c{1}, d{1}, e{0};
  const std::vector<std::span<float>> parts{a, b, c, d, e};
  add_by_tree(parts, a);
  EXPECT_EQ(a[0], 0x1p24f + 2);
}

class OrderedSums : public testing::TestWithParam<int> {};

TEST_P(OrderedSums, AreThoseOfOneProcessOnEveryRank) {
  const int ranks = GetParam();
  for (const size_t elements : {size_t{1}, size_t(ranks - 1), size_t(ranks), size_t{1001}}) {
    if (elements == 0) continue;
    std::vector<std::vector<float>> of_rank(static_cast<size_t>(ranks));
    std::vector<std::span<float>> parts;
    for (int r = 0; r < ranks; ++r) {
      for (size_t i = 0; i < elements; ++i) of_rank[size_t(r)].push_back(value_of(r, i));
      parts.emplace_back(of_rank[size_t(r)]);
    }
    std::vector<float> expected(elements);
    add_by_tree(parts, expected);
    on_ranks(ranks, [&](ProcessGroup& group) {
      OrderedSum sum(group);
      std::vector<float> values(elements);
      for (size_t i = 0; i < elements; ++i) values[i] = value_of(group.rank(), i);
      EXPECT_TRUE(sum(std::as_writable_bytes(std::span(values)), DType::F32).ok());
      EXPECT_EQ(std::memcmp(values.data(), expected.data(), elements * sizeof(float)), 0)
          << "rank " << group.rank() << " of " << ranks << ", " << elements << " elements";
    });
  }
}

// In bf16 each value is added as f32, and the sum is rounded once.
TEST_P(OrderedSums, OfBf16RoundOnce) {
  const int ranks = GetParam();
  float exact = 0;
  for (int r = 0; r < ranks; ++r) exact += float(Bf16(1.0f + float(r) / 128));
  on_ranks(ranks, [&](ProcessGroup& group) {
    OrderedSum sum(group);
    std::vector<Bf16> values(5, Bf16(1.0f + float(group.rank()) / 128));
    EXPECT_TRUE(sum(std::as_writable_bytes(std::span(values)), DType::BF16).ok());
    for (const Bf16 value : values) EXPECT_EQ(value.bits, Bf16(exact).bits);
  });
}

// Values are taken piece by piece; what lies around the end of one is summed like the rest.
TEST(OrderedSum, OfMoreThanAPieceIsThatOfItsPieces) {
  constexpr size_t kPiece = OrderedSum::kPieceBytes / sizeof(float), kElements = kPiece + 1001;
  on_ranks(3, [&](ProcessGroup& group) {
    OrderedSum sum(group);
    std::vector<float> values(kElements);
    for (size_t i = 0; i < kElements; ++i) values[i] = value_of(group.rank(), i);
    EXPECT_TRUE(sum(std::as_writable_bytes(std::span(values)), DType::F32).ok());
    for (size_t i = kPiece - 1000; i < kElements; ++i) {
      std::vector<std::vector<float>> of_rank;
      std::vector<std::span<float>> parts;
      for (int r = 0; r < 3; ++r) of_rank.push_back({value_of(r, i)});
      for (std::vector<float>& of : of_rank) parts.emplace_back(of);
      float expected = 0;
      add_by_tree(parts, {&expected, 1});
      ASSERT_EQ(values[i], expected) << i;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, OrderedSums, testing::Values(1, 2, 3, 4, 5, 8));

// A group in which something arrives wrong: the sign of one value, or the parts of ranks 0 and 2 instead of
// one another.
class Muddled final : public ProcessGroup {
 public:
  Muddled(ProcessGroup& group, bool order) : group_(group), order_(order) {}
  int rank() const override { return group_.rank(); }
  int size() const override { return group_.size(); }
  int here() const override { return group_.here(); }
  int host() const override { return group_.host(); }
  void abandon() override { group_.abandon(); }
  Status exchange(std::span<const std::byte> out, int to, std::span<std::byte> in, int from) override {
    SLUICE_TRY(group_.exchange(out, to, in, from));
    const int rounds = size() - 1;
    const bool parts = calls_++ % (2 * rounds) < rounds;  // not sums on their way to all
    if (!order_) {
      in[3] ^= std::byte{0x80};
    } else if (parts && from == 0) {
      of_first_ = in;
    } else if (parts && from == 2) {
      std::ranges::swap_ranges(of_first_, in);
    }
    return {};
  }
  Status barrier() override { return group_.barrier(); }
  Status broadcast(std::span<std::byte> bytes, int root) override { return group_.broadcast(bytes, root); }
  Status all_gather(std::span<const std::byte> own, std::span<std::byte> all) override {
    return group_.all_gather(own, all);
  }
  Status sum_in_any_order(std::span<float> values) override { return group_.sum_in_any_order(values); }
  Result<std::unique_ptr<ProcessGroup>> first(int ranks) override {
    SLUICE_ASSIGN(owned_, group_.first(ranks));
    return std::unique_ptr<ProcessGroup>(owned_ == nullptr ? nullptr : new Muddled(*owned_, order_));
  }

 private:
  ProcessGroup& group_;
  bool order_;
  std::span<std::byte> of_first_;
  int calls_ = 0;
  std::unique_ptr<ProcessGroup> owned_;
};

TEST(Collectives, CountWhatIsWrong) {
  const CollectiveOptions options{.bytes = {4096}, .dtypes = {DType::F32, DType::BF16}, .seconds = 0};
  for (const bool muddled : {false, true}) {
    on_ranks(3, [&](ProcessGroup& group) {
      Muddled other(group, false);
      const std::atomic<bool> never = false;
      const auto found = run_collectives(muddled && group.rank() == 1 ? other : group, options, never,
                                         [](const std::string&) {});
      ASSERT_TRUE(found.ok()) << found.message();
      ASSERT_EQ(found->results.size(), 4u) << "two and three ranks, two types";
      EXPECT_TRUE(found->whole);
      EXPECT_EQ(found->here, 3);
      for (const CollectiveResult& r : found->results) {
        EXPECT_EQ(r.wrong > 0, muddled) << r.ranks << " ranks, " << name_of(r.dtype);
        EXPECT_GT(r.ours.seconds, 0);
        EXPECT_EQ(r.library.calls > 0, r.dtype == DType::F32);
      }
    });
  }
}

// Sums of the right parts in another order are wrong.
TEST(Collectives, CountSumsInAnotherOrder) {
  on_ranks(4, [&](ProcessGroup& group) {
    Muddled other(group, true);
    const std::atomic<bool> never = false;
    const auto found = run_collectives(group.rank() == 1 ? other : group,
                                       {.bytes = {1 << 16}, .dtypes = {DType::F32}, .seconds = 0}, never,
                                       [](const std::string&) {});
    ASSERT_TRUE(found.ok()) << found.message();
    ASSERT_EQ(found->results.size(), 2u) << "two and four ranks";
    EXPECT_EQ(found->results[0].wrong, 0);
    EXPECT_GT(found->results[1].wrong, 0);
  });
}

TEST(Collectives, StopOnAllRanks) {
  const std::atomic<bool> never = false, asked = true;
  on_ranks(2, [&](ProcessGroup& group) {
    const auto found = run_collectives(group, {.bytes = {4096}, .dtypes = {DType::F32}, .seconds = 0},
                                       group.rank() == 1 ? asked : never, [](const std::string&) {});
    ASSERT_TRUE(found.ok()) << found.message();
    EXPECT_TRUE(found->results.empty());
    EXPECT_FALSE(found->whole);
  });
}

}  // namespace
}  // namespace sluice::core
