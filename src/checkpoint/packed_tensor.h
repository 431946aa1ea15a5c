// SPDX-License-Identifier: Apache-2.0
// Tensors of which files have codes, and scales of blocks, in place of numbers. For a tensor NAME there are,
//
// - in fp8, NAME of F8_E4M3, and NAME_scale_inv or NAME_scale: a number for each block of a matrix, whose
//   sizes are powers of two, each row, or all of it;
// - in NF4 or FP4 of bitsandbytes, NAME, which has two codes in a byte, the first in the upper bits, their
//   numbers NAME.quant_map, scales NAME.absmax of as many elements as NAME.quant_state.bitsandbytes__nf4
//   says, and where these are codes, too, NAME.nested_absmax and NAME.nested_quant_map;
// - in MXFP4 (OCP Microscaling Formats 1.0), NAME_blocks, U8 [..., columns / 32, 16], which has two codes in
//   a byte, the first in the lower bits, and NAME_scales, U8 [..., columns / 32], which has powers of two.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/format.h"
#include "base/status.h"
#include "checkpoint/compact.h"
#include "io/safetensors.h"

namespace sluice::core {

class PackedTensor {
 public:
  // The shape is [rows, columns], or of several such matrices. Nothing: no tensor of that name is there so.
  // Errors name a tensor that is missing, or of another type or size.
  static Result<std::optional<PackedTensor>> find(const TensorFiles& files, std::string_view name,
                                                  std::span<const int64_t> shape);

  // Elements [first, first + count), in their order: the number of a code times its scale, in f32. An error
  // names the element, or the scale, that is not finite.
  Status read(int64_t first, std::span<float> values) const;
  // The same as they are. REQUIRES: whole blocks of format().
  void read(int64_t first, int64_t count, PackedBlocks& blocks) const;

  // The same from files that are read and not mapped: `bytes` gets bytes of a tensor from an offset on.
  using ReadBytes = std::function<Status(const SafeTensor&, int64_t offset, std::span<std::byte>)>;
  Status read_scales(int64_t first, int64_t count, const ReadBytes& bytes, std::vector<std::byte>& out) const;
  // The same of codes that were read from the files as they are.
  void turn_codes(std::span<std::byte> codes) const;

  // That which has these values to the bit; scales are repeated for each row. Nothing: there is none.
  const std::optional<NumberFormat>& format() const { return format_; }
  // The tensor with numbers in place of codes.
  const TensorInfo& info() const { return info_; }
  // All of the files'; the first has the codes.
  std::span<const SafeTensor* const> tensors() const { return tensors_; }

 private:
  // Elements that share a scale, from one on.
  struct Run {
    int64_t scale, count;
  };
  Run run_at(int64_t element) const;
  // Scales from the first one on, as the files have them, and of nested ones the scales of these.
  struct Scales {
    std::span<const std::byte> own, nested;
    int64_t first = 0, first_nested = 0;
  };
  Scales all_scales() const;
  float scale(int64_t index) const { return scale(index, all_scales()); }
  float scale(int64_t index, const Scales& from) const;
  // Those of blocks of format().
  void put_scales(int64_t first, int64_t count, const Scales& from, std::vector<std::byte>& out) const;
  float number(int64_t element) const;
  Error not_finite(int64_t element, float value) const;

  Status open_fp8(const SafeTensor& scales);
  Status open_bitsandbytes(const TensorFiles& files, const SafeTensor& state);
  Status open_mxfp4(const TensorFiles& files);

  TensorInfo info_;
  std::vector<const SafeTensor*> tensors_;
  const SafeTensor* scales_ = nullptr;
  int64_t rows_ = 0, columns_ = 0;  // of a matrix
  std::optional<NumberFormat> format_;
  int bits_ = 8;
  // Codes of 8 bits have blocks of a matrix, which has so many scales.
  int64_t block_rows_ = 0, block_columns_ = 0, scale_rows_ = 0, scale_columns_ = 0;
  // Codes of 4 bits have blocks of consecutive elements.
  int64_t block_ = 0;
  bool first_is_upper_ = false;
  std::array<float, 16> codes_ = {};
  // Scales that are codes, and those of these.
  const SafeTensor *nested_ = nullptr, *nested_codes_ = nullptr;
  int64_t nested_block_ = 0;
  float offset_ = 0;
};

}  // namespace sluice::core
