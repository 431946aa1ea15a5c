// SPDX-License-Identifier: Apache-2.0
// What is called: filters, tests, methods, macros, loops and functions.
#include <algorithm>

#include "jinja/interpreter.h"

namespace sluice::core::jinja {

Arguments Interpreter::arguments_of(const Node& node) {
  Arguments arguments;
  for (const Argument& argument : node.arguments) {
    Value value = evaluate(*argument.value);
    if (failed()) return {};
    if (argument.stars == 1) {
      for (Value& item : items_of(value, node)) arguments.places.push_back(std::move(item));
    } else if (argument.stars == 2) {
      if (!value.is(Kind::Dict)) return fail(node, "** before a {}", type_name(value)), Arguments();
      for (const auto& [key, item] : value.dict().members) {
        if (!key.is_string()) return fail(node, "** with keys that are no strings"), Arguments();
        arguments.names.emplace_back(key.text().bytes(), item);
      }
    } else if (argument.name.empty()) {
      arguments.places.push_back(std::move(value));
    } else {
      arguments.names.emplace_back(argument.name, std::move(value));
    }
  }
  return arguments;
}

bool Interpreter::bind(Arguments& given, const Parameters& parameters, Bound& bound, std::string_view what,
                       const Node& at) {
  const auto& names = parameters.names;
  const size_t count = size_t(std::find(names.begin(), names.end(), "") - names.begin());
  if (given.places.size() > count)
    return fail(at, "{}: {} arguments, and at most {} are known", what, given.places.size(), count), false;
  for (size_t i = 0; i < given.places.size(); ++i) {
    bound[i] = std::move(given.places[i]);
    bound.has[i] = true;
  }
  for (auto& [name, value] : given.names) {
    const size_t i =
        size_t(std::find(names.begin(), names.begin() + std::ptrdiff_t(count), name) - names.begin());
    if (i == count || bound.has[i]) return fail(at, "{}: the argument {} is not known", what, name), false;
    bound[i] = std::move(value);
    bound.has[i] = true;
  }
  for (size_t i = 0; i < parameters.required; ++i) {
    if (!bound.has[i]) return fail(at, "{}: the argument {} is missing", what, names[i]), false;
  }
  return !failed();
}

Value Interpreter::filtered(const Node& node, std::optional<Value> subject) {
  if (failed()) return {};
  // A block's own text stands for the innermost value.
  if (node.op != Op::Filter) return subject ? std::move(*subject) : evaluate(node);
  Value value = subject ? filtered(*node.kids[0], std::move(subject)) : evaluate(*node.kids[0]);
  if (failed()) return {};
  Arguments arguments = arguments_of(node);
  return failed() ? Value() : apply(node.filter, node.name, std::move(value), std::move(arguments), node);
}

Value Interpreter::apply(const FilterRow* filter, std::string_view name, Value subject, Arguments arguments,
                         const Node& at) {
  if (filter == nullptr) return fail(at, "the filter {} is not known", name);
  if (!spend(1, at)) return {};
  if (filter->open != nullptr) return filter->open(*this, std::move(subject), std::move(arguments), at);
  Bound bound;
  return bind(arguments, filter->parameters, bound, name, at)
             ? filter->apply(*this, std::move(subject), bound, at)
             : Value();
}

bool Interpreter::passes(const TestRow* test, std::string_view name, const Value& subject,
                         const Arguments& arguments, const Node& at) {
  if (test == nullptr) return fail(at, "the test {} is not known", name), false;
  if (!spend(1, at)) return false;
  return test->passes(*this, subject, arguments, at);
}

bool Interpreter::is_callable(const Value& value) const {
  return value.is(Kind::Function) || (value.is(Kind::Loop) && value.loop().node != nullptr);
}

Value Interpreter::call_node(const Node& node) {
  const Node& callee = *node.kids[0];
  // A method needs no value of its own.
  if (callee.op == Op::Attribute) {
    const Value object = evaluate(*callee.kids[0]);
    if (failed()) return {};
    if (has_method(object, callee.name)) {
      Arguments arguments = arguments_of(node);
      return failed() ? Value() : call_method(*this, object, callee.name, std::move(arguments), node);
    }
    const Value value = attribute(object, callee.name, callee);
    Arguments arguments = arguments_of(node);
    return failed() ? Value() : call(value, std::move(arguments), node);
  }
  const Value value = evaluate(callee);
  Arguments arguments = arguments_of(node);
  return failed() ? Value() : call(value, std::move(arguments), node);
}

Value Interpreter::call(const Value& callee, Arguments arguments, const Node& at) {
  if (!spend(1, at)) return {};
  if (callee.is(Kind::Undefined)) return fail_undefined(callee, at);
  if (callee.is(Kind::Loop)) return call_loop(callee.loop(), std::move(arguments), at);
  if (!callee.is(Kind::Function)) return fail(at, "a {} cannot be called", type_name(callee));
  const Function& function = callee.function();
  switch (function.what) {
    case Function::What::Global:
      return call_global(function.name, std::move(arguments), at);
    case Function::What::Macro:
      return call_macro(function, std::move(arguments), at);
    case Function::What::Method:
      break;
  }
  if (!function.self.is(Kind::Loop))
    return call_method(*this, function.self, function.name, std::move(arguments), at);
  Loop& loop = function.self.loop();
  if (!arguments.names.empty()) return fail(at, "loop.{}: arguments have no names", function.name);
  if (function.name == "cycle") {
    if (arguments.places.empty()) return fail(at, "loop.cycle: nothing to choose from");
    return arguments.places[loop.index % arguments.places.size()];
  }
  const Value seen = list(std::move(arguments.places), List::Form::Tuple, at);
  const bool changed = loop.changed.is(Kind::Undefined) || !same(loop.changed, seen, at);
  loop.changed = seen;
  return Value::of(changed);
}

Value Interpreter::call_loop(Loop& loop, Arguments arguments, const Node& at) {
  if (loop.node == nullptr) return fail(at, "this loop is not recursive");
  if (arguments.places.size() != 1 || !arguments.names.empty()) return fail(at, "loop: one list is expected");
  std::vector<Value> items = items_of(arguments.places[0], at);
  if (failed()) return {};
  if (depth_ >= kMostDepth) return fail(at, "nested more than {} deep", kMostDepth);
  depth_ += 8;
  Text text;
  run_loop(*loop.node, loop.scope, std::move(items), loop.level + 1, text);
  depth_ -= 8;
  return failed() ? Value() : string(std::move(text));
}

Value Interpreter::call_macro(const Function& macro, Arguments arguments, const Node& at) {
  const Node& node = *macro.node;
  if (depth_ >= kMostDepth) return fail(at, "macros call each other more than {} deep", kMostDepth / 10);
  Scope* const before = scope_;
  scope_ = macro.scope;
  depth_ += 8;
  Text text;
  {
    Block block(*this, macro.scope);
    auto& variables = block.scope().variables;
    const size_t count = node.arguments.size();
    std::vector<bool> has(count);
    std::vector<std::pair<Value, Value>> rest_names;
    for (size_t i = 0; i < count && i < arguments.places.size(); ++i) {
      variables.emplace_back(syntax_.ids.at(node.arguments[i].name), std::move(arguments.places[i]));
      has[i] = true;
    }
    for (auto& [name, value] : arguments.names) {
      if (name == "caller" && node.reads_caller) {
        variables.emplace_back(syntax_.ids.at("caller"), std::move(value));
        continue;
      }
      size_t i = 0;
      while (i < count && node.arguments[i].name != name) ++i;
      if (i < count && has[i]) {
        fail(at, "{}: the argument {} is given twice", macro.name, name);
      } else if (i < count) {
        variables.emplace_back(syntax_.ids.at(name), std::move(value));
        has[i] = true;
      } else if (node.reads_kwargs) {
        rest_names.emplace_back(string(plain(name)), std::move(value));
      } else {
        fail(at, "{}: the argument {} is not known", macro.name, name);
      }
    }
    if (arguments.places.size() > count && !node.reads_varargs) {
      fail(at, "{}: {} arguments, and at most {} are known", macro.name, arguments.places.size(), count);
    } else if (node.reads_varargs) {
      const size_t given = std::min(count, arguments.places.size());
      std::vector<Value> rest(std::make_move_iterator(arguments.places.begin() + std::ptrdiff_t(given)),
                              std::make_move_iterator(arguments.places.end()));
      variables.emplace_back(syntax_.ids.at("varargs"), list(std::move(rest), List::Form::Tuple, at));
    }
    if (node.reads_kwargs) variables.emplace_back(syntax_.ids.at("kwargs"), dict(std::move(rest_names), at));
    for (size_t i = 0; i < count && !failed(); ++i) {
      if (has[i]) continue;
      const Argument& parameter = node.arguments[i];
      Value value = parameter.value ? evaluate(*parameter.value) : Value();
      block.scope().variables.emplace_back(syntax_.ids.at(parameter.name), std::move(value));
    }
    if (!failed()) execute(node.body, text);
  }
  depth_ -= 8;
  scope_ = before;
  return failed() ? Value() : string(std::move(text));
}

Value Interpreter::call_global(std::string_view name, Arguments arguments, const Node& at) {
  if (name == "raise_exception") {
    Bound bound;
    if (!bind(arguments, {{"message"}, 1}, bound, name, at)) return {};
    const Text message = text_of(bound[0], at);
    fail(at, "the template refuses it: {:.500}", message.view());
    error_->details.emplace_back("raised", message.bytes());
    return {};
  }
  if (name == "strftime_now") {
    Bound bound;
    if (!bind(arguments, {{"format"}, 1}, bound, name, at)) return {};
    if (!bound[0].is_string()) return fail(at, "strftime_now: its format is a {}", type_name(bound[0]));
    if (!inputs_.today)
      return fail(at,
                  "it asks for today's date, and none is given: YYYY-MM-DD, always the same, so that a text "
                  "stays the same");
    std::string text;
    char bad = 0;
    if (!format_day(bound[0].text().view(), *inputs_.today, text, bad))
      return fail(at, "strftime_now: %{} is not known", bad);
    return string(plain(text));
  }
  if (name == "range") {
    int64_t begin = 0, end = 0, step = 1;
    if (!arguments.names.empty() || arguments.places.empty() || arguments.places.size() > 3)
      return fail(at, "range: one to three integers are expected");
    for (const Value& value : arguments.places) {
      if (value.is(Kind::Undefined)) return fail_undefined(value, at);
      if (!value.is_integer()) return fail(at, "range: a {} is no integer", type_name(value));
    }
    const auto given = [&](size_t i) { return arguments.places[i].as_integer(); };
    end = given(0);
    if (arguments.places.size() > 1) {
      begin = given(0);
      end = given(1);
    }
    if (arguments.places.size() > 2) step = given(2);
    if (step == 0) return fail(at, "range: its step is 0");
    constexpr int64_t kMost = 100'000;  // of jinja2's sandbox
    std::vector<Value> items;
    for (int64_t i = begin; step > 0 ? i < end : i > end;) {
      if (std::ssize(items) >= kMost) return fail(at, "range: more than {} items", kMost);
      items.push_back(Value::of(i));
      if (__builtin_add_overflow(i, step, &i)) break;
    }
    return list(std::move(items), List::Form::Range, at);
  }
  // dict() and namespace(): of a dictionary or of pairs, and of names.
  if (arguments.places.size() > 1)
    return fail(at, "{}: {} arguments, and at most 1 is known", name, arguments.places.size());
  std::vector<std::pair<Value, Value>> members;
  for (const Value& from : arguments.places) {
    if (from.is(Kind::Dict)) {
      members = from.dict().members;
      continue;
    }
    for (const Value& pair : items_of(from, at)) {
      const std::vector<Value> two = items_of(pair, at);
      if (failed() || two.size() != 2) return fail(at, "{}: pairs are expected", name);
      members.emplace_back(two[0], two[1]);
    }
  }
  for (auto& [key, value] : arguments.names) members.emplace_back(string(plain(key)), std::move(value));
  if (failed()) return {};
  Value made = dict(std::move(members), at);
  if (name == "dict" || failed()) return made;
  for (const auto& [key, ignored] : made.dict().members) {
    if (key.is_string() && key.text().view().starts_with('_'))
      return fail(at, "a namespace has no names that begin with an underscore");
  }
  auto space = make<Namespace>(int64_t(made.dict().members.size() * 2 * sizeof(Value)));
  for (const auto& [key, value] : made.dict().members) space->attributes.set(key, value);
  cyclic_.push_back(space);
  Value value;
  value.kind = Kind::Namespace;
  value.object = std::move(space);
  return value;
}

}  // namespace sluice::core::jinja
