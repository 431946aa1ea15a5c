// SPDX-License-Identifier: Apache-2.0
// Text from tokens as they come: only whole characters leave it, and nothing that could be the beginning of a
// stop string until it is known not to be.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace sluice::core {

// Tokens to text, in one piece; what is no character becomes U+FFFD.
using Decode = std::function<Result<std::string>(std::span<const int32_t>)>;

class TextStream {
 public:
  // `prompt` is what the text goes on from: how tokens read may depend on the ones before.
  TextStream(Decode decode, std::span<const int32_t> prompt, std::vector<std::string> stop_strings);

  // Returns the text that can be shown now. Once a stop string is complete, all before it has been returned
  // and stopped() holds.
  Result<std::string> add(int32_t token);
  // The rest of the text, when no token follows.
  Result<std::string> finish();

  bool stopped() const { return stopped_; }
  // All that was returned.
  const std::string& text() const { return text_; }

 private:
  // Appends what `tokens_` read as, beyond what they did before the last of them; `last`: whatever it is.
  Status decode_new(bool last);
  std::string release(bool last);

  Decode decode_;
  std::vector<std::string> stops_;
  std::vector<int32_t>
      tokens_;  // from `begin_` on they are decoded together, those up to `read_` are in the text
  size_t begin_ = 0, read_ = 0;
  std::string pending_, text_;
  bool stopped_ = false;
};

}  // namespace sluice::core
