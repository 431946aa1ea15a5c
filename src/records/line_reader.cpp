// SPDX-License-Identifier: Apache-2.0
#include "records/line_reader.h"

namespace sluice::core {
namespace {

// Longer lines have a single copy.
constexpr size_t kLongLine = size_t{1} << 20;

}  // namespace

Result<LineReader> LineReader::open(const std::filesystem::path& path, int64_t most_line_bytes,
                                    std::string_view why) {
  SLUICE_ASSIGN(ByteSource source, ByteSource::open(path));
  return LineReader(std::move(source), most_line_bytes, why);
}

Result<bool> LineReader::read_more() {
  if (at_ > 0) {
    text_.erase(0, at_);
    at_ = 0;
  }
  return source_.read(text_);
}

Result<bool> LineReader::next(std::string_view& line) {
  size_t searched = at_;
  while (true) {
    const size_t end = text_.find('\n', searched);
    const size_t size = (end == text_.npos ? text_.size() : end) - at_;
    if (int64_t(size) > most_line_bytes_)
      return error("{}: line {}: more than {} bytes long{}", source_.path().string(), line_ + 1,
                   most_line_bytes_, why_);
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
      return error("{}: more than {} bytes of text{}", source_.path().string(), most_bytes, why_);
    if (!more) return std::move(text_);
  }
}

}  // namespace sluice::core
