// SPDX-License-Identifier: Apache-2.0
#include "jinja/template.h"

#include "base/hash.h"
#include "jinja/interpreter.h"
#include "jinja/syntax.h"

namespace sluice::core::jinja {

Result<uint64_t> fingerprint(std::string_view text) {
  SLUICE_ASSIGN(const std::vector<Token> tokens, tokens_of(text));
  Hash hash;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const Token& token = tokens[i];
    // A comment parts what is one text.
    const bool goes_on = i > 0 && token.kind == Token::Kind::Data && tokens[i - 1].kind == token.kind;
    if (!goes_on) hash.add(int64_t(token.kind));
    for (const char c : token.text) hash.add(int64_t(c));
  }
  return hash.value();
}

Template::Template(std::unique_ptr<Syntax> syntax) : syntax_(std::move(syntax)) {}
Template::Template(Template&&) noexcept = default;
Template& Template::operator=(Template&&) noexcept = default;
Template::~Template() = default;

Result<Template> Template::parse(std::string_view text) {
  constexpr size_t kMostBytes = size_t{1} << 20;
  if (text.size() > kMostBytes) return error("{} bytes; templates have at most {}", text.size(), kMostBytes);
  SLUICE_ASSIGN(std::unique_ptr<Syntax> syntax, jinja::parse(text));
  return Template(std::move(syntax));
}

bool Template::reads(std::string_view name) const {
  return syntax_->reads(name);
}

Result<Rendering> Template::render(const Inputs& inputs) const {
  return Interpreter(*syntax_, inputs).run();
}

}  // namespace sluice::core::jinja
