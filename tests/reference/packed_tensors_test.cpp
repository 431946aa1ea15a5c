// SPDX-License-Identifier: Apache-2.0
// Weights that folders have as codes with scales, compared with what torch and bitsandbytes make of them
// (tests/fixtures/make_packed.py).
#include "checkpoint/packed_tensor.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <set>

#include "io/elements.h"
#include "ops/packed.h"
#include "reference/fixture.h"
#include "support/temp_dir.h"

namespace sluice::core {
namespace {

TensorFiles fixture() {
  return rig::must(TensorFiles::open(std::filesystem::path(SLUICE_FIXTURES) / "packed.safetensors"));
}

std::vector<float> floats_of(const TensorFiles& files, const std::string& name) {
  const SafeTensor& tensor = *rig::must(files.get(name));
  std::vector<float> out;
  read_elements(tensor.info.type, tensor.bytes, out);
  return out;
}

void expect_bits(std::span<const float> got, std::span<const float> expected, const std::string& what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(expected[i])) << what << " " << i;
}

struct Case {
  const char* name;
  std::vector<int64_t> shape;
  std::optional<NumberFormat> format;  // that has its codes and scales
};

TEST(PackedTensors, HaveTheValuesOfTorchAndBitsandbytes) {
  constexpr NumberFormat kByRow{DType::F8E4M3, NumberFormat::kRow, DType::F32};
  const Case cases[] = {{"blocks", {40, 48}, NumberFormat(DType::F8E4M3, 16, DType::F32)},
                        {"ragged", {20, 40}, std::nullopt},
                        {"rows", {6, 16}, kByRow},
                        {"whole", {6, 16}, kByRow},
                        {"square", {4, 64}, NumberFormat(DType::F8E4M3, 32, DType::F32)},
                        {"stack", {3, 24, 32}, NumberFormat(DType::F8E4M3, 16, DType::F32)},
                        {"nf4", {3, 128}, kNf4},
                        {"nested", {258, 64}, kNf4},
                        {"edges", {4, 64}, kNf4},
                        {"fp4", {3, 64}, std::nullopt}};
  const TensorFiles files = fixture();
  for (const Case& c : cases) {
    const std::string name = std::string(c.name) + ".weight";
    const auto found = rig::must(PackedTensor::find(files, name, c.shape));
    ASSERT_TRUE(found.has_value()) << name;
    EXPECT_EQ(found->format(), c.format) << name;
    const std::vector<float> expected = floats_of(files, name + ".expected");
    std::vector<float> values(expected.size());
    rig::must(found->read(0, values));
    expect_bits(values, expected, name);
    // From the middle of a block on.
    constexpr int64_t kFrom = 13;
    rig::must(found->read(kFrom, std::span(values).first(30)));
    expect_bits(std::span(values).first(30), std::span(expected).subspan(kFrom, 30), name);
    if (!c.format) continue;
    // Codes and scales, of all rows but the first.
    const NumberFormat format = c.format->over(c.shape.back());
    PackedBlocks blocks;
    const int64_t first = c.shape.back(), count = int64_t(expected.size()) - first;
    found->read(first, count, blocks);
    values.resize(size_t(count));
    unpack(format, blocks, 0, values);
    expect_bits(values, std::span(expected).subspan(size_t(first)), name);
    // The same scales where bytes of the files are read and not mapped: of all of these rows, and of the
    // last.
    for (const int64_t from : {first, int64_t(expected.size()) - first}) {
      std::vector<std::byte> scales;
      rig::must(found->read_scales(
          from, int64_t(expected.size()) - from,
          [](const SafeTensor& tensor, int64_t offset, std::span<std::byte> to) {
            std::ranges::copy(tensor.bytes.subspan(size_t(offset), to.size()), to.begin());
            return Status();
          },
          scales));
      EXPECT_TRUE(std::ranges::equal(scales, std::span(blocks.scales).last(scales.size()))) << name;
    }
  }
  EXPECT_FALSE(
      rig::must(PackedTensor::find(files, "edges.numbers", std::vector<int64_t>{4, 64})).has_value());
}

// The own quantizer makes the codes and scales of bitsandbytes.
TEST(PackedTensors, OfNf4AreMadeAsBitsandbytesDoes) {
  const TensorFiles files = fixture();
  PackedBlocks own, theirs;
  pack(kNf4, floats_of(files, "edges.numbers"), own);
  const auto found = rig::must(PackedTensor::find(files, "edges.weight", std::vector<int64_t>{4, 64}));
  found->read(0, 4 * 64, theirs);
  EXPECT_EQ(own.elements, theirs.elements);
  EXPECT_EQ(own.scales, theirs.scales);
}

// Each number becomes the nearest of its block's, and stays that.
TEST(PackedTensors, OfMxfp4AreTheNearestOfTheirBlock) {
  std::vector<float> values(4 * 32, 0.0f);
  for (size_t i = 0; i < 32; ++i) {
    values[i] = 0.013f * std::sin(float(i));
    values[32 + i] = float(i) / 4 - 4;  // halves between two numbers, and what is above the largest
    values[64 + i] = i == 3 ? 0x1p-130f : 0;
  }
  values[33] = 7.9f;
  PackedBlocks blocks, again;
  pack(kMxfp4, values, blocks);
  std::vector<float> got(values.size());
  unpack(kMxfp4, blocks, 0, got);
  for (size_t i = 0; i < 64; ++i) {
    const double scale = i < 32 ? 0x1p-9 : 1;  // of 0.013 and 7.9
    double nearest = 1e9;
    for (const double number : {0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0})
      nearest = std::min(nearest, std::abs(std::abs(double(values[i])) - number * scale));
    EXPECT_EQ(std::abs(double(got[i]) - double(values[i])), nearest) << i;
  }
  // Of two that are as near the even one is taken.
  EXPECT_EQ(got[32 + 16 + 1], 0.0f);   // 0.25
  EXPECT_EQ(got[32 + 16 + 3], 1.0f);   // 0.75
  EXPECT_EQ(got[32 + 16 + 5], 1.0f);   // 1.25
  EXPECT_EQ(got[32 + 16 + 10], 2.0f);  // 2.5
  pack(kMxfp4, got, again);
  std::vector<float> stayed(values.size());
  unpack(kMxfp4, again, 0, stayed);
  EXPECT_EQ(stayed, got);
}

TEST(PackedTensors, OfWhichSomethingIsWrongAreRefusedByName) {
  struct Held {
    TensorInfo info;
    std::vector<std::byte> bytes;
  };
  const auto refusal = [](const std::string& name, std::vector<int64_t> shape, auto&& spoil) {
    const TensorFiles files = fixture();
    std::vector<Held> all;
    for (const std::string_view there : files.names()) {
      const SafeTensor* tensor = rig::must(files.get(there));
      all.push_back({tensor->info, {tensor->bytes.begin(), tensor->bytes.end()}});
    }
    spoil([&](const std::string& part) -> Held& {
      return *std::ranges::find(all, name + part, [](const Held& held) { return held.info.name; });
    });
    const TempDir folder;
    std::vector<TensorInfo> infos;
    for (const Held& held : all) infos.push_back(held.info);
    SafeTensorsWriter writer = rig::must(SafeTensorsWriter::create(folder / "model.safetensors", infos));
    for (const Held& held : all) rig::must(writer.write(held.info.name, 0, held.bytes));
    rig::must(writer.commit());
    const TensorFiles spoilt = rig::must(TensorFiles::open(folder.path()));
    const auto found = PackedTensor::find(spoilt, name, shape);
    if (!found.ok()) return found.message();
    std::vector<float> values(size_t((*found)->info().elements()));
    return (*found)->read(0, values).message();
  };
  const auto has = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  has(refusal("blocks.weight", {40, 32}, [](auto&&) {}),
      "blocks.weight has shape [40, 48], the model needs [40, 32]");
  has(refusal("blocks.weight", {40, 48}, [](auto&& of) { of("").bytes[50] = std::byte{0x7f}; }),
      "blocks.weight: element 50 is nan");
  has(refusal("blocks.weight", {40, 48},
              [](auto&& of) {
                of("_scale_inv").info.shape = {6, 1};
              }),
      "blocks.weight_scale_inv is of F32 [6, 1], which are no scales of blocks, rows or all of [40, 48]");
  has(refusal("nf4.weight", {3, 64}, [](auto&&) {}), "two elements in a byte");
  has(refusal("nf4.weight", {3, 128},
              [](auto&& of) { std::memset(of(".absmax").bytes.data() + 4, 0xff, 4); }),
      "nf4.weight.absmax: element 1 is ");
  has(refusal("nf4.weight", {3, 128},
              [](auto&& of) { of(".quant_state.bitsandbytes__nf4").bytes[0] = std::byte{'['}; }),
      "no even blocksize");
  has(refusal("nested.weight", {258, 64}, [](auto&& of) { of(".nested_quant_map").info.name += "s"; }),
      "nested_quant_map");
}

}  // namespace
}  // namespace sluice::core
