// SPDX-License-Identifier: Apache-2.0
// Which documents of a corpus are held out.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace sluice::core {

struct Split {
  std::vector<bool> held;  // by document
  // Those that were drawn and stay in training all the same, as each has more than three times the tokens
  // that are to be held out.
  std::vector<size_t> too_long;
  bool only_shortest = false;  // every document is so long: the shortest one is held out
};

// Holds out documents until together they have about `fraction` of all tokens: in the order of their draws
// those that bring it nearer. Document d has tokens [boundaries[d], boundaries[d + 1]); draws are uniform in
// (0, 1). Each side gets at least one. REQUIRES: two documents, all with tokens; a fraction above 0 and
// below 1.
Split split_documents(std::span<const int64_t> boundaries, const std::function<double(size_t)>& draw,
                      double fraction);
// As it was before that, for runs that began so: those that draw less than `fraction`, whatever their
// lengths, and on each side at least one. REQUIRES: two documents.
Split split_by_count(size_t documents, const std::function<double(size_t)>& draw, double fraction);

}  // namespace sluice::core
