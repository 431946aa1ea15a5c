// SPDX-License-Identifier: Apache-2.0
// Elements of the number formats that weights have in files: F32, BF16 and F16.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "io/safetensors_header.h"

namespace sluice::core {

// Whether `type` is one of them, as all functions below require.
bool is_weight_type(TensorType type);

// The elements as floats, which hold each of them exactly. `bytes` need not be aligned.
void read_elements(TensorType type, std::span<const std::byte> bytes, std::vector<float>& values);
// REQUIRES: as many values as elements.
void read_elements(TensorType type, std::span<const std::byte> bytes, std::span<float> values);

// The values rounded to nearest, ties to even. Returns the index of the first that is not finite then; -1:
// all are.
int64_t round_elements(TensorType type, std::span<const float> values, std::vector<std::byte>& bytes);

// The index of the first element that is not finite; -1: there is none.
int64_t first_not_finite(TensorType type, std::span<const std::byte> bytes);

// The index of the first element below zero; -1: there is none. What is no number is not below zero.
int64_t first_negative(TensorType type, std::span<const std::byte> bytes);

}  // namespace sluice::core
