// SPDX-License-Identifier: Apache-2.0
// Adapters added to the tensors of their base, piece by piece as these are written: W + scale * B A in f32.
// With magnitudes its rows are multiplied by these over their norms.
// Rounding the sum may lose what training changed: how much of it is measured on the way.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/found_tensor.h"
#include "io/safetensors.h"
#include "model/weights.h"

namespace sluice::core {

// How much of the changes rounding took.
struct MergeLoss {
  int64_t tensors = 0;
  int64_t lost = 0;   // of them, those of whose change rounding leaves less than half
  double median = 0;  // |round(W + D) - W - D| / |D|, of the tensors that change
};

// One tensor of the base with its adapter, in the order of the file.
class MergedTensor {
 public:
  // Borrows the files, which have the shapes of the model. `turned`: the base has a row for each input.
  static Result<MergedTensor> open(FoundTensor base, bool turned, const std::string& module,
                                   const AdapterOf& adapter, bool dora, const TensorFiles& adapters,
                                   TensorType to);

  // One whose rows of tokens are the adapter's own.
  static Result<MergedTensor> with_rows(FoundTensor base, const std::vector<Weight::Learnt>& learnt,
                                        const TensorFiles& adapters);

  // Elements [first, first + count) of the sum. Every element once for what loss() says. An error names one
  // of the base that is not finite.
  Result<std::span<const float>> read(int64_t first, int64_t count);
  // |round(W + D) - W - D| / |D| of the elements that were read. Negative: nothing changed.
  double loss() const;

 private:
  FoundTensor base_ = {};
  const SafeTensor *a_ = nullptr, *b_ = nullptr, *m_ = nullptr;  // m: of magnitudes, if there are some
  TensorType to_ = TensorType::F32;
  bool turned_ = false;
  int64_t rank_ = 0, columns_ = 0;
  // Elements of the tensor that are others, from the first on.
  std::vector<std::pair<int64_t, std::vector<float>>> replaced_;
  float scale_ = 1;
  // Rows of the file by rank, and rank by its columns; while it is read.
  std::vector<float> left_, right_;
  std::vector<float> factors_;  // of outputs: magnitudes over norms
  std::vector<float> sum_, change_;
  std::vector<std::byte> rounded_;
  double change_squares_ = 0, error_squares_ = 0;

  Status load();
  // The output that an element of the tensor is of.
  int64_t output_of(int64_t element) const { return turned_ ? element % columns_ : element / columns_; }
  // Makes change_, which is added to elements [first, first + count).
  void change(int64_t first, int64_t count);
  // Magnitudes over the norms of the whole tensor's outputs.
  Status find_factors();
};

MergeLoss loss_of(const std::vector<MergedTensor>& tensors);

}  // namespace sluice::core
