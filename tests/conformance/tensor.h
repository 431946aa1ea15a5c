// SPDX-License-Identifier: Apache-2.0
// The bytes of one operand, and what they mean.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "base/dtype.h"
#include "ops/op.h"

namespace sluice::core::conformance {

struct Tensor {
  DType dtype = DType::F32;
  std::vector<std::byte> bytes;

  int64_t elements() const { return static_cast<int64_t>(bytes.size()) / size_of(dtype); }

  template <class T>
  std::span<const T> as() const {
    return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
  }
  template <class T>
  std::span<T> as() {
    return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
  }
  // Element i, exactly.
  double at(int64_t i) const;
  // Every element, exactly.
  std::vector<double> values() const;
  // Element i becomes `value`, rounded to nearest.
  void set(int64_t i, double value);
};

// All elements zero.
Tensor make_tensor(DType dtype, int64_t elements);
Tensor make_tensor(DType dtype, std::span<const double> values);

inline StepArgs step_args(const Tensor& operand) {
  StepArgs args;
  std::memcpy(&args, operand.bytes.data(), sizeof args);
  return args;
}

}  // namespace sluice::core::conformance
