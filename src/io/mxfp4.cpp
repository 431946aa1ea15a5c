// SPDX-License-Identifier: Apache-2.0
#include "io/mxfp4.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

namespace sluice::core {
namespace {

constexpr std::array<float, 16> kElements = {0,     0.5f,  1,  1.5f,  2,  3,  4,  6,
                                             -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
constexpr int kBias = 127;

Result<const SafeTensor*> get_bytes(const TensorFiles& files, const std::string& name, int64_t bytes) {
  SLUICE_ASSIGN(const SafeTensor* tensor, files.get(name));
  if (tensor->info.type != TensorType::U8)
    return error("{}: tensor {} is of {}; MXFP4 is in U8", files.path().string(), name,
                 name_of(tensor->info.type));
  if (int64_t(tensor->bytes.size()) != bytes)
    return error("{}: tensor {} has {} bytes, the model needs {}", files.path().string(), name,
                 tensor->bytes.size(), bytes);
  return tensor;
}

}  // namespace

void MxTensor::read(int64_t first, int64_t count, float* values) const {
  for (int64_t i = first; i < first + count;) {
    const int64_t block = i / kMxBlock, end = std::min(first + count, (block + 1) * kMxBlock);
    const float scale = std::ldexp(1.0f, int(scales->bytes[size_t(block)]) - kBias);
    for (; i < end; ++i) {
      const auto pair = uint8_t(blocks->bytes[size_t(i / 2)]);
      *values++ = kElements[i % 2 == 0 ? pair & 15 : pair >> 4] * scale;
    }
  }
}

bool has_mxfp4(const TensorFiles& files, std::string_view name) {
  return files.find(name) == nullptr && files.find(std::string(name).append(kMxBlocks)) != nullptr;
}

Result<MxTensor> find_mxfp4(const TensorFiles& files, std::string_view name, int64_t rows, int64_t cols) {
  const std::string text(name);
  if (cols % kMxBlock != 0)
    return error("{}: tensor {} has rows of {} elements; those of MXFP4 are multiples of {}",
                 files.path().string(), text, cols, kMxBlock);
  MxTensor out{};
  SLUICE_ASSIGN(out.blocks, get_bytes(files, text + std::string(kMxBlocks), rows * cols / 2));
  SLUICE_ASSIGN(out.scales, get_bytes(files, text + std::string(kMxScales), rows * cols / kMxBlock));
  return out;
}

}  // namespace sluice::core
