// SPDX-License-Identifier: Apache-2.0
// Passes of programs that generate text.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "generate/generator.h"
#include "run/loaded/rows.h"

namespace sluice::core {

// The rows of the embedding of these tokens, as EmbeddingRows::read() has them.
using EmbedTokens = std::function<Status(std::span<const int32_t> tokens, std::vector<std::byte>& rows)>;

class TextPass {
 public:
  // A pass of a model of build_generation(). Borrows both.
  TextPass(const BuiltProgram& model, Executor& executor)
      : model_(model), executor_(executor), batch_(model.layout, model.shape.tokens()) {}

  int64_t rows() const { return model_.shape.sequences(); }
  int64_t new_tokens() const { return model_.shape.seq_len; }  // of a row, at most
  int64_t capacity() const { return model_.capacity; }
  bool copies_rows() const { return model_.copies.valid(); }
  bool draws() const { return model_.draws.valid(); }
  // Clears the caches. What lay there may be no numbers, which attention would not leave out.
  Status forget();
  // As CachedTextModel::pass(). REQUIRES: inputs of at most new_tokens(); copies only if copies_rows(), and
  // draws only if draws().
  Status run(std::span<const RowInput> inputs, std::span<const RowCopy> copies,
             std::span<const TokenDraw> draws, const EmbedTokens& embed);
  // Results of the last run, until the next.
  std::span<const float> logits(size_t input) const;
  std::span<const DrawnToken> drawn() const { return drawn_; }
  // Seconds that the program took in all passes: what is beside them is done on the host in between.
  double program_s() const { return program_s_; }

 private:
  // The text of the program that has an input.
  int64_t text_of(size_t input) const { return texts_[input]; }
  template <class T>
  Status write(ObjectId object, const std::vector<T>& values) {
    return executor_.write(object, std::as_bytes(std::span<const T>(values)));
  }

  const BuiltProgram& model_;
  Executor& executor_;
  Rows batch_;
  std::vector<int64_t> texts_;
  std::vector<int32_t> spans_, slots_, copies_;
  std::vector<TokenDraw> draws_;
  std::vector<DrawnToken> drawn_;
  std::vector<std::byte> embedded_, staging_;
  std::vector<float> logits_;
  double program_s_ = 0;
};

// The two programs that generate text on one cache, as one model.
class TextPasses : public CachedTextModel {
 public:
  // Prompts may be read by the pass that makes tokens, if it takes several. `after` is called with every
  // pass, and whether it was over prompts.
  TextPasses(TextPass tokens, std::optional<TextPass> prompts, EmbedTokens embed,
             std::function<Status(bool)> after = {})
      : tokens_(std::move(tokens)),
        prompts_(std::move(prompts)),
        embed_(std::move(embed)),
        after_(std::move(after)) {}

  Status forget() { return tokens_.forget(); }
  int64_t rows() const override { return tokens_.rows(); }
  int64_t capacity() const override { return tokens_.capacity(); }
  int64_t prompt_rows() const override { return for_prompts().rows(); }
  int64_t prompt_tokens() const override { return for_prompts().new_tokens(); }
  bool copies_rows() const override { return for_prompts().copies_rows(); }
  bool draws() const override { return tokens_.draws(); }
  // The same of passes that make tokens.
  double program_s() const { return tokens_.program_s(); }
  Status pass(bool prompts, std::span<const RowInput> inputs, std::span<const RowCopy> copies) override {
    return run(prompts, inputs, copies, {});
  }
  std::span<const float> logits(size_t input) const override { return last_->logits(input); }
  Result<std::span<const DrawnToken>> pass(bool prompts, std::span<const RowInput> inputs,
                                           std::span<const RowCopy> copies,
                                           std::span<const TokenDraw> draws) override {
    SLUICE_TRY(run(prompts, inputs, copies, draws));
    return last_->drawn();
  }

 private:
  const TextPass& for_prompts() const { return prompts_ ? *prompts_ : tokens_; }
  Status run(bool prompts, std::span<const RowInput> inputs, std::span<const RowCopy> copies,
             std::span<const TokenDraw> draws);

  TextPass tokens_;
  std::optional<TextPass> prompts_;
  EmbedTokens embed_;
  std::function<Status(bool)> after_;
  TextPass* last_ = nullptr;
};

}  // namespace sluice::core
