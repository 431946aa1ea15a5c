// SPDX-License-Identifier: Apache-2.0
#include "run/passes/text_pass.h"

#include <algorithm>
#include <numeric>

namespace sluice::core {

Status TextPass::forget() {
  const std::vector<Object>& objects = model_.program.objects();
  for (uint32_t o = 0; o < objects.size(); ++o) {
    if (objects[o].kind == ObjectKind::Cache) SLUICE_TRY(executor_.clear(ObjectId(o)));
  }
  return {};
}

Result<std::span<const float>> TextPass::run(std::span<const RowInput> inputs, const Embed& embed) {
  SLUICE_CHECK(int64_t(inputs.size()) == rows(), "{} inputs for {} rows", inputs.size(), rows());
  spans_.clear();
  for (int64_t r = 0; r < rows(); ++r) {
    const RowInput& input = inputs[size_t(r)];
    const auto count = int64_t(input.tokens.size());
    SLUICE_CHECK(count <= new_tokens(), "{} tokens in a row of {}", count, new_tokens());
    // Behind those that count is padding, which no other token sees.
    const RowsView row = batch_.part(r * new_tokens(), new_tokens());
    row.fill_padding();
    std::ranges::copy(input.tokens, row.column(BatchColumn::Tokens).begin());
    const auto positions = row.part(0, count).column(BatchColumn::Positions);
    std::iota(positions.begin(), positions.end(), int32_t(input.held));
    spans_.push_back(int32_t(input.held));
    spans_.push_back(int32_t(count));
  }
  SLUICE_TRY(embed(batch_.column(BatchColumn::Tokens), embedded_));
  SLUICE_TRY(executor_.write(model_.embedded, embedded_));
  SLUICE_TRY(feed_rows(batch_, model_, executor_, staging_));
  SLUICE_TRY(executor_.write(model_.spans, std::as_bytes(std::span<const int32_t>(spans_))));
  SLUICE_TRY(executor_.step());
  logits_.resize(size_t(model_.program.object(model_.logits).elements()));
  SLUICE_TRY(executor_.read(model_.logits, std::as_writable_bytes(std::span(logits_))));
  return std::span<const float>(logits_);
}

}  // namespace sluice::core
