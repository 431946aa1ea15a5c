// SPDX-License-Identifier: Apache-2.0
// Compact optimizer state, master weights and packed weights as numbers, on the host (ops/compact.h,
// ops/master.h, ops/packed.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/format.h"

namespace sluice::core {

// All numbers of an object of such a format, those that fill its last group among them.
// REQUIRES: `object` is whole groups of compact_format(), or blocks of a format of ops/packed.h.
std::vector<float> expand(const NumberFormat& format, std::span<const std::byte> object);

// Elements of the object from `first` on become `values`, rounded to nearest. Of the groups that they share
// with others these may be rounded anew; all other bytes stay. REQUIRES: all are finite, and not negative
// where `format` is that of squares.
void put(const NumberFormat& format, std::span<std::byte> object, int64_t first,
         std::span<const float> values);

// Codes of a format of ops/packed.h, and the scales of their blocks.
struct PackedBlocks {
  std::vector<std::byte> elements, scales;
};
// The nearest that there are: of f8e4m3 with scales that are powers of two, of NF4 those of bitsandbytes, of
// MXFP4 OCP's. REQUIRES: `values` are finite and whole blocks.
void pack(const NumberFormat& format, std::span<const float> values, PackedBlocks& out);
// And back, of elements from `first` on in the first of the blocks. REQUIRES: it begins a byte.
void unpack(const NumberFormat& format, const PackedBlocks& blocks, int64_t first, std::span<float> values);

// Masters of 24 bits from bf16 parameters and as many residuals. The bytes need not be aligned.
void join_masters(std::span<const std::byte> parameters, std::span<const std::byte> residuals,
                  std::vector<float>& values);
// And back, rounded to nearest.
void split_masters(std::span<const float> values, std::vector<Bf16>& parameters,
                   std::vector<std::byte>& residuals);

}  // namespace sluice::core
