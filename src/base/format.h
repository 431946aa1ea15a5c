// SPDX-License-Identifier: Apache-2.0
// How many numbers are stored as bytes.
#pragma once

#include <cstdint>
#include <numeric>
#include <string>

#include "base/dtype.h"

namespace sluice::core {

// Elements of one type. With a block, as many consecutive elements share a scale. All elements come first and
// the scales of all blocks follow, in one range of bytes, so that memory and copies see one object. Rows that
// are to be read alone hold whole blocks. A block may be a row, or all of a tensor.
struct NumberFormat {
  DType type = DType::F32, scale = DType::F32;
  uint32_t block = 0;  // 0: no scales

  static constexpr uint32_t kRow = ~uint32_t{0};  // a block is a row, whose length over() says

  constexpr NumberFormat() = default;
  constexpr NumberFormat(DType t)
      : type(t) {}  // NOLINT(google-explicit-constructor): a type alone is a format
  // REQUIRES: the elements of a block fill a multiple of eight bytes.
  constexpr NumberFormat(DType t, uint32_t elements, DType of_scale)
      : type(t), scale(of_scale), block(elements) {}

  // The format of rows of so many elements.
  constexpr NumberFormat over(int64_t row) const { return block == kRow ? in_rows_of(row) : *this; }
  // The same, whatever its blocks are.
  constexpr NumberFormat in_rows_of(int64_t row) const {
    return NumberFormat(type, static_cast<uint32_t>(row), scale);
  }
  // Whether rows of so many elements hold whole blocks.
  constexpr bool fits(int64_t row) const {
    return block == kRow ? row * bits_of(type) % 64 == 0 : padded(row) == row;
  }

  // The functions below REQUIRE that `block` is not kRow.
  //
  // REQUIRES: `elements` fill whole bytes, and whole blocks if there are any.
  constexpr int64_t bytes(int64_t elements) const {
    return elements * bits_of(type) / 8 + (block == 0 ? 0 : elements / block * size_of(scale));
  }
  // How many elements fill so many bytes.
  constexpr int64_t elements(int64_t bytes) const {
    if (block == 0) return bytes * 8 / bits_of(type);
    return bytes / (int64_t{block} * bits_of(type) / 8 + size_of(scale)) * block;
  }
  // The next number of elements that may be stored.
  constexpr int64_t padded(int64_t elements) const {
    const int64_t whole = block > 0 ? block : 8 / std::gcd(8, bits_of(type));
    return (elements + whole - 1) / whole * whole;
  }
  bool operator==(const NumberFormat&) const = default;
};

// "bf16", "f4e2m1 by 16 with f8e4m3", "f8e4m3 by row with f32": the block's elements, and the type of its
// scales.
std::string to_text(const NumberFormat& format);
// A number of its own for every format; that of a type alone is the type's.
constexpr uint64_t key_of(const NumberFormat& format) {
  const uint64_t type = static_cast<uint64_t>(format.type);
  if (format.block == 0) return type;
  const uint64_t low = format.block & 0xffffu, high = format.block >> 16;
  return type | low << 8 | (static_cast<uint64_t>(format.scale) + 1) << 24 | high << 32;
}

}  // namespace sluice::core
