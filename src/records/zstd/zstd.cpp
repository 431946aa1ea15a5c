// SPDX-License-Identifier: Apache-2.0
#include <zstd.h>

#include "records/expander.h"

namespace sluice::core {
namespace {

class ZstdExpander : public Expander {
 public:
  ZstdExpander() : stream_(ZSTD_createDStream()) {}
  ~ZstdExpander() override { ZSTD_freeDStream(stream_); }
  bool made() const { return stream_ != nullptr; }

  Result<Step> expand(std::span<const std::byte> in, std::span<std::byte> out) override {
    ZSTD_inBuffer input{in.data(), in.size(), 0};
    ZSTD_outBuffer output{out.data(), out.size(), 0};
    const size_t result = ZSTD_decompressStream(stream_, &output, &input);
    if (ZSTD_isError(result) != 0) return error("not zstd, or damaged: {}", ZSTD_getErrorName(result));
    if (input.pos > 0 || output.pos > 0) complete_ = result == 0;
    return Step{input.pos, output.pos};
  }
  bool complete() const override { return complete_; }

 private:
  ZSTD_DStream* stream_;
  bool complete_ = false;
};

}  // namespace

Result<std::unique_ptr<Expander>> make_zstd_expander() {
  auto expander = std::make_unique<ZstdExpander>();
  if (!expander->made()) return error("zstd cannot begin");
  return std::unique_ptr<Expander>(std::move(expander));
}

}  // namespace sluice::core
