// SPDX-License-Identifier: Apache-2.0
// Python's ways to put values into text: '%s' % x, '{}'.format(x), and strftime() of a day.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "jinja/interpreter.h"
#include "tokenizer/code_set.h"

namespace sluice::core::jinja {
namespace {

constexpr int64_t kMostWidth = 100'000;

// The specification between % and the letter, or behind the colon of {}.
struct Spec {
  std::string fill = " ";
  char align = 0, sign = '-', type = 0;
  bool alternate = false, zero = false, comma = false, underscore = false;
  int64_t width = 0, precision = -1;

  int64_t steps() const { return (width + std::max<int64_t>(0, precision)) / 4; }
};

// A number at `at`, which is left behind it; -1: there is none, or it is too large.
int64_t number_at(std::string_view text, size_t& at) {
  int64_t number = 0;
  const size_t begin = at;
  for (; at < text.size() && is_digit_char(text[at]); ++at)
    number = std::min(kMostWidth + 1, number * 10 + (text[at] - '0'));
  return at == begin || number > kMostWidth ? -1 : number;
}

void pad(Text& out, const Text& body, const Spec& spec, char align, size_t sign_bytes = 0) {
  const int64_t missing = std::max<int64_t>(0, spec.width - count_characters(body.view()));
  const auto fill = [&](int64_t times) {
    for (int64_t i = 0; i < times; ++i) out.append(spec.fill, kTemplate);
  };
  const int64_t before = align == '>' || align == '=' ? missing : align == '^' ? missing / 2 : 0;
  if (align == '=') {
    out.append(body, 0, sign_bytes);
    fill(before);
    out.append(body, sign_bytes, body.size());
    return;
  }
  fill(before);
  out.append(body);
  fill(missing - before);
}

std::string grouped(std::string digits, char by, size_t every) {
  const size_t end = std::min(digits.size(), digits.find_first_not_of("0123456789abcdefABCDEF"));
  for (size_t at = end; at > every;) {
    at -= every;
    digits.insert(at, 1, by);
  }
  return digits;
}

// Digits of a float without its sign; empty: the type is not known.
std::string real_digits(double value, char type, int64_t precision, bool alternate) {
  if (std::isnan(value)) return type == 'F' || type == 'E' || type == 'G' ? "NAN" : "nan";
  if (std::isinf(value)) return type == 'F' || type == 'E' || type == 'G' ? "INF" : "inf";
  const auto places = int(precision < 0 ? 6 : precision);
  switch (type) {
    case 'f':
    case 'F':
      return alternate ? fmt::format("{:#.{}f}", value, places) : fmt::format("{:.{}f}", value, places);
    case 'e':
      return alternate ? fmt::format("{:#.{}e}", value, places) : fmt::format("{:.{}e}", value, places);
    case 'E':
      return alternate ? fmt::format("{:#.{}E}", value, places) : fmt::format("{:.{}E}", value, places);
    case 'g':
      return alternate ? fmt::format("{:#.{}g}", value, places) : fmt::format("{:.{}g}", value, places);
    case 'G':
      return alternate ? fmt::format("{:#.{}G}", value, places) : fmt::format("{:.{}G}", value, places);
    case '%':
      return fmt::format("{:.{}f}%", value * 100, places);
    case 0: {
      if (precision < 0) return real_text(value);
      std::string text = fmt::format("{:.{}g}", value, int(std::max<int64_t>(1, precision)));
      if (text.find_first_of(".e") == text.npos) text += ".0";
      return text;
    }
    default:
      return {};
  }
}

std::string integer_digits(uint64_t value, char type, bool alternate) {
  switch (type) {
    case 0:
    case 'd':
    case 'i':
    case 'u':
    case 'n':
      return fmt::format("{}", value);
    case 'x':
      return alternate ? fmt::format("{:#x}", value) : fmt::format("{:x}", value);
    case 'X':
      return alternate ? fmt::format("{:#X}", value) : fmt::format("{:X}", value);
    case 'o':
      return (alternate ? "0o" : "") + fmt::format("{:o}", value);
    case 'b':
      return alternate ? fmt::format("{:#b}", value) : fmt::format("{:b}", value);
    default:
      return {};
  }
}

// A number by its spec. False: it cannot be written so.
bool append_number(const Value& value, const Spec& spec, Text& out) {
  std::string digits;
  bool negative = false;
  const bool letters = spec.type == 'f' || spec.type == 'F' || spec.type == 'e' || spec.type == 'E' ||
                       spec.type == 'g' || spec.type == 'G' || spec.type == '%';
  if (value.is(Kind::Float) || letters) {
    const double real = value.as_real();
    negative = std::signbit(real) && !std::isnan(real);
    digits = real_digits(std::abs(real), spec.type, spec.precision, spec.alternate);
  } else {
    if (spec.precision >= 0) return false;
    const int64_t integer = value.as_integer();
    negative = integer < 0;
    const uint64_t size = negative ? 0 - uint64_t(integer) : uint64_t(integer);
    digits = integer_digits(size, spec.type, spec.alternate);
  }
  if (digits.empty()) return false;
  if (spec.comma) digits = grouped(std::move(digits), ',', 3);
  if (spec.underscore)
    digits =
        grouped(std::move(digits), '_', spec.type == 'x' || spec.type == 'X' || spec.type == 'b' ? 4 : 3);
  const std::string sign = negative ? "-" : spec.sign == '+' ? "+" : spec.sign == ' ' ? " " : "";
  pad(out, Text(sign + digits, value.origin), spec,
      spec.align != 0 ? spec.align
      : spec.zero     ? '='
                      : '>',
      sign.size());
  return true;
}

void append_string(Text text, const Spec& spec, char align, Text& out) {
  if (spec.precision >= 0 && count_characters(text.view()) > spec.precision)
    text = text.slice(0, byte_of(text.view(), spec.precision));
  pad(out, text, spec, spec.align != 0 ? spec.align : align);
}

// [[fill]align][sign][#][0][width][,][.precision][type]
bool parse_spec(std::string_view text, Spec& spec) {
  size_t at = 0;
  const auto is_align = [&](size_t i) {
    return i < text.size() && std::string_view("<>=^").find(text[i]) != std::string_view::npos;
  };
  const size_t first = text.empty() ? 0 : byte_of(text, 1);
  if (first > 0 && is_align(first)) {
    spec.fill = text.substr(0, first);
    spec.align = text[first];
    at = first + 1;
  } else if (is_align(0)) {
    spec.align = text[at++];
  }
  if (at < text.size() && (text[at] == '+' || text[at] == '-' || text[at] == ' ')) spec.sign = text[at++];
  if (at < text.size() && text[at] == '#') {
    spec.alternate = true;
    ++at;
  }
  if (at < text.size() && text[at] == '0') {
    spec.zero = true;
    if (spec.align == 0) spec.fill = "0";
    ++at;
  }
  if (at < text.size() && is_digit_char(text[at])) {
    spec.width = number_at(text, at);
    if (spec.width < 0) return false;
  }
  if (at < text.size() && (text[at] == ',' || text[at] == '_'))
    (text[at++] == ',' ? spec.comma : spec.underscore) = true;
  if (at < text.size() && text[at] == '.') {
    spec.precision = number_at(text, ++at);
    if (spec.precision < 0) return false;
  }
  if (at < text.size()) spec.type = text[at++];
  return at == text.size();
}

}  // namespace

Value format_percent(Interpreter& in, const Value& format, const Value& values, const Node& at) {
  const Text& text = format.text();
  const std::string_view bytes = text.view();
  const bool tuple = values.is(Kind::List) && values.list().form == List::Form::Tuple;
  std::vector<Value> given = tuple ? values.list().items : std::vector<Value>{values};
  size_t next = 0;
  bool named = false;
  Text out;
  for (size_t i = 0; i < bytes.size() && !in.failed(); ++i) {
    const size_t begin = i;
    if (bytes[i] != '%') {
      const size_t end = std::min(bytes.size(), bytes.find('%', i));
      out.append(text, begin, end);
      i = end - 1;
      continue;
    }
    ++i;
    Spec spec;
    std::optional<Value> value;
    if (i < bytes.size() && bytes[i] == '(') {
      const size_t close = bytes.find(')', i);
      if (close == bytes.npos || !values.is(Kind::Dict)) return in.fail(at, "%: names need a dictionary");
      const Value* found = values.dict().find(bytes.substr(i + 1, close - i - 1));
      if (found == nullptr) return in.fail(at, "%: there is no '{}'", bytes.substr(i + 1, close - i - 1));
      value = *found;
      named = true;
      i = close + 1;
    }
    for (; i < bytes.size() && std::string_view("-+ #0").find(bytes[i]) != std::string_view::npos; ++i) {
      if (bytes[i] == '-') spec.align = '<';
      if (bytes[i] == '+' || (bytes[i] == ' ' && spec.sign != '+')) spec.sign = bytes[i];
      if (bytes[i] == '#') spec.alternate = true;
      if (bytes[i] == '0') spec.zero = true;
    }
    if (i < bytes.size() && is_digit_char(bytes[i])) spec.width = number_at(bytes, i);
    if (i < bytes.size() && bytes[i] == '.') {
      ++i;
      spec.precision = i < bytes.size() && is_digit_char(bytes[i]) ? number_at(bytes, i) : 0;
    }
    if (i >= bytes.size() || spec.width < 0) return in.fail(at, "%: a format that is not whole");
    if (!in.spend(spec.steps(), at)) return {};
    spec.type = bytes[i];
    if (spec.type == '%') {
      out.append("%", text.origin_at(begin));
      continue;
    }
    if (!value) {
      if (next >= given.size()) return in.fail(at, "%: more is written than there are values");
      value = given[next++];
    }
    if (spec.type == 's' || spec.type == 'r') {
      Text body;
      if (spec.type == 's') {
        body = in.text_of(*value, at);
      } else if (!in.spend(steps_of(*value), at) || !append_repr(*value, body)) {
        return in.fail(at, "%r: a {} has no text", type_name(*value));
      }
      if (format.str().markup && !(value->is_string() && value->str().markup)) body = escaped(body);
      append_string(std::move(body), spec, '>', out);
      continue;
    }
    if (std::string_view("diuxXoeEfFgG").find(spec.type) == std::string_view::npos)
      return in.fail(at, "%: the format {} is not known", bytes.substr(i, size_t(utf8_length(bytes[i]))));
    if (!value->is_number()) return in.fail(at, "%{}: a {} is no number", spec.type, type_name(*value));
    Value number = *value;
    if (number.is(Kind::Bool)) number = Value::of(number.as_integer(), number.origin);
    if (std::string_view("diu").find(spec.type) != std::string_view::npos && number.is(Kind::Float)) {
      if (!(std::abs(number.real) < 9e18)) return in.fail(at, "%d: a float that is no integer");
      number = Value::of(int64_t(number.real), number.origin);
    }
    if (spec.zero && spec.align == 0) spec.fill = "0";
    if (std::string_view("diu").find(spec.type) != std::string_view::npos) spec.precision = -1;
    if (!append_number(number, spec, out))
      return in.fail(at, "%: the format {} is not known for a {}", spec.type, type_name(*value));
  }
  if (!named && tuple && next < given.size()) return in.fail(at, "%: more values than are written");
  if (!named && !tuple && next == 0 && !values.is(Kind::Dict) && !(values.is(Kind::List)))
    return in.fail(at, "%: more values than are written");
  return in.string(std::move(out), format.str().markup);
}

Value format_braces(Interpreter& in, const Value& format, const Arguments& values, const Node& at) {
  const Text& text = format.text();
  const std::string_view bytes = text.view();
  Text out;
  size_t next = 0;
  for (size_t i = 0; i < bytes.size() && !in.failed(); ++i) {
    const char c = bytes[i];
    if (c != '{' && c != '}') {
      const size_t end = std::min(bytes.size(), bytes.find_first_of("{}", i));
      out.append(text, i, end);
      i = end - 1;
      continue;
    }
    if (i + 1 < bytes.size() && bytes[i + 1] == c) {
      out.append(text, i, i + 1);
      ++i;
      continue;
    }
    const size_t close = c == '{' ? bytes.find('}', i) : bytes.npos;
    if (close == bytes.npos) return in.fail(at, "format: a single '{}'", c);
    const std::string_view field = bytes.substr(i + 1, close - i - 1);
    if (field.find('{') != field.npos) return in.fail(at, "format: fields in fields are not known");
    i = close;
    const size_t colon = std::min(field.size(), field.find(':'));
    std::string_view what = field.substr(0, colon);
    const std::string_view how = colon < field.size() ? field.substr(colon + 1) : std::string_view();
    char conversion = 0;
    if (what.size() >= 2 && what[what.size() - 2] == '!') {
      conversion = what.back();
      what.remove_suffix(2);
    }
    const size_t name_end = std::min(what.size(), what.find_first_of(".["));
    const std::string_view name = what.substr(0, name_end);
    std::string_view path = what.substr(name_end);
    Value value;
    if (name.empty() || is_digit_char(name[0])) {
      size_t place = 0, begin = 0;
      if (name.empty()) {
        place = next++;
      } else {
        place = size_t(number_at(name, begin));
      }
      if (place >= values.places.size()) return in.fail(at, "format: there is no value {}", place);
      value = values.places[place];
    } else {
      const auto found = std::find_if(values.names.begin(), values.names.end(),
                                      [&](const auto& v) { return v.first == name; });
      if (found == values.names.end()) return in.fail(at, "format: there is no '{}'", name);
      value = found->second;
    }
    while (!path.empty() && !in.failed()) {
      if (path[0] == '.') {
        const size_t end = std::min(path.size(), path.find_first_of(".[", 1));
        value = in.attribute(value, path.substr(1, end - 1), at);
        path.remove_prefix(end);
      } else {
        const size_t end = path.find(']');
        if (end == path.npos) return in.fail(at, "format: '[' without its end");
        const std::string_view key = path.substr(1, end - 1);
        size_t begin = 0;
        const bool number = !key.empty() && key.find_first_not_of("0123456789") == key.npos;
        value = in.item(value, number ? Value::of(number_at(key, begin)) : Value::string(plain(key)), at);
        path.remove_prefix(end + 1);
      }
    }
    if (in.failed()) return {};
    Spec spec;
    if (!parse_spec(how, spec)) return in.fail(at, "format: '{:.40}' is not known", how);
    if (!in.spend(spec.steps(), at)) return {};
    if (conversion == 0 && value.is_number() && !value.is(Kind::Bool)) {
      if (!append_number(value, spec, out))
        return in.fail(at, "format: '{:.40}' is not known for a {}", how, type_name(value));
      continue;
    }
    if (conversion == 0 && value.is(Kind::Bool) && !how.empty()) {
      if (spec.type == 's' || !append_number(Value::of(value.as_integer(), value.origin), spec, out))
        return in.fail(at, "format: '{:.40}' is not known for a bool", how);
      continue;
    }
    if (!how.empty() && conversion == 0 && !value.is_string())
      return in.fail(at, "format: a {} takes no format", type_name(value));
    if (spec.type != 0 && spec.type != 's')
      return in.fail(at, "format: '{:.40}' is not known for a str", how);
    Text body;
    if (conversion == 'r' || conversion == 'a') {
      if (conversion == 'a' || !in.spend(steps_of(value), at) || !append_repr(value, body))
        return in.fail(at, "format: !{} is not known", conversion);
    } else {
      body = in.text_of(value, at);
    }
    if (format.str().markup && !(value.is_string() && value.str().markup)) body = escaped(body);
    append_string(std::move(body), spec, '<', out);
  }
  return in.string(std::move(out), format.str().markup);
}

bool format_day(std::string_view format, const Day& day, std::string& out, char& bad) {
  constexpr std::string_view kMonths[] = {"January",   "February", "March",    "April",
                                          "May",       "June",     "July",     "August",
                                          "September", "October",  "November", "December"};
  constexpr std::string_view kDays[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                        "Thursday", "Friday", "Saturday"};
  // Sakamoto's method.
  constexpr int kShift[] = {0, 3, 2, 5, 0, 3, 5, 1, 4, 6, 2, 4};
  const int y = day.year - (day.month < 3 ? 1 : 0);
  const int week_day = (y + y / 4 - y / 100 + y / 400 + kShift[day.month - 1] + day.day) % 7;
  constexpr int kBefore[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
  const bool leap = day.month > 2 && (day.year % 4 == 0 && (day.year % 100 != 0 || day.year % 400 == 0));
  const int year_day = kBefore[day.month - 1] + day.day + (leap ? 1 : 0);
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      out += format[i];
      continue;
    }
    char letter = format[++i];
    const bool bare = letter == '-' && i + 1 < format.size();  // without zeros before
    if (bare) letter = format[++i];
    const auto two = [&](int number) {
      out += bare ? fmt::format("{}", number) : fmt::format("{:02}", number);
    };
    switch (letter) {
      case 'Y':
        out += fmt::format("{}", day.year);
        break;
      case 'y':
        two(day.year % 100);
        break;
      case 'm':
        two(day.month);
        break;
      case 'd':
        two(day.day);
        break;
      case 'e':
        out += bare ? fmt::format("{}", day.day) : fmt::format("{:2}", day.day);
        break;
      case 'B':
        out += kMonths[day.month - 1];
        break;
      case 'b':
      case 'h':
        out += kMonths[day.month - 1].substr(0, 3);
        break;
      case 'A':
        out += kDays[week_day];
        break;
      case 'a':
        out += kDays[week_day].substr(0, 3);
        break;
      case 'w':
        out += fmt::format("{}", week_day);
        break;
      case 'u':
        out += fmt::format("{}", week_day == 0 ? 7 : week_day);
        break;
      case 'j':
        out += bare ? fmt::format("{}", year_day) : fmt::format("{:03}", year_day);
        break;
      case 'H':
      case 'M':
      case 'S':
        two(0);
        break;
      case 'I':
        two(12);
        break;
      case 'p':
        out += "AM";
        break;
      case 'f':
        out += "000000";
        break;
      case 'Z':
      case 'z':
        break;
      case 'F':
        out += fmt::format("{}-{:02}-{:02}", day.year, day.month, day.day);
        break;
      case 'T':
      case 'X':
        out += "00:00:00";
        break;
      case 'R':
        out += "00:00";
        break;
      case 'D':
      case 'x':
        out += fmt::format("{:02}/{:02}/{:02}", day.month, day.day, day.year % 100);
        break;
      case 'c':
        out += fmt::format("{} {} {:2} 00:00:00 {}", kDays[week_day].substr(0, 3),
                           kMonths[day.month - 1].substr(0, 3), day.day, day.year);
        break;
      case 'n':
        out += '\n';
        break;
      case 't':
        out += '\t';
        break;
      case '%':
        out += '%';
        break;
      default:
        bad = letter;
        return false;
    }
  }
  return true;
}

}  // namespace sluice::core::jinja
