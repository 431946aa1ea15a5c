// SPDX-License-Identifier: Apache-2.0
// Text as it comes: whole characters, stop strings across tokens, words that depend on the ones before.
#include <gtest/gtest.h>

#include "equivalence/rig/rig.h"
#include "generate/text_stream.h"
#include "tokenizer/tokenizer.h"

namespace sluice::core {
namespace {

using rig::must;

constexpr const char* kReplacement = "\xef\xbf\xbd";

// A token is a byte; what is no UTF-8 becomes U+FFFD, a byte each, as decoders of tokenizers have it.
Result<std::string> bytes_to_text(std::span<const int32_t> tokens) {
  std::string out;
  for (size_t i = 0; i < tokens.size();) {
    const int32_t lead = tokens[i];
    const size_t length = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    bool whole = lead < 0x80 || lead >= 0xc0;
    for (size_t k = 1; k < length; ++k)
      whole = whole && i + k < tokens.size() && (tokens[i + k] & 0xc0) == 0x80;
    if (!whole) {
      out += kReplacement;
      ++i;
      continue;
    }
    for (size_t k = 0; k < length; ++k) out += char(tokens[i + k]);
    i += length;
  }
  return out;
}

std::vector<int32_t> tokens_of(std::string_view text) {
  std::vector<int32_t> out;
  for (const char c : text) out.push_back(static_cast<unsigned char>(c));
  return out;
}

// The pieces that come, token by token, until the text stops.
std::vector<std::string> pieces_of(TextStream& stream, std::string_view text) {
  std::vector<std::string> pieces;
  for (const int32_t token : tokens_of(text)) {
    pieces.push_back(must(stream.add(token)));
    if (stream.stopped()) break;
  }
  return pieces;
}

using Pieces = std::vector<std::string>;

TEST(TextStream, ACharacterComesWhenItIsWhole) {
  TextStream stream(bytes_to_text, {}, {});
  EXPECT_EQ(pieces_of(stream, "a\xc3\xa9\xf0\x9f\x98\x80!"),
            (Pieces{"a", "", "\xc3\xa9", "", "", "", "\xf0\x9f\x98\x80", "!"}));
  EXPECT_EQ(stream.text(), "a\xc3\xa9\xf0\x9f\x98\x80!");
}

TEST(TextStream, WhatNeverBecomesACharacterIsShownAtTheEnd) {
  TextStream stream(bytes_to_text, {}, {});
  EXPECT_EQ(pieces_of(stream, "a\xf0\x9f"), (Pieces{"a", "", ""}));
  EXPECT_EQ(must(stream.finish()), std::string(kReplacement) + kReplacement);
}

TEST(TextStream, BytesThatAreNoCharacterAreNotHeldForever) {
  TextStream stream(bytes_to_text, {}, {});
  (void)pieces_of(stream, std::string(20, '\x80'));
  EXPECT_GE(stream.text().size(), 3u * 8);
}

TEST(TextStream, AStopStringEndsTheTextBeforeIt) {
  TextStream stream(bytes_to_text, {}, {"END"});
  EXPECT_EQ(pieces_of(stream, "aENbEND and more"), (Pieces{"a", "", "", "ENb", "", "", ""}));
  EXPECT_TRUE(stream.stopped());
  EXPECT_EQ(stream.text(), "aENb");
  EXPECT_EQ(must(stream.finish()), "");
}

TEST(TextStream, AStopStringMayOverlapItsOwnBeginning) {
  TextStream stream(bytes_to_text, {}, {"aab"});
  EXPECT_EQ(pieces_of(stream, "aaab"), (Pieces{"", "", "a", ""}));
  EXPECT_TRUE(stream.stopped());
}

TEST(TextStream, TheEarliestOfSeveralStopStringsCounts) {
  TextStream stream(
      [](std::span<const int32_t> tokens) -> Result<std::string> {
        std::string out;
        for (const int32_t t : tokens) out += t == 0 ? "one two three" : "?";
        return out;
      },
      {}, {"three", "two", ""});
  EXPECT_EQ(must(stream.add(0)), "one ");
  EXPECT_TRUE(stream.stopped());
}

TEST(TextStream, WhatOnlyBeganAStopStringIsShownAtTheEnd) {
  TextStream stream(bytes_to_text, {}, {"END"});
  EXPECT_EQ(pieces_of(stream, "xEN"), (Pieces{"x", "", ""}));
  EXPECT_EQ(must(stream.finish()), "EN");
  EXPECT_FALSE(stream.stopped());
}

// Metaspace: the space before a word is in its token, and the first of a text is not shown. What follows a
// prompt is not the first.
TEST(TextStream, TheFirstTokenReadsAsItDoesBehindThePrompt) {
  for (const std::string name : {"gpt2", "llama2", "llama3", "metaspace", "qwen2", "smollm2"}) {
    const std::filesystem::path path = std::filesystem::path(SLUICE_TOKENIZERS) / (name + ".json");
    const Tokenizer tokenizer = must(Tokenizer::open(path));
    const std::string text = "The quick brown fox, na\xc3\xafve \xf0\x9f\x98\x80 caf\xc3\xa9 and so on";
    std::vector<int32_t> ids;
    must(tokenizer.encode(text, false, ids));
    const auto decode = [&](std::span<const int32_t> tokens) { return tokenizer.decode(tokens, true); };
    const std::string whole = must(decode(ids));
    for (size_t cut = 1; cut < ids.size(); ++cut) {
      TextStream stream(decode, std::span(ids).first(cut), {});
      for (size_t i = cut; i < ids.size(); ++i) (void)must(stream.add(ids[i]));
      (void)must(stream.finish());
      const std::string before = must(decode(std::span(ids).first(cut)));
      // A prompt that ends within a character: what follows completes it.
      if (before.ends_with(kReplacement)) continue;
      EXPECT_EQ(before + stream.text(), whole) << name << " cut at " << cut;
    }
  }
}

}  // namespace
}  // namespace sluice::core
