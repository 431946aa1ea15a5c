// SPDX-License-Identifier: Apache-2.0
// Values of expressions.
#include <algorithm>
#include <cmath>

#include "jinja/interpreter.h"

namespace sluice::core::jinja {
namespace {

constexpr std::string_view kGlobals[] = {"range", "dict", "namespace", "raise_exception", "strftime_now"};
// jinja2 has them, and they are not known here.
constexpr std::string_view kUnknownGlobals[] = {"lipsum", "cycler", "joiner"};

Value function(std::string_view name, Function::What what, Value self) {
  auto function = std::make_shared<Function>();
  function->what = what;
  function->name = name;
  function->self = std::move(self);
  Value value;
  value.kind = Kind::Function;
  value.object = std::move(function);
  return value;
}

std::string_view sign_of(Op op) {
  switch (op) {
    case Op::Add:
      return "+";
    case Op::Subtract:
      return "-";
    case Op::Multiply:
      return "*";
    case Op::Divide:
      return "/";
    case Op::FloorDivide:
      return "//";
    case Op::Modulo:
      return "%";
    default:
      return "**";
  }
}

}  // namespace

Value Interpreter::undefined(const Node& at) const {
  Value value;
  value.missing = &at;
  return value;
}

Value Interpreter::fail_undefined(const Value& value, const Node& at) {
  const Node* missing = value.missing;
  if (missing == nullptr) return fail(at, "a value that is missing is used");
  if (missing->op == Op::Name && missing->name.ends_with("_token"))
    return fail(at, "{} is undefined: tokenizer_config.json names none", missing->name);
  if (missing->op == Op::Name) return fail(at, "{} is undefined", missing->name);
  constexpr std::string_view kChanges[] = {"append", "clear",   "extend",     "insert", "pop",   "popitem",
                                           "remove", "reverse", "setdefault", "sort",   "update"};
  if (missing->op == Op::Attribute && at.op == Op::Call &&
      std::find(std::begin(kChanges), std::end(kChanges), missing->name) != std::end(kChanges))
    return fail(at, "{}: templates may not change lists and dictionaries", missing->name);
  if (missing->op == Op::Attribute) return fail(at, "there is no '{}'", missing->name);
  if (missing->op == Op::Item && missing->kids.size() > 1 && missing->kids[1]->op == Op::Constant) {
    Text key;
    append_repr(missing->kids[1]->value, key);
    return fail(at, "there is no {}", key.view());
  }
  return fail(at, "a value that is missing is used");
}

Value Interpreter::evaluate(const Node& node) {
  if (depth_ >= kMostDepth) return fail(node, "nested more than {} deep", kMostDepth);
  if (failed() || !spend(1, node)) return {};
  struct Level {
    explicit Level(int& levels) : depth(levels) { ++depth; }
    ~Level() { --depth; }
    int& depth;
  } level(depth_);
  switch (node.op) {
    case Op::Constant:
      return node.value;
    case Op::Name:
      return name(node);
    case Op::List:
    case Op::Tuple: {
      std::vector<Value> items;
      items.reserve(node.kids.size());
      for (const NodePtr& kid : node.kids) items.push_back(evaluate(*kid));
      return list(std::move(items), node.op == Op::List ? List::Form::List : List::Form::Tuple, node);
    }
    case Op::Dict: {
      std::vector<std::pair<Value, Value>> members;
      for (size_t i = 0; i + 1 < node.kids.size(); i += 2) {
        Value key = evaluate(*node.kids[i]);
        members.emplace_back(std::move(key), evaluate(*node.kids[i + 1]));
      }
      return failed() ? Value() : dict(std::move(members), node);
    }
    case Op::Attribute:
      return attribute(evaluate(*node.kids[0]), node.name, node);
    case Op::Item: {
      const Value object = evaluate(*node.kids[0]);
      return item(object, evaluate(*node.kids[1]), node);
    }
    case Op::Slice:
      return slice(node);
    case Op::Call:
      return call_node(node);
    case Op::Filter:
      return filtered(node);
    case Op::Test: {
      const Value subject = evaluate(*node.kids[0]);
      const Arguments arguments = arguments_of(node);
      return failed() ? Value() : Value::of(passes(node.test, node.name, subject, arguments, node));
    }
    case Op::Not:
      return Value::of(!is_true(evaluate(*node.kids[0])));
    case Op::And:
    case Op::Or: {
      Value left = evaluate(*node.kids[0]);
      return is_true(left) == (node.op == Op::Or) ? left : evaluate(*node.kids[1]);
    }
    case Op::Negative:
    case Op::Positive: {
      const Value value = evaluate(*node.kids[0]);
      if (value.is(Kind::Undefined)) return fail_undefined(value, node);
      const bool minus = node.op == Op::Negative;
      if (value.is(Kind::Float)) return Value::of(minus ? -value.real : value.real);
      if (value.is_integer() && value.as_integer() != INT64_MIN)
        return Value::of(minus ? -value.as_integer() : value.as_integer());
      return fail(node, "a {} has no sign", type_name(value));
    }
    case Op::If:
      return conditional(node);
    case Op::Compare:
      return comparison(node);
    case Op::Join:
      return joined(node);
    default: {
      Value left = evaluate(*node.kids[0]);
      const Value right = evaluate(*node.kids[1]);
      return failed() ? Value() : binary(node.op, left, right, node);
    }
  }
}

Value Interpreter::name(const Node& node) {
  if (const Value* found = find(node.id)) {
    Value value = *found;
    if (value.is(Kind::Undefined)) value.missing = &node;
    return value;
  }
  for (const std::string_view global : kGlobals) {
    if (node.name == global) return function(global, Function::What::Global, {});
  }
  for (const std::string_view global : kUnknownGlobals) {
    if (node.name == global) return fail(node, "{} is not known", global);
  }
  return undefined(node);
}

Value Interpreter::conditional(const Node& node) {
  if (is_true(evaluate(*node.kids[0]))) return evaluate(*node.kids[1]);
  return node.kids.size() > 2 ? evaluate(*node.kids[2]) : undefined(node);
}

Value Interpreter::comparison(const Node& node) {
  Value left = evaluate(*node.kids[0]);
  for (size_t i = 0; i < node.operators.size(); ++i) {
    Value right = evaluate(*node.kids[i + 1]);
    if (failed()) return {};
    const std::string& sign = node.operators[i];
    bool holds = false;
    if (sign == "==" || sign == "!=") {
      holds = same(left, right, node) == (sign == "==");
    } else if (sign == "in" || sign == "not in") {
      holds = contains(right, left, node) == (sign == "in");
    } else {
      int order = 0;
      if (left.is(Kind::Undefined)) return fail_undefined(left, node);
      if (right.is(Kind::Undefined)) return fail_undefined(right, node);
      if (!ordered(left, right, order, node))
        return fail(node, "{} and {} have no order", type_name(left), type_name(right));
      holds = sign == "<" ? order < 0 : sign == "<=" ? order <= 0 : sign == ">" ? order > 0 : order >= 0;
    }
    if (failed()) return {};
    if (!holds) return Value::of(false);
    left = std::move(right);
  }
  return Value::of(true);
}

bool Interpreter::contains(const Value& container, const Value& item, const Node& at) {
  switch (container.kind) {
    case Kind::String:
      if (item.is(Kind::Undefined)) return fail_undefined(item, at), false;
      if (!item.is_string()) return fail(at, "a {} cannot be in a string", type_name(item)), false;
      return spend_search(container.text().view(), item.text().view(), at) &&
             find_in(container.text().view(), item.text().view()) != std::string_view::npos;
    case Kind::Dict:
      if (!spend(container.dict().steps_to_find(item), at)) return false;
      if (!hashable(item)) return fail(at, "a {} cannot be the key of a dictionary", type_name(item)), false;
      return container.dict().find(item) != nullptr;
    case Kind::Undefined:
      return false;
    default: {
      const std::vector<Value> items = items_of(container, at);
      return std::any_of(items.begin(), items.end(),
                         [&](const Value& other) { return same(other, item, at); });
    }
  }
}

Value Interpreter::joined(const Node& node) {
  Text text;
  for (const NodePtr& kid : node.kids) {
    const Value value = evaluate(*kid);
    if (failed()) return {};
    if (value.is_string()) {
      text.append(value.text());
    } else {
      text.append(text_of(value, *kid));
    }
  }
  return string(std::move(text));
}

Text Interpreter::text_of(const Value& value, const Node& at) {
  Text text;
  if (value.is(Kind::List) || value.is(Kind::Dict)) rendering_.printed_list = true;
  if (!value.is_string() && !spend(steps_of(value), at)) return {};
  if (!append_str(value, text)) fail(at, "a {} has no text", type_name(value));
  spend(int64_t(text.size()) / 16, at);
  return text;
}

std::vector<Value> Interpreter::items_of(const Value& value, const Node& at) {
  switch (value.kind) {
    case Kind::Undefined:
      return {};
    case Kind::List: {
      List& list = value.list();
      spend(int64_t(list.items.size()), at);
      if (list.form != List::Form::Iterator) return list.items;
      std::vector<Value> rest(list.items.begin() + std::ptrdiff_t(list.next), list.items.end());
      list.next = list.items.size();
      return rest;
    }
    case Kind::Dict: {
      std::vector<Value> keys;
      spend(int64_t(value.dict().members.size()), at);
      for (const auto& [key, ignored] : value.dict().members) keys.push_back(key);
      return keys;
    }
    case Kind::String: {
      std::vector<Value> characters;
      if (!has_room(count_characters(value.text().view()) * kPieceBytes, at)) return {};
      const auto places = boundaries(value.text().view());
      if (!spend(int64_t(places.size()), at)) return {};
      for (size_t i = 0; i + 1 < places.size() && !failed(); ++i) {
        characters.push_back(string(value.text().slice(places[i], places[i + 1]), value.str().markup));
        spend(1, at);
      }
      return characters;
    }
    default:
      fail(at, "a {} has no items", type_name(value));
      return {};
  }
}

int64_t Interpreter::length_of(const Value& value, const Node& at) {
  switch (value.kind) {
    case Kind::Undefined:
      return 0;
    case Kind::String:
      spend(int64_t(value.text().size()) / 64, at);
      return count_characters(value.text().view());
    case Kind::Dict:
      return std::ssize(value.dict().members);
    case Kind::List:
      if (value.list().form != List::Form::Iterator) return std::ssize(value.list().items);
      break;
    case Kind::Loop:
      return std::ssize(value.loop().items);
    default:
      break;
  }
  fail(at, "a {} has no length", type_name(value));
  return 0;
}

Value Interpreter::attribute(const Value& object, std::string_view name, const Node& at) {
  if (failed()) return {};
  // The sandbox hides them.
  if (name.starts_with("__") && !object.is(Kind::Undefined)) return undefined(at);
  if (has_method(object, name)) return function(name, Function::What::Method, object);
  switch (object.kind) {
    case Kind::Undefined:
      return fail_undefined(object, at);
    case Kind::Dict:
      if (const Value* found = object.dict().find(name)) return *found;
      return undefined(at);
    case Kind::Namespace:
      if (const Value* found = object.space().attributes.find(name)) return *found;
      return undefined(at);
    case Kind::Loop:
      return loop_attribute(object, name, at);
    case Kind::Function:
      if (name == "name" && object.function().what == Function::What::Macro)
        return string(plain(object.function().name));
      return undefined(at);
    default:
      return undefined(at);
  }
}

Value Interpreter::loop_attribute(const Value& value, std::string_view name, const Node& at) {
  const Loop& loop = value.loop();
  const auto index = int64_t(loop.index), count = std::ssize(loop.items);
  if (name == "index0") return Value::of(index);
  if (name == "index") return Value::of(index + 1);
  if (name == "first") return Value::of(index == 0);
  if (name == "last") return Value::of(index + 1 == count);
  if (name == "length") return Value::of(count);
  if (name == "revindex") return Value::of(count - index);
  if (name == "revindex0") return Value::of(count - index - 1);
  if (name == "depth") return Value::of(int64_t{loop.level} + 1);
  if (name == "depth0") return Value::of(int64_t{loop.level});
  if (name == "previtem") return index > 0 ? loop.items[loop.index - 1] : undefined(at);
  if (name == "nextitem") return index + 1 < count ? loop.items[loop.index + 1] : undefined(at);
  if (name == "cycle" || name == "changed") return function(name, Function::What::Method, value);
  return undefined(at);
}

Value Interpreter::item(const Value& object, const Value& key, const Node& at) {
  if (failed()) return {};
  if (object.is(Kind::Undefined)) return fail_undefined(object, at);
  if (object.is(Kind::Dict)) {
    if (!spend(object.dict().steps_to_find(key), at)) return {};
    if (!hashable(key)) return undefined(at);
    if (const Value* found = object.dict().find(key)) return *found;
  }
  if (key.is_integer() && (object.is_string() || (object.is(Kind::List) && object.list().has_index()))) {
    const int64_t count = length_of(object, at);
    int64_t index = key.as_integer();
    if (index < 0) index += count;
    if (index < 0 || index >= count) return undefined(at);
    if (object.is(Kind::List)) return object.list().items[size_t(index)];
    const Text& text = object.text();
    const bool ascii = count == int64_t(text.size());
    const size_t begin = ascii ? size_t(index) : byte_of(text.view(), index);
    const size_t end = begin + (ascii ? 1 : byte_of(text.view().substr(begin), 1));
    return string(text.slice(begin, end), object.str().markup);
  }
  if (key.is_string()) return attribute(object, key.text().view(), at);
  return undefined(at);
}

Value Interpreter::slice(const Node& node) {
  const Value object = evaluate(*node.kids[0]);
  std::array<std::optional<int64_t>, 3> parts;
  for (size_t i = 0; i < 3; ++i) {
    if (!node.kids[i + 1]) continue;
    const Value part = evaluate(*node.kids[i + 1]);
    if (failed()) return {};
    if (part.is(Kind::Undefined)) return fail_undefined(part, node);
    if (part.is(Kind::None)) continue;
    if (!part.is_integer()) return fail(node, "a {} cannot be where a slice begins or ends", type_name(part));
    parts[i] = part.as_integer();
  }
  if (failed()) return {};
  if (object.is(Kind::Undefined)) return fail_undefined(object, node);
  const bool sequence = object.is_string() || (object.is(Kind::List) && object.list().has_index());
  if (!sequence) return undefined(node);
  const int64_t step = parts[2].value_or(1), count = length_of(object, node);
  if (step == 0) return fail(node, "a slice whose step is 0");
  const auto bound = [&](std::optional<int64_t> part, int64_t otherwise) {
    if (!part) return otherwise;
    int64_t index = *part;
    if (index < 0) index = index < -count ? (step < 0 ? -1 : 0) : index + count;
    return std::min(index, step < 0 ? count - 1 : count);
  };
  const int64_t begin = bound(parts[0], step < 0 ? count - 1 : 0);
  const int64_t end = bound(parts[1], step < 0 ? -1 : count);
  if (object.is_string() && step == 1) {
    const Text& text = object.text();
    if (begin >= end) return string({}, object.str().markup);
    const bool ascii = count == int64_t(text.size());
    const size_t first = ascii ? size_t(begin) : byte_of(text.view(), begin);
    const size_t last = ascii ? size_t(end) : first + byte_of(text.view().substr(first), end - begin);
    return string(text.slice(first, last), object.str().markup);
  }
  constexpr int64_t kIndexBytes = 2 * sizeof(int64_t);  // with the place of a character
  if (!has_room(count * kIndexBytes, node)) return {};
  std::vector<int64_t> indices;
  if (step > 0) {
    for (int64_t i = begin; i<end; i = step> end - i ? end : i + step) indices.push_back(i);
  } else {
    for (int64_t i = begin; i > end; i = -(step + 1) >= i - end ? end : i + step) indices.push_back(i);
  }
  if (!spend(std::ssize(indices), node)) return {};
  if (object.is(Kind::List)) {
    std::vector<Value> items;
    for (const int64_t i : indices) items.push_back(object.list().items[size_t(i)]);
    const List::Form form = object.list().form;
    return list(std::move(items), form == List::Form::Range ? List::Form::Range : form, node);
  }
  const auto places = boundaries(object.text().view());
  Text text;
  for (const int64_t i : indices) text.append(object.text(), places[size_t(i)], places[size_t(i) + 1]);
  return string(std::move(text), object.str().markup);
}

Value Interpreter::binary(Op op, const Value& a, const Value& b, const Node& at) {
  if (a.is(Kind::Undefined)) return fail_undefined(a, at);
  if (b.is(Kind::Undefined) && !(op == Op::Modulo && a.is_string())) return fail_undefined(b, at);
  if (op == Op::Add && a.is_string() && b.is_string()) {
    const bool markup = a.str().markup || b.str().markup;
    Text text = markup && !a.str().markup ? escaped(a.text()) : a.text();
    text.append(markup && !b.str().markup ? escaped(b.text()) : b.text());
    return string(std::move(text), markup);
  }
  if (op == Op::Modulo && a.is_string()) return format_percent(*this, a, b, at);
  const auto is_list = [](const Value& v) {
    return v.is(Kind::List) && (v.list().form == List::Form::List || v.list().form == List::Form::Tuple);
  };
  if (op == Op::Add && is_list(a) && is_list(b) && a.list().form == b.list().form) {
    const auto bytes = int64_t((a.list().items.size() + b.list().items.size()) * sizeof(Value));
    if (!has_room(bytes, at)) return {};
    std::vector<Value> items = a.list().items;
    items.insert(items.end(), b.list().items.begin(), b.list().items.end());
    return list(std::move(items), a.list().form, at);
  }
  if (op == Op::Multiply && (a.is_integer() != b.is_integer())) {
    const Value& many = a.is_integer() ? a : b;
    const Value& what = a.is_integer() ? b : a;
    const int64_t times = std::max<int64_t>(0, many.as_integer());
    if (what.is_string() || is_list(what)) {
      const int64_t size = what.is_string() ? std::ssize(what.text().bytes()) : std::ssize(what.list().items);
      if (size > 0 && times > 1'000'000 / size) return fail(at, "something repeated {} times", times);
      if (what.is_string()) {
        Text text;
        for (int64_t i = 0; i < times && size > 0; ++i) text.append(what.text());
        return string(std::move(text), what.str().markup);
      }
      std::vector<Value> items;
      if (!spend(size * times, at) || !has_room(size * times * int64_t(sizeof(Value)), at)) return {};
      for (int64_t i = 0; i < times; ++i)
        items.insert(items.end(), what.list().items.begin(), what.list().items.end());
      return list(std::move(items), what.list().form, at);
    }
  }
  if (!a.is_number() || !b.is_number())
    return fail(at, "{} {} {}: these types have no such operation", type_name(a), sign_of(op), type_name(b));
  if (a.is_integer() && b.is_integer() && op != Op::Divide) {
    const int64_t x = a.as_integer(), y = b.as_integer();
    int64_t result = 0;
    bool over = false;
    switch (op) {
      case Op::Add:
        over = __builtin_add_overflow(x, y, &result);
        break;
      case Op::Subtract:
        over = __builtin_sub_overflow(x, y, &result);
        break;
      case Op::Multiply:
        over = __builtin_mul_overflow(x, y, &result);
        break;
      case Op::FloorDivide:
      case Op::Modulo: {
        if (y == 0) return fail(at, "a division by 0");
        if (y == -1) {
          over = op == Op::FloorDivide && __builtin_sub_overflow(int64_t{0}, x, &result);
          break;
        }
        const int64_t rest = x % y;
        const bool down = rest != 0 && (rest < 0) != (y < 0);
        result = op == Op::Modulo ? rest + (down ? y : 0) : x / y - (down ? 1 : 0);
        break;
      }
      default:
        if (y < 0) return Value::of(std::pow(double(x), double(y)));
        result = 1;
        for (int64_t i = 0; i < y && !over && (x > 1 || x < -1 || i < 2); ++i)
          over = __builtin_mul_overflow(result, x, &result);
        if (x == -1) result = y % 2 == 0 ? 1 : -1;
        break;
    }
    return over ? fail(at, "an integer beyond 64 bits") : Value::of(result);
  }
  const double x = a.as_real(), y = b.as_real();
  switch (op) {
    case Op::Add:
      return Value::of(x + y);
    case Op::Subtract:
      return Value::of(x - y);
    case Op::Multiply:
      return Value::of(x * y);
    case Op::Power:
      return Value::of(std::pow(x, y));
    default:
      break;
  }
  if (y == 0) return fail(at, "a division by 0");
  if (op == Op::Divide) return Value::of(x / y);
  double rest = std::fmod(x, y);
  if (rest != 0 && (rest < 0) != (y < 0)) rest += y;
  return Value::of(op == Op::Modulo ? rest : std::floor((x - rest) / y + 0.5));
}

}  // namespace sluice::core::jinja
