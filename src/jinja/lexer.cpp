// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "jinja/syntax.h"
#include "tokenizer/code_set.h"

namespace sluice::core::jinja {
namespace {

std::string with_unix_lines(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r') {
      out += '\n';
      if (i + 1 < text.size() && text[i + 1] == '\n') ++i;
    } else {
      out += text[i];
    }
  }
  return out;
}

bool is_word(uint32_t code) {
  return code == '_' || is_letter(code) || is_numeric(code);
}

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(with_unix_lines(text)) {
    if (text_.ends_with('\n')) text_.pop_back();  // keep_trailing_newline is off
  }

  Result<std::vector<Token>> run() {
    if (const size_t bad = find_invalid_utf8(text_); bad != std::string::npos) {
      at_ = bad;
      return failed("bytes that are not UTF-8");
    }
    while (at_ < text_.size()) SLUICE_TRY(next_tag());
    add(Token::Kind::End, "");
    return std::move(tokens_);
  }

 private:
  Error failed(std::string_view what) const {
    const auto [line, column] = place(at_);
    return error("line {}, column {}: {}", line, column, what);
  }
  std::pair<int, int> place(size_t at) const {
    // Places are asked for in rising order.
    for (; known_ < at; ++known_) {
      if (text_[known_] == '\n') {
        ++line_;
        column_ = 1;
      } else if ((static_cast<unsigned char>(text_[known_]) & 0xc0) != 0x80) {
        ++column_;
      }
    }
    return {line_, column_};
  }
  void add(Token::Kind kind, std::string text) {
    const auto [line, column] = place(at_);
    tokens_.push_back({kind, std::move(text), line, column});
  }
  bool here(std::string_view what) const { return std::string_view(text_).substr(at_).starts_with(what); }
  void skip_space() {
    while (at_ < text_.size() && is_space(utf8_at(text_, at_))) at_ += size_t(utf8_length(text_[at_]));
  }

  // Behind a tag: what its sign and trim_blocks take.
  void end_tag(std::string_view close, bool trims) {
    const bool minus = here("-");
    if (minus || here("+")) ++at_;
    at_ += close.size();
    if (minus) {
      skip_space();
    } else if (trims && here("\n") && text_[at_ - close.size() - 1] != '+') {
      ++at_;
    }
    line_starting_ = at_ > 0 && text_[at_ - 1] == '\n';
  }
  bool closes(std::string_view close, bool plus) const {
    return here(close) ||
           ((here("-") || (plus && here("+"))) && std::string_view(text_).substr(at_ + 1).starts_with(close));
  }

  // The text up to a tag at `open`, without the white space that its sign or lstrip_blocks takes.
  void add_data(size_t open, char sign, bool output) {
    std::string_view data = std::string_view(text_).substr(at_, open - at_);
    if (sign == '-') {
      data = data.substr(0, stripped(data, nullptr, false, true).end);
    } else if (sign != '+' && !output) {
      const size_t line = data.rfind('\n') + 1;
      const std::string_view last = data.substr(line);
      const Stripped rest = stripped(last, nullptr, false, true);
      if ((line > 0 || line_starting_) && rest.end == 0) data = data.substr(0, line);
    }
    if (!data.empty()) add(Token::Kind::Data, std::string(data));
  }

  // Text and the tag behind it.
  Status next_tag() {
    size_t open = at_;
    while (open < text_.size() &&
           !(text_[open] == '{' && open + 1 < text_.size() &&
             (text_[open + 1] == '{' || text_[open + 1] == '%' || text_[open + 1] == '#')))
      ++open;
    if (open == text_.size()) {
      add_data(open, '+', true);
      at_ = open;
      return {};
    }
    const char kind = text_[open + 1];
    const char sign = open + 2 < text_.size() ? text_[open + 2] : ' ';
    add_data(open, sign, kind == '{');
    at_ = open;
    const size_t begin = open + 2 + (sign == '-' || sign == '+' ? 1 : 0);
    if (kind == '#') return comment(begin);
    if (kind == '%') {
      const size_t raw = raw_begin(begin);
      if (raw != 0) return raw_block(raw);
    }
    add(kind == '{' ? Token::Kind::OutputBegin : Token::Kind::TagBegin, "");
    at_ = begin;
    return inside(kind == '{');
  }

  Status comment(size_t begin) {
    size_t end = text_.find("#}", begin);
    if (end == text_.npos) return failed("a comment without end");
    if (end > begin && (text_[end - 1] == '-' || text_[end - 1] == '+')) --end;
    at_ = end;
    end_tag("#}", true);
    return {};
  }

  // Behind "{% raw %}"; 0: it is another tag.
  size_t raw_begin(size_t at) {
    const size_t before = std::exchange(at_, at);
    skip_space();
    size_t end = 0;
    if (here("raw")) {
      at_ += 3;
      skip_space();
      if (closes("%}", false)) {
        const bool minus = here("-");
        at_ += minus ? 3 : 2;
        if (minus) skip_space();
        end = at_;
      }
    }
    at_ = before;
    return end;
  }

  Status raw_block(size_t begin) {
    for (size_t open = text_.find("{%", begin); open != text_.npos; open = text_.find("{%", open + 2)) {
      const char sign = open + 2 < text_.size() ? text_[open + 2] : ' ';
      at_ = open + 2 + (sign == '-' || sign == '+' ? 1 : 0);
      skip_space();
      if (!here("endraw")) continue;
      at_ += 6;
      skip_space();
      if (!closes("%}", true)) continue;
      const size_t close = at_;
      at_ = begin;
      add_data(open, sign, false);
      at_ = close;
      end_tag("%}", true);
      return {};
    }
    at_ = begin;
    return failed("a raw block without end");
  }

  Status inside(bool output) {
    const std::string_view close = output ? "}}" : "%}";
    std::string open;  // brackets
    while (at_ < text_.size()) {
      skip_space();
      if (at_ >= text_.size()) break;
      if (open.empty() && closes(close, !output)) {
        add(output ? Token::Kind::OutputEnd : Token::Kind::TagEnd, "");
        end_tag(close, !output);
        return {};
      }
      const char c = text_[at_];
      if (is_digit_char(c)) {
        number();
      } else if (is_word(utf8_at(text_, at_))) {
        word();
      } else if (c == '\'' || c == '"') {
        SLUICE_TRY(string(c));
      } else {
        SLUICE_TRY(sign(open));
      }
    }
    at_ = text_.size();
    return failed(output ? "{{ without }}" : "{% without %}");
  }

  void word() {
    size_t end = at_;
    while (end < text_.size() && is_word(utf8_at(text_, end))) end += size_t(utf8_length(text_[end]));
    add(Token::Kind::Name, text_.substr(at_, end - at_));
    at_ = end;
  }

  size_t digits(size_t at) const {
    while (at < text_.size() && (is_digit_char(text_[at]) ||
                                 (text_[at] == '_' && at + 1 < text_.size() && is_digit_char(text_[at + 1]))))
      ++at;
    return at;
  }

  void number() {
    size_t end = digits(at_);
    bool real = false;
    const bool follows_dot = !tokens_.empty() && tokens_.back().kind == Token::Kind::Sign &&
                             tokens_.back().text == "." && at_ > 0 && text_[at_ - 1] == '.';
    if (!follows_dot) {
      if (end + 1 < text_.size() && text_[end] == '.' && is_digit_char(text_[end + 1])) {
        end = digits(end + 1);
        real = true;
      }
      if (end < text_.size() && (text_[end] == 'e' || text_[end] == 'E')) {
        size_t power = end + 1;
        if (power < text_.size() && (text_[power] == '+' || text_[power] == '-')) ++power;
        if (power < text_.size() && is_digit_char(text_[power])) {
          end = digits(power);
          real = true;
        }
      }
    }
    std::string spelled = text_.substr(at_, end - at_);
    std::erase(spelled, '_');
    add(real ? Token::Kind::Float : Token::Kind::Int, std::move(spelled));
    at_ = end;
  }

  Status string(char quote) {
    size_t end = at_ + 1;
    while (end < text_.size() && text_[end] != quote) end += text_[end] == '\\' ? 2 : 1;
    if (end >= text_.size()) return failed("a string without end");
    const std::string_view raw = std::string_view(text_).substr(at_ + 1, end - at_ - 1);
    std::string value;
    for (size_t i = 0; i < raw.size(); ++i) {
      if (raw[i] != '\\') {
        value += raw[i];
        continue;
      }
      SLUICE_TRY(escape(raw, ++i, value));
    }
    if (find_invalid_utf8(value) != std::string::npos) return failed("a string with half a character");
    add(Token::Kind::String, std::move(value));
    at_ = end + 1;
    return {};
  }

  // One escape of Python's, from the character behind the backslash; leaves `i` at its last one.
  Status escape(std::string_view raw, size_t& i, std::string& value) const {
    const char c = raw[i];
    constexpr std::string_view kFrom = "nrtfbva\\'\"", kTo = "\n\r\t\f\b\v\a\\'\"";
    if (const size_t known = kFrom.find(c); known != kFrom.npos) {
      value += kTo[known];
      return {};
    }
    if (c == '\n') return {};  // of a line that goes on
    int base = 16;
    size_t most = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    size_t begin = i + 1;
    const bool octal = c >= '0' && c <= '7';
    if (octal) {
      base = 8;
      most = 3;
      begin = i;
    }
    if (most == 0) {
      if (c == 'N') return failed("\\N{...}: characters by their names are not known");
      value += '\\';
      value += c;
      return {};
    }
    uint32_t code = 0;
    size_t end = begin;
    for (; end < raw.size() && end < begin + most; ++end) {
      const char d = raw[end];
      const int digit = is_digit_char(d)       ? d - '0'
                        : d >= 'a' && d <= 'f' ? d - 'a' + 10
                        : d >= 'A' && d <= 'F' ? d - 'A' + 10
                                               : 99;
      if (digit >= base) break;
      code = code * uint32_t(base) + uint32_t(digit);
    }
    if ((!octal && end != begin + most) || code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
      return failed("an escape that stands for no character");
    append_utf8(value, code);
    i = end - 1;
    return {};
  }

  Status sign(std::string& open) {
    constexpr std::string_view kLong[] = {"//", "**", "==", "!=", ">=", "<="};
    constexpr std::string_view kShort = "+-/*%~[](){}><=.:|,;";
    std::string_view found;
    for (const std::string_view sign : kLong) {
      if (here(sign)) found = sign;
    }
    if (found.empty() && kShort.find(text_[at_]) != kShort.npos)
      found = std::string_view(text_).substr(at_, 1);
    if (found.empty())
      return failed(fmt::format("'{}' is no sign of a template",
                                std::string_view(text_).substr(at_, size_t(utf8_length(text_[at_])))));
    if (found == "(" || found == "[" || found == "{")
      open += found[0] == '(' ? ')' : found[0] == '[' ? ']' : '}';
    if (found == ")" || found == "]" || found == "}") {
      if (open.empty() || open.back() != found[0])
        return failed(fmt::format("'{}' without its beginning", found));
      open.pop_back();
    }
    add(Token::Kind::Sign, std::string(found));
    at_ += found.size();
    return {};
  }

  std::string text_;
  size_t at_ = 0;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
  mutable size_t known_ = 0;
  mutable int line_ = 1, column_ = 1;
};

}  // namespace

Result<std::vector<Token>> tokens_of(std::string_view text) {
  return Lexer(text).run();
}

}  // namespace sluice::core::jinja
