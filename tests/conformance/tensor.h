// SPDX-License-Identifier: Apache-2.0
// The bytes of one operand, and what they mean.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "base/format.h"
#include "ops/op.h"

namespace sluice::core::conformance {

struct Tensor {
  NumberFormat format;
  std::vector<std::byte> bytes;

  int64_t elements() const { return format.elements(static_cast<int64_t>(bytes.size())); }

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
  // Element i becomes `value`, rounded to nearest. REQUIRES: elements share no scale.
  void set(int64_t i, double value);
};

// All elements zero.
Tensor make_tensor(const NumberFormat& format, int64_t elements);
// And zeros up to the end of the last group, where they share scales.
Tensor make_tensor(const NumberFormat& format, std::span<const double> values);

// Groups of compact state (ops/compact.h, written a second time here).
// Numbers of which compact state keeps the nearest whole one: of x, or of the root of a sum of squares.
double compacted(double x, double scale, bool squares);
bool is_compact_squares(const NumberFormat& format);
// The scale of a group.
double scale_of(const Tensor& tensor, int64_t group);

// Masters of 24 bits (ops/master.h, written a second time here): a parameter and what it lacks, a whole
// number of 256ths of the distance to the next bf16 away from zero.
constexpr double kMasterUnit = 0x1p-16;  // unit roundoff
double rounded_master(double x);         // to nearest, ties to even
std::vector<double> masters(const Tensor& parameters, const Tensor& residuals);
// Of values that masters hold exactly.
void set_masters(std::span<const double> values, Tensor& parameters, Tensor& residuals);

template <class Read = StepArgs>
Read step_args(const Tensor& operand) {
  Read args;
  std::memcpy(&args, operand.bytes.data(), sizeof args);
  return args;
}

}  // namespace sluice::core::conformance
