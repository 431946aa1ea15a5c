// SPDX-License-Identifier: Apache-2.0
// The header of a safetensors file: names, types and places of its tensors. Headers come from strangers, so
// every rule of the format is checked here, once.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/status.h"

namespace sluice::core {

// Element types of the format; a superset of DType.
enum class TensorType : uint8_t {
  F64,
  F32,
  F16,
  BF16,
  F8_E4M3,
  F8_E5M2,
  I64,
  I32,
  I16,
  I8,
  U64,
  U32,
  U16,
  U8,
  Bool
};

int64_t size_of(TensorType type);
// As in the file: "F32", "BF16", ...
std::string_view name_of(TensorType type);
TensorType tensor_type(DType dtype);

struct TensorInfo {
  std::string name;
  TensorType type;
  std::vector<int64_t> shape;

  // One for a scalar (empty shape).
  int64_t elements() const;
  int64_t bytes() const { return elements() * size_of(type); }
};

struct SafeTensorsHeader {
  struct Entry {
    TensorInfo info;
    int64_t begin, end;  // bytes from the end of the header
  };
  std::vector<Entry> tensors;  // in file order; each begins where the one before it ends
  std::map<std::string, std::string> metadata;
};

// Longer headers are refused, as the format says.
constexpr int64_t kMaxSafeTensorsHeader = 100'000'000;

// Checks everything: known types, shapes whose product fits, sizes that match the offsets, no name twice, and
// tensors that cover `data_bytes` without hole or overlap. Tensors may be unaligned.
Result<SafeTensorsHeader> parse_safetensors_header(std::string_view json, int64_t data_bytes);

// The header of a file with `tensors` one after another, padded so that data behind the 8-byte length is
// aligned to 64.
std::string format_safetensors_header(const std::vector<TensorInfo>& tensors,
                                      const std::map<std::string, std::string>& metadata);

}  // namespace sluice::core
