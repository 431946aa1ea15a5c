// SPDX-License-Identifier: Apache-2.0
// How many numbers are stored as bytes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "base/dtype.h"

namespace sluice::core {

// Elements of one type. With a block, as many consecutive elements share a scale: all elements come first and
// the scales of all blocks follow, in one range of bytes, so that memory and copies see one
// object. Rows that are to be read alone hold whole blocks.
struct Format {
  DType type = DType::F32;
  uint16_t block = 0;  // 0: no scales
  DType scale = DType::F32;

  constexpr Format() = default;
  constexpr Format(DType t) : type(t) {}  // NOLINT(google-explicit-constructor): a type alone is a format
  // REQUIRES: the elements of a block fill a multiple of eight bytes.
  constexpr Format(DType t, uint16_t elements, DType of_scale) : type(t), block(elements), scale(of_scale) {}

  // REQUIRES: `elements` fill whole bytes, and whole blocks if there are any.
  constexpr int64_t bytes(int64_t elements) const {
    return elements * bits_of(type) / 8 + (block == 0 ? 0 : elements / block * size_of(scale));
  }
  // How many elements fill so many bytes.
  constexpr int64_t elements(int64_t bytes) const {
    if (block == 0) return bytes * 8 / bits_of(type);
    return bytes / (block * bits_of(type) / 8 + size_of(scale)) * block;
  }
  // The next number of elements that may be stored.
  constexpr int64_t padded(int64_t elements) const {
    const int64_t whole = block > 0 ? block : std::max(1, 8 / bits_of(type));
    return (elements + whole - 1) / whole * whole;
  }
  bool operator==(const Format&) const = default;
};

// "bf16", "f4e2m1 by 16 with f8e4m3": the block's elements, and the type of its scales.
std::string to_text(const Format& format);
// A number of its own for every format; that of a type alone is the type's.
constexpr uint64_t key_of(const Format& format) {
  const uint64_t type = static_cast<uint64_t>(format.type);
  if (format.block == 0) return type;
  return type | uint64_t{format.block} << 8 | (static_cast<uint64_t>(format.scale) + 1) << 24;
}

}  // namespace sluice::core
