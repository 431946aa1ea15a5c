#include "io/toml.h"

#include "io/file.h"

namespace sluice {
namespace {

bool is_key_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
         c == '.';
}

// Bare values end at white space, at what closes or separates array elements, and at a comment.
bool is_bare_char(char c) {
  return static_cast<unsigned char>(c) > ' ' &&
         std::string_view(",[]{}#\"'=").find(c) == std::string_view::npos;
}

class Parser {
 public:
  Parser(std::string_view text, std::string_view name) : rest_(text), name_(name) {}

  Result<Settings> parse() {
    for (skip_blank_lines(); !rest_.empty(); skip_blank_lines()) {
      SLUICE_TRY(rest_.front() == '[' ? section() : assignment());
      SLUICE_TRY(end_of_line());
    }
    return std::move(settings_);
  }

 private:
  template <class... Args>
  Error fail(fmt::format_string<Args...> format, Args&&... args) const {
    return error("{}:{}: {}", name_, line_, fmt::format(format, std::forward<Args>(args)...));
  }
  // What comes next, for errors.
  std::string next() const {
    if (rest_.empty()) return "the end of the file";
    return rest_.front() == '\n' ? "the end of the line" : fmt::format("'{}'", rest_.front());
  }

  char take() {
    const char c = rest_.front();
    rest_.remove_prefix(1);
    if (c == '\n') ++line_;
    return c;
  }
  bool take_if(char c) {
    if (rest_.empty() || rest_.front() != c) return false;
    take();
    return true;
  }
  std::string_view take_while(bool (*accept)(char)) {
    size_t n = 0;
    while (n < rest_.size() && accept(rest_[n])) ++n;
    const std::string_view taken = rest_.substr(0, n);
    rest_.remove_prefix(n);
    return taken;
  }

  void skip_spaces() {
    take_while([](char c) { return c == ' ' || c == '\t' || c == '\r'; });
  }
  void skip_comment() {
    skip_spaces();
    if (!rest_.empty() && rest_.front() == '#') take_while([](char c) { return c != '\n'; });
  }
  void skip_blank_lines() {
    do skip_comment();
    while (take_if('\n'));
  }
  Status end_of_line() {
    skip_comment();
    if (rest_.empty() || rest_.front() == '\n') return {};
    return fail("unexpected {}; text with spaces needs quotes", next());
  }

  Result<std::string> key() {
    skip_spaces();
    const std::string_view text = take_while(is_key_char);
    skip_spaces();
    if (text.empty()) return fail("expected a name, found {}", next());
    if (text.front() == '.' || text.back() == '.' || text.find("..") != std::string_view::npos) {
      return fail("'{}' has an empty part", text);
    }
    return std::string(text);
  }

  Status section() {
    take();
    SLUICE_ASSIGN(const std::string text, key());
    if (!take_if(']')) return fail("expected ']' after [{}, found {}", text, next());
    prefix_ = text + ".";
    return {};
  }

  Status assignment() {
    const int line = line_;
    SLUICE_ASSIGN(std::string name, key());
    if (!take_if('=')) return fail("expected '=' after '{}', found {}", name, next());
    skip_spaces();
    Setting setting{.line = line};
    SLUICE_TRY(value(setting));
    name.insert(0, prefix_);
    const auto [first, is_new] = settings_.try_emplace(std::move(name), std::move(setting));
    if (!is_new) {
      return error("{}:{}: '{}' is set again; line {} sets it first", name_, line, first->first,
                   first->second.line);
    }
    return {};
  }

  Status value(Setting& setting) {
    setting.is_array = take_if('[');
    if (!setting.is_array) return element(setting.values);
    skip_blank_lines();
    while (!take_if(']')) {
      SLUICE_TRY(element(setting.values));
      skip_blank_lines();
      const bool more = take_if(',');
      skip_blank_lines();
      if (!more && (rest_.empty() || rest_.front() != ']')) {
        return fail("expected ',' or ']' in the array that begins on line {}, found {}", setting.line,
                    next());
      }
    }
    return {};
  }

  Status element(std::vector<std::string>& values) {
    if (take_if('"')) return quoted('"', values);
    if (take_if('\'')) return quoted('\'', values);
    const std::string_view text = take_while(is_bare_char);
    if (text.empty()) return fail("expected a value, found {}", next());
    values.emplace_back(text);
    return {};
  }

  Status quoted(char quote, std::vector<std::string>& values) {
    std::string text;
    for (;;) {
      if (rest_.empty() || rest_.front() == '\n') return fail("the text has no closing {}", quote);
      char c = take();
      if (c == quote) break;
      if (c == '\\' && quote == '"') {
        const char escape = rest_.empty() ? '\n' : rest_.front();
        const size_t known = std::string_view("\"\\nt").find(escape);
        if (known == std::string_view::npos) return fail("unknown escape after '\\': {}", next());
        c = "\"\\\n\t"[known];
        take();
      }
      text += c;
    }
    values.push_back(std::move(text));
    return {};
  }

  std::string_view rest_, name_;
  int line_ = 1;
  std::string prefix_;
  Settings settings_;
};

}  // namespace

Result<Settings> parse_toml(std::string_view text, std::string_view name) {
  return Parser(text, name).parse();
}

Result<Settings> read_toml(const std::filesystem::path& path) {
  SLUICE_ASSIGN(const std::string text, read_file(path));
  return parse_toml(text, path.string());
}

}  // namespace sluice
