// SPDX-License-Identifier: Apache-2.0
// Where a model's folder has the rows of a weight.
#pragma once

#include "io/safetensors.h"
#include "model/weights.h"

namespace sluice::core {

// A tensor, and the element from which on it has what stretch() has at 0.
struct FoundTensor {
  const SafeTensor* tensor;
  int64_t first = 0;
};

// The tensor that the source names, or, if there is none, that of all experts of its layer. `matrix`: as the
// weight's. Errors name a tensor that is missing, one of another shape, and one that is of no type of
// weights.
Result<FoundTensor> find_tensor(const TensorFiles& files, const WeightSource& source, bool matrix);
// Whether it has the shape, and a type of weights. `path` says where it is.
Status check_stored(const TensorInfo& tensor, std::span<const int64_t> expected,
                    const std::filesystem::path& path);

}  // namespace sluice::core
