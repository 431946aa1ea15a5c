// SPDX-License-Identifier: Apache-2.0
// Statements.
#include "jinja/interpreter.h"

#include <algorithm>

namespace sluice::core::jinja {
namespace {

constexpr int64_t kStepsOfNoInput = 5'000'000;     // beside some for each byte that was passed in
constexpr int64_t kMostBytes = int64_t{24} << 20;  // beside some times of what was passed in
constexpr int64_t kUsualBytes = int64_t{1} << 20;  // of a string, beside some times of what was passed in
constexpr int kMostNesting = 200;                  // of lists in lists

}  // namespace

Interpreter::Interpreter(const Syntax& syntax, const Inputs& inputs)
    : syntax_(syntax),
      inputs_(inputs),
      most_bytes_(kMostBytes + 24 * inputs.bytes),
      most_steps_(kStepsOfNoInput + 16 * inputs.bytes),
      usual_bytes_(kUsualBytes + 4 * inputs.bytes),
      globals_(syntax.names.size()) {
  for (const auto& [name, value] : inputs.variables) {
    if (const auto it = syntax.ids.find(name); it != syntax.ids.end()) globals_[size_t(it->second)] = value;
  }
}

Interpreter::~Interpreter() {
  // Cyclic objects release themselves.
  for (const auto& object : cyclic_) {
    if (auto* space = dynamic_cast<Namespace*>(object.get())) space->attributes.members.clear();
    if (auto* loop = dynamic_cast<Loop*>(object.get())) {
      loop->items.clear();
      loop->changed = {};
    }
  }
  globals_.clear();
  for (const auto& scope : kept_) scope->variables.clear();
}

void Interpreter::set_error(const Node& at, std::string message) {
  error_ = error("line {}, column {}: {}", at.line, at.column, message);
}

Value Interpreter::string(Text text, bool markup) {
  auto object = make<String>(text.held());
  // A text that is much longer than all that was passed in costs more.
  steps_ += int64_t(text.size()) / 16 + std::max<int64_t>(0, int64_t(text.size()) - usual_bytes_) / 2;
  object->text = std::move(text);
  object->markup = markup;
  Value value;
  value.kind = Kind::String;
  value.object = std::move(object);
  return value;
}

Value Interpreter::list(std::vector<Value> items, List::Form form, const Node& at) {
  auto object = make<List>(int64_t(items.size() * sizeof(Value)));
  steps_ += int64_t(items.size());
  for (const Value& value : items) object->holds(value);
  if (object->depth > kMostNesting) return fail(at, "lists nested more than {} deep", kMostNesting);
  object->items = std::move(items);
  object->form = form;
  return Value::of(std::move(object));
}

Value Interpreter::dict(std::vector<std::pair<Value, Value>> members, const Node& at) {
  auto object = make<Dict>(int64_t(members.size() * 2 * sizeof(Value)));
  steps_ += int64_t(members.size());
  for (auto& [key, value] : members) {
    if (!spend(object->steps_to_find(key), at)) return {};
    if (!hashable(key)) return fail(at, "a {} cannot be the key of a dictionary", type_name(key));
    object->set(std::move(key), std::move(value));
  }
  if (object->depth > kMostNesting) return fail(at, "dictionaries nested more than {} deep", kMostNesting);
  return Value::of(std::move(object));
}

bool Interpreter::spend(int64_t steps, const Node& at) {
  if (failed()) return false;
  steps_ += steps;
  if (steps_ > most_steps_) fail(at, "it takes more than {} steps", most_steps_);
  if (account_.held > most_bytes_) fail(at, "it holds more than {} MiB", most_bytes_ >> 20);
  return !failed();
}

bool Interpreter::has_room(int64_t bytes, const Node& at) {
  if (!failed() && bytes > room()) fail(at, "it holds more than {} MiB", most_bytes_ >> 20);
  return !failed();
}

bool Interpreter::spend_search(std::string_view text, std::string_view what, const Node& at) {
  constexpr int64_t kLong = 256;  // a search for more bytes takes no longer
  return spend(product(std::ssize(text), std::min(kLong, std::ssize(what))) / 512, at);
}

bool Interpreter::same(const Value& a, const Value& b, const Node& at) {
  return spend(std::min(steps_of(a), steps_of(b)), at) && equal(a, b);
}

bool Interpreter::ordered(const Value& a, const Value& b, int& order, const Node& at) {
  // compare() looks for the first difference again in each list of lists.
  const int64_t times = std::max(1, std::min(depth_of(a), depth_of(b)));
  return spend(product(std::min(steps_of(a), steps_of(b)), times), at) && compare(a, b, order);
}

void Interpreter::write(const Text& text, Text& out, const Node& at) {
  if (owner_ == kTemplate) {
    out.append(text);
  } else {
    out.append_owned(text, owner_);
  }
  // It doubles when it grows.
  if (out.held() > most_bytes_ / 2) fail(at, "it writes more than {} MiB", most_bytes_ >> 21);
}

void Interpreter::note_asked(const Value& value) {
  if (!value.is_string() || value.text().empty()) return;
  const Origin origin = value.text().origin_at(0);
  if (origin != kTemplate && (rendering_.asked.empty() || rendering_.asked.back() != origin))
    rendering_.asked.push_back(origin);
}

Result<Rendering> Interpreter::run() {
  execute(syntax_.body, rendering_.text);
  if (error_) return *error_;
  return std::move(rendering_);
}

Interpreter::Block::Block(Interpreter& interpreter, Scope* around)
    : interpreter_(interpreter), before_(interpreter.scope_) {
  if (interpreter.spare_.empty()) {
    scope_ = std::make_unique<Scope>();
  } else {
    scope_ = std::move(interpreter.spare_.back());
    interpreter.spare_.pop_back();
  }
  scope_->around = around;
  interpreter.scope_ = scope_.get();
}

Interpreter::Block::~Block() {
  interpreter_.scope_ = before_;
  if (scope_->kept) {
    interpreter_.account_.held += int64_t(sizeof(Scope) + scope_->variables.size() * sizeof(Value));
    interpreter_.kept_.push_back(std::move(scope_));
  } else {
    scope_->variables.clear();
    interpreter_.spare_.push_back(std::move(scope_));
  }
}

const Value* Interpreter::find(int id) const {
  for (const Scope* scope = scope_; scope != nullptr; scope = scope->around) {
    for (auto it = scope->variables.rbegin(); it != scope->variables.rend(); ++it) {
      if (it->first == id) return &it->second;
    }
  }
  const auto& global = globals_[size_t(id)];
  return global ? &*global : nullptr;
}

void Interpreter::set(int id, Value value) {
  if (scope_ == nullptr) {
    globals_[size_t(id)] = std::move(value);
    return;
  }
  for (auto& [known, old] : scope_->variables) {
    if (known == id) {
      old = std::move(value);
      return;
    }
  }
  scope_->variables.emplace_back(id, std::move(value));
}

void Interpreter::assign(const Node& target, Value value) {
  if (target.op == Op::Name) return set(target.id, std::move(value));
  if (target.op == Op::Attribute) {
    const Value object = evaluate(*target.kids[0]);
    if (failed()) return;
    if (!object.is(Kind::Namespace)) {
      fail(target, "{} is no namespace: its {} cannot be set", target.kids[0]->name, target.name);
    } else if (target.name.starts_with('_')) {
      fail(target, "a namespace has no names that begin with an underscore");
    } else {
      object.space().attributes.set(Value::string(plain(target.name)), std::move(value));
    }
    return;
  }
  std::vector<Value> items = items_of(value, target);
  if (failed()) return;
  if (items.size() != target.kids.size()) {
    fail(target, "{} values for {} names", items.size(), target.kids.size());
    return;
  }
  for (size_t i = 0; i < items.size(); ++i) assign(*target.kids[i], std::move(items[i]));
}

Interpreter::Flow Interpreter::execute(const std::vector<NodePtr>& body, Text& out) {
  for (const NodePtr& node : body) {
    const Flow flow = execute(*node, out);
    if (failed() || flow != Flow::Next) return flow;
  }
  return Flow::Next;
}

Interpreter::Flow Interpreter::execute(const Node& node, Text& out) {
  if (!spend(1, node)) return Flow::Next;
  switch (node.op) {
    case Op::Data:
      write(node.value.text(), out, node);
      return Flow::Next;
    case Op::Output: {
      const Value value = evaluate(*node.kids[0]);
      if (failed()) return Flow::Next;
      if (value.is_string()) {
        write(value.text(), out, node);
      } else {
        write(text_of(value, node), out, node);
      }
      return Flow::Next;
    }
    case Op::IfBlock:
      return execute(is_true(evaluate(*node.kids[0])) ? node.body : node.otherwise, out);
    case Op::For:
      return loop(node, out);
    case Op::Set:
      assign(*node.kids[0], evaluate(*node.kids[1]));
      return Flow::Next;
    case Op::SetBlock:
    case Op::FilterBlock: {
      Text text;
      {
        Block block(*this, scope_);
        execute(node.body, text);
      }
      if (failed()) return Flow::Next;
      Value value = string(std::move(text));
      const size_t filters = node.op == Op::SetBlock ? 1 : 0;
      if (node.kids.size() > filters) value = filtered(*node.kids[filters], std::move(value));
      if (failed()) return Flow::Next;
      if (node.op == Op::SetBlock) {
        assign(*node.kids[0], std::move(value));
      } else {
        write(text_of(value, node), out, node);
      }
      return Flow::Next;
    }
    case Op::Macro:
      set(node.id, make_macro(node));
      return Flow::Next;
    case Op::CallBlock: {
      const Node& call = *node.kids[0];
      Arguments arguments = arguments_of(call);
      const Value callee = evaluate(*call.kids[0]);
      if (failed()) return Flow::Next;
      arguments.names.emplace_back("caller", make_macro(node));
      const Value value = this->call(callee, std::move(arguments), call);
      if (!failed()) write(text_of(value, node), out, node);
      return Flow::Next;
    }
    case Op::With: {
      std::vector<Value> values;
      for (size_t i = 1; i < node.kids.size(); i += 2) values.push_back(evaluate(*node.kids[i]));
      Block block(*this, scope_);
      for (size_t i = 0; i < values.size() && !failed(); ++i) assign(*node.kids[2 * i], std::move(values[i]));
      return failed() ? Flow::Next : execute(node.body, out);
    }
    case Op::Generation: {
      Text text;
      Block block(*this, scope_);
      const Flow flow = execute(node.body, text);
      text.mark();
      out.append(text);
      return flow;
    }
    case Op::Break:
      return Flow::Break;
    case Op::Continue:
      return Flow::Continue;
    default:
      fail(node, "no statement");
      return Flow::Next;
  }
}

Interpreter::Flow Interpreter::loop(const Node& node, Text& out) {
  std::vector<Value> items = items_of(evaluate(*node.kids[1]), *node.kids[1]);
  if (failed()) return Flow::Next;
  return run_loop(node, scope_, std::move(items), 0, out);
}

Interpreter::Flow Interpreter::run_loop(const Node& node, Scope* scope, std::vector<Value> items, int level,
                                        Text& out) {
  if (node.kids[2]) {
    std::vector<Value> chosen;
    for (Value& item : items) {
      Block block(*this, scope);
      assign(*node.kids[0], item);
      if (!failed() && is_true(evaluate(*node.kids[2]))) chosen.push_back(std::move(item));
      if (failed()) return Flow::Next;
    }
    items = std::move(chosen);
  }
  if (items.empty()) {
    Block block(*this, scope);
    return execute(node.otherwise, out);
  }
  auto state = make<Loop>(int64_t(items.size() * sizeof(Value)));
  cyclic_.push_back(state);
  state->items = std::move(items);
  state->level = level;
  state->node = node.recursive ? &node : nullptr;
  state->scope = scope;
  if (node.recursive) keep(scope);
  Value loop;
  loop.kind = Kind::Loop;
  loop.object = state;
  const Origin owner = owner_;
  for (size_t i = 0; i < state->items.size(); ++i) {
    state->index = i;
    if (state->items[i].is(Kind::Dict) && state->items[i].origin != kTemplate)
      owner_ = state->items[i].origin;
    Block block(*this, scope);
    block.scope().variables.emplace_back(node.id, loop);
    assign(*node.kids[0], state->items[i]);
    const Flow flow = failed() ? Flow::Break : execute(node.body, out);
    owner_ = owner;
    if (failed() || flow == Flow::Break) break;
  }
  if (state.use_count() <= 3 && !cyclic_.empty() && cyclic_.back() == state) cyclic_.pop_back();
  return Flow::Next;
}

void Interpreter::keep(Scope* scope) {
  for (; scope != nullptr && !scope->kept; scope = scope->around) scope->kept = true;
}

Value Interpreter::make_macro(const Node& node) {
  auto function = make<Function>(0);
  function->what = Function::What::Macro;
  function->name = node.name;
  function->node = &node;
  function->scope = scope_;
  keep(scope_);
  Value value;
  value.kind = Kind::Function;
  value.object = std::move(function);
  return value;
}

}  // namespace sluice::core::jinja
