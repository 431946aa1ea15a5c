// SPDX-License-Identifier: Apache-2.0
#include "state/compact.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "ops/compact_format.h"

namespace sluice::core {
namespace {

bool of_squares(const Format& format) {
  const bool squares = format == compact_format(true);
  SLUICE_CHECK(squares || format == compact_format(false), "{} is no compact format", to_text(format));
  return squares;
}

}  // namespace

std::vector<float> expand(const Format& format, std::span<const std::byte> bytes) {
  const bool squares = of_squares(format);
  const int64_t elements = format.elements(int64_t(bytes.size()));
  std::vector<float> out(size_t(elements), 0.0f);
  for (int64_t i = 0; i < elements; ++i) {
    Bf16 scale;
    std::memcpy(&scale, bytes.data() + elements + 2 * (i / kCompactGroup), sizeof scale);
    const auto byte = std::to_integer<uint8_t>(bytes[size_t(i)]);
    out[size_t(i)] =
        squares ? expand_squares(byte, float(scale) / 255.0f) : expand_signed(byte, float(scale));
  }
  return out;
}

std::vector<std::byte> compact(const Format& format, std::span<const float> values) {
  const bool squares = of_squares(format);
  const int64_t elements = format.padded(int64_t(values.size()));
  std::vector<std::byte> out(size_t(format.bytes(elements)), std::byte{0});
  for (int64_t first = 0; first < int64_t(values.size()); first += kCompactGroup) {
    const auto group =
        values.subspan(size_t(first), size_t(std::min(kCompactGroup, int64_t(values.size()) - first)));
    float most = 0;
    for (const float x : group) most = std::max(most, squares ? std::sqrt(x) : std::abs(x));
    Bf16 scale;
    scale.bits = compact_scale(std::bit_cast<uint32_t>(most));
    std::memcpy(out.data() + elements + 2 * (first / kCompactGroup), &scale, sizeof scale);
    const float inverse = compact_inverse(float(scale));
    for (size_t i = 0; i < group.size(); ++i) {
      out[size_t(first) + i] =
          std::byte(squares ? compact_root(std::sqrt(group[i]), inverse) : compact_signed(group[i], inverse));
    }
  }
  return out;
}

}  // namespace sluice::core
