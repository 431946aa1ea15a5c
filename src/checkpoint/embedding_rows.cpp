// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/embedding_rows.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/parallel.h"
#include "checkpoint/found_tensor.h"
#include "checkpoint/weights.h"
#include "checkpoint/write.h"
#include "io/elements.h"

namespace sluice::core {
namespace {

// A host cap counts pages of the files that were touched; the system reads some around each.
constexpr int64_t kMostReadBytes = 4 << 20, kTouchedBytes = 64 << 10;
// Fewer rows take less time than another thread to begin. Random ones are computed, which takes a multiple.
// Those that are kept lie anywhere in a GiB, and take some us each.
constexpr int64_t kRowsPerThread = 8, kRandomRowsPerThread = 2, kKeptRowsPerThread = 32;
constexpr int64_t kMostKept = int64_t{1} << 30;  // values of a table

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

Result<EmbeddingRows> EmbeddingRows::open(const ModelSpec& spec, DType dtype, const WeightsFrom& from) {
  EmbeddingRows rows;
  rows.dtype_ = dtype;
  rows.seed_ = from.seed;
  for (Weight& weight : weights_of(spec)) {
    if (!is_looked_up(weight)) continue;
    const std::filesystem::path& checkpoint = from.of(weight);
    Table& table = rows.tables_.emplace_back(Table{std::move(weight), 1, nullptr, {}, {}});
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

void EmbeddingRows::keep_random() {
  for (Table& table : tables_) {
    const int64_t width = table.weight.sources.front().cols,
                  elements = table.weight.sources.front().elements();
    if (table.tensor != nullptr || elements > kMostKept) continue;
    std::vector<int32_t> tokens(size_t(elements / width));
    std::iota(tokens.begin(), tokens.end(), 0);
    std::vector<std::byte> rows(size_t(elements * size_of(dtype_)));
    // Rows of random values name no error.
    (void)read_rows(table, tokens, rows);
    table.kept = std::move(rows);
  }
}

Status EmbeddingRows::read_row(const Table& table, int32_t token, std::vector<float>& row) const {
  const WeightSource& source = table.weight.sources.front();
  const int64_t width = source.cols, first = int64_t{token} * width;
  if (table.tensor == nullptr) {
    random_values(table.weight, seed_, first, width, row);
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
  read_elements(info.type, bytes, row);
  return {};
}

Status EmbeddingRows::read_rows(const Table& table, std::span<const int32_t> tokens,
                                std::span<std::byte> to) const {
  const int64_t width = table.weight.sources.front().cols;
  const auto count = int64_t(tokens.size());
  const bool kept = !table.kept.empty();
  const int64_t each = kept                      ? kKeptRowsPerThread
                       : table.tensor == nullptr ? kRandomRowsPerThread
                                                 : kRowsPerThread;
  const auto threads = int(std::clamp<int64_t>(count / each, 1, search_threads()));
  std::vector<Status> done(static_cast<size_t>(threads));
  for_each_parallel(threads, threads, [&](int64_t part) {
    std::vector<float> row;
    for (int64_t t = part * count / threads; t < (part + 1) * count / threads; ++t) {
      if (kept) {
        const auto row_bytes = size_t(width * size_of(dtype_));
        std::memcpy(to.data() + size_t(t) * row_bytes,
                    table.kept.data() + size_t(tokens[size_t(t)]) * row_bytes, row_bytes);
        continue;
      }
      if (done[size_t(part)] = read_row(table, tokens[size_t(t)], row); !done[size_t(part)].ok()) return;
      with_type(dtype_, [&]<class T>(T) {
        T* const out = reinterpret_cast<T*>(to.data()) + t * width;
        std::transform(row.begin(), row.end(), out, [](float value) { return T(value); });
      });
    }
  });
  for (Status& status : done) SLUICE_TRY(std::move(status));
  return {};
}

Status EmbeddingRows::read(std::span<const int32_t> tokens, std::vector<std::byte>& rows) {
  // Bytes stay until they are written: zeros of many rows take as long as the rows.
  size_t end = 0;
  for (const Table& table : tables_) {
    const size_t before = end;
    const int64_t row_bytes = table.weight.sources.front().cols * size_of(dtype_);
    end = before + tokens.size() * size_t(row_bytes);
    rows.resize(end);
    // Between so many, pages of the files are given back.
    const int64_t touched = std::max(row_bytes, kTouchedBytes),
                  most = std::max<int64_t>(1, kMostReadBytes / touched);
    for (size_t first = 0; first < tokens.size();) {
      const size_t count =
          table.tensor == nullptr ? tokens.size() : std::min(tokens.size() - first, size_t(most));
      SLUICE_TRY(read_rows(table, tokens.subspan(first, count),
                           std::span(rows).subspan(before + first * size_t(row_bytes))));
      first += count;
      read_bytes_ += table.tensor == nullptr ? 0 : int64_t(count) * touched;
      if (read_bytes_ < kMostReadBytes) continue;
      files_->release();
      read_bytes_ = 0;
    }
    // As the program would: of the weight in its type.
    scale_embedding(dtype_, table.scale, std::span(rows).subspan(before));
  }
  return {};
}

}  // namespace sluice::core
