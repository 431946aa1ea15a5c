// SPDX-License-Identifier: Apache-2.0
#include <zlib.h>

#include <algorithm>
#include <limits>

#include "records/expander.h"

namespace sluice::core {
namespace {

// One member after the other, as gzip puts them.
class GzipExpander : public Expander {
 public:
  ~GzipExpander() override { inflateEnd(&stream_); }
  bool begin() { return inflateInit2(&stream_, 15 + 16) == Z_OK; }

  Result<Step> expand(std::span<const std::byte> in, std::span<std::byte> out) override {
    if (in.empty()) return Step{0, 0};
    if (complete_ && inflateReset(&stream_) != Z_OK) return error("zlib cannot begin again");
    complete_ = false;
    constexpr size_t kMost = size_t{1} << 30;
    stream_.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(in.data()));
    stream_.avail_in = uInt(std::min(in.size(), kMost));
    stream_.next_out = reinterpret_cast<Bytef*>(out.data());
    stream_.avail_out = uInt(std::min(out.size(), kMost));
    const int result = inflate(&stream_, Z_NO_FLUSH);
    if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR)
      return error("not gzip, or damaged: {}", stream_.msg != nullptr ? stream_.msg : "bad data");
    complete_ = result == Z_STREAM_END;
    return Step{size_t(reinterpret_cast<const std::byte*>(stream_.next_in) - in.data()),
                size_t(reinterpret_cast<std::byte*>(stream_.next_out) - out.data())};
  }
  bool complete() const override { return complete_; }

 private:
  z_stream stream_{};
  bool complete_ = false;
};

}  // namespace

Result<std::unique_ptr<Expander>> make_gzip_expander() {
  auto expander = std::make_unique<GzipExpander>();
  if (!expander->begin()) return error("zlib cannot begin");
  return std::unique_ptr<Expander>(std::move(expander));
}

}  // namespace sluice::core
