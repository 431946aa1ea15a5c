// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/found_tensor.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "checkpoint/write.h"
#include "io/elements.h"
#include "ops/packed.h"

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

namespace {

FoundTensor found(std::optional<PackedTensor> packed, int64_t first) {
  const SafeTensor* const codes = packed->tensors().front();
  return {codes, first, std::move(packed)};
}

}  // namespace

Result<int64_t> FoundTensor::read(int64_t at, std::span<float> values) const {
  const auto count = int64_t(values.size());
  if (packed) {
    SLUICE_TRY(packed->read(first + at, values));
    return count * int64_t(tensor->bytes.size()) / std::max<int64_t>(packed->info().elements(), 1);
  }
  const int64_t size = size_of(tensor->info.type);
  const auto bytes = tensor->bytes.subspan(size_t((first + at) * size), size_t(count * size));
  SLUICE_TRY(check_values(tensor->info, false, first + at, bytes));
  read_elements(tensor->info.type, bytes, values);
  return count * size;
}

Result<FoundTensor> find_tensor(const TensorFiles& files, const WeightSource& source, bool matrix) {
  const WeightSource::Stack& stack = source.stack;
  // Codes of experts that others turn have a row for each output.
  WeightSource upright = source;
  upright.transposed = false;
  SLUICE_ASSIGN(std::optional<PackedTensor> packed,
                PackedTensor::find(files, source.tensor, upright.shape(matrix)));
  if (packed && source.transposed && packed->format() != kMxfp4)
    return error("{}: tensor {} has codes, and a row for each input; such are not read",
                 files.path().string(), source.tensor);
  if (packed) return found(std::move(packed), 0);
  const SafeTensor* in_one = nullptr;
  if (!stack.tensor.empty() && files.find(source.tensor) == nullptr) in_one = files.find(stack.tensor);
  if (in_one != nullptr) {
    const int64_t expected[] = {stack.experts, stack.rows, source.cols};
    SLUICE_ASSIGN(packed, PackedTensor::find(files, stack.tensor, expected));
    if (packed) return found(std::move(packed), stack.first_row * source.cols);
    SLUICE_TRY(check_stored(in_one->info, expected, files.path()));
    return FoundTensor{in_one, stack.first_row * source.cols};
  }
  SLUICE_ASSIGN(const SafeTensor* tensor, files.get(source.tensor));
  SLUICE_TRY(check_stored(tensor->info, source.shape(matrix), files.path()));
  return FoundTensor{tensor};
}

std::optional<NumberFormat> packed_as(const FoundTensor& tensor, const WeightSource& source) {
  if (!tensor.packed || !tensor.packed->format()) return std::nullopt;
  return tensor.packed->format()->over(source.cols);
}

std::vector<std::string> packed_otherwise(const ModelSpec& spec, const TensorFiles& files) {
  std::vector<std::string> out;
  for (const Weight& weight : weights_of(spec)) {
    if (!is_packed(weight)) continue;
    for (const WeightSource& source : weight.sources) {
      const auto found = find_tensor(files, source, weight.matrix);
      if (!found.ok() || packed_as(*found, source) != weight.format) out.push_back(source.tensor);
    }
  }
  return out;
}

}  // namespace sluice::core
