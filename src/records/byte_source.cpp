// SPDX-License-Identifier: Apache-2.0
#include "records/byte_source.h"

#include <span>

#include "records/recognise.h"

namespace sluice::core {
namespace {

constexpr size_t kReadBytes = size_t{1} << 16;

}  // namespace

Result<ByteSource> ByteSource::open(const std::filesystem::path& path) {
  SLUICE_ASSIGN(Descriptor fd, Descriptor::open_to_read(path));
  ByteSource source(path, std::move(fd));
  SLUICE_TRY(source.fill());
  source.compression_ =
      compression_of({reinterpret_cast<const char*>(source.raw_.data()), source.raw_.size()});
  if (!source.compression_.empty()) {
    auto expander = source.compression_ == "gzip" ? make_gzip_expander() : make_zstd_expander();
    if (!expander.ok()) return error_at(path.string(), expander.error());
    source.expander_ = std::move(*expander);
  }
  return source;
}

Result<bool> ByteSource::fill() {
  if (raw_ended_) return false;
  raw_.resize(kReadBytes);
  SLUICE_ASSIGN(const size_t read, fd_.read(raw_, path_));
  raw_.resize(read);
  raw_at_ = 0;
  raw_ended_ = read == 0;
  return read > 0;
}

Result<bool> ByteSource::expand(std::string& text) {
  while (true) {
    if (raw_at_ == raw_.size()) {
      SLUICE_ASSIGN(const bool more, fill());
      if (!more && expander_ == nullptr) return false;
    }
    const std::span<const std::byte> in = std::span(raw_).subspan(raw_at_);
    if (expander_ == nullptr) {
      text.append(reinterpret_cast<const char*>(in.data()), in.size());
      raw_at_ = raw_.size();
      return true;
    }
    const size_t before = text.size();
    text.resize(before + kReadBytes);
    auto step = expander_->expand(in, std::as_writable_bytes(std::span(text)).subspan(before));
    if (!step.ok()) return error_at(path_.string(), step.error());
    text.resize(before + step->made);
    raw_at_ += step->taken;
    if (step->made > 0) return true;
    if (raw_ended_ && step->taken == 0) {
      if (!expander_->complete())
        return error("{}: it ends in the middle of its compressed data", path_.string());
      return false;
    }
  }
}

Result<std::string_view> ByteSource::first() {
  while (ahead_.size() < kReadBytes) {
    SLUICE_ASSIGN(const bool more, expand(ahead_));
    if (!more) break;
  }
  return std::string_view(ahead_);
}

bool ByteSource::drop_mark() {
  const size_t bytes = mark_bytes(ahead_);
  ahead_.erase(0, bytes);
  return bytes > 0;
}

Result<bool> ByteSource::read(std::string& text) {
  if (ahead_.empty()) return expand(text);
  text += ahead_;
  ahead_ = {};
  return true;
}

}  // namespace sluice::core
