// SPDX-License-Identifier: Apache-2.0
// How documents lie in rows: what attention costs depends on it, as no query looks past its document's first
// token.
#pragma once

#include <cstdint>
#include <vector>

namespace sluice::core {

struct AttnShape;

// Some rows of a run's data.
struct RowSample {
  int64_t sequence = 0;  // tokens of a row; 0: unknown
  // Positions of tokens in their documents, row after row. Empty: every row is one document.
  std::vector<int32_t> positions;

  int64_t rows() const { return sequence > 0 ? int64_t(positions.size()) / sequence : 0; }
};

// Query-key pairs of a block whose queries have these positions (see AttnShape); `positions` has
// shape.tokens() of them.
int64_t visible_pairs(const AttnShape& shape, const int32_t* positions);

// Positions for the queries of a block. They are those of a place in the sample where a step has such a
// block, with about as many visible pairs as the mean. Where the sample has no such place, they are those of
// rows that are one document each: their queries look at all earlier keys.
std::vector<int32_t> typical_positions(const AttnShape& shape, const RowSample& sample);

// The length of documents that, all alike, would give attention as much to do. It is rounded to a power of
// the root of two, so that samples of the same data agree. 0: the sample is empty.
int64_t document_tokens(const RowSample& sample);

}  // namespace sluice::core
