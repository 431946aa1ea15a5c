// SPDX-License-Identifier: Apache-2.0
// Dimensions of a model against what kernels of a GPU like: multiples of powers of two, tiles that are full.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/spec.h"

namespace sluice::core {

enum class Dimension : uint8_t { Vocabulary, Width, Ffn, Queries, Keys, Head };

struct SizeAdvice {
  Dimension dimension;
  std::string name;             // "FFN F"
  int64_t size = 0;             // of the first layer
  int64_t power = 0;            // the largest power of two, up to 1,024, that divides it
  double empty = 0;             // share of tiles of 128 that it leaves empty
  std::optional<int64_t> next;  // the next size that fills tiles; none: this one does
  std::string why;              // what the size costs; empty: nothing
};
std::vector<SizeAdvice> advise_sizes(const ModelSpec& spec);

// The model with a dimension of another size in every layer. Nothing for queries and keys, which follow from
// heads.
std::optional<ModelSpec> resized(ModelSpec spec, Dimension dimension, int64_t size);

}  // namespace sluice::core
