// SPDX-License-Identifier: Apache-2.0
// What differs between two corpora, in words.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace sluice::core {

// The differences of two corpora by their contents (Corpus::content), both in the cache: "notes.md has other
// text, more.md is new, data.heldout is 0.1, it was 0.05". Empty: the cache does not have both.
std::string corpus_changes(const std::filesystem::path& cache, std::string_view before, std::string_view now);

}  // namespace sluice::core
