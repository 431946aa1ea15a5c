// SPDX-License-Identifier: Apache-2.0
#include "dataset/byte_tokenizer.h"

namespace sluice::core {
namespace {

// How tokenizer.json spells a byte: printable ones of Latin-1 as they are, the others from U+0100 on.
std::string spelling(int byte, int& others) {
  const bool printable = (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte != 0xad);
  const int code = printable ? byte : 0x100 + others++;
  if (code == '"' || code == '\\') return std::string("\\") + char(code);
  if (code < 0x80) return std::string(1, char(code));
  return {char(0xc0 | code >> 6), char(0x80 | (code & 0x3f))};
}

}  // namespace

Result<Tokenizer> byte_tokenizer(const TokenizerOptions& options) {
  std::string vocab;
  int others = 0;
  for (int byte = 0; byte < ByteTokenizer::kVocab; ++byte)
    vocab += fmt::format("{}\"{}\": {}", vocab.empty() ? "" : ", ", spelling(byte, others), byte);
  constexpr std::string_view kByteLevel =
      R"({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": true})";
  return Tokenizer::parse(
      fmt::format(
          R"({{"added_tokens": [], "normalizer": null, "pre_tokenizer": {0}, "post_processor": null, "decoder": {0},)"
          R"( "model": {{"type": "BPE", "vocab": {{{1}}}, "merges": []}}}})",
          kByteLevel, vocab),
      options);
}

}  // namespace sluice::core
