// SPDX-License-Identifier: Apache-2.0
// What may stand behind `is`.
#include <algorithm>

#include "jinja/interpreter.h"

namespace sluice::core::jinja {
namespace {

const Value& argument(Interpreter& in, const Arguments& arguments, const Node& at) {
  static const Value kNone = Value::none();
  if (arguments.places.size() == 1 && arguments.names.empty()) return arguments.places[0];
  in.fail(at, "a test with {} arguments; one is expected", arguments.places.size());
  return kNone;
}

bool is_kind(const Value& value, std::initializer_list<Kind> kinds) {
  return std::find(kinds.begin(), kinds.end(), value.kind) != kinds.end();
}

// Whether it can be iterated over.
bool iterable(Interpreter&, const Value& value, const Arguments&, const Node&) {
  return is_kind(value, {Kind::Undefined, Kind::String, Kind::List, Kind::Dict, Kind::Loop});
}

template <int kOrder, bool kEqual>
bool ordered(Interpreter& in, const Value& value, const Arguments& arguments, const Node& at) {
  int order = 0;
  const Value& other = argument(in, arguments, at);
  if (!in.failed() && !in.ordered(value, other, order, at))
    in.fail(at, "{} and {} have no order", type_name(value), type_name(other));
  return order == kOrder || (kEqual && order == 0);
}
bool equals(Interpreter& in, const Value& value, const Arguments& arguments, const Node& at) {
  return in.same(value, argument(in, arguments, at), at);
}
bool differs(Interpreter& in, const Value& value, const Arguments& arguments, const Node& at) {
  return !in.same(value, argument(in, arguments, at), at);
}
int64_t whole(Interpreter& in, const Value& value, const Node& at) {
  if (!value.is_integer()) in.fail(at, "a {} is no integer", type_name(value));
  return value.as_integer();
}

constexpr TestRow kTests[] = {
    {"!=", differs},
    {"<", ordered<-1, false>},
    {"<=", ordered<-1, true>},
    {"==", equals},
    {">", ordered<1, false>},
    {">=", ordered<1, true>},
    {"boolean", [](Interpreter&, const Value& v, const Arguments&, const Node&) { return v.is(Kind::Bool); }},
    {"callable",
     [](Interpreter& in, const Value& v, const Arguments&, const Node&) { return in.is_callable(v); }},
    {"defined",
     [](Interpreter&, const Value& v, const Arguments&, const Node&) { return !v.is(Kind::Undefined); }},
    {"divisibleby",
     [](Interpreter& in, const Value& v, const Arguments& a, const Node& at) {
       const int64_t by = whole(in, argument(in, a, at), at), number = whole(in, v, at);
       if (by == 0) in.fail(at, "a division by 0");
       return !in.failed() && (by == -1 || number % by == 0);
     }},
    {"eq", equals},
    {"equalto", equals},
    {"escaped", [](Interpreter&, const Value& v, const Arguments&,
                   const Node&) { return v.is_string() && v.str().markup; }},
    {"even", [](Interpreter& in, const Value& v, const Arguments&,
                const Node& at) { return whole(in, v, at) % 2 == 0; }},
    {"false", [](Interpreter&, const Value& v, const Arguments&,
                 const Node&) { return v.is(Kind::Bool) && !v.boolean; }},
    {"filter", [](Interpreter&, const Value& v, const Arguments&,
                  const Node&) { return v.is_string() && find_filter(v.text().view()) != nullptr; }},
    {"float", [](Interpreter&, const Value& v, const Arguments&, const Node&) { return v.is(Kind::Float); }},
    {"ge", ordered<1, true>},
    {"greaterthan", ordered<1, false>},
    {"gt", ordered<1, false>},
    {"in", [](Interpreter& in, const Value& v, const Arguments& a,
              const Node& at) { return in.contains(argument(in, a, at), v, at); }},
    {"integer",
     [](Interpreter&, const Value& v, const Arguments&, const Node&) {
       return is_kind(v, {Kind::Int, Kind::Big});
     }},
    {"iterable",
     [](Interpreter& in, const Value& v, const Arguments& a, const Node& at) {
       in.note_asked(v);
       return iterable(in, v, a, at);
     }},
    {"le", ordered<-1, true>},
    {"lessthan", ordered<-1, false>},
    {"lower",
     [](Interpreter& in, const Value& v, const Arguments&, const Node& at) {
       const Value text = in.string_of(v, at);
       return !in.failed() && is_true(call_method(in, text, "islower", {}, at));
     }},
    {"lt", ordered<-1, false>},
    {"mapping",
     [](Interpreter& in, const Value& v, const Arguments&, const Node&) {
       in.note_asked(v);
       return v.is(Kind::Dict);
     }},
    {"ne", differs},
    {"none", [](Interpreter&, const Value& v, const Arguments&, const Node&) { return v.is(Kind::None); }},
    {"number",
     [](Interpreter&, const Value& v, const Arguments&, const Node&) {
       return is_kind(v, {Kind::Int, Kind::Big, Kind::Float, Kind::Bool});
     }},
    {"odd", [](Interpreter& in, const Value& v, const Arguments&,
               const Node& at) { return whole(in, v, at) % 2 != 0; }},
    {"sameas",
     [](Interpreter& in, const Value& v, const Arguments& a, const Node& at) {
       const Value& other = argument(in, a, at);
       if (v.kind != other.kind) return false;
       return v.object != nullptr && !v.is_string() ? v.object == other.object : in.same(v, other, at);
     }},
    {"sequence",
     [](Interpreter&, const Value& v, const Arguments&, const Node&) {
       return is_kind(v, {Kind::String, Kind::Dict, Kind::Undefined}) ||
              (v.is(Kind::List) && v.list().has_index());
     }},
    {"string",
     [](Interpreter& in, const Value& v, const Arguments&, const Node&) {
       in.note_asked(v);
       return v.is_string();
     }},
    {"test", [](Interpreter&, const Value& v, const Arguments&,
                const Node&) { return v.is_string() && find_test(v.text().view()) != nullptr; }},
    {"true", [](Interpreter&, const Value& v, const Arguments&,
                const Node&) { return v.is(Kind::Bool) && v.boolean; }},
    {"undefined",
     [](Interpreter&, const Value& v, const Arguments&, const Node&) { return v.is(Kind::Undefined); }},
    {"upper",
     [](Interpreter& in, const Value& v, const Arguments&, const Node& at) {
       const Value text = in.string_of(v, at);
       return !in.failed() && is_true(call_method(in, text, "isupper", {}, at));
     }},
};

}  // namespace

const TestRow* find_test(std::string_view name) {
  return find_row(std::span<const TestRow>(kTests), name);
}

}  // namespace sluice::core::jinja
