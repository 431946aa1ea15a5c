// SPDX-License-Identifier: Apache-2.0
#include "run/loaded/text_pass.h"

#include <algorithm>
#include <numeric>

#include "base/stopwatch.h"

namespace sluice::core {

Status TextPass::forget() {
  const std::vector<Object>& objects = model_.program.objects();
  for (uint32_t o = 0; o < objects.size(); ++o) {
    if (objects[o].kind == ObjectKind::Cache) SLUICE_TRY(executor_.clear(ObjectId(o)));
  }
  return {};
}

Status TextPass::run(std::span<const RowInput> inputs, std::span<const RowCopy> copies,
                     std::span<const TokenDraw> draws, const EmbedTokens& embed) {
  const bool in_order = !model_.slots.valid();
  SLUICE_CHECK(int64_t(inputs.size()) <= rows(), "{} inputs for {} rows", inputs.size(), rows());
  spans_.assign(size_t(2 * rows()), 0);
  slots_.assign(size_t(rows()), 0);
  texts_.clear();
  // Behind the tokens that count is padding, which no other token sees: its positions are a text's, too.
  for (int64_t r = 0; r < rows(); ++r) batch_.part(r * new_tokens(), new_tokens()).fill_padding();
  for (size_t i = 0; i < inputs.size(); ++i) {
    const RowInput& input = inputs[i];
    const auto count = int64_t(input.tokens.size()), text = in_order ? input.row : int64_t(i);
    SLUICE_CHECK(count <= new_tokens(), "{} tokens in a row of {}", count, new_tokens());
    const RowsView row = batch_.part(text * new_tokens(), count);
    std::ranges::copy(input.tokens, row.column(BatchColumn::Tokens).begin());
    const auto positions = row.column(BatchColumn::Positions);
    std::iota(positions.begin(), positions.end(), int32_t(input.held));
    spans_[size_t(2 * text)] = int32_t(input.held);
    spans_[size_t(2 * text + 1)] = int32_t(count);
    slots_[size_t(text)] = int32_t(input.row);
    texts_.push_back(text);
  }
  SLUICE_TRY(embed(batch_.column(BatchColumn::Tokens), embedded_));
  SLUICE_TRY(executor_.write(model_.embedded, embedded_));
  SLUICE_TRY(feed_rows(batch_, model_, executor_, staging_));
  SLUICE_TRY(write(model_.spans, spans_));
  if (!in_order) SLUICE_TRY(write(model_.slots, slots_));
  if (copies_rows()) {
    copies_.resize(size_t(model_.program.object(model_.copies).elements()));
    std::iota(copies_.begin(), copies_.end(), 0);
    for (const RowCopy& copy : copies) copies_[size_t(copy.to)] = int32_t(copy.from);
    SLUICE_TRY(write(model_.copies, copies_));
  }
  if (this->draws()) {
    draws_.assign(draws.begin(), draws.end());
    for (TokenDraw& draw : draws_) draw.text = double(text_of(size_t(draw.text)));
    draws_.resize(size_t(model_.program.object(model_.draws).bytes) / sizeof(TokenDraw));
    SLUICE_TRY(write(model_.draws, draws_));
  }
  const Stopwatch watch;
  SLUICE_TRY(executor_.step());
  program_s_ += watch.seconds();
  if (this->draws()) {
    drawn_.resize(draws_.size());
    return executor_.read(model_.drawn, std::as_writable_bytes(std::span(drawn_)));
  }
  logits_.resize(size_t(model_.program.object(model_.logits).elements()));
  return executor_.read(model_.logits, std::as_writable_bytes(std::span(logits_)));
}

std::span<const float> TextPass::logits(size_t input) const {
  const size_t vocab = logits_.size() / size_t(rows());
  return std::span(logits_).subspan(size_t(text_of(input)) * vocab, vocab);
}

Status TextPasses::run(bool prompts, std::span<const RowInput> inputs, std::span<const RowCopy> copies,
                       std::span<const TokenDraw> draws) {
  last_ = prompts && prompts_ ? &*prompts_ : &tokens_;
  SLUICE_TRY(last_->run(inputs, copies, draws, embed_));
  return after_ ? after_(prompts) : Status();
}

}  // namespace sluice::core
