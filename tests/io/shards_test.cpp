// SPDX-License-Identifier: Apache-2.0
#include "io/shards.h"

#include <gtest/gtest.h>

#include "io/safetensors.h"

namespace sluice::core {
namespace {

std::vector<TensorInfo> tensors_of(const std::vector<int64_t>& elements) {
  std::vector<TensorInfo> out;
  for (const int64_t n : elements) out.push_back({fmt::format("t{}", out.size()), TensorType::F32, {n}});
  return out;
}

std::vector<size_t> counts_of(const std::vector<int64_t>& elements, int64_t most_bytes) {
  std::vector<size_t> out;
  size_t next = 0;
  for (const Shard& shard : shards_of(tensors_of(elements), most_bytes)) {
    EXPECT_EQ(shard.first, next);
    next += shard.count;
    out.push_back(shard.count);
  }
  EXPECT_EQ(next, elements.size());
  return out;
}

TEST(Shards, AreFilledInOrder) {
  EXPECT_EQ(counts_of({10, 10, 10}, 120), (std::vector<size_t>{3}));
  EXPECT_EQ(counts_of({10, 10, 10}, 119), (std::vector<size_t>{2, 1}));
  EXPECT_EQ(counts_of({10, 10, 10}, 40), (std::vector<size_t>{1, 1, 1}));
  // What is too large has a file of its own.
  EXPECT_EQ(counts_of({1, 50, 1, 1}, 40), (std::vector<size_t>{1, 1, 2}));
  EXPECT_EQ(counts_of({50}, 1), (std::vector<size_t>{1}));
  EXPECT_EQ(counts_of({}, 40), (std::vector<size_t>{0}));
}

TEST(Shards, HaveTheNamesThatOthersLookFor) {
  const auto all = tensors_of({10, 10, 10});
  EXPECT_EQ(shards_of(all, kShardBytes).front().file, "model.safetensors");
  const auto shards = shards_of(all, 80);
  ASSERT_EQ(shards.size(), 2u);
  EXPECT_EQ(shards[0].file, "model-00001-of-00002.safetensors");
  EXPECT_EQ(shards[1].file, "model-00002-of-00002.safetensors");
  for (const Shard& shard : shards) EXPECT_TRUE(is_weights_file(shard.file));
  EXPECT_FALSE(is_weights_file("optimizer.safetensors"));
  EXPECT_FALSE(is_weights_file(kWeightsIndexName));
}

TEST(Shards, AreInAnIndexThatIsReadBack) {
  const auto all = tensors_of({10, 10, 10});
  const std::string text = format_safetensors_index(all, shards_of(all, 80));
  const auto files = parse_safetensors_index(text);
  ASSERT_TRUE(files.ok()) << files.message();
  EXPECT_EQ(*files, (std::map<std::string, std::string>{{"t0", "model-00001-of-00002.safetensors"},
                                                        {"t1", "model-00001-of-00002.safetensors"},
                                                        {"t2", "model-00002-of-00002.safetensors"}}));
  EXPECT_NE(text.find("\"total_size\": 120"), std::string::npos) << text;
}

}  // namespace
}  // namespace sluice::core
