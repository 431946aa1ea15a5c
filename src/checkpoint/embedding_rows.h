// SPDX-License-Identifier: Apache-2.0
// Rows of the embedding and of tables of layers, read from the checkpoint when a token asks for one. A pass
// that generates text needs few of them, and a table of a large vocabulary is a gigabyte.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "checkpoint/weights.h"
#include "io/safetensors.h"
#include "model/weights.h"
#include "program/program.h"

namespace sluice::core {

// Makes rows of a weight, in `dtype`, F32 or BF16, what a pass begins with.
void scale_embedding(DType dtype, float scale, std::span<std::byte> rows);

class EmbeddingRows {
 public:
  // In `dtype`, F32 or BF16. Without a folder they are as initialize() makes them. Errors as load_weights()
  // has them.
  static Result<EmbeddingRows> open(const ModelSpec& spec, DType dtype, const WeightsFrom& from);

  // Makes the rows of random tables once and keeps them in host memory, so that a pass takes the time that it
  // takes with a folder's. A table of more than 2^30 values is made row by row all the same.
  void keep_random();

  // The rows of these tokens, one after another, of the weights that are looked up in turn, as a pass begins
  // with them: times their scale. An error names one with a value that is not finite. REQUIRES: tokens below
  // the vocabulary's size.
  Status read(std::span<const int32_t> tokens, std::vector<std::byte>& rows);

 private:
  EmbeddingRows() = default;
  struct Table {
    Weight weight;
    float scale;
    const SafeTensor* tensor;               // null: random
    std::vector<const SafeTensor*> learnt;  // by run of weight.learnt; empty: the table's own rows
    std::vector<std::byte> kept;            // every row in dtype_; empty: each is read or made when asked for
  };
  Status read_row(const Table& table, int32_t token, std::vector<float>& row) const;
  Status read_rows(const Table& table, std::span<const int32_t> tokens, std::span<std::byte> to) const;

  DType dtype_ = DType::F32;
  std::vector<Table> tables_;
  uint64_t seed_ = 0;
  std::optional<TensorFiles> files_, beside_;
  int64_t read_bytes_ = 0;  // of the files, since their pages were given back
};

}  // namespace sluice::core
