// SPDX-License-Identifier: Apache-2.0
#include "state/embedding_rows.h"

#include <algorithm>
#include <cstring>

#include "io/elements.h"
#include "state/weights.h"
#include "state/write.h"

namespace sluice::core {
namespace {

// A host cap counts pages of the files that were touched; the system reads some around each.
constexpr int64_t kMostReadBytes = 4 << 20, kTouchedBytes = 64 << 10;

}  // namespace

void scale_embedding(DType dtype, float scale, std::span<std::byte> rows) {
  if (scale == 1) return;
  with_type(dtype, [&]<class T>(T value) {
    for (size_t at = 0; at < rows.size(); at += sizeof value) {
      std::memcpy(&value, rows.data() + at, sizeof value);
      value = T(float(value) * scale);
      std::memcpy(rows.data() + at, &value, sizeof value);
    }
  });
}

Result<EmbeddingRows> EmbeddingRows::open(const ModelSpec& spec, DType dtype, const WeightsFrom& from,
                                          uint64_t seed) {
  EmbeddingRows rows;
  rows.dtype_ = dtype;
  rows.dim_ = spec.dim;
  rows.scale_ = float(spec.stream_embedding_scale());
  rows.seed_ = seed;
  Model model;  // of this weight alone
  for (Weight& weight : weights_of(spec)) {
    if (weight.part == ModelPart::Embedding) model.weights.push_back(std::move(weight));
  }
  rows.weight_ = model.weights.front();
  const std::filesystem::path& checkpoint = from.of(rows.weight_);
  if (checkpoint.empty()) return rows;
  SLUICE_ASSIGN(rows.files_, TensorFiles::open(checkpoint));
  const std::string& name = rows.weight_.sources.front().tensor;
  SLUICE_ASSIGN(rows.tensor_, rows.files_->get(name));
  SLUICE_TRY(check_weight(model, weight_places(model).at(name).front(), rows.tensor_->info, checkpoint));
  return rows;
}

Status EmbeddingRows::read_row(int32_t token) {
  const int64_t first = int64_t{token} * dim_;
  if (tensor_ == nullptr) {
    random_values(weight_, seed_, first, dim_, row_);
    return {};
  }
  const int64_t size = size_of(tensor_->info.type);
  const auto bytes = tensor_->bytes.subspan(size_t(first * size), size_t(dim_ * size));
  SLUICE_TRY(check_values(tensor_->info, false, first, bytes));
  read_elements(tensor_->info.type, bytes, row_);
  read_bytes_ += std::max(dim_ * size, kTouchedBytes);
  if (read_bytes_ > kMostReadBytes) {
    files_->release();
    read_bytes_ = 0;
  }
  return {};
}

Status EmbeddingRows::read(std::span<const int32_t> tokens, std::vector<std::byte>& rows) {
  const int64_t row_bytes = dim_ * size_of(dtype_);
  rows.resize(tokens.size() * size_t(row_bytes));
  for (size_t t = 0; t < tokens.size(); ++t) {
    SLUICE_TRY(read_row(tokens[t]));
    std::byte* const to = rows.data() + int64_t(t) * row_bytes;
    with_type(dtype_, [&]<class T>(T) {
      for (int64_t i = 0; i < dim_; ++i) {
        const T weight(row_[size_t(i)]);
        std::memcpy(to + i * int64_t{sizeof(T)}, &weight, sizeof weight);
      }
    });
  }
  scale_embedding(dtype_, scale_, rows);  // as the program would: of the weight in its type
  return {};
}

}  // namespace sluice::core
