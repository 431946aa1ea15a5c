// SPDX-License-Identifier: Apache-2.0
#include "state/embedding_rows.h"

#include <algorithm>
#include <cstring>

#include "io/elements.h"
#include "state/found_tensor.h"
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
  rows.seed_ = seed;
  for (Weight& weight : weights_of(spec)) {
    if (!is_looked_up(weight)) continue;
    const std::filesystem::path& checkpoint = from.of(weight);
    Table& table = rows.tables_.emplace_back(Table{std::move(weight), 1, nullptr, {}});
    table.scale = row_scale(spec, table.weight);
    if (checkpoint.empty()) continue;
    if (!rows.files_) {
      SLUICE_ASSIGN(rows.files_, TensorFiles::open(checkpoint));
    }
    const WeightSource& source = table.weight.sources.front();
    SLUICE_ASSIGN(const FoundTensor found, find_tensor(*rows.files_, source, table.weight.matrix));
    if (found.packed)
      return error("{}: {} has codes, and rows of it are looked up, which takes numbers", checkpoint.string(),
                   source.tensor);
    table.tensor = found.tensor;
    for (const auto& [first, of_run] : table.weight.learnt) {
      if (from.adapter.empty()) continue;
      if (!rows.beside_) {
        SLUICE_ASSIGN(rows.beside_, TensorFiles::open(from.adapter));
      }
      SLUICE_ASSIGN(const FoundTensor own, find_tensor(*rows.beside_, of_run, table.weight.matrix));
      table.learnt.push_back(own.tensor);
    }
  }
  return rows;
}

Status EmbeddingRows::read_row(const Table& table, int32_t token) {
  const WeightSource& source = table.weight.sources.front();
  const int64_t width = source.cols, first = int64_t{token} * width;
  if (table.tensor == nullptr) {
    random_values(table.weight, seed_, first, width, row_);
    return {};
  }
  const SafeTensor* tensor = table.tensor;
  int64_t at = source.stretch(first, first + width).at;
  for (size_t r = 0; r < table.learnt.size(); ++r) {
    const auto& [begin, run] = table.weight.learnt[r];
    if (first < begin || first >= begin + run.elements()) continue;
    tensor = table.learnt[r];
    at = run.stretch(first - begin, first - begin + width).at;
  }
  const TensorInfo& info = tensor->info;
  const int64_t size = size_of(info.type);
  const auto bytes = tensor->bytes.subspan(size_t(at * size), size_t(width * size));
  SLUICE_TRY(check_values(info, false, at, bytes));
  read_elements(info.type, bytes, row_);
  read_bytes_ += std::max(width * size, kTouchedBytes);
  if (read_bytes_ > kMostReadBytes) {
    files_->release();
    read_bytes_ = 0;
  }
  return {};
}

Status EmbeddingRows::read(std::span<const int32_t> tokens, std::vector<std::byte>& rows) {
  rows.clear();
  for (const Table& table : tables_) {
    const size_t before = rows.size();
    for (const int32_t token : tokens) {
      SLUICE_TRY(read_row(table, token));
      with_type(dtype_, [&]<class T>(T) {
        for (const float value : row_) {
          const T weight(value);
          const auto bytes = std::as_bytes(std::span(&weight, 1));
          rows.insert(rows.end(), bytes.begin(), bytes.end());
        }
      });
    }
    // As the program would: of the weight in its type.
    scale_embedding(dtype_, table.scale, std::span(rows).subspan(before));
  }
  return {};
}

}  // namespace sluice::core
