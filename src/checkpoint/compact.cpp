// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/compact.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "ops/compact_format.h"
#include "ops/master.h"
#include "ops/packed.h"

namespace sluice::core {
namespace {

bool of_squares(const NumberFormat& format) {
  const bool squares = format == compact_format(true);
  SLUICE_CHECK(squares || format == compact_format(false), "{} is no compact format", to_text(format));
  return squares;
}

using Group = std::array<float, kCompactGroup>;

// The bytes of an object.
template <class Byte>
struct Groups {
  std::span<Byte> bytes;
  bool squares;
  int64_t elements;

  Groups(const NumberFormat& format, std::span<Byte> all)
      : bytes(all), squares(of_squares(format)), elements(format.elements(int64_t(all.size()))) {}

  Byte* scale_of(int64_t group) const { return bytes.data() + elements + int64_t{sizeof(float)} * group; }

  Group expand(int64_t group) const {
    float scale;
    std::memcpy(&scale, scale_of(group), sizeof scale);
    Group out;
    for (int64_t i = 0; i < kCompactGroup; ++i) {
      const auto byte = std::to_integer<uint8_t>(bytes[size_t(group * kCompactGroup + i)]);
      out[size_t(i)] = squares ? expand_squares(byte, scale / 255.0f) : expand_signed(byte, scale);
    }
    return out;
  }
};

void compact(const Groups<std::byte>& to, int64_t group, const Group& values) {
  float scale = 0;
  for (const float x : values) scale = std::max(scale, to.squares ? std::sqrt(x) : std::abs(x));
  std::memcpy(to.scale_of(group), &scale, sizeof scale);
  const float inverse = compact_inverse(scale);
  for (int64_t i = 0; i < kCompactGroup; ++i) {
    const float x = values[size_t(i)];
    to.bytes[size_t(group * kCompactGroup + i)] =
        std::byte(to.squares ? compact_root(std::sqrt(x), inverse) : compact_signed(x, inverse));
  }
}

// Elements that begin at `codes`, which is so many elements from the beginning of the first block.
void numbers(const NumberFormat& format, const std::byte* codes, const std::byte* scales, int64_t in_block,
             std::span<float> values) {
  for (size_t i = 0; i < values.size(); ++i) {
    const size_t block = (size_t(in_block) + i) / format.block;
    float scale;
    if (format.scale == DType::F8E8M0) {
      scale = float_of_e8m0(std::to_integer<uint8_t>(scales[block]));
    } else {
      std::memcpy(&scale, scales + block * sizeof scale, sizeof scale);
    }
    if (format.type == DType::F8E4M3) {
      values[i] = E4m3::value(std::to_integer<uint8_t>(codes[i])) * scale;
    } else {
      const auto code = std::to_integer<uint32_t>(codes[i / 2]) >> i % 2 * 4 & 15;
      values[i] = codes_of(format.type)[code] * scale;
    }
  }
}

void pack_e4m3(std::span<const float> block, float largest, std::byte* codes, std::byte* scale) {
  const float own = E4m3::scale(largest), inverse = 1 / own;
  for (size_t i = 0; i < block.size(); ++i) codes[i] = std::byte{E4m3::code(block[i] * inverse)};
  std::memcpy(scale, &own, sizeof own);
}

// Adds a code of 4 bits to bytes that are 0.
void put_code(std::byte* codes, size_t i, uint32_t code) {
  codes[i / 2] |= std::byte(code << i % 2 * 4);
}

// Numbers between two of the table go to the nearer, and those in the middle to the lesser.
void pack_nf4(std::span<const float> block, float largest, std::byte* codes, std::byte* scale) {
  constexpr float kLeast = 1e-38f;  // as bitsandbytes has it
  const float inverse = 1.0f / std::max(largest, kLeast);
  for (size_t i = 0; i < block.size(); ++i) {
    const float x = std::clamp(block[i] * inverse, -1.0f, 1.0f);
    uint32_t code = 0;
    for (size_t c = 1; c < kNf4Codes.size(); ++c) code += x > (kNf4Codes[c - 1] + kNf4Codes[c]) / 2 ? 1 : 0;
    put_code(codes, i, code);
  }
  std::memcpy(scale, &largest, sizeof largest);
}

// The scale has the largest magnitude in [4, 8) times it; what is above 6 becomes that. Of two numbers that
// are as near the one with an even code is taken.
void pack_mxfp4(std::span<const float> block, float largest, std::byte* codes, std::byte* scale) {
  constexpr int kBias = 127, kMost = 254;
  const int exponent = largest == 0 ? 0 : std::ilogb(largest) - 2;
  const auto power = uint8_t(std::clamp(exponent + kBias, 0, kMost));
  const float of_power = float_of_e8m0(power);
  for (size_t i = 0; i < block.size(); ++i) {
    const float x = std::abs(block[i]) / of_power;
    uint32_t code = 0;
    for (uint32_t c = 1; c < 8; ++c) {
      const float middle = (kE2m1Codes[c - 1] + kE2m1Codes[c]) / 2;
      code += x > middle || (x == middle && c % 2 == 0) ? 1 : 0;
    }
    put_code(codes, i, std::signbit(block[i]) ? code | 8 : code);
  }
  *scale = std::byte{power};
}

}  // namespace

std::vector<float> expand(const NumberFormat& format, std::span<const std::byte> object) {
  if (is_code(format.type)) {
    std::vector<float> out(size_t(format.elements(int64_t(object.size()))));
    const auto codes = size_t(NumberFormat(format.type).bytes(int64_t(out.size())));
    numbers(format, object.data(), object.data() + codes, 0, out);
    return out;
  }
  const Groups<const std::byte> from(format, object);
  std::vector<float> out;
  for (int64_t group = 0; group < from.elements / kCompactGroup; ++group) {
    const Group values = from.expand(group);
    out.insert(out.end(), values.begin(), values.end());
  }
  return out;
}

void pack(const NumberFormat& format, std::span<const float> values, PackedBlocks& out) {
  SLUICE_CHECK(is_code(format.type) && values.size() % format.block == 0, "{} values in {}", values.size(),
               to_text(format));
  out.elements.assign(size_t(format.bytes(int64_t(values.size()))), std::byte{0});
  const size_t codes = size_t(NumberFormat(format.type).bytes(int64_t(values.size())));
  out.scales.resize(out.elements.size() - codes);
  out.elements.resize(codes);
  const auto scale_bytes = size_t(size_of(format.scale));
  for (size_t begin = 0; begin < values.size(); begin += format.block) {
    const auto block = values.subspan(begin, format.block);
    float largest = 0;
    for (const float x : block) largest = std::max(largest, std::abs(x));
    std::byte* const to = out.elements.data() + NumberFormat(format.type).bytes(int64_t(begin));
    std::byte* const scale = out.scales.data() + begin / format.block * scale_bytes;
    if (format.type == DType::F8E4M3) {
      pack_e4m3(block, largest, to, scale);
    } else if (format.type == DType::NF4) {
      pack_nf4(block, largest, to, scale);
    } else {
      pack_mxfp4(block, largest, to, scale);
    }
  }
}

void unpack(const NumberFormat& format, const PackedBlocks& blocks, int64_t first, std::span<float> values) {
  numbers(format, blocks.elements.data(), blocks.scales.data(), first, values);
}

void join_masters(std::span<const std::byte> parameters, std::span<const std::byte> residuals,
                  std::vector<float>& values) {
  SLUICE_CHECK(parameters.size() == 2 * residuals.size(), "{} bytes of parameters, {} residuals",
               parameters.size(), residuals.size());
  values.resize(residuals.size());
  for (size_t i = 0; i < values.size(); ++i) {
    uint16_t parameter;
    std::memcpy(&parameter, parameters.data() + 2 * i, sizeof parameter);
    values[i] = std::bit_cast<float>(join_master(parameter, std::to_integer<uint8_t>(residuals[i])));
  }
}

void split_masters(std::span<const float> values, std::vector<Bf16>& parameters,
                   std::vector<std::byte>& residuals) {
  parameters.resize(values.size());
  residuals.resize(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const SplitMaster split = split_master(std::bit_cast<uint32_t>(values[i]));
    parameters[i].bits = split.parameter;
    residuals[i] = std::byte{split.residual};
  }
}

void put(const NumberFormat& format, std::span<std::byte> object, int64_t first,
         std::span<const float> values) {
  const Groups<std::byte> to(format, object);
  const int64_t end = first + int64_t(values.size());
  for (int64_t group = first / kCompactGroup; group * kCompactGroup < end; ++group) {
    const int64_t start = group * kCompactGroup;
    Group all = to.expand(group);
    for (int64_t i = std::max(first, start); i < std::min(end, start + kCompactGroup); ++i)
      all[size_t(i - start)] = values[size_t(i - first)];
    compact(to, group, all);
  }
}

}  // namespace sluice::core
