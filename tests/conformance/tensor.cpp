// SPDX-License-Identifier: Apache-2.0
#include "conformance/tensor.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"
#include "ops/cast.h"

namespace sluice::core::conformance {

namespace {

constexpr int64_t kGroup = 32;

bool is_compact(const NumberFormat& format) {
  return format.block == kGroup && format.scale == DType::F32 &&
         (format.type == DType::U8 || format.type == DType::I8);
}

// Floats of 8 bits (ops/float8.h, written a second time here).
struct Float8 {
  int mantissa, bias, most;  // bits of the mantissa; the code of the largest number

  double value(int byte) const {
    const int exponent = (byte & 0x7f) >> mantissa, rest = byte & ((1 << mantissa) - 1);
    const int least = 1 - bias - mantissa;
    const double x =
        exponent == 0 ? std::ldexp(rest, least) : std::ldexp((1 << mantissa) + rest, exponent - 1 + least);
    return byte < 0x80 ? x : -x;
  }
};
constexpr Float8 kE4m3{3, 7, 0x7e}, kE5m2{2, 15, 0x7b};
const Float8& float8_of(DType type) {
  return type == DType::F8E5M2 ? kE5m2 : kE4m3;
}
// The value of every code: millions are read and looked for.
const std::array<double, 256>& values_of(const Float8& float8) {
  const auto all = [](const Float8& of) {
    std::array<double, 256> out;
    for (int byte = 0; byte < 256; ++byte) out[size_t(byte)] = of.value(byte);
    return out;
  };
  static const std::array<double, 256> e4m3 = all(kE4m3), e5m2 = all(kE5m2);
  return &float8 == &kE5m2 ? e5m2 : e4m3;
}
// The nearest, of two the even one; REQUIRES: x is no larger than the largest.
uint8_t code_of(const Float8& float8, double x) {
  const double* const values = values_of(float8).data();  // of which the positive ones ascend
  const double size = std::abs(x);
  auto code = int(std::lower_bound(values, values + float8.most, size) - values);
  if (code > 0) {
    const double above = values[code] - size, below = size - values[code - 1];
    if (below < above || (below == above && code % 2 == 1)) --code;
  }
  return uint8_t(code | (std::signbit(x) ? 0x80 : 0));
}

// Codes of 4 bits (ops/packed.h, written a second time here).
double value_of_code(DType type, int code) {
  if (type == DType::F4E2M1) {
    const int exponent = code >> 1 & 3, mantissa = code & 1;
    const double value = exponent == 0 ? 0.5 * mantissa : std::ldexp(2 + mantissa, exponent - 2);
    return code < 8 ? value : -value;
  }
  // QLoRA's, of which bitsandbytes has the floats.
  constexpr float kNf4[] = {-1.0f,         -0.6961928f, -0.52507305f, -0.3949175f, -0.28444138f, -0.18477343f,
                            -0.091050036f, 0.0f,        0.0795803f,   0.1609302f,  0.2461123f,   0.33791524f,
                            0.44070983f,   0.562617f,   0.72295684f,  1.0f};
  return double{kNf4[code]};
}

void pack_codes(const NumberFormat& format, std::span<const double> block, std::byte* codes,
                std::byte* scale) {
  double most = 0;
  for (const double x : block) most = std::max(most, std::abs(x));
  const bool power = format.scale == DType::F8E8M0;
  const auto own = float(power ? std::exp2(std::floor(std::log2(most)) - 2) : most);
  if (power) {
    *scale = std::byte(std::ilogb(own) + 127);
  } else {
    std::memcpy(scale, &own, sizeof own);
  }
  for (size_t i = 0; i < block.size(); ++i) {
    int best = 0;
    for (int code = 1; code < 16; ++code) {
      const auto off = [&](int c) { return std::abs(value_of_code(format.type, c) * own - block[i]); };
      if (off(code) < off(best)) best = code;
    }
    codes[i / 2] |= std::byte(best << i % 2 * 4);
  }
}

}  // namespace

bool is_compact_squares(const NumberFormat& format) {
  SLUICE_CHECK(is_compact(format), "{} is not compact", to_text(format));
  return format.type == DType::U8;
}

double compacted(double x, double scale, bool squares) {
  if (scale == 0) return 0;
  const double r = std::min((squares ? std::sqrt(x) : std::abs(x)) / scale, 1.0);
  return squares ? 255 * r : std::copysign(127 * 2 * r / (1 + r), x);
}

double rounded_master(double x) {
  if (x == 0 || !std::isfinite(x)) return x;
  const double part = std::ldexp(1.0, std::max(std::ilogb(x), -126) - 15);
  return std::nearbyint(x / part) * part;
}

// The parameter is the nearest bf16, the one away from zero of two that are as near.
void set_masters(std::span<const double> values, Tensor& parameters, Tensor& residuals) {
  for (size_t i = 0; i < values.size(); ++i) {
    const double x = std::abs(values[i]);
    const double ulp = std::ldexp(1.0, std::max(x == 0 ? -126 : std::ilogb(x), -126) - 7);
    const double p = std::floor(x / ulp + 0.5) * ulp;
    parameters.set(int64_t(i), std::copysign(p, values[i]));
    residuals.set(int64_t(i), (x - p) / ulp * 256);
  }
}

std::vector<double> masters(const Tensor& parameters, const Tensor& residuals) {
  std::vector<double> out;
  for (int64_t i = 0; i < parameters.elements(); ++i) {
    const double p = parameters.at(i);
    const double parts = double(residuals.as<int8_t>()[static_cast<size_t>(i)]);
    // Towards zero the distance is half as large below a power of two; the parts stay those of their own
    // bf16.
    int exponent = 0;
    const bool power = std::abs(std::frexp(p, &exponent)) == 0.5;
    const int ulp = std::max(exponent - 1, -126) - 7 - (power && parts < 0 && exponent - 1 > -126 ? 1 : 0);
    out.push_back(p + std::copysign(1.0, p) * parts * std::ldexp(1.0, (p == 0 ? -133 : ulp) - 8));
  }
  return out;
}

double scale_of(const Tensor& tensor, int64_t group) {
  const std::byte* const scales =
      tensor.bytes.data() + NumberFormat(tensor.format.type).bytes(tensor.elements());
  if (tensor.format.scale == DType::F8E8M0) return std::ldexp(1.0, std::to_integer<int>(scales[group]) - 127);
  float scale;
  std::memcpy(&scale, scales + 4 * group, sizeof scale);
  return double{scale};
}

double Tensor::at(int64_t i) const {
  const auto k = static_cast<size_t>(i);
  if (is_compact(format)) {
    const double scale = scale_of(*this, i / kGroup);
    if (format.type == DType::U8) return std::pow(double(as<uint8_t>()[k]) / 255 * scale, 2);
    const double y = double(as<int8_t>()[k]) / 127;
    return y / (2 - std::abs(y)) * scale;
  }
  switch (format.type) {
    case DType::F32:
      return double{as<float>()[k]};
    case DType::BF16:
      return double{static_cast<float>(as<Bf16>()[k])};
    case DType::F64:
      return as<double>()[k];
    case DType::I32:
      return double(as<int32_t>()[k]);
    case DType::U8:
      return double(as<uint8_t>()[k]);
    case DType::I8:
      return double(as<int8_t>()[k]);
    case DType::F8E4M3:
    case DType::F8E5M2:
      return values_of(float8_of(format.type))[as<uint8_t>()[k]] *
             (format.block == 0 ? 1 : scale_of(*this, i / format.block));
    case DType::F4E2M1:
    case DType::NF4:
      return value_of_code(format.type, std::to_integer<int>(bytes[k / 2]) >> k % 2 * 4 & 15) *
             scale_of(*this, i / format.block);
    case DType::F8E8M0:
      break;
  }
  not_a_float(format.type);
}

std::vector<double> Tensor::values() const {
  std::vector<double> all(static_cast<size_t>(elements()));
  for (size_t i = 0; i < all.size(); ++i) all[i] = at(static_cast<int64_t>(i));
  return all;
}

void Tensor::set(int64_t i, double value) {
  const auto k = static_cast<size_t>(i);
  SLUICE_CHECK(format.block == 0, "{}: its elements share scales", to_text(format));
  switch (format.type) {
    case DType::F32:
      as<float>()[k] = static_cast<float>(value);
      return;
    case DType::BF16:
      as<Bf16>()[k] = Bf16(static_cast<float>(value));
      return;
    case DType::F64:
      as<double>()[k] = value;
      return;
    case DType::I32:
      as<int32_t>()[k] = static_cast<int32_t>(value);
      return;
    case DType::U8:
      as<uint8_t>()[k] = static_cast<uint8_t>(value);
      return;
    case DType::I8:
      as<int8_t>()[k] = static_cast<int8_t>(value);
      return;
    case DType::F8E4M3:
    case DType::F8E5M2:
      as<uint8_t>()[k] = code_of(float8_of(format.type), value);
      return;
    case DType::F4E2M1:
    case DType::F8E8M0:
    case DType::NF4:
      break;
  }
  not_a_float(format.type);
}

Tensor make_tensor(const NumberFormat& format, int64_t elements) {
  return {format, std::vector<std::byte>(static_cast<size_t>(format.bytes(elements)))};
}

Tensor make_tensor(const NumberFormat& format, std::span<const double> values) {
  const auto n = static_cast<int64_t>(values.size());
  Tensor tensor = make_tensor(format, format.padded(n));
  if (format.block == 0) {
    for (int64_t i = 0; i < n; ++i) tensor.set(i, values[static_cast<size_t>(i)]);
    return tensor;
  }
  if (is_float8(format.type)) {
    const Float8& float8 = float8_of(format.type);
    for (int64_t first = 0; first < n; first += format.block) {
      double most = 0;
      for (int64_t i = first; i < first + format.block; ++i)
        most = std::max(most, std::abs(values[size_t(i)]));
      const auto scale =
          most == 0 ? 1.0f : float(std::exp2(std::ceil(std::log2(most / float8.value(float8.most)))));
      std::memcpy(tensor.bytes.data() + n + 4 * (first / format.block), &scale, sizeof scale);
      for (int64_t i = first; i < first + format.block; ++i)
        tensor.as<uint8_t>()[size_t(i)] = code_of(float8, values[size_t(i)] / double{scale});
    }
    return tensor;
  }
  if (format.type == DType::NF4 || format.type == DType::F4E2M1) {
    const NumberFormat bare = format.type;
    for (int64_t first = 0; first < n; first += format.block)
      pack_codes(format, values.subspan(size_t(first), format.block), tensor.bytes.data() + bare.bytes(first),
                 tensor.bytes.data() + bare.bytes(n) + first / format.block * size_of(format.scale));
    return tensor;
  }
  const bool squares = is_compact_squares(format);
  for (int64_t first = 0; first < n; first += kGroup) {
    const auto group =
        values.subspan(static_cast<size_t>(first), static_cast<size_t>(std::min(kGroup, n - first)));
    double most = 0;
    for (const double x : group) most = std::max(most, squares ? std::sqrt(x) : std::abs(x));
    const auto scale = static_cast<float>(most);
    std::memcpy(tensor.bytes.data() + tensor.elements() + 4 * (first / kGroup), &scale, sizeof scale);
    for (size_t i = 0; i < group.size(); ++i) {
      const double q = std::nearbyint(compacted(group[i], double{scale}, squares));
      const double kept = squares && q == 0 && group[i] > 0 ? 1 : q;
      tensor.bytes[static_cast<size_t>(first) + i] = static_cast<std::byte>(static_cast<int>(kept) & 0xff);
    }
  }
  return tensor;
}

}  // namespace sluice::core::conformance
