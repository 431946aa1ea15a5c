// SPDX-License-Identifier: Apache-2.0
#include "generate/text_stream.h"

#include <algorithm>
#include <utility>

namespace sluice::core {
namespace {

// Tokens of the prompt that are decoded with the first new one: enough to know whether a word begins.
constexpr size_t kContext = 8;
// The replacement for an incomplete character's bytes.
constexpr std::string_view kReplacement = "\xef\xbf\xbd";
// A character has four bytes at most; with as many tokens that are none, bytes are no character.
constexpr size_t kMostHeld = 8;

// The longest end of `text` that is the beginning of `stop`, in bytes.
size_t beginning_at_end(std::string_view text, std::string_view stop) {
  for (size_t n = std::min(text.size(), stop.size() - 1); n > 0; --n) {
    if (stop.starts_with(text.substr(text.size() - n))) return n;
  }
  return 0;
}

}  // namespace

TextStream::TextStream(Decode decode, std::span<const int32_t> prompt, std::vector<std::string> stop_strings)
    : decode_(std::move(decode)), stops_(std::move(stop_strings)) {
  std::erase(stops_, "");
  const auto context = prompt.last(std::min(prompt.size(), kContext));
  tokens_.assign(context.begin(), context.end());
  read_ = tokens_.size();
}

Status TextStream::decode_new(bool last) {
  const std::span<const int32_t> tokens(tokens_);
  SLUICE_ASSIGN(const std::string before, decode_(tokens.subspan(begin_, read_ - begin_)));
  SLUICE_ASSIGN(const std::string all, decode_(tokens.subspan(begin_)));
  if (all.size() <= before.size()) return {};
  if (!last && all.ends_with(kReplacement) && tokens_.size() - read_ < kMostHeld) return {};
  pending_ += std::string_view(all).substr(before.size());
  begin_ = read_;
  read_ = tokens_.size();
  return {};
}

std::string TextStream::release(bool last) {
  size_t keep = 0, found = std::string::npos;
  for (const std::string& stop : stops_) {
    found = std::min(found, pending_.find(stop));
    keep = std::max(keep, last ? 0 : beginning_at_end(pending_, stop));
  }
  stopped_ = found != std::string::npos;
  std::string out = pending_.substr(0, stopped_ ? found : pending_.size() - keep);
  pending_.erase(0, out.size());
  text_ += out;
  return out;
}

Result<std::string> TextStream::add(int32_t token) {
  tokens_.push_back(token);
  SLUICE_TRY(decode_new(false));
  return release(false);
}

Result<std::string> TextStream::finish() {
  if (stopped_) return std::string();
  SLUICE_TRY(decode_new(true));
  return release(true);
}

}  // namespace sluice::core
