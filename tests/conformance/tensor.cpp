// SPDX-License-Identifier: Apache-2.0
#include "conformance/tensor.h"

#include "base/check.h"

namespace sluice::core::conformance {

double Tensor::at(int64_t i) const {
  const auto k = static_cast<size_t>(i);
  switch (dtype) {
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
    case DType::F8E4M3:
    case DType::F4E2M1:
      break;
  }
  not_a_float(dtype);
}

std::vector<double> Tensor::values() const {
  std::vector<double> all(static_cast<size_t>(elements()));
  for (size_t i = 0; i < all.size(); ++i) all[i] = at(static_cast<int64_t>(i));
  return all;
}

void Tensor::set(int64_t i, double value) {
  const auto k = static_cast<size_t>(i);
  switch (dtype) {
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
    case DType::F8E4M3:
    case DType::F4E2M1:
      break;
  }
  not_a_float(dtype);
}

Tensor make_tensor(DType dtype, int64_t elements) {
  return {dtype, std::vector<std::byte>(static_cast<size_t>(elements * size_of(dtype)))};
}

Tensor make_tensor(DType dtype, std::span<const double> values) {
  Tensor tensor = make_tensor(dtype, static_cast<int64_t>(values.size()));
  for (size_t i = 0; i < values.size(); ++i) tensor.set(static_cast<int64_t>(i), values[i]);
  return tensor;
}

}  // namespace sluice::core::conformance
