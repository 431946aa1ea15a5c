// SPDX-License-Identifier: Apache-2.0
#include "dataset/token_set.h"

#include <algorithm>

#include "base/counts.h"

namespace sluice::core {

TokenSet::TokenSet(std::vector<TokenFile> files) : files_(std::move(files)) {
  for (const TokenFile& file : files_) {
    first_.push_back(first_.back() + file.tokens());
    before_.push_back(documents_);
    documents_ += int64_t(file.boundaries().size()) - 1;
  }
}

int32_t TokenSet::max_token() const {
  int32_t largest = 0;
  for (const TokenFile& file : files_) largest = std::max(largest, file.max_token());
  return largest;
}

int64_t TokenSet::learnt() const {
  int64_t sum = 0;
  for (const TokenFile& file : files_) sum += file.learnt();
  return sum;
}

Status TokenSet::check_vocab(int64_t vocab) const {
  for (const TokenFile& file : files_) {
    if (file.max_token() < vocab) continue;
    return error("{}: token {} at index {} is outside the model's vocabulary of {}", file.path().string(),
                 file.max_token(), file.max_token_index(), vocab);
  }
  return {};
}

size_t TokenSet::file_at(int64_t index) const {
  SLUICE_CHECK(index >= 0 && index < tokens(), "token {} of {}", index, tokens());
  return size_t(std::upper_bound(first_.begin(), first_.end(), index) - first_.begin()) - 1;
}

template <class F>
void TokenSet::for_parts(int64_t first, std::span<int32_t> out, F&& f) const {
  while (!out.empty()) {
    const size_t file = file_at(first);
    const auto count = static_cast<size_t>(std::min(first_[file + 1] - first, int64_t(out.size())));
    f(files_[file], first - first_[file], out.first(count));
    out = out.subspan(count);
    first += int64_t(count);
  }
}

void TokenSet::read(int64_t first, std::span<int32_t> out) const {
  for_parts(first, out, [](const TokenFile& file, int64_t at, auto part) { file.read(at, part); });
}

void TokenSet::read_targets(int64_t first, std::span<int32_t> out) const {
  for_parts(first, out, [](const TokenFile& file, int64_t at, auto part) { file.read_targets(at, part); });
}

TokenSet::Document TokenSet::document_at(int64_t index) const {
  const size_t f = file_at(index);
  const auto starts = files_[f].boundaries();
  const auto end = std::upper_bound(starts.begin(), starts.end(), index - first_[f]);
  return {first_[f] + *(end - 1), first_[f] + *end, before_[f] + (end - 1 - starts.begin())};
}

TokenSet::Document TokenSet::document(int64_t number) const {
  SLUICE_CHECK(number >= 0 && number < documents_, "document {} of {}", number, documents_);
  const size_t f = size_t(std::upper_bound(before_.begin(), before_.end(), number) - before_.begin()) - 1;
  const auto* const begin = files_[f].boundaries().data() + (number - before_[f]);
  return {first_[f] + begin[0], first_[f] + begin[1], number};
}

TokenSet::Path TokenSet::path_at(int64_t index) const {
  SLUICE_CHECK(index >= 0 && index < tokens(), "token {} of {}", index, tokens());
  if (paths_.empty()) return {tokens(), 0};
  return *std::upper_bound(paths_.begin(), paths_.end(), index,
                           [](int64_t token, const Path& path) { return token < path.end; });
}

std::string TokenSet::to_text() const {
  std::string names = files_.empty() ? "no token file" : files_.front().path().string();
  if (files_.size() > 1) names += fmt::format(" and {} more", files_.size() - 1);
  return fmt::format("{}: {} in {}", names, counted(tokens(), "token"), counted(documents(), "document"));
}

Result<TokenSet> open_tokens(const std::filesystem::path& path) {
  std::vector<TokenFile> files;
  const auto add = [&files](const std::filesystem::path& file) -> Status {
    SLUICE_ASSIGN(TokenFile opened, TokenFile::open(file));
    files.push_back(std::move(opened));
    return {};
  };
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) {
    SLUICE_TRY(add(path));
    return TokenSet(std::move(files));
  }
  SLUICE_ASSIGN(const auto names, list_files(path));
  for (const auto& name : names) {
    if (name.extension() == ".tokens" || name.extension() == ".bin") SLUICE_TRY(add(path / name));
  }
  if (files.empty()) return error(ErrorKind::NotFound, "{}: no file ends in .tokens or .bin", path.string());
  return TokenSet(std::move(files));
}

}  // namespace sluice::core
