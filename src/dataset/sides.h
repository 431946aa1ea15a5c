// SPDX-License-Identifier: Apache-2.0
// Sides of documents whose answers are compared (records/documents.h): where each begins, its answer, and its
// end, told from which of their tokens are context.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "objective/objective.h"

namespace sluice::core {

// Tokens counted from where the document begins. The answer's are [answer, end).
struct AnswerSide {
  int64_t begin = 0, answer = 0, end = 0;

  int64_t tokens() const { return end - answer; }
};

struct Sides {
  std::array<AnswerSide, 2> side;  // of a pair the chosen one first
  int count = 0;
  bool bad = false;  // the answer is marked so
};

struct SidedDocument {
  std::vector<int32_t> ids;
  Sides sides;
};

// `targets`: of all tokens of the document, -1: context. Errors: it has no sides of this kind.
Result<Sides> sides_of(std::span<const int32_t> targets, Compares compares);

// A side in a row.
struct RowSide {
  int64_t document = 0;  // its number among all, from 0
  int which = 0;         // of Sides::side
  bool bad = false;
  int64_t begin = 0, answer = 0, end = 0;  // tokens of the row
};

}  // namespace sluice::core
