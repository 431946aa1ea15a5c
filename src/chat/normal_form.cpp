// SPDX-License-Identifier: Apache-2.0
#include "chat/normal_form.h"

#include <algorithm>
#include <cctype>
#include <utility>
#include <vector>

namespace sluice::core {
namespace {

struct Token {
  enum class Kind : uint8_t { Word, String, Sign } kind;
  std::string text;
};
using Tokens = std::vector<Token>;

// A constant that is written, or a tag.
struct Part {
  bool constant;
  std::string text;  // of a tag: "{%...%}" or "{{...}}" in normal form
};

bool in_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

// As Jinja reads a string: escapes of Python, of which templates use the common ones.
std::string unescaped(std::string_view raw) {
  std::string text;
  for (size_t i = 0; i < raw.size(); ++i) {
    if (raw[i] != '\\' || i + 1 == raw.size()) {
      text += raw[i];
      continue;
    }
    const char c = raw[++i];
    constexpr std::string_view kFrom = "nrtfbv0\\'\"", kTo("\n\r\t\f\b\v\0\\'\"", 10);
    if (const size_t at = kFrom.find(c); at != kFrom.npos) {
      text += kTo[at];
    } else {
      text += '\\';
      text += c;
    }
  }
  return text;
}

Result<Tokens> tokens_of(std::string_view code) {
  Tokens tokens;
  for (size_t at = 0; at < code.size();) {
    const char c = code[at];
    if (std::isspace(static_cast<unsigned char>(c)) != 0) {
      ++at;
    } else if (c == '\'' || c == '"') {
      size_t end = at + 1;
      while (end < code.size() && code[end] != c) end += code[end] == '\\' ? 2 : 1;
      if (end >= code.size()) return error("a string without end: {:.40}", code.substr(at));
      tokens.push_back({Token::Kind::String, unescaped(code.substr(at + 1, end - at - 1))});
      at = end + 1;
    } else if (in_word(c)) {
      size_t end = at;
      while (end < code.size() && in_word(code[end])) ++end;
      tokens.push_back({Token::Kind::Word, std::string(code.substr(at, end - at))});
      at = end;
    } else {
      tokens.push_back({Token::Kind::Sign, std::string(1, c)});
      ++at;
    }
  }
  return tokens;
}

bool is_sign(const Token& token, char sign) {
  return token.kind == Token::Kind::Sign && token.text[0] == sign;
}

bool is_name(const Token& token) {
  return token.kind == Token::Kind::String && !token.text.empty() &&
         std::isdigit(static_cast<unsigned char>(token.text[0])) == 0 &&
         std::all_of(token.text.begin(), token.text.end(), in_word);
}

// a['b'] becomes a.b.
Tokens with_dots(const Tokens& tokens) {
  Tokens result;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const bool after_value = i > 0 && (tokens[i - 1].kind == Token::Kind::Word ||
                                       is_sign(tokens[i - 1], ']') || is_sign(tokens[i - 1], ')'));
    if (after_value && is_sign(tokens[i], '[') && i + 2 < tokens.size() && is_name(tokens[i + 1]) &&
        is_sign(tokens[i + 2], ']')) {
      result.push_back({Token::Kind::Sign, "."});
      result.push_back({Token::Kind::Word, tokens[i + 1].text});
      i += 2;
    } else {
      result.push_back(tokens[i]);
    }
  }
  return result;
}

std::string written(const Tokens& tokens, size_t begin, size_t end) {
  std::string text;
  for (size_t i = begin; i < end; ++i) {
    const Token& token = tokens[i];
    if (token.kind == Token::Kind::String) {
      text += fmt::format("'{}:{}'", token.text.size(), token.text);
      continue;
    }
    if (token.kind == Token::Kind::Word && !text.empty() && in_word(text.back())) text += ' ';
    text += token.text;
  }
  return text;
}

// {{ a + b }} becomes {{a}}{{b}}, and constants become text; nothing of it is inside another operator.
void add_output(const Tokens& tokens, std::vector<Part>& parts) {
  const auto binds_loosely = [](const Token& token) {
    return (token.kind == Token::Kind::Sign &&
            std::string_view("~<>=!%*/-,").find(token.text[0]) != std::string_view::npos) ||
           (token.kind == Token::Kind::Word &&
            (token.text == "if" || token.text == "else" || token.text == "or" || token.text == "and" ||
             token.text == "not" || token.text == "in" || token.text == "is"));
  };
  int depth = 0;
  bool split = true;
  std::vector<size_t> cuts;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (is_sign(tokens[i], '(') || is_sign(tokens[i], '[')) ++depth;
    if (is_sign(tokens[i], ')') || is_sign(tokens[i], ']')) --depth;
    if (depth == 0 && binds_loosely(tokens[i])) split = false;
    if (depth == 0 && is_sign(tokens[i], '+')) cuts.push_back(i);
  }
  if (!split) cuts.clear();
  cuts.push_back(tokens.size());
  size_t begin = 0;
  for (const size_t end : cuts) {
    if (end == begin + 1 && tokens[begin].kind == Token::Kind::String) {
      parts.push_back({true, tokens[begin].text});
    } else {
      parts.push_back({false, "{{" + written(tokens, begin, end) + "}}"});
    }
    begin = end + 1;
  }
}

void strip_end(std::string& text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())) != 0) text.pop_back();
}

// Where the tag that begins at `at` ends, behind strings inside it.
size_t end_of_tag(std::string_view text, size_t at, std::string_view close) {
  char quote = 0;
  for (size_t i = at; i < text.size(); ++i) {
    if (quote != 0) {
      if (text[i] == '\\') {
        ++i;
      } else if (text[i] == quote) {
        quote = 0;
      }
    } else if (close != "#}" && (text[i] == '\'' || text[i] == '"')) {
      quote = text[i];
    } else if (text.substr(i).starts_with(close)) {
      return i;
    }
  }
  return text.npos;
}

Result<std::vector<Part>> parts_of(std::string_view text) {
  std::vector<Part> parts;
  if (text.ends_with('\n')) text.remove_suffix(1);  // keep_trailing_newline is off
  size_t at = 0;
  bool strip_left = false, trim_newline = false;
  while (true) {
    size_t open = at;
    while (open < text.size() && !(text[open] == '{' && open + 1 < text.size() &&
                                   (text[open + 1] == '{' || text[open + 1] == '%' || text[open + 1] == '#')))
      ++open;
    std::string data(text.substr(at, open - at));
    if (std::exchange(trim_newline, false) && data.starts_with('\n')) data.erase(0, 1);
    if (std::exchange(strip_left, false)) {
      size_t keep = 0;
      while (keep < data.size() && std::isspace(static_cast<unsigned char>(data[keep])) != 0) ++keep;
      data.erase(0, keep);
    }
    if (open >= text.size()) {
      parts.push_back({true, std::move(data)});
      return parts;
    }
    const char kind = text[open + 1];
    const std::string_view close = kind == '{' ? "}}" : kind == '%' ? "%}" : "#}";
    const size_t end = end_of_tag(text, open + 2, close);
    if (end == text.npos) return error("a tag without end: {:.40}", text.substr(open));
    std::string_view code = text.substr(open + 2, end - open - 2);
    if (code.starts_with('-')) {
      strip_end(data);
      code.remove_prefix(1);
    } else if (code.starts_with('+')) {
      code.remove_prefix(1);
    } else if (kind != '{') {  // lstrip_blocks: white space between the line's beginning and the tag
      const size_t line = data.rfind('\n');
      const size_t begin = line == data.npos ? 0 : line + 1;
      const bool whole = line != data.npos || at == 0 || text[at - 1] == '\n';
      if (whole && data.find_first_not_of(" \t", begin) == data.npos) data.erase(begin);
    }
    parts.push_back({true, std::move(data)});
    if (code.ends_with('-')) {
      strip_left = true;
      code.remove_suffix(1);
    } else if (kind != '{') {
      trim_newline = !code.ends_with('+');
      if (code.ends_with('+')) code.remove_suffix(1);
    }
    at = end + 2;
    if (kind == '#') continue;
    SLUICE_ASSIGN(const Tokens raw, tokens_of(code));
    const Tokens tokens = with_dots(raw);
    if (kind == '{') {
      add_output(tokens, parts);
    } else {
      parts.push_back({false, "{%" + written(tokens, 0, tokens.size()) + "%}"});
    }
  }
}

}  // namespace

Result<std::string> normal_form_of_template(std::string_view text) {
  std::string plain(text);
  for (size_t at = plain.find('\r'); at != plain.npos; at = plain.find('\r', at)) {
    const bool pair = at + 1 < plain.size() && plain[at + 1] == '\n';
    plain.replace(at, pair ? 2 : 1, "\n");
  }
  SLUICE_ASSIGN(const std::vector<Part> parts, parts_of(plain));
  std::string form, constant;
  for (const Part& part : parts) {
    // They mark what an assistant says, and write nothing.
    if (!part.constant && (part.text == "{%generation%}" || part.text == "{%endgeneration%}")) continue;
    if (part.constant) {
      constant += part.text;
      continue;
    }
    // Only the last constant carries its length: behind others a tag begins.
    if (!constant.empty()) form += "<0:" + std::exchange(constant, {}) + ">";
    form += part.text;
  }
  if (!constant.empty()) form += fmt::format("<{}:{}>", constant.size(), constant);
  // What only gives a variable the value that it has.
  constexpr std::string_view kIdle =
      "{%if not add_generation_prompt is defined%}{%set add_generation_prompt=false%}{%endif%}";
  if (const size_t at = form.find(kIdle); at != form.npos) form.erase(at, kIdle.size());
  return form;
}

}  // namespace sluice::core
