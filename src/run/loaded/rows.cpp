// SPDX-License-Identifier: Apache-2.0
#include "run/loaded/rows.h"

namespace sluice::core {

Status feed_rows(const Rows& rows, const BuiltProgram& model, Executor& executor,
                 std::vector<std::byte>& staging) {
  SLUICE_CHECK(rows.tokens() == model.shape.tokens(), "{} tokens", rows.tokens());
  int64_t at = 0;
  for (size_t r = 0; r < model.batch.size(); ++r) {
    for (size_t c = 0; c < model.batch[r].size(); ++c) {
      const int64_t chunk = model.shape.tokens_in(int64_t(r), int64_t(c));
      staging.clear();
      for (const BatchColumn column : model.layout.columns()) {
        const auto part = rows.bytes(column, at, chunk);
        staging.insert(staging.end(), part.begin(), part.end());
      }
      SLUICE_TRY(executor.write(model.batch[r][c], staging));
      at += chunk;
    }
  }
  return {};
}

}  // namespace sluice::core
