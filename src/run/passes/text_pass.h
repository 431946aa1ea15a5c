// SPDX-License-Identifier: Apache-2.0
// Passes of a program that generates text.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "generate/generator.h"
#include "run/passes/rows.h"

namespace sluice::core {

class TextPass {
 public:
  // The rows of the embedding of these tokens, as EmbeddingRows::read() has them.
  using Embed = std::function<Status(std::span<const int32_t> tokens, std::vector<std::byte>& rows)>;

  // A pass of a model of build_generation(). Borrows both.
  TextPass(const Model& model, Executor& executor)
      : model_(model), executor_(executor), batch_(model.layout, model.shape.tokens()) {}

  int64_t rows() const { return model_.shape.sequences(); }
  int64_t new_tokens() const { return model_.shape.seq_len; }  // of a row, at most
  // Clears the caches. What lay there may be no numbers, which attention would not leave out.
  Status forget();
  // As CachedTextModel::pass(). REQUIRES: an input per row, of at most new_tokens().
  Result<std::span<const float>> run(std::span<const RowInput> inputs, const Embed& embed);

 private:
  const Model& model_;
  Executor& executor_;
  Rows batch_;
  std::vector<int32_t> spans_;
  std::vector<std::byte> embedded_, staging_;
  std::vector<float> logits_;
};

}  // namespace sluice::core
