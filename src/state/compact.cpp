// SPDX-License-Identifier: Apache-2.0
#include "state/compact.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "ops/compact_format.h"
#include "ops/float8.h"
#include "ops/master.h"

namespace sluice::core {
namespace {

bool of_squares(const Format& format) {
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

  Groups(const Format& format, std::span<Byte> all)
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

}  // namespace

std::vector<float> expand(const Format& format, std::span<const std::byte> object) {
  if (format.type == DType::F8E4M3) {
    std::vector<float> out(size_t(format.elements(int64_t(object.size()))));
    for (size_t i = 0; i < out.size(); ++i) {
      float scale;
      std::memcpy(&scale, object.data() + out.size() + i / format.block * sizeof scale, sizeof scale);
      out[i] = float_of_e4m3(std::to_integer<uint8_t>(object[i])) * scale;
    }
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

void pack(const Format& format, std::span<const float> values, PackedBlocks& out) {
  SLUICE_CHECK(format == Format(DType::F8E4M3, format.block, DType::F32) && values.size() % format.block == 0,
               "{} values in {}", values.size(), to_text(format));
  out.elements.resize(values.size());
  out.scales.clear();
  for (size_t begin = 0; begin < values.size(); begin += format.block) {
    float largest = 0;
    for (const float x : values.subspan(begin, format.block)) largest = std::max(largest, std::abs(x));
    const float scale = scale_of_e4m3(largest), inverse = 1 / scale;
    for (size_t i = begin; i < begin + format.block; ++i)
      out.elements[i] = std::byte{e4m3_of(values[i] * inverse)};
    out.scales.push_back(scale);
  }
}

void unpack(const Format& format, const PackedBlocks& blocks, int64_t first, std::span<Bf16> values) {
  for (size_t i = 0; i < values.size(); ++i) {
    const float scale = blocks.scales[(size_t(first) + i) / format.block];
    values[i] = Bf16(float_of_e4m3(std::to_integer<uint8_t>(blocks.elements[i])) * scale);
  }
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

void put(const Format& format, std::span<std::byte> object, int64_t first, std::span<const float> values) {
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
