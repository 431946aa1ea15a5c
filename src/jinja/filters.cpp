// SPDX-License-Identifier: Apache-2.0
#include "jinja/filters.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "jinja/interpreter.h"
#include "tokenizer/code_set.h"

namespace sluice::core::jinja {
namespace {

using Form = List::Form;

int64_t integer_or(Interpreter& in, const Value& value, int64_t otherwise, const Node& at) {
  if (value.is(Kind::Undefined) || value.is(Kind::None)) return otherwise;
  if (!value.is_integer()) in.fail(at, "{}: a {} is no integer", at.name, type_name(value));
  return value.as_integer();
}

Value iterator(Interpreter& in, std::vector<Value> items, const Node& at) {
  return in.list(std::move(items), Form::Iterator, at);
}

Value absolute(Interpreter& in, Value subject, Bound&, const Node& at) {
  if (subject.is(Kind::Float)) return Value::of(std::abs(subject.real));
  if (!subject.is_integer() || subject.as_integer() == INT64_MIN)
    return in.fail(at, "abs: a {} has no absolute value", type_name(subject));
  return Value::of(std::abs(subject.as_integer()));
}

Value attribute(Interpreter& in, Value subject, Bound& bound, const Node& at) {
  // Attributes alone: the keys of a dictionary are none.
  if (subject.is(Kind::Dict)) return Value();
  return bound[0].is_string() ? in.attribute(subject, bound[0].text().view(), at) : Value();
}

template <Case kTo>
Value cased(Interpreter& in, Value subject, Bound&, const Node& at) {
  const Value text = in.string_of(subject, at);
  return in.failed() ? Value() : in.string(in_case(text.text(), kTo), text.str().markup);
}
Value capitalize(Interpreter& in, Value subject, Bound&, const Node& at) {
  const Value text = in.string_of(subject, at);
  return in.failed() ? Value() : in.string(capitalized(text.text()), text.str().markup);
}
// Words begin behind white space, hyphens and opening brackets.
Value title(Interpreter& in, Value subject, Bound&, const Node& at) {
  const Value value = in.string_of(subject, at);
  if (in.failed()) return {};
  const Text& text = value.text();
  if (!in.has_room_for_places(text.view(), at)) return {};
  const auto places = boundaries(text.view());
  Text out;
  bool begins = true;
  for (size_t i = 0; i + 1 < places.size(); ++i) {
    const Text one = text.slice(places[i], places[i + 1]);
    const uint32_t code = utf8_at(one.view(), 0);
    const bool breaks =
        is_space(code) || code == '-' || code == '(' || code == '{' || code == '[' || code == '<';
    out.append(breaks ? one : in_case(one, begins ? Case::Upper : Case::Lower));
    begins = breaks;
  }
  return in.string(std::move(out));
}

Value trim(Interpreter& in, Value subject, Bound& bound, const Node& at) {
  const Value value = in.string_of(subject, at);
  if (in.failed()) return {};
  const bool set = bound[0].is_string();
  const std::string_view chars = set ? bound[0].text().view() : std::string_view();
  if (!in.spend(product(std::ssize(value.text().view()), std::ssize(chars)) / 64, at)) return {};
  const Stripped rest = stripped(value.text().view(), set ? &chars : nullptr, true, true);
  return in.string(value.text().slice(rest.begin, rest.end), value.str().markup);
}

Value center(Interpreter& in, Value subject, Bound& bound, const Node& at) {
  const Value text = in.string_of(subject, at);
  if (bound[0].is(Kind::Undefined)) bound[0] = Value::of(int64_t{80});
  return in.failed() ? Value() : call_method(in, text, "center", {{bound[0]}, {}}, at);
}

Value length(Interpreter& in, Value subject, Bound&, const Node& at) {
  return Value::of(in.length_of(subject, at));
}

Value fallback(Interpreter& in, Value subject, Bound& bound, const Node&) {
  if (!bound.has[0] && !bound.has[1]) bound[0] = in.string({});
  return subject.is(Kind::Undefined) || (is_true(bound[1]) && !is_true(subject)) ? bound[0] : subject;
}

// Strings in lower case, unless case matters.
Value key_of(Interpreter& in, Value value, bool case_matters) {
  return case_matters || !value.is_string() ? value : in.string(in_case(value.text(), Case::Lower));
}

// An item's attribute, of which parts stand between dots; undefined `path`: the item itself.
Value part_of(Interpreter& in, const Value& item, const Value& path, const Value& otherwise, const Node& at) {
  if (path.is(Kind::Undefined) || path.is(Kind::None)) return item;
  Value value = item;
  if (path.is_integer()) {
    value = in.item(item, path, at);
  } else if (path.is_string()) {
    std::string_view rest = path.text().view();
    while (!in.failed()) {
      const size_t dot = std::min(rest.size(), rest.find('.'));
      const std::string_view name = rest.substr(0, dot);
      int64_t index = 0;
      const bool number = !name.empty() && name.find_first_not_of("0123456789") == name.npos &&
                          std::from_chars(name.data(), name.data() + name.size(), index).ec == std::errc();
      value = in.item(value, number ? Value::of(index) : in.string(plain(name)), at);
      if (value.is(Kind::Undefined) && !otherwise.is(Kind::Undefined)) value = otherwise;
      if (dot == rest.size()) break;
      rest.remove_prefix(dot + 1);
    }
  } else {
    return in.fail(at, "{}: an attribute is a name", at.name);
  }
  return value;
}

struct Keyed {
  std::vector<Value> keys;
  Value value;
};

Value sorted(Interpreter& in, std::vector<Keyed> rows, bool reverse, const Node& at) {
  bool orders = true;
  if (!in.spend(std::ssize(rows) * 8, at)) return {};
  const auto before = [&](const Keyed& a, const Keyed& b) {
    for (size_t i = 0; i < a.keys.size(); ++i) {
      int order = 0;
      if (in.failed() || in.same(a.keys[i], b.keys[i], at)) continue;
      if (!in.ordered(a.keys[i], b.keys[i], order, at)) orders = false;
      return reverse ? order > 0 : order < 0;
    }
    return false;
  };
  std::stable_sort(rows.begin(), rows.end(), before);
  if (!orders) return in.fail(at, "{}: there are values without an order", at.name);
  std::vector<Value> items;
  for (Keyed& row : rows) items.push_back(std::move(row.value));
  return in.list(std::move(items), Form::List, at);
}

Value sort(Interpreter& in, Value subject, Bound& bound, const Node& at) {
  std::vector<Value> paths;
  if (bound[2].is_string()) {
    std::string_view rest = bound[2].text().view();
    while (true) {
      const size_t comma = std::min(rest.size(), rest.find(','));
      paths.push_back(in.string(plain(rest.substr(0, comma))));
      if (comma == rest.size()) break;
      rest.remove_prefix(comma + 1);
    }
  } else {
    paths.push_back(bound[2]);
  }
  std::vector<Keyed> rows;
  for (Value& item : in.items_of(subject, at)) {
    Keyed row;
    for (const Value& path : paths)
      row.keys.push_back(key_of(in, part_of(in, item, path, {}, at), is_true(bound[1])));
    row.value = std::move(item);
    rows.push_back(std::move(row));
    if (in.failed()) return {};
  }
  return sorted(in, std::move(rows), is_true(bound[0]), at);
}

Value sort_dict(Interpreter& in, Value subject, Bound& bound, const Node& at) {
  if (!subject.is(Kind::Dict)) return in.fail(at, "dictsort: a {} is no dictionary", type_name(subject));
  const bool by_value = bound[1].is_string() && bound[1].text().view() == "value";
  std::vector<Keyed> rows;
  for (const auto& [key, value] : subject.dict().members)
    rows.push_back(
        {{key_of(in, by_value ? value : key, is_true(bound[0]))}, in.list({key, value}, Form::Tuple, at)});
  return sorted(in, std::move(rows), is_true(bound[2]), at);
}

Value unique(Interpreter& in, Value subject, Bound& bound, const Node& at) {
  std::vector<Value> keys, items;
  for (Value& item : in.items_of(subject, at)) {
    const Value key = key_of(in, part_of(in, item, bound[1], {}, at), is_true(bound[0]));
    if (!in.spend(1 + std::ssize(keys) / 4, at)) return {};
    if (std::any_of(keys.begin(), keys.end(), [&](const Value& known) { return in.same(known, key, at); }))
      continue;
    keys.push_back(key);
    items.push_back(std::move(item));
  }
  return iterator(in, std::move(items), at);
}

template <bool kLargest>
Value extreme(Interpreter& in, Value subject, Bound& bound, const Node& at) {
  Value best, best_key;
  bool some = false;
  for (const Value& item : in.items_of(subject, at)) {
    const Value key = key_of(in, part_of(in, item, bound[1], {}, at), is_true(bound[0]));
    int order = 0;
    if (some && !in.ordered(key, best_key, order, at))
      return in.fail(at, "{}: there are values without an order", at.name);
    if (!some || (kLargest ? order > 0 : order < 0)) {
      best = item;
      best_key = key;
    }
    some = true;
  }
  return best;
}

Value escape(Interpreter& in, Value subject, Bound&, const Node& at) {
  const Value text = in.string_of(subject, at);
  if (in.failed() || text.str().markup) return text;
  return in.string(escaped(text.text()), true);
}
Value force_escape(Interpreter& in, Value subject, Bound&, const Node& at) {
  const Value text = in.string_of(subject, at);
  return in.failed() ? Value() : in.string(escaped(text.text()), true);
}
Value safe(Interpreter& in, Value subject, Bound&, const Node& at) {
  const Value text = in.string_of(subject, at);
  return in.failed() ? Value() : in.string(text.text(), true);
}
Value to_string(Interpreter& in, Value subject, Bound&, const Node& at) {
  return in.string_of(subject, at);
}

Value first(Interpreter& in, Value subject, Bound&, const Node& at) {
  // One item of an iterator is taken.
  if (subject.is(Kind::List) && subject.list().form == Form::Iterator) {
    List& list = subject.list();
    return list.next < list.items.size() ? list.items[list.next++] : Value();
  }
  if (subject.is_string() && !subject.text().empty())
    return in.string(subject.text().slice(0, byte_of(subject.text().view(), 1)), subject.str().markup);
  const std::vector<Value> items = in.items_of(subject, at);
  return items.empty() ? Value() : items.front();
}
Value last(Interpreter& in, Value subject, Bound&, const Node& at) {
  if (subject.is(Kind::List) && subject.list().form == Form::Iterator)
    return in.fail(at, "last: a generator has no last item");
  if (subject.is_string() && !subject.text().empty())
    return in.string(subject.text().slice(utf8_before(subject.text().view(), subject.text().size()),
                                          subject.text().size()),
                     subject.str().markup);
  const std::vector<Value> items = in.items_of(subject, at);
  return items.empty() ? Value() : items.back();
}

Value to_float(Interpreter&, Value subject, Bound& bound, const Node&) {
  if (subject.is_number()) return Value::of(subject.as_real());
  if (subject.is_string()) {
    const std::string_view text = subject.text().view();
    const Stripped rest = stripped(text, nullptr, true, true);
    std::string_view digits = text.substr(rest.begin, rest.end - rest.begin);
    if (digits.starts_with('+')) digits.remove_prefix(1);
    double number = 0;
    const auto [stop, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (failure == std::errc() && stop == digits.data() + digits.size() && !digits.empty())
      return Value::of(number);
  }
  return bound[0].is(Kind::Undefined) ? Value::of(0.0) : bound[0];
}

Value to_int(Interpreter& in, Value subject, Bound& bound, const Node& at) {
  const Value otherwise = bound[0].is(Kind::Undefined) ? Value::of(int64_t{0}) : bound[0];
  const auto truncated = [&](double real) {
    return std::abs(real) < 9e18 ? Value::of(int64_t(real)) : otherwise;
  };
  if (subject.is_integer()) return Value::of(subject.as_integer());
  if (subject.is(Kind::Float)) return truncated(subject.real);
  if (!subject.is_string()) return otherwise;
  const std::string_view text = subject.text().view();
  const Stripped rest = stripped(text, nullptr, true, true);
  std::string digits(text.substr(rest.begin, rest.end - rest.begin));
  std::erase(digits, '_');
  if (digits.starts_with('+')) digits.erase(0, 1);
  int64_t number = 0;
  const char* end = digits.data() + digits.size();
  const auto [stop, failure] =
      std::from_chars(digits.data(), end, number, int(integer_or(in, bound[1], 10, at)));
  if (failure == std::errc() && stop == end && !digits.empty()) return Value::of(number);
  double real = 0;
  const auto [real_stop, real_failure] = std::from_chars(digits.data(), end, real);
  return real_failure == std::errc() && real_stop == end && !digits.empty() ? truncated(real) : otherwise;
}

Value format(Interpreter& in, Value subject, Arguments arguments, const Node& at) {
  const Value text = in.string_of(subject, at);
  if (in.failed()) return {};
  if (!arguments.names.empty()) {
    std::vector<std::pair<Value, Value>> members;
    for (auto& [name, value] : arguments.names) members.emplace_back(in.string(plain(name)), value);
    return format_percent(in, text, in.dict(std::move(members), at), at);
  }
  return format_percent(in, text, in.list(std::move(arguments.places), Form::Tuple, at), at);
}

Value indent(Interpreter& in, Value subject, Bound& bound, const Node& at) {
  const Value value = in.string_of(subject, at);
  if (in.failed()) return {};
  Text step;
  if (bound[0].is_string()) {
    step = bound[0].text();
  } else {
    const int64_t width = integer_or(in, bound[0], 4, at);
    if (!in.spend(std::max<int64_t>(0, width), at)) return {};
    step = Text(std::string(size_t(std::max<int64_t>(0, width)), ' '));
  }
  // A line's end behind the text makes the last line be seen.
  Text text = value.text();
  text.append("\n", kTemplate);
  Text out;
  if (is_true(bound[1])) out.append(step);
  const std::string_view bytes = text.view();
  if (!in.has_room(std::count(bytes.begin(), bytes.end(), '\n') * int64_t(sizeof(size_t) * 2), at)) return {};
  const auto lines = lines_of(bytes, false);
  if (!in.spend(std::ssize(lines) * (1 + std::ssize(step.bytes()) / 16), at)) return {};
  for (size_t i = 0; i < lines.size(); ++i) {
    const auto [from, to] = lines[i];
    if (i > 0) out.append("\n", text.origin_at(lines[i - 1].second));
    if (i > 0 && (to > from || is_true(bound[2]))) out.append(step);
    out.append(text, from, to);
  }
  return in.string(std::move(out), value.str().markup);
}

Value join(Interpreter& in, Value subject, Bound& bound, const Node& at) {
  const Text between = bound[0].is(Kind::Undefined) ? Text() : in.text_of(bound[0], at);
  Text out;
  bool begun = false;
  for (const Value& item : in.items_of(subject, at)) {
    if (std::exchange(begun, true)) out.append(between);
    const Value part = part_of(in, item, bound[1], {}, at);
    if (in.failed() || !in.spend(1 + std::ssize(between.bytes()) / 16, at)) return {};
    out.append(in.text_of(part, at));
  }
  return in.string(std::move(out));
}

Value to_list(Interpreter& in, Value subject, Bound&, const Node& at) {
  return in.list(in.items_of(subject, at), Form::List, at);
}

Value items(Interpreter& in, Value subject, Bound&, const Node& at) {
  if (subject.is(Kind::Undefined)) return iterator(in, {}, at);
  if (!subject.is(Kind::Dict)) return in.fail(at, "items: a {} is no dictionary", type_name(subject));
  std::vector<Value> pairs;
  for (const auto& [key, value] : subject.dict().members)
    pairs.push_back(in.list({key, value}, Form::Tuple, at));
  return iterator(in, std::move(pairs), at);
}

Value map(Interpreter& in, Value subject, Arguments arguments, const Node& at) {
  std::vector<Value> out;
  if (!is_true(subject)) return iterator(in, {}, at);
  if (arguments.places.empty()) {
    Bound bound;
    if (!in.bind(arguments, {{"attribute", "default"}, 1}, bound, "map", at)) return {};
    for (const Value& item : in.items_of(subject, at)) {
      out.push_back(part_of(in, item, bound[0], bound[1], at));
      if (in.failed()) return {};
    }
    return iterator(in, std::move(out), at);
  }
  if (!arguments.places[0].is_string()) return in.fail(at, "map: the name of a filter is expected");
  const std::string name = arguments.places[0].text().bytes();
  arguments.places.erase(arguments.places.begin());
  const FilterRow* filter = find_filter(name);
  for (Value& item : in.items_of(subject, at)) {
    out.push_back(in.apply(filter, name, std::move(item), arguments, at));
    if (in.failed()) return {};
  }
  return iterator(in, std::move(out), at);
}

template <bool kAttribute, bool kKeeps>
Value select(Interpreter& in, Value subject, Arguments arguments, const Node& at) {
  if (!is_true(subject)) return iterator(in, {}, at);
  Value path;
  if (kAttribute) {
    if (arguments.places.empty()) return in.fail(at, "{}: an attribute is missing", at.name);
    path = arguments.places[0];
    arguments.places.erase(arguments.places.begin());
  }
  std::string name;
  if (!arguments.places.empty()) {
    if (!arguments.places[0].is_string()) return in.fail(at, "{}: the name of a test is expected", at.name);
    name = arguments.places[0].text().bytes();
    arguments.places.erase(arguments.places.begin());
  }
  const TestRow* test = name.empty() ? nullptr : find_test(name);
  std::vector<Value> out;
  for (Value& item : in.items_of(subject, at)) {
    const Value value = kAttribute ? part_of(in, item, path, {}, at) : item;
    if (in.failed()) return {};
    const bool passes = name.empty() ? is_true(value) : in.passes(test, name, value, arguments, at);
    if (in.failed()) return {};
    if (passes == kKeeps) out.push_back(std::move(item));
  }
  return iterator(in, std::move(out), at);
}

Value group(Interpreter& in, Value subject, Bound& bound, const Node& at) {
  std::vector<Keyed> rows;
  for (Value& item : in.items_of(subject, at)) {
    Value key = part_of(in, item, bound[0], bound[1], at);
    if (in.failed()) return {};
    rows.push_back({{key_of(in, key, is_true(bound[2]))}, in.list({key, std::move(item)}, Form::Tuple, at)});
  }
  std::vector<Value> groups, members;
  Value name;
  const Value all = sorted(in, std::move(rows), false, at);
  if (in.failed()) return {};
  const auto close = [&] {
    if (!members.empty())
      groups.push_back(in.list({name, in.list(std::exchange(members, {}), Form::List, at)}, Form::Tuple, at));
  };
  for (const Value& pair : all.list().items) {
    const Value& key = pair.list().items[0];
    if (members.empty() ||
        !in.same(key_of(in, key, is_true(bound[2])), key_of(in, name, is_true(bound[2])), at)) {
      close();
      name = key;
    }
    members.push_back(pair.list().items[1]);
  }
  close();
  return in.list(std::move(groups), Form::List, at);
}

Value replace(Interpreter& in, Value subject, Bound& bound, const Node& at) {
  const Value text = in.string(in.text_of(subject, at));
  Arguments given{{in.string(in.text_of(bound[0], at)), in.string(in.text_of(bound[1], at))}, {}};
  if (!bound[2].is(Kind::Undefined) && !bound[2].is(Kind::None)) given.places.push_back(bound[2]);
  return in.failed() ? Value() : call_method(in, text, "replace", std::move(given), at);
}

Value reverse(Interpreter& in, Value subject, Bound&, const Node& at) {
  if (subject.is_string()) {
    if (!in.has_room_for_places(subject.text().view(), at)) return {};
    const auto places = boundaries(subject.text().view());
    Text out;
    for (size_t i = places.size() - 1; i > 0; --i) out.append(subject.text(), places[i - 1], places[i]);
    return in.string(std::move(out), subject.str().markup);
  }
  std::vector<Value> items = in.items_of(subject, at);
  std::reverse(items.begin(), items.end());
  return iterator(in, std::move(items), at);
}

Value round(Interpreter& in, Value subject, Bound& bound, const Node& at) {
  const int64_t precision = integer_or(in, bound[0], 0, at);
  const std::string_view method = bound[1].is_string() ? bound[1].text().view() : "common";
  if (!subject.is_number()) return in.fail(at, "round: a {} is no number", type_name(subject));
  if (precision < 0 || precision > 300)
    return in.fail(at, "round: a precision of {} is not known", precision);
  if (method == "common") {
    if (subject.is_integer()) return Value::of(subject.as_integer());
    const std::string digits = fmt::format("{:.{}f}", subject.real, int(precision));
    double rounded = 0;
    std::from_chars(digits.data(), digits.data() + digits.size(), rounded);
    return Value::of(rounded);
  }
  const double scale = std::pow(10.0, double(precision)), scaled = subject.as_real() * scale;
  if (method != "ceil" && method != "floor") return in.fail(at, "round: {} is not known", method);
  return Value::of((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

Value sum(Interpreter& in, Value subject, Bound& bound, const Node& at) {
  Value total = bound[1].is(Kind::Undefined) ? Value::of(int64_t{0}) : bound[1];
  for (const Value& item : in.items_of(subject, at)) {
    total = in.binary(Op::Add, total, part_of(in, item, bound[0], {}, at), at);
    if (in.failed()) return {};
  }
  return total;
}

Value to_json(Interpreter& in, Value subject, Bound& bound, const Node& at) {
  JsonOptions options;
  options.ascii = is_true(bound[0]);
  options.sorted = is_true(bound[3]);
  const Value& by = bound[1];
  if (by.is_string()) {
    options.breaks = true;
    options.indent = by.text().bytes();
  } else if (by.is_integer()) {
    options.breaks = true;
    if (by.as_integer() > 100) return in.fail(at, "tojson: an indent of {}", by.as_integer());
    options.indent = std::string(size_t(std::max<int64_t>(0, by.as_integer())), ' ');
  } else if (!by.is(Kind::None) && !by.is(Kind::Undefined)) {
    return in.fail(at, "tojson: an indent that is a {}", type_name(by));
  }
  options.comma = options.breaks ? "," : ", ";
  options.colon = ": ";
  if (!bound[2].is(Kind::Undefined) && !bound[2].is(Kind::None)) {
    const std::vector<Value> two = in.items_of(bound[2], at);
    if (in.failed() || two.size() != 2 || !two[0].is_string() || !two[1].is_string())
      return in.fail(at, "tojson: separators are two strings");
    options.comma = two[0].text().bytes();
    options.colon = two[1].text().bytes();
  }
  // Separators and what stands before a line may be long; keys are sorted by some walks over them.
  const int64_t beside = std::ssize(options.comma) + std::ssize(options.colon) +
                         product(depth_of(subject), std::ssize(options.indent));
  const int64_t walks = 1 + beside / 16 + (options.sorted ? 8 : 0);
  if (!in.spend(product(steps_of(subject), walks), at)) return {};
  Text out;
  std::string why;
  if (!append_json(subject, options, 0, out, why)) return in.fail(at, "tojson: {} has no JSON", why);
  return in.string(std::move(out));
}

Value batch(Interpreter& in, Value subject, Bound& bound, const Node& at) {
  const int64_t size = integer_or(in, bound[0], 1, at);
  if (size < 1 || size > 100'000) return in.fail(at, "batch: groups of {}", size);
  std::vector<Value> rows, row;
  for (Value& item : in.items_of(subject, at)) {
    row.push_back(std::move(item));
    if (std::ssize(row) == size) rows.push_back(in.list(std::exchange(row, {}), Form::List, at));
  }
  if (!row.empty()) {
    while (std::ssize(row) < size && !bound[1].is(Kind::Undefined) && !bound[1].is(Kind::None))
      row.push_back(bound[1]);
    rows.push_back(in.list(std::move(row), Form::List, at));
  }
  return iterator(in, std::move(rows), at);
}

Value truncate(Interpreter& in, Value subject, Bound& bound, const Node& at) {
  const Value value = in.string_of(subject, at);
  const int64_t most = integer_or(in, bound[0], 255, at), leeway = integer_or(in, bound[3], 5, at);
  const Text end = bound[2].is_string() ? bound[2].text() : plain("...");
  if (in.failed()) return {};
  const std::string_view bytes = value.text().view();
  const int64_t keeps = most - count_characters(end.view());
  if (keeps < 0 || leeway < 0) return in.fail(at, "truncate: a length of {}", most);
  if (count_characters(bytes) <= most + leeway) return value;
  Text out = value.text().slice(0, byte_of(bytes, keeps));
  if (!is_true(bound[1])) {
    const size_t space = out.view().rfind(' ');
    if (space != std::string_view::npos) out = out.slice(0, space);
  }
  out.append(end);
  return in.string(std::move(out), value.str().markup);
}

constexpr FilterRow kFilters[] = {
    {"abs", {}, absolute},
    {"attr", {{"name"}, 1}, attribute},
    {"batch", {{"linecount", "fill_with"}, 1}, batch},
    {"capitalize", {}, capitalize},
    {"center", {{"width"}}, center},
    {"count", {}, length},
    {"d", {{"default_value", "boolean"}}, fallback},
    {"default", {{"default_value", "boolean"}}, fallback},
    {"dictsort", {{"case_sensitive", "by", "reverse"}}, sort_dict},
    {"e", {}, escape},
    {"escape", {}, escape},
    {"first", {}, first},
    {"float", {{"default"}}, to_float},
    {"forceescape", {}, force_escape},
    {"format", {}, nullptr, format},
    {"groupby", {{"attribute", "default", "case_sensitive"}, 1}, group},
    {"indent", {{"width", "first", "blank"}}, indent},
    {"int", {{"default", "base"}}, to_int},
    {"items", {}, items},
    {"join", {{"d", "attribute"}}, join},
    {"last", {}, last},
    {"length", {}, length},
    {"list", {}, to_list},
    {"lower", {}, cased<Case::Lower>},
    {"map", {}, nullptr, map},
    {"max", {{"case_sensitive", "attribute"}}, extreme<true>},
    {"min", {{"case_sensitive", "attribute"}}, extreme<false>},
    {"reject", {}, nullptr, select<false, false>},
    {"rejectattr", {}, nullptr, select<true, false>},
    {"replace", {{"old", "new", "count"}, 2}, replace},
    {"reverse", {}, reverse},
    {"round", {{"precision", "method"}}, round},
    {"safe", {}, safe},
    {"select", {}, nullptr, select<false, true>},
    {"selectattr", {}, nullptr, select<true, true>},
    {"sort", {{"reverse", "case_sensitive", "attribute"}}, sort},
    {"string", {}, to_string},
    {"sum", {{"attribute", "start"}}, sum},
    {"title", {}, title},
    {"tojson", {{"ensure_ascii", "indent", "separators", "sort_keys"}}, to_json},
    {"trim", {{"chars"}}, trim},
    {"truncate", {{"length", "killwords", "end", "leeway"}}, truncate},
    {"unique", {{"case_sensitive", "attribute"}}, unique},
    {"upper", {}, cased<Case::Upper>},
};

}  // namespace

const FilterRow* find_filter(std::string_view name) {
  return find_row(std::span<const FilterRow>(kFilters), name);
}

}  // namespace sluice::core::jinja
