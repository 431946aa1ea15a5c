// SPDX-License-Identifier: Apache-2.0
// Tensors in MXFP4 (OCP Microscaling Formats 1.0), as files have them. In place of a tensor NAME with rows of
// `cols` elements there are two. NAME_blocks, U8 [..., cols / 32, 16], has two elements in a byte, the first
// in the lower bits. NAME_scales, U8 [..., cols / 32], has powers of two.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "io/safetensors.h"

namespace sluice::core {

constexpr int64_t kMxBlock = 32;
constexpr std::string_view kMxBlocks = "_blocks", kMxScales = "_scales";

struct MxTensor {
  const SafeTensor *blocks, *scales;

  // Elements [first, first + count), in their order, as floats, which hold each of them exactly; a scale that
  // is no number makes them infinite.
  void read(int64_t first, int64_t count, float* values) const;
};

// Whether a tensor of that name is there so.
bool has_mxfp4(const TensorFiles& files, std::string_view name);
// The tensor, of `rows` rows in all. An error names one of another type or size.
Result<MxTensor> find_mxfp4(const TensorFiles& files, std::string_view name, int64_t rows, int64_t cols);

}  // namespace sluice::core
