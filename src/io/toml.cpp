// SPDX-License-Identifier: Apache-2.0
#include "io/toml.h"

// Errors come back as values, and nothing is written by it.
#define TOML_EXCEPTIONS 0
#define TOML_HEADER_ONLY 1
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

#include <charconv>
#include <optional>

#include "io/file.h"

namespace sluice::core {
namespace {

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") + 1 - begin);
}

std::string_view line_of(std::string_view text, size_t number) {
  for (; number > 1; --number) text.remove_prefix(std::min(text.size(), text.find('\n') + 1));
  return text.substr(0, text.find('\n'));
}

// A bare word as TOML writes it; null when that is not what is wrong with it.
std::optional<std::string> quoted_word(std::string_view word) {
  constexpr std::string_view kNotInWords = "\"'[]{}=,#";
  if (word.empty() || word.find_first_of(kNotInWords) != word.npos) return std::nullopt;
  double number = 0;
  const auto [end, ec] = std::from_chars(word.data(), word.data() + word.size(), number);
  if (ec == std::errc() && end == word.data() + word.size()) return std::nullopt;
  for (const std::string_view name : {"true", "false"}) {
    const bool same = std::equal(word.begin(), word.end(), name.begin(), name.end(),
                                 [](char a, char b) { return std::tolower(uint8_t(a)) == b; });
    if (same) return std::string(name);
  }
  return toml_text(word);
}

// "key = value" with the quotes that its words lack: text and sizes are what people write without.
std::optional<std::string> with_quotes(std::string_view line) {
  const size_t equals = line.find('=');
  if (equals == line.npos) return std::nullopt;
  const std::string_view key = trimmed(line.substr(0, equals));
  std::string_view value = line.substr(equals + 1);
  value = trimmed(value.substr(0, value.find('#')));
  if (key.empty()) return std::nullopt;
  if (!value.starts_with('[') || !value.ends_with(']')) {
    const auto word = quoted_word(value);
    if (!word) return std::nullopt;
    return fmt::format("{} = {}", key, *word);
  }
  value = value.substr(1, value.size() - 2);
  std::string list;
  while (!value.empty()) {
    const size_t end = std::min(value.find(','), value.size());
    const auto word = quoted_word(trimmed(value.substr(0, end)));
    if (!word) return std::nullopt;
    list += (list.empty() ? "" : ", ") + *word;
    value.remove_prefix(std::min(value.size(), end + 1));
  }
  return fmt::format("{} = [{}]", key, list);
}

class Reader {
 public:
  explicit Reader(std::string_view name) : name_(name) {}

  Result<Settings> read(const toml::table& root) {
    SLUICE_TRY(table(root, ""));
    return std::move(settings_);
  }

 private:
  static int line_of(const toml::node& node) { return int(node.source().begin.line); }

  Status table(const toml::table& t, const std::string& prefix) {
    for (const auto& [key, node] : t) {
      const std::string name = prefix + std::string(key.str());
      if (const toml::table* inner = node.as_table()) {
        SLUICE_TRY(table(*inner, name + "."));
        continue;
      }
      Setting setting{.line = line_of(node)};
      if (const toml::array* list = node.as_array()) {
        setting.is_array = true;
        for (const toml::node& element : *list) SLUICE_TRY(scalar(name, element, setting.values));
      } else {
        SLUICE_TRY(scalar(name, node, setting.values));
      }
      const auto [first, is_new] = settings_.try_emplace(name, std::move(setting));
      if (!is_new) {
        return error("{}:{}: '{}' is set again; line {} sets it, too", name_, line_of(node), name,
                     first->second.line);
      }
    }
    return {};
  }

  Status scalar(std::string_view key, const toml::node& node, std::vector<std::string>& values) const {
    if (const auto* text = node.as_string()) {
      values.push_back(text->get());
    } else if (const auto* integer = node.as_integer()) {
      values.push_back(fmt::format("{}", integer->get()));
    } else if (const auto* number = node.as_floating_point()) {
      values.push_back(fmt::format("{}", number->get()));
    } else if (const auto* boolean = node.as_boolean()) {
      values.push_back(boolean->get() ? "true" : "false");
    } else {
      return error("{}:{}: {}: allowed are text, numbers, true and false, and lists of them", name_,
                   line_of(node), key);
    }
    return {};
  }

  std::string_view name_;
  Settings settings_;
};

}  // namespace

Result<Settings> parse_toml(std::string_view text, std::string_view name) {
  const toml::parse_result parsed = toml::parse(text);
  if (parsed) return Reader(name).read(parsed.table());
  const toml::parse_error& e = parsed.error();
  const auto line = e.source().begin.line;
  if (const auto better = with_quotes(line_of(text, line))) {
    return error("{}:{}: text and sizes need quotes: {}", name, line, *better);
  }
  std::string_view what = e.description();
  constexpr std::string_view kPrefix = "Error while ";
  if (what.starts_with(kPrefix)) what.remove_prefix(kPrefix.size());
  return error("{}:{}: {}", name, line, what);
}

Result<Settings> read_toml(const std::filesystem::path& path) {
  constexpr int64_t kMostBytes = 16 << 20;
  SLUICE_ASSIGN(const std::string text, read_file(path, kMostBytes));
  return parse_toml(text, path.string());
}

std::string toml_text(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (uint8_t(c) < ' ' || c == '\x7f') {
      out += fmt::format("\\u{:04x}", uint8_t(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

}  // namespace sluice::core
