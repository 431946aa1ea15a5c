// SPDX-License-Identifier: Apache-2.0
// Methods of strings, dictionaries and lists.
#include <algorithm>

#include "jinja/interpreter.h"
#include "tokenizer/code_set.h"

namespace sluice::core::jinja {
namespace {

using Form = List::Form;

struct Method {
  std::string_view name;
  Parameters parameters = {};
  Value (*call)(Interpreter&, const Value& self, Bound&,
                const Node& at) = nullptr;  // nullptr: not known here
};

std::optional<std::string_view> string_or_none(Interpreter& in, const Value& value, std::string_view what,
                                               const Node& at) {
  if (value.is(Kind::None) || value.is(Kind::Undefined)) return std::nullopt;
  if (!value.is_string()) in.fail(at, "{}: a {} is no string", what, type_name(value));
  return value.is_string() ? value.text().view() : std::string_view();
}
std::string_view string_of(Interpreter& in, const Value& value, std::string_view what, const Node& at) {
  if (value.is_string()) return value.text().view();
  in.fail(at, "{}: a {} is no string", what, type_name(value));
  return {};
}
int64_t integer_of(Interpreter& in, const Value& value, int64_t otherwise, std::string_view what,
                   const Node& at) {
  if (value.is(Kind::Undefined)) return otherwise;
  if (!value.is_integer()) in.fail(at, "{}: a {} is no integer", what, type_name(value));
  return value.as_integer();
}

template <bool kLeft, bool kRight>
Value strip(Interpreter& in, const Value& self, Bound& bound, const Node& at) {
  const auto set = string_or_none(in, bound[0], "strip", at);
  if (set && !in.spend(product(std::ssize(self.text().view()), std::ssize(*set)) / 64, at)) return {};
  const Stripped rest = stripped(self.text().view(), set ? &*set : nullptr, kLeft, kRight);
  return in.string(self.text().slice(rest.begin, rest.end), self.str().markup);
}

using Cuts = std::vector<std::pair<size_t, size_t>>;  // where pieces begin and end

// Pieces between a separator, or between white space.
Cuts cuts_of(std::string_view bytes, std::optional<std::string_view> separator, int64_t most,
             bool from_right) {
  Cuts cuts;
  if (separator && from_right) {
    // From the left of what is written backwards.
    cuts = cuts_of(reversed(bytes), reversed(*separator), most, false);
    for (auto& [begin, end] : cuts) begin = bytes.size() - std::exchange(end, bytes.size() - begin);
    std::reverse(cuts.begin(), cuts.end());
  } else if (separator) {
    size_t begin = 0;
    for (size_t at = find_in(bytes, *separator); at != bytes.npos && most != 0;
         at = find_in(bytes, *separator, begin), --most) {
      cuts.emplace_back(begin, at);
      begin = at + separator->size();
    }
    cuts.emplace_back(begin, bytes.size());
  } else if (!from_right) {
    size_t at = stripped(bytes, nullptr, true, false).begin;
    while (at < bytes.size()) {
      if (most-- == 0) {
        cuts.emplace_back(at, bytes.size());
        break;
      }
      size_t end = at;
      while (end < bytes.size() && !is_space(utf8_at(bytes, end))) end += size_t(utf8_length(bytes[end]));
      cuts.emplace_back(at, end);
      at = end + stripped(bytes.substr(end), nullptr, true, false).begin;
    }
  } else {
    size_t end = stripped(bytes, nullptr, false, true).end;
    while (end > 0) {
      if (most-- == 0) {
        cuts.emplace_back(0, end);
        break;
      }
      size_t begin = end;
      while (begin > 0 && !is_space(utf8_at(bytes, utf8_before(bytes, begin))))
        begin = utf8_before(bytes, begin);
      cuts.emplace_back(begin, end);
      end = stripped(bytes.substr(0, begin), nullptr, false, true).end;
    }
    std::reverse(cuts.begin(), cuts.end());
  }
  return cuts;
}

Value pieces(Interpreter& in, const Value& self, const Cuts& cuts, Form form, const Node& at) {
  std::vector<Value> values;
  for (const auto& [begin, end] : cuts) {
    if (!in.spend(1, at)) return {};
    values.push_back(in.string(self.text().slice(begin, end), self.str().markup));
  }
  return in.list(std::move(values), form, at);
}

template <bool kRight>
Value split(Interpreter& in, const Value& self, Bound& bound, const Node& at) {
  const auto separator = string_or_none(in, bound[0], "split", at);
  const int64_t most = integer_of(in, bound[1], -1, "split", at);
  if (separator && separator->empty()) return in.fail(at, "split: an empty separator");
  if (in.failed() || !in.spend_search(self.text().view(), separator.value_or(""), at)) return {};
  const int64_t room = in.room() / Interpreter::kPieceBytes;
  const Cuts cuts = cuts_of(self.text().view(), separator, most < 0 ? room : std::min(most, room), kRight);
  if (!in.has_room(std::ssize(cuts) * Interpreter::kPieceBytes, at)) return {};
  return pieces(in, self, cuts, Form::List, at);
}

Value split_lines(Interpreter& in, const Value& self, Bound& bound, const Node& at) {
  const std::string_view text = self.text().view();
  if (!in.has_room(std::count(text.begin(), text.end(), '\n') * Interpreter::kPieceBytes, at)) return {};
  return pieces(in, self, lines_of(text, is_true(bound[0])), Form::List, at);
}

template <bool kRight>
Value partition(Interpreter& in, const Value& self, Bound& bound, const Node& at) {
  const std::string_view separator = string_of(in, bound[0], "partition", at), bytes = self.text().view();
  if (separator.empty()) return in.fail(at, "partition: an empty separator");
  if (!in.spend_search(bytes, separator, at)) return {};
  const size_t found = kRight ? find_last_in(bytes, separator) : find_in(bytes, separator);
  const size_t begin = found != bytes.npos ? found : kRight ? 0 : bytes.size();
  const size_t end = found != bytes.npos ? found + separator.size() : begin;
  return pieces(in, self, {{0, begin}, {begin, end}, {end, bytes.size()}}, Form::Tuple, at);
}

// Bytes of a part of a string, of which the bounds are given in characters.
std::pair<size_t, size_t> bounds(Interpreter& in, std::string_view text, const Value& begin, const Value& end,
                                 const Node& at) {
  const int64_t count = count_characters(text);
  const auto place = [&](const Value& value, int64_t otherwise) {
    int64_t index = value.is(Kind::None) ? otherwise : integer_of(in, value, otherwise, "a bound", at);
    if (index < 0) index = std::max<int64_t>(0, index < -count ? 0 : index + count);
    return std::min(index, count);
  };
  const int64_t first = place(begin, 0), last = place(end, count);
  if (first > last) return {1, 0};
  const size_t from = byte_of(text, first);
  return {from, from + byte_of(text.substr(from), last - first)};
}

template <bool kEnd>
Value begins(Interpreter& in, const Value& self, Bound& bound, const Node& at) {
  const auto [from, to] = bounds(in, self.text().view(), bound[1], bound[2], at);
  if (from > to) return Value::of(false);
  const std::string_view part = self.text().view().substr(from, to - from);
  const auto fits = [&](const Value& with) {
    const std::string_view text = string_of(in, with, kEnd ? "endswith" : "startswith", at);
    if (!in.spend(std::ssize(text) / 64, at)) return false;
    return kEnd ? part.ends_with(text) : part.starts_with(text);
  };
  if (bound[0].is(Kind::List) && bound[0].list().form == Form::Tuple) {
    const auto& all = bound[0].list().items;
    return Value::of(std::any_of(all.begin(), all.end(), fits));
  }
  return Value::of(fits(bound[0]));
}

template <bool kRight, bool kMust>
Value find(Interpreter& in, const Value& self, Bound& bound, const Node& at) {
  const std::string_view what = string_of(in, bound[0], "find", at), all = self.text().view();
  const auto [from, to] = bounds(in, all, bound[1], bound[2], at);
  const std::string_view part = from > to ? std::string_view() : all.substr(from, to - from);
  if (!in.spend_search(part, what, at)) return {};
  const size_t found = from > to ? part.npos : kRight ? find_last_in(part, what) : find_in(part, what);
  if (found != part.npos) return Value::of(count_characters(all.substr(0, from + found)));
  if (kMust) return in.fail(at, "index: the string is not there");
  return Value::of(int64_t{-1});
}

Value count(Interpreter& in, const Value& self, Bound& bound, const Node& at) {
  const std::string_view what = string_of(in, bound[0], "count", at);
  const auto [from, to] = bounds(in, self.text().view(), bound[1], bound[2], at);
  if (from > to) return Value::of(int64_t{0});
  const std::string_view part = self.text().view().substr(from, to - from);
  if (what.empty()) return Value::of(count_characters(part) + 1);
  int64_t times = 0;
  if (!in.spend_search(part, what, at)) return {};
  for (size_t i = find_in(part, what); i != part.npos; i = find_in(part, what, i + what.size())) ++times;
  if (!in.spend(times / 4, at)) return {};
  return Value::of(times);
}

Value replace(Interpreter& in, const Value& self, Bound& bound, const Node& at) {
  const std::string_view from = string_of(in, bound[0], "replace", at);
  string_of(in, bound[1], "replace", at);
  const int64_t most = integer_of(in, bound[2], -1, "replace", at);
  if (in.failed()) return {};
  const Text to = self.str().markup && !bound[1].str().markup ? escaped(bound[1].text()) : bound[1].text();
  // Each place may become longer.
  if (!in.spend_search(self.text().view(), from, at) ||
      !in.spend(
          std::ssize(self.text().bytes()) *
              (1 + (from.empty() ? std::ssize(to.bytes()) : std::ssize(to.bytes()) / std::ssize(from))) / 16,
          at))
    return {};
  return in.string(replaced(self.text(), from, to, most), self.str().markup);
}

Value join(Interpreter& in, const Value& self, Bound& bound, const Node& at) {
  Text out;
  bool first = true;
  for (const Value& item : in.items_of(bound[0], at)) {
    if (!item.is_string()) return in.fail(at, "join: a {} is no string", type_name(item));
    if (!std::exchange(first, false)) out.append(self.text());
    out.append(self.str().markup && !item.str().markup ? escaped(item.text()) : item.text());
    if (!in.spend(1 + std::ssize(self.text().bytes()) / 16, at)) return {};
  }
  return in.string(std::move(out), self.str().markup);
}

template <Case kTo>
Value cased(Interpreter& in, const Value& self, Bound&, const Node&) {
  return in.string(in_case(self.text(), kTo), self.str().markup);
}

Value capitalize(Interpreter& in, const Value& self, Bound&, const Node&) {
  return in.string(capitalized(self.text()), self.str().markup);
}

Value swap_case(Interpreter& in, const Value& self, Bound&, const Node& at) {
  Text out;
  if (!in.has_room_for_places(self.text().view(), at)) return {};
  const auto places = boundaries(self.text().view());
  for (size_t i = 0; i + 1 < places.size(); ++i) {
    const Text one = self.text().slice(places[i], places[i + 1]);
    out.append(in_case(one, is_upper(utf8_at(one.view(), 0)) ? Case::Lower : Case::Upper));
  }
  return in.string(std::move(out), self.str().markup);
}

// Whether there are characters, and all of them are such.
template <bool (*kIs)(uint32_t)>
Value all_are(Interpreter&, const Value& self, Bound&, const Node&) {
  const std::string_view text = self.text().view();
  bool all = !text.empty();
  for (size_t i = 0; all && i < text.size(); i += size_t(utf8_length(text[i]))) all = kIs(utf8_at(text, i));
  return Value::of(all);
}
bool is_letter_or_number(uint32_t code) {
  return is_letter(code) || is_numeric(code);
}
template <bool (*kIs)(uint32_t), bool (*kNot)(uint32_t)>
Value all_cased_are(Interpreter&, const Value& self, Bound&, const Node&) {
  const std::string_view text = self.text().view();
  bool some = false;
  for (size_t i = 0; i < text.size(); i += size_t(utf8_length(text[i]))) {
    if (kNot(utf8_at(text, i))) return Value::of(false);
    some = some || kIs(utf8_at(text, i));
  }
  return Value::of(some);
}

// 1: on the left, 2: on the right, 3: on both sides.
template <int kSides>
Value padded(Interpreter& in, const Value& self, Bound& bound, const Node& at) {
  const int64_t width = integer_of(in, bound[0], 0, "a width", at),
                length = count_characters(self.text().view());
  Text fill = plain(" ");
  if (!bound[1].is(Kind::Undefined)) {
    string_of(in, bound[1], "fillchar", at);
    if (!in.failed()) fill = bound[1].text();
    if (count_characters(fill.view()) != 1) return in.fail(at, "fillchar: one character is expected");
  }
  const int64_t missing = std::max<int64_t>(0, width - length);
  if (!in.spend(missing / 4, at)) return {};
  const int64_t left = kSides == 1 ? missing : kSides == 2 ? 0 : missing / 2 + (missing & width & 1);
  Text out;
  for (int64_t i = 0; i < left; ++i) out.append(fill);
  out.append(self.text());
  for (int64_t i = left; i < missing; ++i) out.append(fill);
  return in.string(std::move(out), self.str().markup);
}

Value fill_zeros(Interpreter& in, const Value& self, Bound& bound, const Node& at) {
  const int64_t missing = integer_of(in, bound[0], 0, "zfill", at) - count_characters(self.text().view());
  if (!in.spend(std::max<int64_t>(0, missing) / 4, at)) return {};
  const std::string_view text = self.text().view();
  const size_t sign = text.starts_with('+') || text.starts_with('-') ? 1 : 0;
  Text out = self.text().slice(0, sign);
  for (int64_t i = 0; i < missing; ++i) out.append("0", kTemplate);
  out.append(self.text(), sign, text.size());
  return in.string(std::move(out), self.str().markup);
}

template <bool kEnd>
Value without(Interpreter& in, const Value& self, Bound& bound, const Node& at) {
  const std::string_view what = string_of(in, bound[0], "removeprefix", at), text = self.text().view();
  if (kEnd ? !text.ends_with(what) : !text.starts_with(what)) return self;
  return in.string(
      kEnd ? self.text().slice(0, text.size() - what.size()) : self.text().slice(what.size(), text.size()),
      self.str().markup);
}

constexpr Method kStrings[] = {
    {"capitalize", {}, capitalize},
    {"casefold", {}, cased<Case::Fold>},
    {"center", {{"width", "fillchar"}, 1}, padded<3>},
    {"count", {{"sub", "start", "end"}, 1}, count},
    {"encode"},
    {"endswith", {{"prefix", "start", "end"}, 1}, begins<true>},
    {"expandtabs"},
    {"find", {{"sub", "start", "end"}, 1}, find<false, false>},
    {"format"},  // call_method() has it
    {"format_map"},
    {"index", {{"sub", "start", "end"}, 1}, find<false, true>},
    {"isalnum", {}, all_are<is_letter_or_number>},
    {"isalpha", {}, all_are<is_letter>},
    {"isascii",
     {},
     [](Interpreter&, const Value& self, Bound&, const Node&) {
       return Value::of(is_ascii(self.text().view()));
     }},
    {"isdecimal", {}, all_are<is_decimal>},
    {"isdigit", {}, all_are<is_digit>},
    {"isidentifier"},
    {"islower", {}, all_cased_are<is_lower, is_upper>},
    {"isnumeric", {}, all_are<is_numeric>},
    {"isprintable", {}, all_are<is_printable>},
    {"isspace", {}, all_are<is_space>},
    {"istitle"},
    {"isupper", {}, all_cased_are<is_upper, is_lower>},
    {"join", {{"iterable"}, 1}, join},
    {"ljust", {{"width", "fillchar"}, 1}, padded<2>},
    {"lower", {}, cased<Case::Lower>},
    {"lstrip", {{"chars"}}, strip<true, false>},
    {"maketrans"},
    {"partition", {{"sep"}, 1}, partition<false>},
    {"removeprefix", {{"prefix"}, 1}, without<false>},
    {"removesuffix", {{"prefix"}, 1}, without<true>},
    {"replace", {{"old", "new", "count"}, 2}, replace},
    {"rfind", {{"sub", "start", "end"}, 1}, find<true, false>},
    {"rindex", {{"sub", "start", "end"}, 1}, find<true, true>},
    {"rjust", {{"width", "fillchar"}, 1}, padded<1>},
    {"rpartition", {{"sep"}, 1}, partition<true>},
    {"rsplit", {{"sep", "maxsplit"}}, split<true>},
    {"rstrip", {{"chars"}}, strip<false, true>},
    {"split", {{"sep", "maxsplit"}}, split<false>},
    {"splitlines", {{"keepends"}}, split_lines},
    {"startswith", {{"prefix", "start", "end"}, 1}, begins<false>},
    {"strip", {{"chars"}}, strip<true, true>},
    {"swapcase", {}, swap_case},
    {"title", {}, cased<Case::Title>},
    {"translate"},
    {"upper", {}, cased<Case::Upper>},
    {"zfill", {{"width"}, 1}, fill_zeros},
};

template <int kWhat>  // 1: keys, 2: values, 3: both
Value members(Interpreter& in, const Value& self, Bound&, const Node& at) {
  std::vector<Value> items;
  if (!in.spend(std::ssize(self.dict().members), at)) return {};
  for (const auto& [key, value] : self.dict().members)
    items.push_back(kWhat == 1 ? key : kWhat == 2 ? value : in.list({key, value}, Form::Tuple, at));
  return in.list(std::move(items), Form::Items, at);
}

Value get(Interpreter& in, const Value& self, Bound& bound, const Node& at) {
  if (!in.spend(self.dict().steps_to_find(bound[0]), at)) return {};
  if (!hashable(bound[0])) return in.fail(at, "get: a {} cannot be a key", type_name(bound[0]));
  const Value* found = self.dict().find(bound[0]);
  if (found != nullptr) return *found;
  return bound.has[1] ? bound[1] : Value::none();
}

Value copy(Interpreter&, const Value& self, Bound&, const Node&) {
  return self;
}

// Those that change a dictionary or a list are none of the sandbox's, but attributes they are.
constexpr Method kDicts[] = {{"copy", {}, copy},
                             {"fromkeys"},
                             {"get", {{"key", "default"}, 1}, get},
                             {"items", {}, members<3>},
                             {"keys", {}, members<1>},
                             {"values", {}, members<2>}};

Value list_index(Interpreter& in, const Value& self, Bound& bound, const Node& at) {
  const auto& items = self.list().items;
  if (!in.spend(std::ssize(items), at)) return {};
  const auto it =
      std::find_if(items.begin(), items.end(), [&](const Value& v) { return in.same(v, bound[0], at); });
  return it == items.end() ? in.fail(at, "index: the value is not there")
                           : Value::of(int64_t(it - items.begin()));
}
Value list_count(Interpreter& in, const Value& self, Bound& bound, const Node& at) {
  const auto& items = self.list().items;
  if (!in.spend(std::ssize(items), at)) return {};
  return Value::of(int64_t(
      std::count_if(items.begin(), items.end(), [&](const Value& v) { return in.same(v, bound[0], at); })));
}

constexpr Method kLists[] = {
    {"copy", {}, copy}, {"count", {{"value"}, 1}, list_count}, {"index", {{"value"}, 1}, list_index}};

std::span<const Method> methods_of(const Value& value) {
  if (value.is_string()) return kStrings;
  if (value.is(Kind::Dict)) return kDicts;
  if (value.is(Kind::List) && value.list().has_index()) {
    // Tuples have no copy().
    return value.list().form == Form::List ? std::span<const Method>(kLists)
                                           : std::span<const Method>(kLists).subspan(1);
  }
  return {};
}

const Method* method_of(const Value& value, std::string_view name) {
  const auto methods = methods_of(value);
  const auto it =
      std::find_if(methods.begin(), methods.end(), [&](const Method& method) { return method.name == name; });
  return it == methods.end() ? nullptr : &*it;
}

}  // namespace

bool has_method(const Value& object, std::string_view name) {
  return method_of(object, name) != nullptr;
}

Value call_method(Interpreter& in, const Value& self, std::string_view name, Arguments arguments,
                  const Node& at) {
  const Method* method = method_of(self, name);
  const int64_t bytes = self.is_string() ? std::ssize(self.text().bytes()) : 0;
  if (!in.spend(1 + bytes / 32, at)) return {};
  if (self.is_string() && name == "format") return format_braces(in, self, arguments, at);
  if (method == nullptr || method->call == nullptr)
    return in.fail(at, "{} of a {} is not known", name, type_name(self));
  Bound bound;
  return in.bind(arguments, method->parameters, bound, name, at) ? method->call(in, self, bound, at)
                                                                 : Value();
}

}  // namespace sluice::core::jinja
