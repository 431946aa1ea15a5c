// SPDX-License-Identifier: Apache-2.0
// Tensors whose matrices are turned in files: what is written, and how often what is turned is read.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "checkpoint/write.h"
#include "equivalence/rig/rig.h"
#include "io/safetensors.h"
#include "support/temp_dir.h"

namespace sluice::core {
namespace {

using rig::must;

constexpr int64_t kExperts = 2;

// Each expert is a weight of `rows` x `cols` of f32, whose elements are numbered through.
struct Stack {
  int64_t rows, cols;
  std::vector<float> values = std::vector<float>(size_t(kExperts * rows * cols));
  int64_t read_bytes = 0;

  StoredTensor tensor() {
    std::iota(values.begin(), values.end(), 0.f);
    StoredTensor out{{"experts", TensorType::F32, {kExperts, cols, rows}}, {}, TensorType::F32};
    for (int64_t e = 0; e < kExperts; ++e) {
      out.turned.push_back({.tensor = "experts",
                            .rows = rows,
                            .cols = cols,
                            .first_row = e * rows,
                            .tensor_rows = kExperts * rows,
                            .transposed = true,
                            .stacked = kExperts});
      out.parts.push_back({.object = ObjectId(uint32_t(e)),
                           .offset = 0,
                           .bytes = 4 * rows * cols,
                           .position = 0,
                           .source = size_t(e)});
    }
    return out;
  }
  PartReader reader() {
    return
        [this](const StoredPart& part, int64_t offset, int64_t bytes) -> Result<std::span<const std::byte>> {
          read_bytes += bytes;
          return std::as_bytes(std::span(values))
              .subspan(size_t(4 * part.object.value * rows * cols + part.offset + offset), size_t(bytes));
        };
  }
};

// The first is turned at once, the other in two parts, none of which ends where a piece of a file does.
TEST(TurnedTensors, AreReadOnceWhereTheyAreNotLarge) {
  for (auto [stack, times] : {std::pair(Stack{1001, 1500}, 1), {Stack{2999, 2003}, 2}}) {
    const TempDir dir;
    const std::vector tensors{stack.tensor()};
    (void)must(write_tensors(tensors, dir / "model.safetensors", {}, stack.reader()));
    EXPECT_EQ(stack.read_bytes, times * int64_t(4 * stack.values.size())) << stack.rows;
    const SafeTensorsFile file = must(SafeTensorsFile::open(dir / "model.safetensors"));
    std::vector<float> found(stack.values.size());
    ASSERT_EQ(file.tensors()[0].bytes.size(), 4 * found.size());
    std::memcpy(found.data(), file.tensors()[0].bytes.data(), 4 * found.size());
    int64_t wrong = 0;
    for (int64_t e = 0, i = 0; e < kExperts; ++e) {
      for (int64_t col = 0; col < stack.cols; ++col) {
        for (int64_t row = 0; row < stack.rows; ++row, ++i)
          wrong += found[size_t(i)] != stack.values[size_t((e * stack.rows + row) * stack.cols + col)];
      }
    }
    EXPECT_EQ(wrong, 0) << stack.rows;
  }
}

}  // namespace
}  // namespace sluice::core
