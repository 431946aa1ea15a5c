// SPDX-License-Identifier: Apache-2.0
// Where a parser stands in the tokens of a template.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "jinja/syntax.h"

namespace sluice::core::jinja {

// Keeps the first error and goes on without harm: whoever reads tokens in a loop looks at failed().
class Cursor {
 public:
  explicit Cursor(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const std::optional<Error>& error() const { return error_; }

 protected:
  const Token& now() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token take() {
    const Token token = now();
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }
  bool failed() const { return error_.has_value(); }
  bool is_sign(std::string_view text) const { return now().kind == Token::Kind::Sign && now().text == text; }
  bool is_name(std::string_view text) const { return now().kind == Token::Kind::Name && now().text == text; }
  bool skip_sign(std::string_view text) { return is_sign(text) && (take(), true); }
  bool skip_name(std::string_view text) { return is_name(text) && (take(), true); }

  void set_error(int line, int column, std::string_view what) {
    if (!error_) error_ = core::error("line {}, column {}: {}", line, column, what);
  }
  void set_error(std::string_view what) { set_error(now().line, now().column, what); }
  std::string found() const {
    switch (now().kind) {
      case Token::Kind::End:
        return "the end of the template";
      case Token::Kind::TagEnd:
        return "%}";
      case Token::Kind::OutputEnd:
        return "}}";
      default:
        return fmt::format("'{:.40}'", now().text);
    }
  }
  void expect_sign(std::string_view text) {
    if (!skip_sign(text)) set_error(fmt::format("'{}' is missing before {}", text, found()));
  }
  void expect(Token::Kind kind, std::string_view what) {
    if (now().kind != kind)
      set_error(fmt::format("{} is missing before {}", what, found()));
    else
      take();
  }
  std::string expect_name() {
    if (now().kind != Token::Kind::Name) {
      set_error(fmt::format("a name is missing before {}", found()));
      return {};
    }
    return take().text;
  }

 private:
  std::vector<Token> tokens_;
  std::optional<Error> error_;
  size_t at_ = 0;
};

}  // namespace sluice::core::jinja
