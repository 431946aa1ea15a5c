// SPDX-License-Identifier: Apache-2.0
#include "state/found_tensor.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "io/elements.h"

namespace sluice::core {

Status check_stored(const TensorInfo& tensor, std::span<const int64_t> expected,
                    const std::filesystem::path& path) {
  if (!std::ranges::equal(tensor.shape, expected))
    return error("{}: tensor {} has shape [{}], the model needs [{}]", path.string(), tensor.name,
                 fmt::join(tensor.shape, ", "), fmt::join(expected, ", "));
  if (!is_weight_type(tensor.type))
    return error("{}: tensor {} is of {}; allowed are F32, BF16 and F16", path.string(), tensor.name,
                 name_of(tensor.type));
  return {};
}

Result<FoundTensor> find_tensor(const TensorFiles& files, const WeightSource& source, bool matrix) {
  const WeightSource::Stack& stack = source.stack;
  const SafeTensor* in_one = nullptr;
  if (!stack.tensor.empty() && files.find(source.tensor) == nullptr) in_one = files.find(stack.tensor);
  if (in_one != nullptr) {
    const int64_t expected[] = {stack.experts, stack.rows, source.cols};
    SLUICE_TRY(check_stored(in_one->info, expected, files.path()));
    return FoundTensor{in_one, stack.first_row * source.cols};
  }
  SLUICE_ASSIGN(const SafeTensor* tensor, files.get(source.tensor));
  SLUICE_TRY(check_stored(tensor->info, source.shape(matrix), files.path()));
  return FoundTensor{tensor};
}

}  // namespace sluice::core
