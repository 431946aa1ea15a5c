// SPDX-License-Identifier: Apache-2.0
#include "records/line_reader.h"

#include <algorithm>
#include <array>

namespace sluice::core {
namespace {

constexpr size_t kReadBytes = size_t{1} << 16;
// Of longer lines there is one copy only.
constexpr size_t kLongLine = size_t{1} << 20;

}  // namespace

Result<LineReader> LineReader::open(const std::filesystem::path& path, int64_t most_line_bytes,
                                    std::string_view why) {
  SLUICE_ASSIGN(Descriptor fd, Descriptor::open_to_read(path));
  LineReader reader(path, std::move(fd), most_line_bytes, why);
  SLUICE_TRY(reader.fill_raw());
  const auto starts_with = [&](std::initializer_list<unsigned char> magic) {
    return reader.raw_.size() >= magic.size() &&
           std::equal(magic.begin(), magic.end(), reader.raw_.begin(),
                      [](unsigned char a, std::byte b) { return std::byte(a) == b; });
  };
  const bool gzip = starts_with({0x1f, 0x8b}), zstd = starts_with({0x28, 0xb5, 0x2f, 0xfd});
  if (gzip || zstd) {
    auto expander = gzip ? make_gzip_expander() : make_zstd_expander();
    if (!expander.ok()) return error_at(path.string(), expander.error());
    reader.expander_ = std::move(*expander);
  }
  return reader;
}

Result<bool> LineReader::fill_raw() {
  if (raw_ended_) return false;
  raw_.resize(kReadBytes);
  SLUICE_ASSIGN(const size_t read, fd_.read(raw_, path_));
  raw_.resize(read);
  raw_at_ = 0;
  raw_ended_ = read == 0;
  return read > 0;
}

Result<bool> LineReader::read_more() {
  if (at_ > 0) {
    text_.erase(0, at_);
    at_ = 0;
  }
  while (true) {
    if (raw_at_ == raw_.size()) {
      SLUICE_ASSIGN(const bool more, fill_raw());
      if (!more && expander_ == nullptr) return false;
    }
    const std::span<const std::byte> in = std::span(raw_).subspan(raw_at_);
    if (expander_ == nullptr) {
      text_.append(reinterpret_cast<const char*>(in.data()), in.size());
      raw_at_ = raw_.size();
      return true;
    }
    const size_t before = text_.size();
    text_.resize(before + kReadBytes);
    auto step = expander_->expand(in, std::as_writable_bytes(std::span(text_)).subspan(before));
    if (!step.ok()) return error_at(path_.string(), step.error());
    text_.resize(before + step->made);
    raw_at_ += step->taken;
    if (step->made > 0) return true;
    if (raw_ended_ && step->taken == 0) {
      if (!expander_->complete())
        return error("{}: it ends in the middle of its compressed data", path_.string());
      return false;
    }
  }
}

Result<bool> LineReader::next(std::string_view& line) {
  size_t searched = at_;
  while (true) {
    const size_t end = text_.find('\n', searched);
    const size_t size = (end == text_.npos ? text_.size() : end) - at_;
    if (int64_t(size) > most_line_bytes_)
      return error("{}: line {}: more than {} bytes long{}", path_.string(), line_ + 1, most_line_bytes_,
                   why_);
    if (end != text_.npos) {
      line = std::string_view(text_).substr(at_, size);
      at_ = end + 1;
      ++line_;
      return true;
    }
    searched = text_.size() - at_;
    SLUICE_ASSIGN(const bool more, read_more());
    if (more) continue;
    if (text_.size() == at_) return false;
    line = std::string_view(text_).substr(at_);
    at_ = text_.size();
    ++line_;
    return true;
  }
}

Result<bool> LineReader::next(std::string& line) {
  std::string_view view;
  SLUICE_ASSIGN(const bool more, next(view));
  if (!more) return false;
  if (view.size() < kLongLine || view.data() != text_.data()) {
    line = view;
    return true;
  }
  std::string behind = text_.substr(at_);
  text_.resize(view.size());
  line = std::move(text_);
  text_ = std::move(behind);
  at_ = 0;
  return true;
}

Result<std::string> LineReader::rest(int64_t most_bytes) {
  while (true) {
    SLUICE_ASSIGN(const bool more, read_more());
    if (int64_t(text_.size()) > most_bytes)
      return error("{}: more than {} bytes of text{}", path_.string(), most_bytes, why_);
    if (!more) return std::move(text_);
  }
}

}  // namespace sluice::core
