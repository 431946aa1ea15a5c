// SPDX-License-Identifier: Apache-2.0
// Patterns of Oniguruma (Ruby's syntax) written anew for PCRE2.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <utility>

#include "tokenizer/code_set.h"
#include "tokenizer/regex.h"

namespace sluice::core {
namespace {

constexpr int kMostNesting = 64;
constexpr int64_t kMostRepeats = 1000;
constexpr uint32_t kMostTextBytes = 1 << 20;  // of the result

std::string plain(std::string_view name) {
  std::string out;
  for (const char c : name) {
    if (c != '_' && c != '-' && c != ' ')
      out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return out;
}

struct LongName {
  std::string_view name, category;
};
constexpr LongName kLongNames[] = {
    {"letter", "L"},
    {"uppercaseletter", "Lu"},
    {"lowercaseletter", "Ll"},
    {"titlecaseletter", "Lt"},
    {"modifierletter", "Lm"},
    {"otherletter", "Lo"},
    {"mark", "M"},
    {"nonspacingmark", "Mn"},
    {"spacingmark", "Mc"},
    {"enclosingmark", "Me"},
    {"number", "N"},
    {"decimalnumber", "Nd"},
    {"letternumber", "Nl"},
    {"othernumber", "No"},
    {"punctuation", "P"},
    {"connectorpunctuation", "Pc"},
    {"dashpunctuation", "Pd"},
    {"openpunctuation", "Ps"},
    {"closepunctuation", "Pe"},
    {"initialpunctuation", "Pi"},
    {"finalpunctuation", "Pf"},
    {"otherpunctuation", "Po"},
    {"symbol", "S"},
    {"mathsymbol", "Sm"},
    {"currencysymbol", "Sc"},
    {"modifiersymbol", "Sk"},
    {"othersymbol", "So"},
    {"separator", "Z"},
    {"spaceseparator", "Zs"},
    {"lineseparator", "Zl"},
    {"paragraphseparator", "Zp"},
};

// The set of \p{name}, if it is known.
std::optional<CodeSet> property(std::string_view name) {
  std::string key = plain(name);
  for (const LongName& known : kLongNames) {
    if (known.name == key) key = plain(known.category);
  }
  if (key.size() == 1) {  // all categories that begin so
    CodeSet set;
    for (const NamedRanges& named : named_ranges()) {
      if (named.name.size() == 2 && plain(named.name)[0] == key[0] && key[0] != 'c') {
        set.add(CodeSet(named.ranges));
      }
    }
    if (set.empty()) return std::nullopt;
    return set;
  }
  for (const NamedRanges& named : named_ranges()) {
    if (plain(named.name) == key) return CodeSet(named.ranges);
  }
  return std::nullopt;
}

bool is_letter(uint32_t code) {
  return (code >= 'a' && code <= 'z') || (code >= 'A' && code <= 'Z');
}
uint32_t lower(uint32_t code) {
  return code >= 'A' && code <= 'Z' ? code + 32 : code;
}

// Characters that an ASCII letter matches when case does not matter.
void add_folded(CodeSet& set, uint32_t letter) {
  const uint32_t small = lower(letter);
  set.add({small, small});
  set.add({small - 32, small - 32});
  if (small == 'k') set.add({0x212a, 0x212a});  // the sign of the kelvin
  if (small == 's') set.add({0x17f, 0x17f});    // the long s
}

std::string to_text(const CodeSet& set) {
  const CodeSet rest = set.complement();
  if (set.empty()) return "(?!)";
  if (rest.empty()) return ".";
  const bool negated = rest.ranges().size() < set.ranges().size();
  std::string out = negated ? "[^" : "[";
  for (const CodeRange& r : (negated ? rest : set).ranges()) {
    out += fmt::format("\\x{{{:x}}}", r.first);
    if (r.last != r.first) out += fmt::format("-\\x{{{:x}}}", r.last);
  }
  return out + "]";
}

class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {}

  Result<TranslatedPattern> run() {
    SLUICE_ASSIGN(std::string text, alternatives(0, false));
    if (!done()) return refuse("an unmatched ')'");
    return TranslatedPattern{std::move(text), looks_behind_};
  }

 private:
  struct Atom {
    std::string text;
    bool repeats = true;  // may have a quantifier
    uint32_t letter = 0;  // a single character that has cases; 0: it is none
  };

  bool done() const { return at_ >= pattern_.size(); }
  char peek(size_t ahead = 0) const { return at_ + ahead < pattern_.size() ? pattern_[at_ + ahead] : '\0'; }
  bool take(std::string_view text) {
    if (!pattern_.substr(std::min(at_, pattern_.size())).starts_with(text)) return false;
    at_ += text.size();
    return true;
  }
  Error refuse(std::string_view what) const {
    return error("pattern '{}', character {}: {} is not supported", pattern_, at_ + 1, what);
  }
  uint32_t take_code() {
    const uint32_t code = utf8_at(pattern_, at_);
    at_ += size_t(utf8_length(pattern_[at_]));
    return code;
  }

  Result<std::string> alternatives(int depth, bool caseless) {
    if (depth > kMostNesting) return refuse("so deep a nesting");
    std::string text;
    for (;;) {
      SLUICE_ASSIGN(const std::string part, sequence(depth, caseless));
      text += part;
      if (text.size() > kMostTextBytes) return refuse("so large a pattern");
      if (!take("|")) return text;
      text += "|";
    }
  }

  Result<std::string> sequence(int depth, bool caseless) {
    std::string text;
    uint32_t before = 0;  // the letter before
    while (!done() && peek() != '|' && peek() != ')') {
      if (take("(?#")) {
        while (!done() && peek() != ')') ++at_;
        if (!take(")")) return refuse("a comment without an end");
        continue;
      }
      // An option without a group holds to the end of the group around it, over its alternatives.
      if (take("(?i)") || take("(?-i)")) {
        const bool on = pattern_[at_ - 2] == 'i' && pattern_[at_ - 3] != '-';
        SLUICE_ASSIGN(const std::string rest, alternatives(depth + 1, on));
        return text + "(?:" + rest + ")";
      }
      SLUICE_ASSIGN(Atom atom, next_atom(depth, caseless));
      if (caseless) SLUICE_TRY(check_fold(before, atom.letter));
      before = atom.letter;
      SLUICE_ASSIGN(const bool repeated, quantifiers(atom));
      if (repeated) before = 0;
      text += atom.text;
    }
    return text;
  }

  // Two letters that together are one character when case does not matter: Oniguruma matches it, PCRE2 does
  // not.
  Status check_fold(uint32_t a, uint32_t b) const {
    const uint32_t first = lower(a), second = lower(b);
    const bool folds = (first == 's' && (second == 's' || second == 't')) ||
                       (first == 'f' && (second == 'f' || second == 'i' || second == 'l'));
    if (folds) return refuse("letters in any case that a ligature stands for (ss, st, ff, fi, fl)");
    return {};
  }

  Result<Atom> next_atom(int depth, bool caseless) {
    switch (peek()) {
      case '(':
        return group(depth, caseless);
      case '[': {
        ++at_;
        SLUICE_ASSIGN(const CodeSet set, bracket(depth, caseless));
        return Atom{to_text(set), true};
      }
      case '.':
        ++at_;
        return Atom{"[^\\x{a}]", true};
      case '*':
      case '+':
      case '?':
        return refuse("a repetition of nothing");
      case '^':
      case '$':
        return refuse(fmt::format("'{}'", peek()));
      case '\\':
        return escape(caseless);
      default:
        return literal(take_code(), caseless);
    }
  }

  Result<Atom> literal(uint32_t code, bool caseless) {
    CodeSet set;
    set.add({code, code});
    if (caseless) {
      if (code >= 0x80) return refuse("a character beyond ASCII in any case");
      if (is_letter(code)) add_folded(set, code);
    }
    if (set.empty()) return refuse("a surrogate");
    return Atom{set.ranges().size() == 1 && code == set.ranges().front().last
                    ? fmt::format("\\x{{{:x}}}", code)
                    : to_text(set),
                true, is_letter(code) ? code : 0};
  }

  Result<Atom> escape(bool caseless) {
    ++at_;
    if (done()) return refuse("a backslash at the end");
    if (auto set = class_escape()) {
      if (!set->ok()) return set->error();
      if (caseless) return refuse("a class of characters in any case");
      return Atom{to_text(**set), true};
    }
    const char c = peek();
    if (c == 'A' || c == 'z') {
      ++at_;
      looks_behind_ = looks_behind_ || c == 'A';
      return Atom{c == 'A' ? "\\A" : "\\z", false};
    }
    SLUICE_ASSIGN(const uint32_t code, character_escape());
    return literal(code, caseless);
  }

  // After a backslash: \s, \p{L} and their like; nothing: it is none of them.
  std::optional<Result<CodeSet>> class_escape() {
    const char c = peek();
    if (c == 'p' || c == 'P') return property_escape();
    CodeSet set;
    switch (std::tolower(static_cast<unsigned char>(c))) {
      case 's':
        set = CodeSet(regex_space_ranges());
        break;
      case 'w':
        set = CodeSet(regex_word_ranges());
        break;
      case 'd':
        set = CodeSet(regex_digit_ranges());
        break;
      case 'h': {
        constexpr CodeRange kHex[] = {{'0', '9'}, {'A', 'F'}, {'a', 'f'}};
        set = CodeSet(kHex);
        break;
      }
      default:
        return std::nullopt;
    }
    ++at_;
    if (std::isupper(static_cast<unsigned char>(c)) != 0) set = set.complement();
    return Result<CodeSet>(std::move(set));
  }

  Result<CodeSet> property_escape() {
    bool negated = peek() == 'P';
    ++at_;
    if (!take("{")) return refuse("\\p without braces");
    if (take("^")) negated = !negated;
    const size_t end = pattern_.find('}', at_);
    if (end == std::string_view::npos) return refuse("\\p{ without an end");
    const std::string_view name = pattern_.substr(at_, end - at_);
    const auto set = property(name);
    if (!set) return refuse(fmt::format("the class \\p{{{}}}", name));
    at_ = end + 1;
    return negated ? set->complement() : *set;
  }

  Result<uint32_t> hex(size_t least, size_t most) {
    uint32_t code = 0;
    size_t digits = 0;
    for (; digits < most && std::isxdigit(static_cast<unsigned char>(peek())) != 0; ++digits, ++at_) {
      const char c = peek();
      code =
          code * 16 + uint32_t(c <= '9' ? c - '0' : std::tolower(static_cast<unsigned char>(c)) - 'a' + 10);
    }
    if (digits < least || code > 0x10ffff) return refuse("this number of a character");
    return code;
  }

  // After a backslash: what stands for one character.
  Result<uint32_t> character_escape() {
    const char c = peek();
    constexpr std::pair<char, uint32_t> kControls[] = {{'t', 9},  {'n', 10}, {'v', 11}, {'f', 12},
                                                       {'r', 13}, {'a', 7},  {'e', 27}};
    for (const auto& [name, code] : kControls) {
      if (c != name) continue;
      ++at_;
      return code;
    }
    if (take("x{")) {
      SLUICE_ASSIGN(const uint32_t code, hex(1, 8));
      if (!take("}")) return refuse("\\x{ with more than a number");
      return code;
    }
    if (take("x")) {
      SLUICE_ASSIGN(const uint32_t code, hex(1, 2));
      if (code >= 0x80) return refuse("a byte that is no character");
      return code;
    }
    if (take("u")) return hex(4, 4);
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) return refuse(fmt::format("'\\{}'", c));
    return take_code();
  }

  Result<Atom> group(int depth, bool caseless) {
    std::string open = "(?:";
    bool repeats = true;
    ++at_;
    if (peek() == '*') return refuse("'(*'");
    if (take("?")) {
      if (take(":")) {
      } else if (take("i:")) {
        caseless = true;
      } else if (take("-i:")) {
        caseless = false;
      } else if (take("=")) {
        open = "(?=", repeats = false;
      } else if (take("!")) {
        open = "(?!", repeats = false;
      } else if (take(">")) {
        open = "(?>";
      } else if (take("<=")) {
        open = "(?<=", repeats = false, looks_behind_ = true;
      } else if (take("<!")) {
        open = "(?<!", repeats = false, looks_behind_ = true;
      } else if (peek() == '<' && std::isalpha(static_cast<unsigned char>(peek(1))) != 0 &&
                 pattern_.find('>', at_) != std::string_view::npos) {
        at_ = pattern_.find('>', at_) + 1;  // a name that nothing asks for
      } else {
        return refuse(fmt::format("'(?{}'", peek()));
      }
    }
    SLUICE_ASSIGN(const std::string inside, alternatives(depth + 1, caseless));
    if (!take(")")) return refuse("a group without an end");
    return Atom{open + inside + ")", repeats};
  }

  struct Interval {
    int64_t least, most;  // most: -1 for any
  };
  // At a '{': its interval, if it is one; it is a plain character otherwise.
  Result<std::optional<Interval>> interval() {
    size_t at = at_ + 1;
    const auto number = [&]() -> int64_t {
      if (at >= pattern_.size() || std::isdigit(static_cast<unsigned char>(pattern_[at])) == 0) return -1;
      int64_t value = 0;
      for (; at < pattern_.size() && std::isdigit(static_cast<unsigned char>(pattern_[at])) != 0; ++at) {
        value = std::min<int64_t>(value * 10 + (pattern_[at] - '0'), kMostRepeats + 1);
      }
      return value;
    };
    const auto next_is = [&](char c) { return at < pattern_.size() && pattern_[at] == c; };
    Interval interval{number(), -1};
    if (next_is(',')) {
      ++at;
      interval.most = number();
      if (interval.least < 0 && interval.most < 0) return std::optional<Interval>();
      if (interval.least < 0) interval.least = 0;
    } else {
      interval.most = interval.least;
    }
    if (interval.least < 0 || !next_is('}')) return std::optional<Interval>();
    if (interval.least > kMostRepeats || interval.most > kMostRepeats)
      return refuse(fmt::format("a repetition beyond {}", kMostRepeats));
    if (interval.most >= 0 && interval.least > interval.most) return refuse("an interval that falls");
    at_ = at + 1;
    return std::optional<Interval>(interval);
  }

  // Appends what follows an atom; says whether there was a quantifier.
  Result<bool> quantifiers(Atom& atom) {
    bool any = false;
    for (;;) {
      std::string quantifier;
      const char c = peek();
      if (c == '*' || c == '+' || c == '?') {
        ++at_;
        quantifier = c;
        if (take("?")) {
          quantifier += '?';
        } else if (take("+")) {
          quantifier += '+';  // possessive
        }
      } else if (c == '{') {
        SLUICE_ASSIGN(const auto found, interval());
        if (!found) return any;
        const Interval i = *found;
        quantifier = i.most < 0          ? fmt::format("{{{},}}", i.least)
                     : i.least == i.most ? fmt::format("{{{}}}", i.least)
                                         : fmt::format("{{{},{}}}", i.least, i.most);
        // "{2}?" is not lazy but optional, "{1,2}+" not possessive but repeated: both are the next
        // quantifier.
        if (i.least != i.most && take("?")) quantifier += '?';
      } else {
        return any;
      }
      if (!atom.repeats) return refuse("a repetition of a place");
      atom.text = (any ? "(?:" + atom.text + ")" : atom.text) + quantifier;
      if (atom.text.size() > kMostTextBytes) return refuse("so large a pattern");
      any = true;
    }
  }

  // After a '[': the set, with its ']'.
  Result<CodeSet> bracket(int depth, bool caseless) {
    if (depth > kMostNesting) return refuse("so deep a nesting");
    const bool negated = take("^");
    if (negated && caseless) return refuse("the rest of a class in any case");
    std::optional<CodeSet> intersected;
    CodeSet set;
    int64_t items = 0;
    for (bool first = true; first || peek() != ']'; first = false) {
      if (done()) return refuse("a class without an end");
      if (peek() == '[' && peek(1) == ':') return refuse("a POSIX class such as [:alpha:]");
      if (take("&&")) {
        if (caseless || items == 0) return refuse("this intersection");
        intersected = intersected ? intersected->intersection(set) : set;
        set = CodeSet();
        items = 0;
        continue;
      }
      ++items;
      if (take("[")) {
        SLUICE_ASSIGN(const CodeSet inner, bracket(depth + 1, caseless));
        set.add(inner);
        if (peek() == '-' && peek(1) != ']') return refuse("'-' after a class");
        continue;
      }
      SLUICE_TRY(class_item(set, caseless));
    }
    ++at_;
    if (items == 0) return refuse("an empty class");
    if (caseless && items == 1) return refuse("a class of one in any case");
    if (intersected) set = intersected->intersection(set);
    return negated ? set.complement() : set;
  }

  // A character, a range or a class of characters inside brackets.
  Status class_item(CodeSet& set, bool caseless) {
    const bool dash_first = peek() == '-' && pattern_[at_ - 1] != '[' && pattern_[at_ - 1] != '^';
    if (dash_first && peek(1) != ']') return refuse("'-' between others");
    SLUICE_ASSIGN(const auto first, class_character(set, caseless));
    if (!first) {
      if (peek() == '-' && peek(1) != ']') return refuse("'-' after a class");
      return {};
    }
    uint32_t last = *first;
    if (peek() == '-' && peek(1) != ']' && peek(1) != '\0') {
      ++at_;
      if (peek() == '[') return refuse("a class as the end of a range");
      SLUICE_ASSIGN(const auto end, class_character(set, caseless));
      if (!end || *end < *first) return refuse("this range of characters");
      last = *end;
    }
    set.add({*first, last});
    if (!caseless) return {};
    if (last >= 0x80) return refuse("characters beyond ASCII in any case");
    for (uint32_t code = *first; code <= last; ++code) {
      if (is_letter(code)) add_folded(set, code);
    }
    return {};
  }

  // One character, or nothing after a class such as \s, which is added.
  Result<std::optional<uint32_t>> class_character(CodeSet& set, bool caseless) {
    if (peek() != '\\') return std::optional<uint32_t>(take_code());
    ++at_;
    if (done()) return refuse("a backslash at the end");
    if (auto found = class_escape()) {
      if (!found->ok()) return found->error();
      if (caseless) return refuse("a class of characters in any case");
      set.add(**found);
      return std::optional<uint32_t>();
    }
    SLUICE_ASSIGN(const uint32_t code, character_escape());
    return std::optional<uint32_t>(code);
  }

  std::string_view pattern_;
  size_t at_ = 0;
  bool looks_behind_ = false;
};

}  // namespace

Result<TranslatedPattern> translate_pattern(std::string_view pattern) {
  if (find_invalid_utf8(pattern) != std::string_view::npos) return error("a pattern is not UTF-8");
  return Translator(pattern).run();
}

}  // namespace sluice::core
