// SPDX-License-Identifier: Apache-2.0
// Where a model's folder has the rows of a weight.
#pragma once

#include <optional>

#include "checkpoint/packed_tensor.h"
#include "io/safetensors.h"
#include "model/weights.h"

namespace sluice::core {

// A tensor, and the element from which on it has what stretch() has at 0. Of one that is packed, that of the
// codes.
struct FoundTensor {
  const SafeTensor* tensor;
  int64_t first = 0;
  std::optional<PackedTensor> packed = {};

  const TensorInfo& info() const { return packed ? packed->info() : tensor->info; }
  // Elements that follow each other, from one of stretch() on, as f32, and how many bytes of the file they
  // are. An error names one that is not finite.
  Result<int64_t> read(int64_t at, std::span<float> values) const;
};

// The tensor that the source names, or, if there is none, that of all experts of its layer; its numbers or
// its codes. `matrix`: as the weight's. Errors name a tensor that is missing, one of another shape, and one
// that is of no type of weights.
Result<FoundTensor> find_tensor(const TensorFiles& files, const WeightSource& source, bool matrix);
// The format of its codes over rows of a weight, whose values have these bits there; nothing: there is none.
std::optional<NumberFormat> packed_as(const FoundTensor& tensor, const WeightSource& source);
// The tensors of weights that are to be packed, and that the files do not have in that format.
std::vector<std::string> packed_otherwise(const ModelSpec& spec, const TensorFiles& files);
// Whether it has the shape, and a type of weights. `path` says where it is.
Status check_stored(const TensorInfo& tensor, std::span<const int64_t> expected,
                    const std::filesystem::path& path);

}  // namespace sluice::core
