// SPDX-License-Identifier: Apache-2.0
#include "run/rows.h"

namespace sluice::core {

Status feed_rows(const Rows& rows, const Model& model, const StepShape& shape, Executor& executor,
                 std::vector<int32_t>& staging) {
  SLUICE_CHECK(int64_t(rows.tokens.size()) == shape.tokens(), "{} tokens", rows.tokens.size());
  size_t at = 0;
  for (size_t r = 0; r < model.batch.size(); ++r) {
    for (size_t c = 0; c < model.batch[r].size(); ++c) {
      const auto chunk = size_t(shape.tokens_in(int64_t(r), int64_t(c)));
      staging.clear();
      for (const auto part : {rows.tokens, rows.targets, rows.positions}) {
        staging.insert(staging.end(), part.begin() + long(at), part.begin() + long(at + chunk));
      }
      SLUICE_TRY(executor.write(model.batch[r][c], std::as_bytes(std::span<const int32_t>(staging))));
      at += chunk;
    }
  }
  return {};
}

}  // namespace sluice::core
