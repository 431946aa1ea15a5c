// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/decoder.h"

#include <cctype>
#include <optional>
#include <string_view>
#include <utility>

#include "tokenizer/bpe.h"
#include "tokenizer/code_set.h"
#include "tokenizer/pre_tokenizer.h"

namespace sluice::core {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

std::string joined(const std::vector<std::string>& tokens) {
  std::string text;
  for (const std::string& token : tokens) text += token;
  return text;
}

std::vector<std::string> decode_bytes(const std::vector<std::string>& tokens) {
  std::string bytes;
  for (const std::string& token : tokens) {
    const auto stands_for = bytes_of_characters(token);
    bytes += stands_for ? *stands_for : token;
  }
  return {to_valid_utf8(bytes)};
}

// The byte of "<0x1F>".
std::optional<char> fallback_byte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || !token.ends_with('>')) return std::nullopt;
  const auto digit = [](char c) {
    if (std::isxdigit(static_cast<unsigned char>(c)) == 0) return -1;
    return c <= '9' ? c - '0' : std::tolower(static_cast<unsigned char>(c)) - 'a' + 10;
  };
  const int high = token[3] == '+' ? 0 : digit(token[3]), low = digit(token[4]);
  if (high < 0 || low < 0) return std::nullopt;
  return static_cast<char>(high * 16 + low);
}

std::vector<std::string> decode_fallback(std::vector<std::string> tokens) {
  std::vector<std::string> out;
  std::string bytes;
  const auto flush = [&] {
    if (bytes.empty()) return;
    if (find_invalid_utf8(bytes) == std::string_view::npos) {
      out.push_back(bytes);
    } else {
      out.insert(out.end(), bytes.size(), std::string(kReplacement));
    }
    bytes.clear();
  };
  for (std::string& token : tokens) {
    if (const auto byte = fallback_byte(token)) {
      bytes += *byte;
      continue;
    }
    flush();
    out.push_back(std::move(token));
  }
  flush();
  return out;
}

std::string stripped(std::string_view token, std::string_view content, int64_t start, int64_t stop) {
  std::string_view rest = token;
  for (int64_t i = 0; i < start && rest.starts_with(content); ++i) rest.remove_prefix(content.size());
  // The end is looked for in the whole token: what both ends take is taken once.
  std::string_view front = token;
  for (int64_t i = 0; i < stop && front.ends_with(content); ++i) front.remove_suffix(content.size());
  const size_t begin = token.size() - rest.size();
  return begin < front.size() ? std::string(front.substr(begin)) : std::string();
}

std::string without_marks(std::string_view token, std::string_view mark, bool drop) {
  std::string out;
  for (size_t at = 0; at < token.size();) {
    if (token.substr(at).starts_with(mark)) {
      if (!drop) out += ' ';
      at += mark.size();
    } else {
      out += token[at++];
    }
  }
  return out;
}

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;

}  // namespace

Result<Decoder::Step> Decoder::read_step(const JsonValue& value) {
  SLUICE_ASSIGN(const std::string type, value.string("type"));
  if (type == "ByteLevel") return Step(ByteLevel{});
  if (type == "ByteFallback") return Step(ByteFallback{});
  if (type == "Fuse") return Step(Fuse{});
  if (type == "Replace") {
    SLUICE_ASSIGN(const JsonValue pattern_value, value.get("pattern"));
    SLUICE_ASSIGN(Pattern pattern, Pattern::read(pattern_value));
    SLUICE_ASSIGN(std::string content, value.string("content"));
    return Step(Replace{std::move(pattern), std::move(content)});
  }
  if (type == "Strip") {
    SLUICE_ASSIGN(std::string content, value.character("content"));
    constexpr int64_t kMost = int64_t{1} << 31;
    SLUICE_ASSIGN(const JsonValue start_value, value.get("start"));
    SLUICE_ASSIGN(const JsonValue stop_value, value.get("stop"));
    SLUICE_ASSIGN(const int64_t start, start_value.integer(0, kMost));
    SLUICE_ASSIGN(const int64_t stop, stop_value.integer(0, kMost));
    return Step(Strip{std::move(content), start, stop});
  }
  if (type == "Metaspace") {
    SLUICE_ASSIGN(std::string mark, value.character("replacement"));
    SLUICE_ASSIGN(const std::string scheme, read_prepend_scheme(value));
    return Step(Metaspace{std::move(mark), scheme != "never"});
  }
  return value.error(
      "the decoder {} is not supported; supported are ByteLevel, Replace, ByteFallback, Fuse, Strip, "
      "Metaspace and "
      "Sequence",
      type);
}

Result<std::string> Decoder::replaced(std::string_view token, const Replace& replace, RegexScratch& scratch) {
  std::string made;
  SLUICE_TRY(replace.pattern.for_each(token, scratch, [&](size_t from, size_t to, bool matches) {
    made += matches ? std::string_view(replace.content) : token.substr(from, to - from);
    return Status{};
  }));
  return made;
}

Result<Decoder> Decoder::read(const JsonValue& value) {
  Decoder decoder;
  decoder.present_ = !value.is_null();
  SLUICE_ASSIGN(const auto parts, flatten_sequence(value, "decoders"));
  for (const JsonValue& part : parts) {
    SLUICE_ASSIGN(Step step, read_step(part));
    decoder.steps_.push_back(std::move(step));
  }
  return decoder;
}

Result<std::string> Decoder::decode(std::vector<std::string> tokens, RegexScratch& scratch) const {
  if (!present_) return fmt::format("{}", fmt::join(tokens, " "));
  for (const Step& step : steps_) {
    const Status status = std::visit(
        Overloaded{[&](const ByteLevel&) -> Status { return tokens = decode_bytes(tokens), Status{}; },
                   [&](const ByteFallback&) -> Status {
                     return tokens = decode_fallback(std::move(tokens)), Status{};
                   },
                   [&](const Fuse&) -> Status { return tokens = {joined(tokens)}, Status{}; },
                   [&](const Replace& replace) -> Status {
                     for (std::string& token : tokens) {
                       SLUICE_ASSIGN(token, replaced(token, replace, scratch));
                     }
                     return {};
                   },
                   [&](const Strip& strip) -> Status {
                     for (std::string& token : tokens)
                       token = stripped(token, strip.content, strip.start, strip.stop);
                     return {};
                   },
                   [&](const Metaspace& meta) -> Status {
                     for (size_t i = 0; i < tokens.size(); ++i) {
                       tokens[i] = without_marks(tokens[i], meta.mark, i == 0 && meta.drops_first);
                     }
                     return {};
                   }},
        step);
    if (!status.ok()) return status.error();
  }
  return joined(tokens);
}

}  // namespace sluice::core
