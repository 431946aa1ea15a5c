// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/merge.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/parallel.h"
#include "checkpoint/found_tensor.h"
#include "checkpoint/write.h"
#include "io/elements.h"

namespace sluice::core {
namespace {

// Rows become columns.
std::vector<float> transposed(const std::vector<float>& values, int64_t rows, int64_t columns) {
  std::vector<float> out(values.size());
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) out[size_t(c * rows + r)] = values[size_t(r * columns + c)];
  }
  return out;
}

// to[c] += by * from[c]
void add(float by, const float* from, int64_t count, float* to) {
  for (int64_t c = 0; c < count; ++c) to[c] += by * from[c];
}

}  // namespace

Result<MergedTensor> MergedTensor::open(FoundTensor base, bool turned, const std::string& module,
                                        const AdapterOf& adapter, bool dora, const TensorFiles& adapters,
                                        TensorType to) {
  MergedTensor out;
  out.base_ = std::move(base);
  out.to_ = to;
  out.turned_ = turned;
  out.rank_ = adapter.rank;
  out.scale_ = float(adapter.scale);
  out.columns_ = out.base_.info().shape.back();
  const int64_t rows = out.base_.info().shape.front();
  const std::array a{adapter.rank, turned ? rows : out.columns_};
  const std::array b{turned ? out.columns_ : rows, adapter.rank};
  SLUICE_ASSIGN(out.a_, adapters.get(module + ".lora_A.weight"));
  SLUICE_TRY(check_stored(out.a_->info, a, adapters.path()));
  SLUICE_ASSIGN(out.b_, adapters.get(module + ".lora_B.weight"));
  SLUICE_TRY(check_stored(out.b_->info, b, adapters.path()));
  if (!dora) return out;
  SLUICE_ASSIGN(out.m_, adapters.get(module + ".lora_magnitude_vector"));
  SLUICE_TRY(check_stored(out.m_->info, std::array{b.front()}, adapters.path()));
  return out;
}

Result<MergedTensor> MergedTensor::with_rows(FoundTensor base, const std::vector<Weight::Learnt>& learnt,
                                             const TensorFiles& adapters) {
  MergedTensor out;
  out.base_ = std::move(base);
  out.columns_ = out.base_.info().shape.back();
  for (const auto& [first, rows] : learnt) {
    SLUICE_ASSIGN(const FoundTensor found, find_tensor(adapters, rows, true));
    const TensorInfo& info = found.tensor->info;
    const int64_t size = size_of(info.type), at = rows.stretch(0, rows.elements()).at;
    const auto bytes = found.tensor->bytes.subspan(size_t(at * size), size_t(rows.elements() * size));
    SLUICE_TRY(check_values(info, false, at, bytes));
    read_elements(info.type, bytes, out.replaced_.emplace_back(first, std::vector<float>()).second);
  }
  return out;
}

Status MergedTensor::load() {
  read_elements(a_->info.type, a_->bytes, right_);
  read_elements(b_->info.type, b_->bytes, left_);
  if (turned_) {
    const std::vector<float> a = std::move(right_);
    right_ = transposed(left_, columns_, rank_);
    left_ = transposed(a, rank_, base_.info().shape.front());
  }
  for (float& value : left_) value *= scale_;
  return m_ == nullptr ? Status() : find_factors();
}

void MergedTensor::change(int64_t first, int64_t count) {
  change_.assign(size_t(count), 0);
  const int64_t end = first + count, first_row = first / columns_,
                rows = (end - 1) / columns_ + 1 - first_row;
  for_each_parallel(rows, search_threads(), [&](int64_t r) {
    const int64_t row = first_row + r;
    const int64_t from = std::max(first, row * columns_), to = std::min(end, (row + 1) * columns_);
    for (int64_t j = 0; j < rank_; ++j)
      add(left_[size_t(row * rank_ + j)], right_.data() + j * columns_ + (from - row * columns_), to - from,
          change_.data() + (from - first));
  });
}

// Another pass over the tensor, a piece at a time.
Status MergedTensor::find_factors() {
  constexpr int64_t kPiece = 1 << 20;
  read_elements(m_->info.type, m_->bytes, factors_);
  std::vector<double> squares(factors_.size());
  const int64_t elements = base_.info().elements();
  for (int64_t first = 0; first < elements; first += kPiece) {
    const int64_t count = std::min(kPiece, elements - first);
    sum_.resize(size_t(count));
    SLUICE_TRY(base_.read(first, sum_));
    change(first, count);
    for (int64_t i = 0; i < count; ++i) {
      const double value = double(sum_[size_t(i)]) + double(change_[size_t(i)]);
      squares[size_t(output_of(first + i))] += value * value;
    }
  }
  for (size_t o = 0; o < factors_.size(); ++o)
    factors_[o] = float(double(factors_[o]) / std::sqrt(squares[o]));
  return {};
}

Result<std::span<const float>> MergedTensor::read(int64_t first, int64_t count) {
  if (rank_ > 0 && left_.empty()) SLUICE_TRY(load());
  const int64_t end = first + count;
  sum_.resize(size_t(count));
  SLUICE_TRY(base_.read(first, sum_));
  for (const auto& [at, values] : replaced_) {
    const int64_t from = std::max(first, at), to = std::min(end, at + int64_t(values.size()));
    if (from < to)
      std::copy(values.begin() + (from - at), values.begin() + (to - at), sum_.begin() + (from - first));
  }
  if (rank_ == 0) return std::span<const float>(sum_);
  change(first, count);
  for (int64_t i = 0; m_ != nullptr && i < count; ++i) {
    const float before = sum_[size_t(i)], by = factors_[size_t(output_of(first + i))];
    change_[size_t(i)] = by * (before + change_[size_t(i)]) - before;
  }
  std::vector<float> exact(sum_);
  for (size_t i = 0; i < sum_.size(); ++i) sum_[i] += change_[i];
  if (round_elements(to_, sum_, rounded_) < 0) {
    std::vector<float> rounded;
    read_elements(to_, rounded_, rounded);
    for (size_t i = 0; i < sum_.size(); ++i) {
      const double error = double(rounded[i]) - (double(exact[i]) + double(change_[i]));
      change_squares_ += double(change_[i]) * double(change_[i]);
      error_squares_ += error * error;
    }
  }
  if (end == base_.info().elements()) left_ = right_ = {};
  return std::span<const float>(sum_);
}

double MergedTensor::loss() const {
  return change_squares_ > 0 ? std::sqrt(error_squares_ / change_squares_) : -1;
}

MergeLoss loss_of(const std::vector<MergedTensor>& tensors) {
  constexpr double kHalf = 0.5;
  MergeLoss out;
  std::vector<double> losses;
  for (const MergedTensor& tensor : tensors) {
    if (tensor.loss() >= 0) losses.push_back(tensor.loss());
  }
  out.tensors = int64_t(tensors.size());
  out.lost = std::count_if(losses.begin(), losses.end(), [](double loss) { return loss > kHalf; });
  if (losses.empty()) return out;
  std::sort(losses.begin(), losses.end());
  const size_t half = losses.size() / 2;
  out.median = losses.size() % 2 == 1 ? losses[half] : (losses[half - 1] + losses[half]) / 2;
  return out;
}

}  // namespace sluice::core
