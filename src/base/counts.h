// SPDX-License-Identifier: Apache-2.0
// Numbers of tokens and other things as people write them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace sluice::core {

// "4096", "8k", "1.5k", "1M": k, M and G (in either case) are 1024, 1024^2 and 1024^3, as lengths of
// sequences are named: 8k is 8192. What comes out is whole; it may be zero or negative, which is for the
// caller to judge.
Result<int64_t> parse_count(std::string_view text);

// A whole number without suffix. Of "10k" the error says 10000: what is counted one by one has decimal
// thousands, and no one should have to know which it is.
Result<int64_t> parse_whole(std::string_view text);

// "1 row", "12,345 rows"; with verbs "1 row is", "12,345 rows are". Of a thing whose plural ends with an s.
std::string counted(int64_t n, std::string_view thing);
std::string counted(int64_t n, std::string_view thing, std::string_view of_one, std::string_view of_more);

}  // namespace sluice::core
